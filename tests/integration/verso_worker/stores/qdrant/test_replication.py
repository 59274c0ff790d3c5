"""What a Qdrant cluster that lacks nodes means for what Verso writes and reads.

The cluster is a stand-in that keeps the rules of Qdrant 1.19; the last tests ask the client
library's local mode, and the server that QDRANT_URL names.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sized
from uuid import UUID

import pytest
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException
from qdrant_client.models import PayloadSchemaType
from tests.integration.verso_worker.vector_stores import (
    DIM,
    LINES,
    SCALE,
    Server,
    bits,
    make,
    points_of,
    units,
)
from tests.support.qdrant_cluster import ACTIVE, DEAD, Cluster

from verso_core.errors import VectorsUnavailable
from verso_core.jobs import Precision
from verso_worker.records.points import Point
from verso_worker.records.space import Space
from verso_worker.settings import Replication
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.qdrant.replication import ReplicationReport, ReplicationWatch
from verso_worker.stores.qdrant.store import QdrantVectors

NAME = "c"
KEPT = f"verso-{NAME}"
TWO_OF_THREE = Replication(factor=3, write_consistency=2)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(3)
    yield made
    made.close()


def opened(cluster: Cluster, replication: Replication, *, node: int = 0) -> QdrantVectors:
    return QdrantVectors.server(cluster.url(node), replication=replication)


def filled(vectors: QdrantVectors, count: int = 20) -> list[Point]:
    space = make(vectors, NAME, Precision.INT8)
    points = points_of(space.round(units(count)))
    vectors.put(NAME, points)
    return points


def more(count: int = 5) -> list[Point]:
    return points_of(Space(Precision.INT8, DIM, SCALE).round(units(count, seed=7)))


def found_all(vectors: QdrantVectors, points: list[Point]) -> bool:
    stored = vectors.get(NAME, [point.id for point in points])
    return {one: bits(row) for one, row in stored.items()} == {
        point.id: bits(point.stored) for point in points
    }


def ids(points: list[Point]) -> set[str]:
    return {str(point.id) for point in points}


def test_a_collection_is_made_as_the_settings_ask(cluster: Cluster) -> None:
    vectors = opened(cluster, Replication(factor=3, shards=6, write_consistency=2))
    points = filled(vectors)
    params = QdrantClient(url=cluster.url(), check_compatibility=False).get_collection(KEPT)
    kept = params.config.params
    assert (kept.replication_factor, kept.shard_number, kept.write_consistency_factor) == (3, 6, 2)
    assert all(cluster.ids(KEPT, node) == ids(points) for node in range(3))


def test_a_collection_whose_making_was_cut_off_has_its_index_of_times(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = opened(cluster, TWO_OF_THREE)
    indexed: list[tuple[object, ...]] = []

    def index(_: QdrantClient, *place: object, wait: bool) -> None:
        assert wait
        indexed.append(place)
        if len(indexed) == 1:
            raise ResponseHandlingException(ConnectionResetError())

    monkeypatch.setattr(QdrantClient, "create_payload_index", index)
    with pytest.raises(VectorsUnavailable):
        make(vectors, NAME, Precision.INT8)
    make(vectors, NAME, Precision.INT8)
    assert indexed == [(KEPT, "t", PayloadSchemaType.FLOAT)] * 2


def test_what_is_unset_is_left_to_the_server(cluster: Cluster) -> None:
    vectors = opened(cluster, Replication())
    filled(vectors)
    assert cluster.replicas(KEPT) == {0: ACTIVE}
    assert vectors.differences(NAME) == []


def test_with_one_node_of_three_away_points_are_written_and_read(cluster: Cluster) -> None:
    """The replica on it is dead from the first write on, and complete once it is back."""
    vectors = opened(cluster, TWO_OF_THREE)
    before = filled(vectors)
    cluster.lose(2)
    after = more()
    vectors.put(NAME, after)
    assert cluster.replicas(KEPT) == {0: ACTIVE, 1: ACTIVE, 2: DEAD}
    assert found_all(vectors, before + after)
    [line] = vectors.differences(NAME)
    assert (
        line == "expected 3 active replicas of each shard, 1 of 1 shards have fewer, 2 at the least"
    )
    cluster.restore(2)
    assert vectors.differences(NAME) == []
    assert cluster.ids(KEPT, 2) == ids(before + after)


def test_a_write_that_too_few_replicas_take_is_refused_and_may_be_repeated(
    cluster: Cluster,
) -> None:
    vectors = opened(cluster, TWO_OF_THREE)
    before = filled(vectors)
    cluster.lose(1, 2)
    after = more()
    with pytest.raises(VectorsUnavailable, match="answered 500") as refused:
        vectors.put(NAME, after)
    assert refused.value.retryable
    assert cluster.replicas(KEPT) == {0: ACTIVE, 1: ACTIVE, 2: ACTIVE}
    assert cluster.ids(KEPT, 0) == ids(before + after)  # one replica has taken it nevertheless
    cluster.restore(1, 2)
    assert cluster.ids(KEPT, 1) == ids(before)
    vectors.put(NAME, after)
    assert all(cluster.ids(KEPT, node) == ids(before + after) for node in range(3))
    assert vectors.count(NAME) == len(before + after)


def test_a_removal_that_too_few_replicas_take_is_refused_and_may_be_repeated(
    cluster: Cluster,
) -> None:
    vectors = opened(cluster, TWO_OF_THREE)
    points = filled(vectors)
    gone: list[UUID] = [point.id for point in points[:5]]
    cluster.lose(1, 2)
    with pytest.raises(VectorsUnavailable):
        vectors.remove(NAME, gone)
    cluster.restore(1, 2)
    vectors.remove(NAME, gone)
    assert all(cluster.ids(KEPT, node) == ids(points[5:]) for node in range(3))


@pytest.mark.parametrize(("factor", "least"), [(2, 2), (3, 3)])
def test_a_write_that_all_replicas_must_take_waits_for_a_node_that_is_away(
    cluster: Cluster, factor: int, least: int
) -> None:
    vectors = opened(cluster, Replication(factor=factor, write_consistency=least))
    before = filled(vectors)
    cluster.lose(1)
    with pytest.raises(VectorsUnavailable):
        vectors.put(NAME, more())
    assert found_all(vectors, before)


READS: list[tuple[int | str | None, int]] = [
    (None, 2), (1, 2), (2, 1), (3, 0), ("quorum", 1), ("majority", 0), ("all", 0)
]  # fmt: skip


@pytest.mark.parametrize(("consistency", "spare"), READS, ids=str)
def test_a_read_needs_as_many_replicas_as_it_asks(
    cluster: Cluster, consistency: int | str | None, spare: int
) -> None:
    """``spare``: how many of three nodes may be away."""
    replication = Replication(
        factor=3,
        write_consistency=2,
        read_consistency=consistency,  # type: ignore[arg-type]
    )
    vectors = opened(cluster, replication)
    vectors.create(NAME, dim=DIM, precision=Precision.INT8, int8_scale=SCALE, terms=True)
    terms = Bm25().documents(LINES[:3])
    points = [
        Point(one.id, one.stored, {"d": str(n), "n": 0, "t": 1.0 + n}, words)
        for n, (one, words) in enumerate(zip(more(3), terms, strict=True))
    ]
    vectors.put(NAME, points)
    asked = [point.id for point in points]
    words = Bm25().query(b"disk read healthy")
    reads: list[Callable[[], Sized]] = [
        lambda: vectors.get(NAME, asked),
        lambda: vectors.payloads(NAME, asked),
        lambda: vectors.terms(NAME, asked),
        lambda: vectors.search(NAME, units(1)[0], limit=3, where=None),
        lambda: vectors.search(NAME, None, terms=words, limit=3, where=None),
        lambda: vectors.search(NAME, units(1)[0], terms=words, limit=3, where=None),
        lambda: vectors.page(NAME, UUID(int=0), limit=10),
        lambda: vectors.by_time(NAME, None, descending=False, limit=10),
        lambda: vectors.neighbours(NAME, points[0].stored[None], limit=3)[0],
    ]
    cluster.lose(*range(3 - spare, 3))
    for read in reads:
        assert len(read()) == 3
    if spare < 2:
        cluster.lose(2 - spare)
        for read in reads:
            with pytest.raises(VectorsUnavailable, match="answered 500"):
                read()


def test_a_read_of_several_replicas_has_no_point_that_was_refused(cluster: Cluster) -> None:
    """One replica took it; a read of that one alone shows it, a read of two does not."""
    one = opened(cluster, TWO_OF_THREE)
    filled(one)
    cluster.lose(1, 2)
    with pytest.raises(VectorsUnavailable):
        one.put(NAME, more())
    cluster.restore(1, 2)
    both = opened(cluster, Replication(factor=3, write_consistency=2, read_consistency=2))
    asked = [point.id for point in more()]
    assert len(both.page(NAME, UUID(int=0), limit=100)) == 20
    assert len(one.page(NAME, UUID(int=0), limit=100)) == 25
    assert both.get(NAME, asked) == {}


def test_the_node_that_is_asked_being_away_is_worth_another_attempt(cluster: Cluster) -> None:
    vectors = opened(cluster, TWO_OF_THREE, node=1)
    points = filled(vectors)
    cluster.lose(1)
    with pytest.raises(VectorsUnavailable, match="no Qdrant server") as away:
        vectors.get(NAME, [points[0].id])
    assert away.value.retryable
    cluster.restore(1)
    assert found_all(vectors, points)


def test_a_collection_that_is_kept_otherwise_is_reported_and_left_as_it_is(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    filled(opened(cluster, Replication()))
    vectors = opened(cluster, TWO_OF_THREE)
    make(vectors, NAME, Precision.INT8)  # a second worker, with other settings
    make(vectors, "other", Precision.INT8)
    report = ReplicationReport()
    watch = ReplicationWatch(vectors, report)
    watch.step()
    watch.step()
    [line] = report.lines
    assert line == (
        "c: expected replication factor 3, got 1; expected write consistency factor 2, got 1; "
        "expected 3 active replicas of each shard, 1 of 1 shards have fewer, 1 at the least"
    )
    said = [record for record in caplog.records if record.name.endswith("replication")]
    assert [record.levelname for record in said] == ["WARNING"]
    assert "collection c is not kept as set" in said[0].getMessage()
    assert cluster.replicas(KEPT) == {0: ACTIVE}
    vectors.drop(NAME)
    make(vectors, NAME, Precision.INT8)
    watch.step()
    assert report.lines == ()
    assert caplog.records[-1].getMessage() == "collection c is kept as set"


def test_a_report_stays_while_the_server_is_away(cluster: Cluster) -> None:
    filled(opened(cluster, Replication()))
    report = ReplicationReport()
    watch = ReplicationWatch(opened(cluster, TWO_OF_THREE), report)
    watch.step()
    said = report.lines
    cluster.lose(0)
    with pytest.raises(VectorsUnavailable):
        watch.step()
    assert report.lines == said != ()


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")
@pytest.mark.parametrize("consistency", [2, "majority", "quorum", "all"], ids=str)
def test_the_librarys_local_mode_takes_what_is_asked(consistency: int | str) -> None:
    """It has one copy of each point and ignores how many are asked for."""
    replication = Replication(
        factor=3,
        write_consistency=2,
        read_consistency=consistency,  # type: ignore[arg-type]
    )
    vectors = QdrantVectors(QdrantClient(":memory:"), replication=replication)
    points = filled(vectors)
    assert found_all(vectors, points)
    assert len(vectors.page(NAME, UUID(int=0), limit=100)) == len(points)


def test_a_server_of_one_node_has_one_replica_and_that_is_reported() -> None:
    """It is the one that QDRANT_URL names, if set; a cluster may have more."""
    alone = Cluster(1)
    store = Server(os.environ.get("QDRANT_URL") or alone.url(), TWO_OF_THREE)
    try:
        assert isinstance(store.vectors, QdrantVectors)
        points = filled(store.vectors)
        assert found_all(store.vectors, points)
        differ = store.vectors.differences(NAME)
        assert all(line.startswith("expected 3 active replicas") for line in differ)
        assert differ or "QDRANT_URL" in os.environ
    finally:
        store.clear()
        store.close()
        alone.close()
