"""Lines of made-up logs, and ways to take them in and to read them, for tests of the rules."""

from __future__ import annotations

import random
from typing import Any

import zstandard
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item
from tests.wire import cut as wire_cut

from verso_core.jobs import Kind, Queue, Result, SliceSpec, Status
from verso_core.jobs.logs.lines import IngestLinesParams, LinesItem, LinesPage
from verso_core.jobs.slices import cut
from verso_ledger import NewJob

NAME = "lines"
START = 1_767_225_600  # 2026-01-01


def lines(count: int, *, start: int = 0, host: str = "a") -> bytes:
    """Return lines of four statements, a second apart."""
    drawn = random.Random(start)
    rows = []
    for n in range(start, start + count):
        at = f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z {host}"
        match n % 4:
            case 0:
                rows.append(f"{at} sshd[{drawn.randrange(9999)}]: Accepted key for user{n % 7}")
            case 1:
                rows.append(
                    f"{at} kernel: eth{n % 2}: link is up at {drawn.choice([10, 100])} Mbps"
                )
            case 2:
                rows.append(f"{at} disk: write to block {drawn.randrange(10**9)} failed")
            case _:
                rows.append(f"{at} proxy: open 10.0.{n % 250}.{drawn.randrange(250)}:443")
    return "".join(row + "\n" for row in rows).encode()


def accept(
    logs: Stores, *parts: bytes, packed: bool = True, arrived_s: int = START, **labels: str
) -> str:
    """Have lines accepted, a slice a part, and return the job, which waits to be done."""
    counts = [part.count(b"\n") + (not part.endswith(b"\n")) for part in parts]
    place = logs.ledger.logs.reserve(NAME, labels, sum(counts))
    params = IngestLinesParams(
        collection=NAME,
        uid=place.uid,
        stream=place.stream,
        labels=labels,
        arrived=arrived_s * 1_000_000_000,
    )
    slices: list[SliceSpec] = []
    first = place.first
    for part, count in zip(parts, counts, strict=True):
        item = LinesItem(first, count, zstandard.compress(part), len(part))
        if not packed:
            item = LinesItem(first, count, part)
        slices += cut(Kind.INGEST_LINES, params, [item], max_bytes=1 << 30)
        first += count
    job = NewJob(kind=Kind.INGEST_LINES, queue=Queue.BULK, slices=slices)
    return logs.ledger.jobs.accept(job).job_id


def ingest(
    logs: Stores,
    *parts: bytes,
    verify: bool = True,
    packed: bool = True,
    arrived_s: int = START,
    **labels: str,
) -> list[dict[str, Any]]:
    """Take lines in, a slice a part, and return the results of the slices."""
    job_id = accept(logs, *parts, packed=packed, arrived_s=arrived_s, **labels)
    logs.dispatcher.run_queue(Queue.BULK)
    record = logs.ledger.jobs.get(job_id)
    assert record.status is Status.SUCCEEDED, record.error
    if verify:
        logs.dispatcher.run_queue(Queue.SCRUB)
    frames = [logs.ledger.jobs.result(job_id, n) for n in range(len(parts))]
    return [Result.unpack(Kind.INGEST_LINES, data or b"").only.public() for data in frames]


def query(logs: Stores, *, pages: int = 1 << 30, **asked: Any) -> list[LinesPage]:
    """Return the first pages of a query, all unless ``pages`` says how many."""
    found: list[LinesPage] = []
    cursor = None
    while True:
        params = {"collection": NAME, "limit": 0, "raw": True, **asked, "cursor": cursor}
        accepted = logs.ledger.jobs.accept(
            NewJob(
                kind=Kind.LINES,
                queue=Queue.INTERACTIVE,
                slices=list(wire_cut(Kind.LINES, params, [Item({})])),
            )
        )
        logs.dispatcher.run_queue(Queue.INTERACTIVE)
        data = logs.ledger.jobs.result(accepted.job_id, 0)
        assert data is not None, logs.ledger.jobs.get(accepted.job_id).error
        page: LinesPage = Result.unpack(Kind.LINES, data).only
        found.append(page)
        cursor = page.next_cursor
        if cursor is None or len(found) == pages:
            return found


def raw(logs: Stores, **asked: Any) -> bytes:
    return b"".join(page.data for page in query(logs, **asked))


def search(logs: Stores, question: bytes, **asked: Any) -> list[dict[str, Any]]:
    params = {"collection": NAME, "limit": 5, "filter": None, "with_text": True, **asked}
    _, [result] = logs.do(Kind.SEARCH, params, [Item({}, question)], queue=Queue.INTERACTIVE)
    found: list[dict[str, Any]] = result.items[0]["hits"]
    return found
