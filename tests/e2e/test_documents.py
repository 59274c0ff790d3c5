"""Documents by their metadata over HTTP: listed, counted, changed, deleted, and kept for days."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.e2e.conftest import Platform, command_line

from verso_client import Client, Document
from verso_client.nearest import nearest, read, readable
from verso_core.errors import DocumentChanged, DocumentUnknown, RequestInvalid
from verso_core.jobs import CodecPolicy, Filter, IndexKind
from verso_core.jobs.documents import Order

START = 1_795_262_400.0


@pytest.fixture(scope="module")
def logs(platform: Platform) -> Iterator[str]:
    """A collection of thirty lines with nested metadata, of two hosts, ten of each second."""
    name = "documents"
    with platform.client() as verso:
        made = verso.create_collection(name, indexes={"host": IndexKind.KEYWORD})
        assert made.indexes == {"host": "keyword"}
        verso.ingest(
            [
                Document(
                    f"worker {n} started",
                    id=f"line-{n:02}",
                    metadata={"host": "ab"[n % 2], "k8s": {"pod": f"p-{n % 3}"}, "tags": [n, None]},
                    time=START + n // 10,
                )
                for n in range(30)
            ],
            collection=name,
        )
        platform.await_verified(name, 30)
        yield name
        verso.delete_collection(name)


def listed(verso: Client, collection: str, **asked: Any) -> list[str]:
    found: list[str] = []
    page = verso.query(collection, **asked)
    while True:
        found += [row.id for row in page.documents]
        if page.next_cursor is None:
            return found
        page = verso.query(collection, after=page.next_cursor, **asked)


def test_documents_are_listed_counted_and_faceted_by_a_filter(verso: Client, logs: str) -> None:
    where = Filter(field="host", eq="a") & ~Filter(field="k8s.pod", eq="p-0")
    wanted = [f"line-{n:02}" for n in range(30) if n % 2 == 0 and n % 3]
    assert listed(verso, logs, filter=where, limit=4) == wanted
    newest = listed(verso, logs, filter=where, limit=4, order=Order.TIME, descending=True)
    assert newest == sorted(wanted, reverse=True)
    assert verso.count(logs, filter=where).documents == len(wanted)
    assert verso.count(logs).documents == 30
    [row] = verso.query(logs, filter=Filter(field="id", eq="line-07")).documents
    assert row.metadata == {"host": "b", "k8s": {"pod": "p-1"}, "tags": [7, None]}
    assert row.time == START
    [pods] = verso.facets(["k8s.pod"], collection=logs, filter=where).facets
    assert [(one.value, one.documents) for one in pods.values] == [("p-1", 5), ("p-2", 5)]
    hits = verso.search("worker", collection=logs, filter=where, limit=50).hits
    assert {hit.document for hit in hits} == set(wanted)


def test_metadata_changes_and_the_text_stays(platform: Platform, verso: Client, logs: str) -> None:
    before = verso.get("line-00", collection=logs)
    first = verso.update("line-00", collection=logs, metadata={"note": {"by": None}})
    assert verso.query(logs, filter=Filter(field="id", eq="line-00")).documents[0].metadata == {
        "host": "a", "k8s": {"pod": "p-0"}, "tags": [0, None], "note": {"by": None},
    }  # fmt: skip
    verso.update("line-00", collection=logs, remove=["note"], time=None, written=first.written)
    after = verso.get("line-00", collection=logs)
    assert (after.data, after.time, after.exact) == (before.data, None, True)
    assert after.metadata == before.metadata
    with pytest.raises(DocumentChanged):
        verso.update("line-00", collection=logs, metadata={}, written=first.written)
    with pytest.raises(DocumentUnknown):
        verso.update("none", collection=logs, metadata={})
    verso.update("line-00", collection=logs, time=START)
    assert verso.stats(logs).verified == 30


def test_a_cursor_of_another_list_is_refused(verso: Client, logs: str) -> None:
    cursor = verso.query(logs, limit=1).next_cursor
    for asked in ({"order": Order.TIME}, {"descending": True}):
        with pytest.raises(RequestInvalid, match="cursor"):
            verso.query(logs, after=cursor, **asked)
    with pytest.raises(RequestInvalid, match="cursor"):
        verso.query(logs, after="x")


@pytest.mark.parametrize(
    ("where", "pointer"),
    [
        ({"and": [{"field": "a", "in": [0] * 257}]}, "/filter/and/0/in"),
        ({"or": [{"field": "a", "eq": 1}] * 33}, "/filter/or"),
        ({"metadata": {"a": list(range(8000))}}, "/filter/metadata/a"),
        ({"metadata": {"a": list(range(150_000))}}, None),  # refused before it is an object
        ({"field": "a"}, "/filter"),
        ({"and": [{"field": "a", "like": "b"}]}, "/filter/and/0/like"),
    ],
)
def test_a_filter_beyond_its_bounds_is_refused_at_once(
    platform: Platform, logs: str, where: Any, pointer: str | None
) -> None:
    body = {"query": "x", "collection": logs, "filter": where}
    started = time.monotonic()
    answer = httpx2.post(f"{platform.url}/v1/search", json=body, timeout=60)
    assert (answer.status_code, answer.json().get("pointer")) == (422, pointer)
    assert time.monotonic() - started < 50


def test_the_command_line_filters(platform: Platform, logs: str) -> None:
    def run(*arguments: str) -> str:
        done = command_line(platform.url, *arguments)
        done.check_returncode()
        return done.stdout.decode()

    chosen = ["-c", logs, "--where", "host=a", "--where", "k8s.pod!=p-0"]
    assert run("documents", "count", *chosen).strip() == "10"
    rows = json.loads(run("documents", "list", *chosen, "--limit", "3", "--json"))
    assert [row["id"] for row in rows] == ["line-02", "line-04", "line-08"]
    found = json.loads(run("search", "worker", *chosen, "--limit", "50", "--json"))
    assert len(found["hits"]) == 10
    where = '{"field": "k8s.pod", "in": ["p-1"]}'
    found = json.loads(run("facets", "host", "-c", logs, "--filter", where, "--json"))
    assert found["facets"][0]["values"][0]["documents"] == 5


def test_documents_are_deleted_by_a_filter_and_by_their_age(
    platform: Platform, verso: Client
) -> None:
    name, now = "expiring", time.time()
    verso.create_collection(name)
    ages = {"old": 3.0, "new": 0.1, "other": 0.1}
    documents = [Document(key, id=key, time=now - days * 86_400) for key, days in ages.items()]
    verso.ingest([*documents, Document("timeless", id="timeless")], collection=name)
    assert verso.delete_matching(Filter(field="id", eq="other"), collection=name) == 1
    assert listed(verso, name) == ["new", "old", "timeless"]
    with pytest.raises(RequestInvalid):
        verso.delete_matching(Filter(), collection=name)
    changed = verso.change_collection(
        name, retention_days=2, indexes={"host": IndexKind.KEYWORD}, codec_policy=CodecPolicy.FAST
    )
    assert (changed.retention_days, changed.indexes) == (2, {"host": "keyword"})
    assert changed.codec_policy == verso.stats(name).codec_policy == "fast"
    deadline = time.monotonic() + 240
    while listed(verso, name) != ["new", "timeless"]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    verso.delete_collection(name)


def test_the_nearest_documents_are_found_once_and_whole(verso: Client, collection: str) -> None:
    texts = {
        "long": " ".join(f"Sentence {n} is about the print server." for n in range(200)).encode(),
        "short": b"The print server restarts.",
        "bytes": b"\xff print server",
    }
    verso.ingest([Document(text, id=name) for name, text in texts.items()], collection=collection)
    found = nearest(verso, "print server", limit=3, collection=collection)
    assert {one.document.id: one.document.data for one in found} == texts
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    vector = verso.embed(["The print server restarts."])[0].embedding
    where = Filter(field="id", ne="bytes")
    by_vector = nearest(verso, vector=vector, limit=9, collection=collection, filter=where)
    assert {one.document.id for one in by_vector} == {"long", "short"}
    names = ["short", "nope", "bytes", "short"]
    there = read(verso, names, collection=collection)
    assert [one.id for one in there] == ["short", "bytes"]
    assert readable(there[1]) == "\ufffd print server"
