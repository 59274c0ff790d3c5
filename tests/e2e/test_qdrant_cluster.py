"""A platform over a Qdrant cluster whose nodes go away: nothing acknowledged is lost.

The cluster is a stand-in with Qdrant's rules; all else is real. It is served by this process, so
that a node is gone and back between two steps of a test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.support.qdrant_cluster import ACTIVE, Cluster

from verso_client import Document
from verso_core.jobs import Status

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

NAME = "replicated"
KEPT = f"verso-{NAME}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(3)
    yield made
    made.close()


@pytest.fixture(scope="module")
def target(new_platform: Callable[..., Platform], cluster: Cluster) -> Platform:
    """A platform whose points have three replicas; two must have a write."""
    platform = new_platform(
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
        VERSO_QDRANT_URL=cluster.url(),
        VERSO_QDRANT_REPLICATION_FACTOR="3",
        VERSO_QDRANT_WRITE_CONSISTENCY_FACTOR="2",
    )
    platform.start()
    return platform


def named(documents: list[Document], prefix: str) -> dict[str, Document]:
    return {f"{prefix}/{n}": Document(d.text, id=f"{prefix}/{n}") for n, d in enumerate(documents)}


def test_what_a_cluster_refuses_is_tried_again_and_what_it_took_is_read_back(
    target: Platform, cluster: Cluster, lines: Callable[[int], list[Document]]
) -> None:
    whole, one, two = (named(lines(40), prefix) for prefix in ("whole", "one-away", "two-away"))
    texts = {id_: str(d.text).encode() for id_, d in (whole | one | two).items()}
    with target.client() as verso:
        verso.create_collection(NAME)
        assert verso.ingest(list(whole.values()), collection=NAME).failed == ()

        cluster.lose(2)
        assert verso.ingest(list(one.values()), collection=NAME).failed == ()
        target.await_verified(NAME, 80)

        cluster.lose(1)
        refused = cluster.refused["PUT"]
        [job] = verso.submit(list(two.values()), collection=NAME)
        deadline = time.monotonic() + 240
        with target.redis() as ledger:
            while ledger.hget(f"verso:slice:{job.id}.0", "code") != b"vectors_unavailable":
                assert time.monotonic() < deadline, "nobody tried"
                time.sleep(0.05)
        assert cluster.refused["PUT"] > refused
        assert verso.job(job.id).ok == 0
        # What was acknowledged is read from the replica that is left, its texts being dropped.
        before = [id_ for id_ in texts if not id_.startswith("two-away/")]
        assert target.read_all(NAME, before) == {id_: texts[id_] for id_ in before}

        cluster.restore(1, 2)
        ended = verso.wait(job.id, timeout_s=300)
        assert (ended.status, ended.ok, ended.failed) == (Status.SUCCEEDED, 40, 0)
        target.await_verified(NAME, 120)
        assert target.read_all(NAME, list(texts)) == texts
        assert verso.stats(NAME).documents == 120
    assert set(cluster.replicas(KEPT).values()) == {ACTIVE}
    assert cluster.ids(KEPT, 0) == cluster.ids(KEPT, 1) == cluster.ids(KEPT, 2)
    assert len(cluster.ids(KEPT, 0)) == 120


def test_the_status_names_a_collection_that_is_kept_otherwise(
    target: Platform, cluster: Cluster, new_platform: Callable[..., Platform]
) -> None:
    """The settings ask for two replicas now; three are there, and stay there."""
    with target.client() as verso:
        verso.create_collection("kept-otherwise")
    target.stop()
    other = new_platform(
        VERSO_QDRANT_URL=cluster.url(),
        VERSO_QDRANT_REPLICATION_FACTOR="2",
        VERSO_QDRANT_WRITE_CONSISTENCY_FACTOR="1",
    )
    other.data = target.data
    other.start()
    expected = "expected replication factor 2, got 3; expected write consistency factor 1, got 2"
    said: set[str] = set()
    deadline = time.monotonic() + 240
    with other.client() as verso:
        while f"kept-otherwise: {expected}" not in said:
            assert time.monotonic() < deadline, "no worker says so"
            said = {line for worker in verso.status().workers for line in worker.replication}
            time.sleep(0.1)
    assert len(cluster.replicas("verso-kept-otherwise")) == 3
    logged = f"collection kept-otherwise is not kept as set: {expected}"
    assert logged in other.log("worker")
