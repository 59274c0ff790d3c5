"""What could the gateway save by joining one-text embeds into one job before it accepts them?

    PYTHONPATH=training:tests/bench python -m studies.benches.serving.bench_join

Sixty-four callers at a time accept jobs of one text, as one-text requests do, and wait for none of
them; then jobs of sixteen texts, as joined requests would. The difference a text is the most that
joining could save in gateway and Valkey, before what joining itself costs: a timer, a table of who
asked for what, and idempotency, priority, deadline and webhook of each to be kept apart. Claims,
runs and commits are joined already, in the worker. Bounded by computation; the file is synced at
every answer, which costs time and no processor.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time

import psutil
import sheet
import texts

from studies.benches.serving.ledger_server import server_s, serving
from verso_core.jobs import EmbedItem, EmbedParams, Kind, Queue, cut
from verso_ledger import AsyncLedger, NewJob

_CALLERS = 64
_JOINED = 16


async def accept(ledger: AsyncLedger, strings: list[bytes], *, joined: int) -> None:
    """Accept every text, so many in a job, by many callers at once."""
    left = [strings[start : start + joined] for start in range(0, len(strings), joined)]

    async def caller() -> None:
        while left:
            items = [EmbedItem(text) for text in left.pop()]
            slices = list(cut(Kind.EMBED, EmbedParams(), items))
            await ledger.accept(NewJob(kind=Kind.EMBED, queue=Queue.INTERACTIVE, slices=slices))

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))


async def measure(url: str, server: psutil.Process, strings: list[bytes]) -> list[list[object]]:
    """Return CPU milliseconds a text of client and server, one by one and joined."""
    ledger = AsyncLedger.from_url(url, timeout_s=30.0)
    rows: list[list[object]] = []
    await accept(ledger, strings[:_CALLERS], joined=1)  # warm
    for way, joined in (("one by one", 1), (f"{_JOINED} together", _JOINED)):
        own, far, started = _cpu_s(), server_s(server), time.perf_counter()
        await accept(ledger, strings, joined=joined)
        spent = time.perf_counter() - started
        costs = [1000 * (_cpu_s() - own), 1000 * (server_s(server) - far)]
        rows.append([way, *(cost / len(strings) for cost in costs), len(strings) / spent])
    await ledger.close()
    return rows


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Start a Valkey, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", type=int, default=6400)
    options = parser.parse_args()
    report = sheet.Sheet("join")
    short = [text for text in texts.corpus() if len(text) <= 160]
    strings = (short * (1 + options.texts // len(short)))[: options.texts]
    with serving() as (url, server):
        rows = asyncio.run(measure(url, server, strings))
    columns = ("accepted", "client CPU ms a text", "Valkey CPU ms a text", "texts/s")
    sheet.table("accepting embeds", columns, rows)
    report.finish({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})


if __name__ == "__main__":
    main()
