"""Lines that were accepted and are not stored yet are counted, by collection."""

from __future__ import annotations

import time

from verso_core.jobs import Kind, Queue
from verso_core.jobs.logs.lines import IngestLinesParams, LinesItem
from verso_core.jobs.slices import cut
from verso_ledger import AsyncLedger, Ledger, NewJob


def job(collection: str, *counts: int, age_s: float = 0.0, **labels: str) -> NewJob:
    params = IngestLinesParams(
        collection=collection,
        uid="1",
        stream=0,
        labels=labels,
        arrived=round((time.time() - age_s) * 1e9),
    )
    items = [LinesItem(0, count, b"line\n" * count) for count in counts]
    slices = list(cut(Kind.INGEST_LINES, params, items, max_items=1))
    return NewJob(kind=Kind.INGEST_LINES, queue=Queue.BULK, slices=slices)


async def test_lines_wait_until_their_slice_is_committed(ledger: Ledger, valkey_url: str) -> None:
    waiting = (other := AsyncLedger.from_url(valkey_url)).waiting
    assert (await waiting.of("a")).lines == 0
    ledger.jobs.accept(job("a", 3, 4, age_s=100.0))
    ledger.jobs.accept(job("b", 5, host="h" * 4000))
    found = await waiting.of("a")
    assert found.lines == 7
    assert found.oldest_s is not None
    assert 100 <= found.oldest_s < 160
    assert (await waiting.of("b")).lines == 5
    [lease] = ledger.leases.claim(Queue.BULK, owner="w")
    ledger.leases.commit(lease, b"result", ok=1, errors=0)
    assert (await waiting.of("a")).lines == 4
    await other.close()


async def test_other_work_is_no_line_that_waits(
    ledger: Ledger, valkey_url: str, new_job: object
) -> None:
    other = AsyncLedger.from_url(valkey_url)
    ledger.jobs.accept(new_job(Kind.INGEST))  # type: ignore[operator]
    assert (await other.waiting.of("c")).public() == {}
    await other.close()
