"""Everything that collections do, of a log collection: lines in blocks and records beside them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from tests.integration.verso_worker.rules.log_lines import NAME, START, ingest, lines, raw, search
from tests.integration.verso_worker.rules.test_logs import logs
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item
from tests.wire import cut as wire_cut

from verso_core.errors import KindUnsupported, VersoError
from verso_core.jobs import Kind, Queue, Status
from verso_core.jobs.slices import Result
from verso_ledger import NewJob

__all__ = ["logs"]

HOSTS = "ab"
LINES = 400
TEXT = "a note that somebody wrote about the night shift"


@pytest.fixture
def filled(logs: Stores) -> Stores:
    """Lines of two hosts, one host with a line that is text, and a document of its own."""
    ingest(logs, lines(LINES, host="a"), host="a", app="web")
    long = b"x" * 9000 + b"\n"
    ingest(logs, lines(LINES, start=LINES, host="b") + long, host="b", app="web")
    note = Item({"id": "note-1", "metadata": {"host": "desk"}, "time": START + 5.5}, TEXT.encode())
    assert logs.do(Kind.INGEST, {"collection": NAME}, [note])[0] is Status.SUCCEEDED
    logs.dispatcher.run_queue(Queue.SCRUB)
    return logs


def ask(stores: Stores, kind: Kind, item: dict[str, Any] | None = None, **asked: Any) -> Any:
    """Return the one result of a job.

    Raises:
        VersoError: the job failed.
    """
    params = {"collection": NAME, **asked}
    slices = list(wire_cut(kind, params, [Item(item or {})]))
    accepted = stores.ledger.jobs.accept(NewJob(kind=kind, queue=Queue.BULK, slices=slices))
    stores.dispatcher.run_queue(Queue.BULK)
    record = stores.ledger.jobs.get(accepted.job_id)
    if record.error is not None:
        raise VersoError(record.error["code"])
    data = stores.ledger.jobs.result(accepted.job_id, 0)
    assert data is not None
    return Result.unpack(kind, data).only


def listed(stores: Stores, **asked: Any) -> list[dict[str, Any]]:
    """Return all rows of a list, a page after another."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = ask(stores, Kind.LIST, cursor=cursor, **asked)
        found += [one.model_dump() for one in page.documents]
        cursor = page.next_cursor
        if cursor is None:
            return found


def stats(stores: Stores) -> Any:
    _, [result] = stores.do(Kind.STATS, {"name": NAME}, [Item({})])
    return result.items[0]


def test_counts_and_facets_are_of_lines_and_records(filled: Stores) -> None:
    assert ask(filled, Kind.COUNT).documents == 2 * LINES + 2
    of_a = {"field": "host", "eq": "a"}
    assert ask(filled, Kind.COUNT, filter=of_a).documents == LINES
    late = {"field": "time", "gte": START + LINES - 10, "lt": START + LINES + 5}
    assert ask(filled, Kind.COUNT, filter=late).documents == 15
    found = ask(filled, Kind.FACETS, fields=["host", "app", "none"])
    hosts, apps, nothing = found.facets
    assert {one.value: one.documents for one in hosts.values} == {
        "a": LINES, "b": LINES + 1, "desk": 1,
    }  # fmt: skip
    assert [(one.value, one.documents) for one in apps.values] == [("web", 2 * LINES + 1)]
    assert (apps.missing, nothing.missing, found.documents) == (1, 2 * LINES + 2, 2 * LINES + 2)


def test_a_list_has_every_line_and_record_once_in_order(filled: Stores) -> None:
    for order, descending in (("id", False), ("id", True), ("time", False), ("time", True)):
        check_list(filled, order, descending=descending)
    assert {row["id"] for row in listed(filled, ids=["0:3", "note-1", "7:1"])} == {"0:3", "note-1"}


def check_list(filled: Stores, order: str, *, descending: bool) -> None:
    rows = listed(filled, order=order, descending=descending, limit=150)
    names = {f"0:{n}" for n in range(LINES)} | {f"1:{n}" for n in range(LINES + 1)} | {"note-1"}
    assert len(rows) == len(names)
    assert {row["id"] for row in rows} == names
    if order == "time":
        times = [row["time"] for row in rows]
        assert times == sorted(times, reverse=descending)
    else:
        in_blocks = [row["id"] for row in rows if row["written"] == 0]
        numbered = [tuple(map(int, name.split(":"))) for name in in_blocks]
        assert numbered == sorted(numbered, reverse=descending)
    first = next(row for row in rows if row["id"] == "0:0")
    assert (first["metadata"], first["verified"]) == ({"host": "a", "app": "web"}, True)
    only = listed(filled, order=order, filter={"field": "host", "eq": "desk"})
    assert [row["id"] for row in only] == ["note-1"]


