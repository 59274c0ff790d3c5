"""Log collections moved to another artifact: lines stay, statements get other vectors."""

from __future__ import annotations

import pytest
from tests.integration.verso_worker.rules.log_lines import NAME, START, ingest, lines, raw, search
from tests.integration.verso_worker.rules.test_migrate import Moving, model_store, moving, others
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item

from verso_codecs.logs import blocks as block_codec
from verso_core.jobs import CollectionKind, Kind, Queue, Status, read_slice
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.logs.lines import IngestLinesParams, LinesItem
from verso_core.jobs.migrate import Migration
from verso_core.jobs.slices import cut
from verso_ledger import Commit, NewJob
from verso_worker.records.segments import Front

__all__ = ["model_store", "moving", "others"]


@pytest.fixture
def logs(moving: Moving) -> Moving:
    """Stores with two other artifacts and an empty log collection."""
    moving.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    return moving


def begin(logs: Moving, artifact: str) -> Status:
    params = {"collection": NAME, "step": "begin"}
    return logs.do(Kind.MIGRATE, params, [Item({"artifact": artifact})])[0]


def advance(logs: Moving) -> Migration:
    """Bring the migration to its end."""
    for _ in range(200):
        state = logs.ledger.migrations.get(NAME)
        assert state is not None
        if not state.running:
            return state
        logs.migrator.step()
        logs.dispatcher.run_queue(Queue.BULK)
    raise AssertionError(state)


def remove(logs: Moving) -> Status:
    return logs.do(Kind.MIGRATE, {"collection": NAME, "step": "remove"}, [Item({})])[0]


def key_count(logs: Stores, kind: str) -> int:
    return len(list(logs.redis.scan_iter(f"verso:{kind}:*")))


def test_lines_are_of_both_sides_and_statements_get_other_vectors(
    logs: Moving,
    others: dict[str, str],
) -> None:
    text, long = lines(500), b"y" * 9000 + b"\n"
    ingest(logs, text + long)
    before = logs.ledger.logs.state(NAME)
    assert begin(logs, others["space"]) is Status.SUCCEEDED
    more = lines(100, start=500)
    ingest(logs, more, host="b")
    state = advance(logs)
    assert (state.stage, state.copied) == ("done", 1)
    after = logs.ledger.logs.state(state.target)
    assert (after.uid, after.lines) == (before.uid, 601)
    assert after.vectors != before.vectors
    assert after.statements == before.statements > 0
    found = logs.ledger.documents.collections()[NAME]
    assert (found.name, found.kind) == (state.target, CollectionKind.LOGS)
    assert remove(logs) is Status.SUCCEEDED
    for _ in range(20):
        logs.ledger.maintenance.drop_due()
    assert raw(logs) == text + long + more
    assert search(logs, b"writing to a block failed")[0]["count"] > 0
    ingest(logs, lines(50, start=600), host="b")
    assert len(raw(logs).splitlines()) == 651
    logs.do(Kind.COLLECTION_DELETE, {"name": NAME}, [Item({})])
    for _ in range(40):
        logs.ledger.maintenance.drop_due()
    kinds = ("log", "segment", "segments", "streams", "shapes", "statements", "fitted", "gone")
    assert {kind: key_count(logs, kind) for kind in kinds} == dict.fromkeys(kinds, 0)


def test_lines_that_were_coded_before_the_switch_are_coded_again(
    logs: Moving,
    others: dict[str, str],
) -> None:
    ingest(logs, lines(100))
    place = logs.ledger.logs.reserve(NAME, {}, 50)
    params = IngestLinesParams(
        collection=NAME, uid=place.uid, stream=place.stream, labels={}, arrived=START * 10**9
    )
    late = lines(50, start=100)
    slices = list(cut(Kind.INGEST_LINES, params, [LinesItem(place.first, 50, late)]))
    job = NewJob(kind=Kind.INGEST_LINES, queue=Queue.BULK, slices=slices)
    accepted = logs.ledger.jobs.accept(job)
    [lease] = logs.ledger.leases.claim(Queue.BULK, owner="slow", lease_s=600.0)
    outcome = logs.pipeline.run(read_slice(lease.payload), seq=lease.seq)
    assert begin(logs, others["space"]) is Status.SUCCEEDED
    assert advance(logs).stage == "done"

    def commit() -> Commit:
        result = outcome.result.pack()
        return logs.ledger.leases.commit(lease, result, ok=1, errors=0, lines=outcome.lines)

    assert commit() is Commit.SEALED
    assert remove(logs) is Status.SUCCEEDED
    assert commit() is Commit.SEALED
    again = logs.pipeline.run(read_slice(lease.payload), seq=lease.seq)
    result = again.result.pack()
    assert (
        logs.ledger.leases.commit(lease, result, ok=1, errors=0, lines=again.lines) is Commit.DONE
    )
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert logs.ledger.jobs.get(accepted.job_id).status is Status.SUCCEEDED
    assert raw(logs) == lines(100) + late


def test_in_the_same_space_segments_are_coded_with_the_newest_tables(logs: Moving) -> None:
    text = lines(900)
    ingest(logs, text)
    ingest(logs, lines(3000, start=900), host="b")  # tables are fitted to these
    logs.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "0:5"})])
    before = logs.ledger.logs.state(NAME)
    assert generations(logs) == {0, 1}
    assert begin(logs, "current") is Status.SUCCEEDED
    assert advance(logs).copied == 900
    after = logs.ledger.logs.state(NAME)
    assert generations(logs) == {1}
    assert after.segment_bytes < before.segment_bytes
    assert (after.text_bytes, after.deleted) == (before.text_bytes, 1)
    rows = text.splitlines(keepends=True)
    only = raw(logs, filter={"not": {"field": "host", "eq": "b"}})
    assert only == b"".join([*rows[:5], *rows[6:]])


def generations(logs: Stores) -> set[int]:
    found = set()
    for name in logs.redis.scan_iter("verso:segment:*"):
        data = logs.redis.get(name)
        assert isinstance(data, bytes)
        front = Front.read(data)
        assert front is not None
        found |= {block_codec.header(block).generation for block in front.blocks(data)}
    return found
