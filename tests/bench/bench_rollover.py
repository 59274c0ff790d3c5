"""What do partitions by time cost while lines come in, and save when old ones go?

One platform (``verso up``, durable, all checks), in one run: days of the same lines go in turn into

- *one*: a log collection without partitions;
- *a partition*: one with partitions that does not roll over meanwhile;
- *rolls*: one that rolls over behind each day, which is one request.

Then ``retention_days`` lets all days but the newest go: of *one* a job deletes lines, of *rolls*
partitions are dropped. Core seconds are those of all processes of the platform, until all is stored
and verified, or is gone; those of the platform at rest for as long are taken off.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import line_sets
import psutil
import sheet

from verso_client import Client
from verso_core.jobs import CollectionKind
from verso_core.jobs.collections import Rollover
from verso_ledger import Ledger
from verso_standalone.stack import Stack, StackConfig, find_artifact

DAY = 86_400
START = 1_767_225_600  # 2026-01-01
_POLL_S = 0.2
_SWEPT_S = 5.0
"""Time in which the keeper sweeps the keys of what was deleted, seconds."""
ONE, PARTED, ROLLS = "one", "a-partition", "rolls"


def core_s() -> float:
    """Return the CPU seconds of this process's children so far, those that have ended included."""
    own = psutil.Process()
    there = own.children(recursive=True)
    living = sum(float(sum(one.cpu_times()[:2])) for one in there)
    return living + float(sum(own.cpu_times()[2:4]))


def day(number: int, lines: list[bytes]) -> bytes:
    """Return the lines of a day, each with a time of it."""
    rows = []
    for n, line in enumerate(lines):
        at = time.gmtime(START + number * DAY + n * DAY // len(lines))
        rows.append(time.strftime("%Y-%m-%dT%H:%M:%SZ ", at).encode() + line)
    return b"\n".join(rows) + b"\n"


def await_true(holds: Callable[[], bool], *, every_s: float = _POLL_S) -> None:
    """Wait until something holds."""
    while not holds():
        time.sleep(every_s)


class Run:
    """A platform, and what it spends.

    Args:
        client: of the platform.
        ledger: of the platform; looked at where a question to the platform would cost what is
            measured.
    """

    def __init__(self, client: Client, ledger: Ledger) -> None:
        self.client = client
        self._ledger = ledger
        self.rest = 0.0

    def spent(self, work: Callable[[], None]) -> tuple[float, float]:
        """Return core seconds, without those of the platform at rest, and seconds."""
        before, began = core_s(), time.perf_counter()
        work()
        took = time.perf_counter() - began
        return core_s() - before - self.rest * took, took

    def measure_rest(self, seconds: float) -> None:
        """Measure what the platform spends when it does nothing."""
        self.rest, took = self.spent(lambda: time.sleep(seconds))
        self.rest /= took

    def ingest(self, name: str, body: bytes) -> None:
        """Take a day in, until all its lines are stored and verified."""
        before = self.lines(name)
        report = self.client.ingest_lines([body], collection=name, labels={"host": "a"})
        await_true(lambda: self.lines(name, verified=True) >= before + report.lines)

    def lines(self, name: str, *, verified: bool = False) -> int:
        """Return how many lines a collection holds."""
        held = self.client.stats(name).lines
        assert held is not None
        return held.verified if verified else held.lines

    def expire(self, name: str, *, kept: int) -> None:
        """Let all days but the newest go, their keys included."""
        # the keeper deletes lines by whole hours
        left = (time.time() - START) / DAY - (kept - 1) - 0.06
        per_day = self.lines(name) // kept
        self.client.change_collection(name, retention_days=left)
        if name == ROLLS:
            gone = {f"{name}.{number}" for number in range(kept - 1)}
            await_true(lambda: gone.isdisjoint(self._ledger.documents.collections()))
        else:
            await_true(lambda: self._kept(name) <= per_day)
        time.sleep(_SWEPT_S)

    def _kept(self, name: str) -> int:
        state = self._ledger.logs.state(name)
        return state.lines - state.deleted


def ledger_of(folder: Path) -> Ledger:
    """Connect to the ledger of a platform in a folder, past its gateway."""
    words = (folder / "valkey" / "valkey.conf").read_text(encoding="utf-8").split()
    port = words[words.index("port") + 1]
    password = (folder / "secret").read_text(encoding="ascii")
    return Ledger.from_url(f"redis://:{password}@127.0.0.1:{port}/0")


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, help="folder of sets of lines")
    parser.add_argument("--lines", type=int, default=20_000, help="of a day")
    parser.add_argument("--days", type=int, default=4)
    options = parser.parse_args()
    report = sheet.Sheet("rollover")
    name, text = next(iter(line_sets.whole(options.data).items()))
    lines = list(itertools.islice(itertools.cycle(text.splitlines()), options.lines))
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as folder:
        settings = {"VERSO_SCRUB_SHARE": "0", "VERSO_VERIFY_DELAY_S": "0.1"}
        config = StackConfig(Path(folder), find_artifact(), port=0, threads=1, settings=settings)
        stack = Stack(config)
        stack.start()
        try:
            ledger = ledger_of(Path(folder))
            with Client(stack.url, timeout_s=600) as client:
                run = Run(client, ledger)
                measured(run, report, name=name, lines=lines, days=options.days)
            ledger.close()
        finally:
            stack.stop()


def measured(run: Run, report: sheet.Sheet, *, name: str, lines: list[bytes], days: int) -> None:
    """Take the figures and print them."""
    logs = CollectionKind.LOGS
    run.client.create_collection(ONE, kind=logs)
    run.client.create_collection(PARTED, kind=logs, rollover=Rollover(span_s=DAY))
    run.client.create_collection(ROLLS, kind=logs, rollover=Rollover(max_bytes=1))
    for warm in (ONE, PARTED):
        run.ingest(warm, day(-1, lines[:200]))
    run.measure_rest(10.0)
    spent = {ONE: 0.0, PARTED: 0.0, ROLLS: 0.0}
    for number in range(days):
        for each in spent:
            parts = run.client.stats(each).partitions

            def take_in(each: str = each, number: int = number, parts: int | None = parts) -> None:
                run.ingest(each, day(number, lines))
                if each == ROLLS:
                    await_true(lambda: (run.client.stats(each).partitions or 0) > (parts or 0))

            spent[each] += run.spent(take_in)[0]
    kept = {each: run.client.stats(each).lines for each in spent}
    gone = {each: run.spent(partial(run.expire, each, kept=days)) for each in (ONE, ROLLS)}
    left = {each: run.client.stats(each).lines for each in gone}
    count = len(lines) * days
    rows = []
    figures: dict[str, object] = {"set": name, "lines": count, "rest_core_s_per_s": run.rest}
    for each, total in spent.items():
        core, took = gone.get(each, (None, None))
        held, after = kept[each], left.get(each)
        assert held is not None
        row = {
            "ingest core s / 100,000 lines": 1e5 * total / count,
            "bytes a line": held.bytes_memory / held.lines,
            "retention core s": core,
            "retention s": took,
            "bytes behind it": None if after is None else after.bytes_memory,
        }
        figures[each] = row
        rows.append([each, *("" if value is None else value for value in row.values())])
    columns = ["collection", *row]
    sheet.table(f"{days} days of {len(lines)} lines of {name}", columns, rows)
    report.finish(figures)


if __name__ == "__main__":
    main()