def test_groups_are_the_statements_with_their_counts(filled: Stores) -> None:
    found = ask(filled, Kind.CLUSTER, since=START + LINES, representatives=2)
    assert found.records == stats(filled)["documents"]  # a line of several records is one
    assert (found.alone, sum(group.size for group in found.groups)) == (0, found.records)
    sizes = {group.template: group.size for group in found.groups}
    writes = [size for name, size in sizes.items() if "write to block" in (name or "")]
    assert writes == [LINES // 2]
    group = next(one for one in found.groups if "write to block" in (one.template or ""))
    assert (group.first_seen, group.last_seen) == (START + 2, START + 2 * LINES - 2)
    assert (group.new, len(group.representatives)) == (False, 2)
    assert b"write to block" in group.representatives[0].data
    filled.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "0:2"}), Item({"id": "0:6"})])
    again = ask(filled, Kind.CLUSTER)
    sizes = {group.template: group.size for group in again.groups}
    assert sizes[group.template] == LINES // 2 - 2
    near = ask(filled, Kind.CLUSTER, method="dbscan", eps=1.9)
    assert (near.records, near.alone) == (2 * LINES - 2 + stats(filled)["chunks"], 0)
    assert len(near.groups) <= len(again.groups)


def test_statements_are_the_points_of_a_map(filled: Stores) -> None:
    found = ask(filled, Kind.PROJECT)
    assert sum(found.lines) == 2 * LINES
    assert list(found.lines) == sorted(found.lines, reverse=True)
    assert len(found.ids) == len(found.x) == len(found.templates) == found.records
    assert sum(one.points for one in found.colours) == found.records
    assert set(ask(filled, Kind.PROJECT, colour="none").colour) == {-1}


def test_deleting_is_counted_and_the_text_shrinks(filled: Stores) -> None:
    before = stats(filled)
    size = len(lines(LINES, host="a")) + len(lines(LINES, start=LINES, host="b"))
    assert before["lines"]["bytes_text"] == size
    assert before["bytes_text"] == size + 9000 + len(TEXT)
    assert (before["documents"], before["verified"]) == (2 * LINES + 2, 2 * LINES + 2)
    assert before["lines"]["records"] == 1
    kept = before["kept"]
    assert kept["bytes_lines"] == before["lines"]["bytes_memory"]
    parts = ("bytes_entries", "bytes_texts", "bytes_fitted", "bytes_lines")
    assert kept["bytes_memory"] == sum(kept.get(part, 0) for part in parts)
    rows = lines(LINES, host="a").splitlines(keepends=True)
    named = [Item({"id": f"0:{n}"}) for n in (3, 3, 5, 900)]
    _, [result] = filled.do(Kind.DELETE, {"collection": NAME}, named)
    assert [item["deleted"] for item in result.items] == [True, True, True, False]
    assert stats(filled)["lines"]["bytes_text"] == size - len(rows[3]) - len(rows[5])
    early = {"field": "time", "lt": START + 10}
    gone = ask(filled, Kind.DELETE_MATCHING, {"part": 0, "parts": 1}, filter=early)
    assert gone.deleted == 10 - 2 + 1  # and the note
    left = stats(filled)
    assert left["lines"]["bytes_text"] == size - sum(map(len, rows[:10]))
    assert (left["lines"]["lines"], left["lines"]["verified"]) == (2 * LINES - 10,) * 2
    of_b = {"field": "host", "eq": "b"}
    gone = ask(filled, Kind.DELETE_MATCHING, {"part": 0, "parts": 1}, filter=of_b)
    assert gone.deleted == LINES + 1
    assert raw(filled) == b"".join(rows[10:])
    assert stats(filled)["bytes_text"] == len(raw(filled))
    assert ask(filled, Kind.COUNT).documents == LINES - 10


def test_a_search_by_a_line_or_a_record_or_values(filled: Stores) -> None:
    def like(name: str) -> list[dict[str, Any]]:
        params = {"collection": NAME, "limit": 3, "filter": None, "with_text": True}
        _, [result] = filled.do(Kind.SEARCH, params, [Item({"id": name, "chunk": 0})])
        found: list[dict[str, Any]] = result.items[0].get("hits") or [result.items[0]]
        return found

    line = lines(LINES, host="a").splitlines()[2]
    assert "write to block" in like("0:2")[0]["statement"]
    assert like("note-1")[0]["id"] == "note-1"
    assert like("9:9")[0]["error"]["code"] == "document_unknown"
    # The values of a line are looked for beside a line that is text.
    hit = search(filled, line)[0]
    assert "write to block" in hit["statement"]
    [listed] = ask(filled, Kind.STATEMENTS, statement=hit["statement_id"]).statements
    assert listed.statement == hit["statement"]


