"""Documents without metadata or time have points without payload, and everything finds them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, counts, garble
from tests.wire import Item

from verso_core.jobs import Filter, Kind, Queue, SearchMode, Status
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.filters.compiled import matches
from verso_core.record import Entry, bucket_of, document_hash, located, locating_id
from verso_worker.records.points import Point
from verso_worker.rules import located as located_rules

DOCUMENTS: dict[str, dict[str, Any]] = {
    "log/1": {},
    "log/2": {},
    "mail": {},
    "log/3": {"host": "a"},
    "note": {"t": 5.0},
}
NAME = "plain"
LONG = b"Jan 12 10:00:01 host sshd[4242]: Failed password for root\n" * 40
FILTERS: list[dict[str, Any]] = [
    {},
    {"field": "id", "eq": "mail"},
    {"field": "id", "eq": "note"},
    {"field": "id", "in": ["mail", "log/3", "none"]},
    {"field": "id", "prefix": "log/"},
    {"not": {"field": "id", "prefix": "log/"}},
    {"field": "id", "exists": True},
    {"field": "host", "eq": "a"},
    {"field": "host", "ne": "a"},
    {"field": "host", "exists": False},
    {"field": "time", "exists": False},
    {"field": "time", "gte": 1.0},
    {"and": [{"field": "id", "prefix": "log/"}, {"field": "host", "exists": False}]},
    {"or": [{"field": "id", "eq": "log/1"}, {"field": "time", "gte": 1.0}]},
    {"and": [{"field": "id", "eq": "mail"}, {"field": "host", "eq": "a"}]},
]


def put(stores: Stores, rows: dict[str, dict[str, Any]], *, collection: str = NAME) -> None:
    items = [
        Item(
            {"id": n, "metadata": {k: v for k, v in row.items() if k != "t"}, "time": row.get("t")},
            LONG if n == "log/2" else n.encode(),
        )
        for n, row in rows.items()
    ]
    status, _ = stores.do(Kind.INGEST, {"collection": collection}, items)
    assert status is Status.SUCCEEDED
    stores.dispatcher.run_queue(Queue.SCRUB)


def ask(stores: Stores, kind: Kind, **params: Any) -> dict[str, Any]:
    _, [result] = stores.do(
        kind, {"collection": NAME, **params}, [Item({})], queue=Queue.INTERACTIVE
    )
    return result.items[0]


def found(
    stores: Stores, where: dict[str, Any], *, limit: int = 50, mode: SearchMode = SearchMode.DENSE
) -> list[tuple[str, int]]:
    params = {
        "collection": NAME, "limit": limit, "filter": where, "with_text": False, "mode": mode.value
    }  # fmt: skip
    _, [result] = stores.do(Kind.SEARCH, params, [Item({}, b"mail")])
    return [(hit["id"], hit["chunk"]) for hit in result.items[0]["hits"]]


@pytest.fixture(params=[SearchMode.DENSE, SearchMode.HYBRID])
def filled(stores: Stores, request: pytest.FixtureRequest) -> Stores:
    """A collection with the documents, verified."""
    stores.pipeline.create_collection(CollectionParams(name=NAME, search=request.param))
    put(stores, DOCUMENTS)
    return stores


def test_only_points_that_hold_something_have_a_payload(filled: Stores) -> None:
    payloads = {
        name: list(filled.vectors.payloads(NAME, filled.points(name, NAME)).values())
        for name in DOCUMENTS
    }
    assert payloads["mail"] == [{"m": {}}]
    assert all(one == {"m": {}} for one in payloads["log/2"])
    assert payloads["log/3"] == [{"d": "log/3", "n": 0, "m": {"host": "a"}}]
    assert payloads["note"] == [{"d": "note", "n": 0, "m": {}, "t": 5.0}]


def test_points_of_an_earlier_release_are_found_beside_others(stores: Stores) -> None:
    """It wrote a payload for each point of a hybrid collection."""
    stores.pipeline.create_collection(CollectionParams(name=NAME))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(located_rules, "may_have", lambda _: False)
        put(stores, {"mail": {}, "log/1": {}})
    put(stores, {"mail/2": {}})
    payloads = [
        payload.get("d")
        for name in ("mail", "log/1", "mail/2")
        for payload in stores.vectors.payloads(NAME, stores.points(name, NAME)).values()
    ]
    assert payloads == ["mail", "log/1", None]
    where = {"field": "id", "prefix": "mail"}
    for mode in SearchMode:
        assert {name for name, _ in found(stores, where, mode=mode)} == {"mail", "mail/2"}
    listed = ask(stores, Kind.LIST, filter=where)["documents"]
    assert [row["id"] for row in listed] == ["mail", "mail/2"]


def test_a_search_by_words_with_a_filter_by_id_has_the_weights_of_one_without(
    stores: Stores,
) -> None:
    stores.pipeline.create_collection(CollectionParams(name=NAME))
    names = [f"mail/{n}" for n in range(6)] + [f"post/{n}" for n in range(6)]
    put(stores, {name: {"host": "a"} if name.endswith("1") else {} for name in names})
    for mode in SearchMode:
        every = [name for name, _ in found(stores, {}, mode=mode)]
        for where, passing in (
            ({"field": "id", "prefix": "mail/"}, [n for n in every if n.startswith("mail/")]),
            (
                {"field": "id", "in": ["mail/1", "mail/3"]},
                [n for n in every if n in ("mail/1", "mail/3")],
            ),
            (
                {"not": {"field": "id", "prefix": "mail/"}},
                [n for n in every if n.startswith("post/")],
            ),
            ({"field": "id", "eq": "none"}, []),
        ):
            assert [name for name, _ in found(stores, where, mode=mode)] == passing


def test_ids_lead_to_the_document_and_its_chunk(filled: Stores) -> None:
    points = filled.points("log/2", NAME)
    assert len(points) > 1
    assert [located(point) for point in points] == [
        (document_hash("log/2"), n) for n in range(len(points))
    ]
    names = filled.ledger.documents.names(NAME, map(document_hash, [*DOCUMENTS, "none"]))
    assert names == {document_hash(name): name for name in DOCUMENTS}


@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_every_filter_means_the_same_for_documents_without_payload(
    filled: Stores, where: dict[str, Any]
) -> None:
    wanted = {
        name
        for name, row in DOCUMENTS.items()
        if matches(
            Filter.model_validate(where),
            metadata={k: v for k, v in row.items() if k != "t"},
            time=row.get("t"),
            id=name,
        )
    }
    listed = ask(filled, Kind.LIST, filter=where)["documents"]
    assert [row["id"] for row in listed] == sorted(wanted)
    timed = ask(filled, Kind.LIST, filter=where, order="time")["documents"]
    assert {row["id"] for row in timed} == wanted
    assert ask(filled, Kind.COUNT, filter=where) == {"ok": True, "documents": len(wanted)}
    facets = ask(filled, Kind.FACETS, filter=where, fields=["host"])
    assert facets["documents"] == len(wanted)
    hits = found(filled, where)
    chunks = len(filled.points("log/2", NAME))
    assert sorted(hits) == sorted(
        (name, n) for name in wanted for n in range(chunks if name == "log/2" else 1)
    )


def test_a_search_with_a_filter_by_id_returns_the_best_of_both_kinds(filled: Stores) -> None:
    """The chunks of log/2 are nearly alike, so their order is not compared."""
    where = {"field": "id", "prefix": "log/"}
    best = [name for name, _ in found(filled, {}) if name.startswith("log/")]
    assert [name for name, _ in found(filled, where)] == best
    assert [name for name, _ in found(filled, where, limit=2)] == best[:2]


def test_a_deletion_by_filter_finds_them(filled: Stores) -> None:
    params = {"collection": NAME, "filter": {"field": "id", "prefix": "log/"}}
    items = [Item({"part": n, "parts": 3}) for n in range(3)]
    status, results = filled.do(Kind.DELETE_MATCHING, params, items)
    assert status is Status.SUCCEEDED
    assert sum(item["deleted"] for result in results for item in result.items) == 3
    left = ask(filled, Kind.LIST)["documents"]
    assert [row["id"] for row in left] == ["mail", "note"]


def test_metadata_that_is_added_brings_a_payload(filled: Stores) -> None:
    for metadata, held in ({}, {"m": {}}), ({"a": 1}, {"d": "mail", "n": 0, "m": {"a": 1}}):
        written = filled.stored("mail", NAME).seq
        header = {"id": "mail", "metadata": metadata, "time": None, "written": written}
        filled.do(Kind.UPDATE, {"collection": NAME}, [Item(header)])
        [payload] = filled.vectors.payloads(NAME, filled.points("mail", NAME)).values()
        assert payload == held
        assert filled.stored("mail", NAME).located == (not metadata)
        assert filled.read("mail", collection=NAME) == [b"mail"]
    assert counts(filled.scrub(NAME)) == (5, 0, 0)


def test_the_scrub_restores_their_points(filled: Stores) -> None:
    assert counts(filled.scrub(NAME)) == (5, 0, 0)
    [point] = filled.points("mail", NAME)
    filled.vectors.remove(NAME, [point])
    assert counts(filled.scrub(NAME)) == (4, 1, 0)
    assert filled.vectors.payloads(NAME, [point]) == {point: {"m": {}}}
    assert counts(filled.scrub(NAME)) == (5, 0, 0)


def test_a_record_that_cannot_be_read_is_a_hit_with_an_error(filled: Stores) -> None:
    filled.alter("mail", garble, NAME)
    params = {"collection": NAME, "limit": 1, "filter": None, "with_text": True}
    _, [result] = filled.do(Kind.SEARCH, params, [Item({}, b"mail")])
    [hit] = result.items[0]["hits"]
    assert (hit["id"], "error" in hit) == ("mail", True)


def test_points_of_an_attempt_that_never_committed_are_orphans(filled: Stores) -> None:
    [row] = filled.vectors.get(NAME, filled.points("mail", NAME)).values()
    other = locating_id(NAME, "mail", seq=999, chunk=0, vector=bytes(8))
    nobody = locating_id(NAME, "nobody", seq=999, chunk=0, vector=bytes(8))
    filled.vectors.put(NAME, [Point(one, row, {}) for one in (other, nobody)])
    filled.scrub(NAME)
    assert filled.ledger.maintenance.backlog().orphans == 2
    assert {name for name, _ in found(filled, {})} == DOCUMENTS.keys()


def test_neighbours_by_id_share_a_bucket() -> None:
    names = [f"d{n}" for n in range(200)]
    points = {
        locating_id("c", name, seq=1, chunk=0, vector=bytes(8)): bucket_of(name, buckets=BUCKETS)
        for name in names
    }
    buckets = [points[point] for point in sorted(points)]
    assert sum(one != two for one, two in itertools.pairwise(buckets)) == BUCKETS - 1


def test_an_entry_that_is_moved_keeps_its_points_named(filled: Stores) -> None:
    entry = filled.stored("mail", NAME)
    assert Entry.unpack(entry.pack()) == entry
    assert entry.located
    assert not filled.stored("log/3", NAME).located
