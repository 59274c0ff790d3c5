"""What does cold storage of log lines save of the ledger's memory, and what does a read cost?

A platform of its own takes lines in. Once they are verified its stores are measured, and lines are
read by ids at random, each once. Then a pass of the scrub moves their blocks to the object store,
and both are measured again. The worker is killed before the reads of either kind, so that none
comes from its memory; a folder's pages may be in the system's, which the first reads after a boot
would not find. ``VERSO_COLD_URL`` names another object store than the data folder.

The limit that a cold read is a ratio of is the same read from the ledger, in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import line_sets
import psutil
import sheet
from bench_log_collections import platform

from verso_client import Client, Retries
from verso_core.jobs import CollectionKind
from verso_core.jobs.collections import Statistics
from verso_standalone.stack import find_artifact

_NAME = "cold"
_SETTINGS = {"VERSO_COLD_AFTER_DAYS": "0", "VERSO_SCRUB_SHARE": "1"}
_POLL_S = 0.2


def stats(client: Client) -> Statistics:
    """Return the statistics of the collection once all of its lines are verified."""
    while (found := client.stats(_NAME)).verified < found.documents:
        time.sleep(_POLL_S)
    return found


def scrub(client: Client) -> float:
    """Run a pass over all records; return how long it took, seconds."""
    begun = time.perf_counter()
    wanted = client.scrub(now=True).number + 1
    while (state := client.scrub()).number < wanted or state.running:
        time.sleep(_POLL_S)
    return time.perf_counter() - begun


def read(client: Client, ids: Sequence[int], text: Sequence[bytes]) -> list[float]:
    """Read lines by id with a worker that has read none, one caller, and compare each.

    Returns:
        How long each took, milliseconds.
    """
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that ended has no command line
            if process.cmdline()[-1:] == ["verso_worker"]:
                process.kill()
    client.reconstruct(["0:0"], collection=_NAME)  # it waits for the next worker
    spent = []
    for number in ids:
        begun = time.perf_counter()
        [found] = client.reconstruct([f"0:{number}"], collection=_NAME)
        spent.append(1000 * (time.perf_counter() - begun))
        if found.data != text[number]:
            raise RuntimeError(f"line {number} reads as another one")
    return sorted(spent)


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with logs_loghub_full")
    parser.add_argument("--set", default="Linux", help="name of the set that lines are made from")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--asked", type=int, default=200, help="lines read by id, of either kind")
    options = parser.parse_args()
    paper = sheet.Sheet("cold")
    sets = line_sets.whole(options.data)
    base = sets.get(options.set) or next(iter(sets.values()))
    data = b"".join(line_sets.generated(base, options.lines))
    text = data.splitlines()
    ids = random.Random(0).sample(range(1, len(text)), 2 * options.asked)
    given = {name: value for name, value in os.environ.items() if name == "VERSO_COLD_URL"}
    with (
        platform(find_artifact(), _SETTINGS | given) as stack,
        Client(stack.url, timeout_s=600, retries=Retries(patience_s=120)) as client,
    ):
        client.create_collection(_NAME, kind=CollectionKind.LOGS)
        client.ingest_lines([data], collection=_NAME)
        hot, hot_reads = stats(client), read(client, ids[: options.asked], text)
        seconds = scrub(client)
        cold, cold_reads = stats(client), read(client, ids[options.asked :], text)
    rows: list[list[Any]] = []
    for what, found, spent in (("hot", hot, hot_reads), ("cold", cold, cold_reads)):
        assert found.lines is not None
        assert found.kept is not None
        rows.append(
            [
                what,
                found.lines.bytes_segments / len(text),
                found.kept.bytes_memory / len(text),
                found.kept.bytes_cold / len(text),
                spent[len(spent) // 2],
                spent[len(spent) * 99 // 100],
            ]
        )
    columns = ["", "segments", "all in memory", "in cold storage", "p50 ms", "p99 ms"]
    sheet.table(f"{len(text):,} lines: bytes a line, and one line by id", columns, rows)
    paper.finish(
        {
            "lines": len(text),
            "rows": {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows},
            "scrub_s": seconds,
            "memory ratio": rows[1][2] / rows[0][2],
            "p50 ratio": rows[1][4] / rows[0][4],
        }
    )


if __name__ == "__main__":
    main()
