"""Groups of a running platform's records, from the texts that were dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx2
import pytest

from verso_client import Client, Document
from verso_core.jobs.cluster import ClusterRequest, Method

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

START = 1_795_262_400.0


@pytest.fixture
def grouped(verso: Client, collection: str, lines: Callable[[int], list[Document]]) -> str:
    """Thirty log lines of one statement, ten of another that came later, and a stray text."""
    late = [
        Document(
            f"\tat org.example.worker.queue.fetch(queue.java:{77 + n})",
            id=f"frame/{n}",
            time=START + 1000 + n,
        )
        for n in range(10)
    ]
    stray = Document("Le chat dort sur le canapé depuis ce matin.", id="stray", time=START)
    report = verso.ingest([*lines(30), *late, stray], collection=collection)
    assert report.failed == ()
    return collection


@pytest.mark.parametrize(("method", "alone"), [(Method.TEMPLATES, 0), (Method.DBSCAN, 1)])
def test_records_are_grouped_after_their_texts_are_dropped(
    platform: Platform, verso: Client, grouped: str, method: Method, alone: int
) -> None:
    """A template of one line is a group, a vector without neighbours is in none."""
    platform.await_verified(grouped, 41)
    found = verso.cluster(
        ClusterRequest(
            collection=grouped, method=method, eps=0.3, representatives=2, since=START + 500
        )
    )
    assert (found.records, found.unread, found.alone) == (41, 0, alone)
    assert found.clusters == len(found.groups) == 3 - alone
    one, other = found.groups[:2]
    assert (one.size, one.first_seen, one.last_seen, one.new) == (30, START, START + 29, False)
    assert (other.size, other.first_seen, other.new) == (10, START + 1000, True)
    assert {member.id.split("/")[0] for member in other.representatives} == {"frame"}
    for member in one.representatives:
        assert member.data == verso.get(member.id, collection=grouped).data


def test_a_line_of_several_records_is_one_line_of_its_statement(
    platform: Platform, verso: Client, collection: str
) -> None:
    blocks = " ".join(f"blk_{n}" for n in range(400))
    lines = [f"deleted {count} blocks: {blocks}" for count in (7, 8, 9)]
    verso.ingest(
        [Document(line, id=f"long/{n}") for n, line in enumerate([*lines, "stopped"])],
        collection=collection,
    )
    platform.await_verified(collection, 4)
    assert verso.records("long/0", collection=collection).records[1:], "one record is no test"
    found = verso.cluster(
        ClusterRequest(collection=collection, method=Method.TEMPLATES, representatives=3)
    )
    assert (found.records, found.clusters, found.unread) == (4, 2, 0)
    assert [group.size for group in found.groups] == [3, 1]
    shown = {member.id for member in found.groups[0].representatives}
    assert shown == {"long/0#0", "long/1#0", "long/2#0"}


def test_groups_are_a_job_that_is_come_back_for(
    platform: Platform, verso: Client, grouped: str
) -> None:
    body = {"collection": grouped, "method": "templates"}
    with httpx2.Client(base_url=platform.url, timeout=120) as http:
        accepted = http.post("/v1/cluster", json=body)
        assert accepted.status_code == 202, accepted.text
        assert http.post("/v1/cluster", json=body | {"collection": "none"}).status_code == 404
        refused = http.post("/v1/cluster", json=body | {"method": "guess"})
        assert (refused.status_code, refused.json()["code"]) == (422, "request_invalid")
    assert verso.job(accepted.json()["id"]).kind == "cluster"
