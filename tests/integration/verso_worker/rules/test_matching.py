"""Documents by their metadata: listed once each, counted, changed and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.verso_worker.worker_parts import TEXTS, Stores
from tests.wire import Item, cut

from verso_core.jobs import Kind, Queue, Status, read_slice
from verso_core.record import vector_hash
from verso_ledger import Commit, DocumentWrite, NewJob
from verso_worker.records.space import Space


def put(stores: Stores, rows: dict[str, dict[str, Any]], *, verify: bool = True) -> None:
    """Take documents in: metadata by id, of which ``t`` is the time."""
    items = [
        Item(
            {
                "id": name,
                "metadata": {k: v for k, v in row.items() if k != "t"},
                "time": row.get("t"),
            },
            name.encode(),
        )
        for name, row in rows.items()
    ]
    status, _ = stores.do(Kind.INGEST, {"collection": "default"}, items)
    assert status is Status.SUCCEEDED
    if verify:
        stores.dispatcher.run_queue(Queue.SCRUB)


def ask(stores: Stores, kind: Kind, **params: Any) -> dict[str, Any]:
    _, [result] = stores.do(
        kind, {"collection": "default", **params}, [Item({})], queue=Queue.INTERACTIVE
    )
    return result.items[0]


def pages(stores: Stores, **params: Any) -> list[list[str]]:
    """Return the ids of all pages of a list."""
    found = []
    cursor = None
    while True:
        page = ask(stores, Kind.LIST, cursor=cursor, **params)
        found.append([row["id"] for row in page["documents"]])
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def change(stores: Stores, name: str, metadata: dict[str, Any], **more: Any) -> dict[str, Any]:
    header = {"id": name, "metadata": metadata, "time": None, "written": stores.stored(name).seq}
    _, results = stores.do(Kind.UPDATE, {"collection": "default"}, [Item(header | more)])
    return results[0].items[0] if results else {}


def delete(stores: Stores, where: dict[str, Any], *, parts: int = 3) -> int:
    items = [Item({"part": n, "parts": parts}) for n in range(parts)]
    params = {"collection": "default", "filter": where}
    status, results = stores.do(Kind.DELETE_MATCHING, params, items)
    assert status is Status.SUCCEEDED
    return sum(item["deleted"] for result in results for item in result.items)


@pytest.mark.parametrize("descending", [False, True])
def test_a_list_by_id_shows_each_document_once(stores: Stores, descending: bool) -> None:
    put(stores, {f"doc-{n:02}": {"even": n % 2 == 0} for n in range(20)})
    where = {"field": "even", "eq": True}
    found = pages(stores, filter=where, limit=3, descending=descending)
    wanted = sorted((f"doc-{n:02}" for n in range(0, 20, 2)), reverse=descending)
    assert [name for page in found for name in page] == wanted
    assert [len(page) for page in found] == [3, 3, 3, 1]


@pytest.mark.parametrize("descending", [False, True])
def test_a_list_by_time_skips_and_doubles_nothing_where_many_share_a_time(
    stores: Stores, descending: bool
) -> None:
    times = {f"d{n:03}": (None if n % 10 == 9 else float(n // 40)) for n in range(120)}
    put(stores, {name: {"t": t} for name, t in times.items()})
    cursor, found = None, []
    for _ in range(99):
        page = ask(stores, Kind.LIST, order="time", descending=descending, limit=17, cursor=cursor)
        found += [row["id"] for row in page["documents"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        put(stores, {f"new-{len(found)}": {"t": 1.0}}, verify=False)  # into the middle meanwhile
    old = [name for name in found if not name.startswith("new")]
    timed = [name for name, t in times.items() if t is not None]
    wanted = sorted(timed, key=lambda name: (times[name] or 0.0, name), reverse=descending)
    wanted += sorted(times.keys() - set(timed), reverse=descending)
    assert old == wanted
    assert len(found) == len(set(found))


def test_rows_carry_what_is_known_of_a_document(stores: Stores) -> None:
    metadata = {"host": "a", "tags": ["x", None], "k8s": {"pod": 1.0}, "none": None}
    put(stores, {"one": {**metadata, "t": 12.5}})
    [row] = ask(stores, Kind.LIST)["documents"]
    entry = stores.stored("one")
    assert row == {
        "id": "one",
        "written": entry.seq,
        "bytes": 3,
        "verified": True,
        "chunks": 1,
        "metadata": metadata,
        "time": 12.5,
    }
    assert ask(stores, Kind.LIST, ids=["one", "none"])["documents"] == [row]


def test_only_live_documents_are_listed_and_counted(stores: Stores) -> None:
    put(stores, {"a": {"host": "a"}, "b": {"host": "a"}, "c": {"host": "c"}})
    put(stores, {"b": {"host": "b"}})  # the old point may still lie in the store
    stores.do(Kind.DELETE, {"collection": "default"}, [Item({"id": "a"})])
    assert stores.vectors.count("default") > 2
    where = {"field": "host", "in": ["a", "b"]}
    assert pages(stores, filter=where) == [["b"]]
    assert ask(stores, Kind.COUNT, filter=where) == {"ok": True, "documents": 1}
    assert ask(stores, Kind.COUNT) == {"ok": True, "documents": 2}
    assert ask(stores, Kind.FACETS, fields=["host"])["documents"] == 2


def test_a_document_of_several_chunks_is_one(stores: Stores) -> None:
    stores.fill({"long": TEXTS["long"], "short": TEXTS["short"]})
    assert len(stores.points("long")) > 1
    assert pages(stores) == [["long", "short"]]
    where = {"field": "n", "exists": True}
    assert ask(stores, Kind.COUNT, filter=where)["documents"] == 2


def test_facets_count_values_by_type(stores: Stores) -> None:
    values: list[Any] = ["a", "a", 1, 1.0, True, ["a", "b", "a"], None, 2.5]
    put(stores, {f"d{n}": {"v": value} for n, value in enumerate(values)})
    found = ask(stores, Kind.FACETS, fields=["v", "absent"], limit=3)
    [facet, absent] = found["facets"]
    assert facet == {
        "field": "v",
        "values": [
            {"value": "a", "documents": 3},
            {"value": 1, "documents": 2},
            {"value": True, "documents": 1},
        ],
        "distinct": 5,
        "missing": 1,
    }
    assert (absent["values"], absent["missing"]) == ([], 8)


def test_a_delete_by_filter_leaves_what_it_does_not_pass_and_may_be_repeated(
    stores: Stores,
) -> None:
    put(stores, {f"d{n}": {"host": "ab"[n % 2]} for n in range(10)})
    where = {"field": "host", "eq": "a"}
    assert delete(stores, where) == 5
    assert delete(stores, where) == 0
    assert pages(stores) == [["d1", "d3", "d5", "d7", "d9"]]
    assert stores.read("d0", "d1") == ["document_unknown", b"d1"]


def test_a_delete_by_filter_deletes_nothing_that_was_written_after_it(stores: Stores) -> None:
    put(stores, {"old": {"host": "a"}, "both": {"host": "a"}})
    params = {"collection": "default", "filter": {"field": "host", "eq": "a"}}
    slices = list(cut(Kind.DELETE_MATCHING, params, [Item({"part": 0, "parts": 1})]))
    job = NewJob(kind=Kind.DELETE_MATCHING, queue=Queue.INTERACTIVE, slices=slices)
    stores.ledger.jobs.accept(job)
    put(stores, {"both": {"host": "a"}, "new": {"host": "a"}})
    stores.dispatcher.run_queue(Queue.INTERACTIVE)
    assert pages(stores) == [["both", "new"]]


def test_a_change_of_metadata_leaves_text_and_vectors_as_they_were(stores: Stores) -> None:
    stores.fill(TEXTS)
    space = Space.of(stores.ledger.documents.collection("default"))
    for name, text in TEXTS.items():
        before = stores.stored(name)
        vectors = stores.vectors.get("default", stores.points(name))
        old = [space.raw(vectors[point]) for point in stores.points(name)]
        found = change(stores, name, {"host": {"name": name}, "tags": [1, None]}, time=7.0)
        after = stores.stored(name)
        assert found == {"ok": True, "id": name, "written": after.seq}
        assert after.seq > before.seq
        assert (after.records, after.size_bytes, after.flags & 64) == (
            before.records, before.size_bytes, before.flags & 64,
        )  # fmt: skip
        now = stores.vectors.get("default", stores.points(name))
        assert [space.raw(now[point]) for point in stores.points(name)] == old
        assert [vector_hash(raw) for raw in old] == [r.vector_hash for r in after.records]
        assert stores.read(name) == [text]
        [row] = ask(stores, Kind.LIST, ids=[name])["documents"]
        assert (row["metadata"], row["time"]) == ({"host": {"name": name}, "tags": [1, None]}, 7.0)
    assert stores.scrub()["sound"] == len(TEXTS)
    assert ask(stores, Kind.COUNT, filter={"field": "n", "exists": True})["documents"] == 0


def test_a_change_made_for_an_entry_that_was_replaced_is_refused(stores: Stores) -> None:
    put(stores, {"a": {"v": 1}})
    seen = stores.stored("a").seq
    put(stores, {"a": {"v": 2}})
    assert change(stores, "a", {"v": 3}, written=seen)["error"]["code"] == "document_changed"
    assert ask(stores, Kind.LIST)["documents"][0]["metadata"] == {"v": 2}
    gone = change(stores, "a", {}, id="none")
    assert gone["error"]["code"] == "document_unknown"


def test_a_change_waits_for_the_verify_of_the_text(stores: Stores) -> None:
    """Else nobody would compare what is stored with the raw text, which is dropped then."""
    put(stores, {"a": {"v": 1}}, verify=False)
    assert change(stores, "a", {"v": 2}) == {}
    assert stores.stored("a").flags == 0
    stores.dispatcher.run_queue(Queue.SCRUB)
    assert change(stores, "a", {"v": 2})["ok"]


def test_a_commit_for_an_entry_that_was_replaced_meanwhile_is_done_again(stores: Stores) -> None:
    put(stores, {"a": {"v": 1}})
    item = Item({"id": "a", "metadata": {}, "time": None, "written": stores.stored("a").seq})
    slices = list(cut(Kind.UPDATE, {"collection": "default"}, [item]))
    job = NewJob(kind=Kind.UPDATE, queue=Queue.INTERACTIVE, slices=slices)
    accepted = stores.ledger.jobs.accept(job)
    [lease] = stores.ledger.leases.claim(Queue.INTERACTIVE, owner="w", n=1, lease_s=10)
    outcome = stores.pipeline.run(read_slice(lease.payload), seq=lease.seq)
    put(stores, {"a": {"v": 2}})
    [write] = outcome.writes
    document = DocumentWrite("default", "a", write.entry, replaces=write.replaces)
    frame = outcome.result.pack()
    commit = stores.ledger.leases.commit(lease, frame, ok=1, errors=0, documents=[document])
    assert commit is Commit.SEALED
    assert stores.ledger.jobs.get(accepted.job_id).status is Status.RUNNING