def test_lines_are_rows_to_train_on(filled: Stores) -> None:
    found = ask(
        filled, Kind.ROWS, {"first": 0, "count": 16, "most": 5000}, label_key="host", texts=True
    )
    counts = {label: found.labels.count(label) for label in set(found.labels)}
    assert counts == {"a": LINES, "b": LINES + 1, "desk": 1}
    rows = {
        name: json.loads(row)[0]
        for name, row in zip(found.ids, found.data.splitlines(), strict=True)
    }
    assert rows["0:7"].encode() == lines(LINES, host="a").splitlines()[7]
    some = ask(filled, Kind.ROWS, {"first": 0, "count": 16, "most": 50}, label_key="host")
    vectors = np.frombuffer(some.data, "<f4").reshape(len(some.ids), -1)
    assert len(some.ids) == 50
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=0.02)


def test_a_stream_of_texts_becomes_records_and_nobody_has_to_say_so(logs: Stores) -> None:
    drawn = random.Random(1)
    words = [bytes(drawn.choices(b"etaoinshrdlu", k=drawn.randint(2, 9))) for _ in range(400)]
    texts = [b" ".join(drawn.choices(words, k=8)) for _ in range(2100)]
    text = b"".join(one + b"\n" for one in texts)
    [found] = ingest(logs, text)
    assert found["records"] == len(texts)
    ingest(logs, lines(600), host="a")
    assert raw(logs, filter={"not": {"field": "host", "eq": "a"}}) == text
    assert logs.read("0:7", collection=NAME) == [texts[7]]
    assert ask(logs, Kind.COUNT).documents == len(texts) + 600
    assert ask(logs, Kind.COUNT, filter={"field": "host", "eq": "a"}).documents == 600
    assert search(logs, texts[1234], mode="hybrid", limit=3)[0]["id"] == "0:1234"
    assert stats(logs)["lines"]["records"] == len(texts)


def test_lines_of_a_build_stay_lines_though_each_names_another_file(logs: Stores) -> None:
    drawn = random.Random(2)
    parts = ["".join(drawn.choices("etaoinshrdlu", k=6)) for _ in range(50)]
    rows = [f"pack: copied dist/server/{a}/{b}.js.map" for a in parts for b in parts]
    text = "".join(f"{row}\n" for row in rows).encode()
    [found] = ingest(logs, text)
    assert found["records"] == 0
    assert found["shapes"] == len(rows)
    assert raw(logs) == text
    [best, *_] = search(logs, rows[1234].encode(), mode="hybrid", limit=3)
    assert best["id"] == "0:1234"


def test_metadata_of_a_record_changes_and_a_line_refuses(filled: Stores) -> None:
    [row] = listed(filled, ids=["note-1"])
    change = {"metadata": {"host": "model_store"}, "time": None}
    done = ask(filled, Kind.UPDATE, {"id": "note-1", "written": row["written"], **change})
    assert done.id == "note-1"
    assert ask(filled, Kind.COUNT, filter={"field": "host", "eq": "model_store"}).documents == 1
    with pytest.raises(KindUnsupported):
        ask(filled, Kind.UPDATE, {"id": "0:3", "written": 0, **change})


@pytest.mark.parametrize("descending", [False, True])
def test_a_list_by_time_has_every_line_of_a_stream_whose_times_go_back(
    filled: Stores, descending: bool
) -> None:
    drawn = random.Random(5)
    times = [START + drawn.randrange(LINES) for _ in range(300)]
    late = "".join(f"{datetime.fromtimestamp(at, UTC):%FT%TZ} c: late\n" for at in times)
    ingest(filled, late.encode(), host="c")
    rows = [row["id"] for row in listed(filled, order="time", descending=descending, limit=50)]
    assert len(rows) == len(set(rows)) == 2 * LINES + 2 + 300
    own = [int(name.removeprefix("2:")) for name in rows if name.startswith("2:")]
    assert own == sorted(own, reverse=descending)


def test_facets_name_no_value_of_which_no_line_passes(filled: Stores) -> None:
    never = {"and": [{"field": "time", "gt": START + 3.2}, {"field": "time", "lt": START + 3.9}]}
    found = ask(filled, Kind.FACETS, fields=["host"], filter=never)
    assert (found.documents, found.facets[0].values) == (0, ())
