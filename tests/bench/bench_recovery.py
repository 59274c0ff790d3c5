"""How long until a platform answers: after its start, and after one of its processes was killed.

Starts, each until /readyz is true:

    first   new data folder, no compiled kernels: the first start of a new environment
    new     new data folder, kernels compiled before
    again   the same data folder once more

Then the processes are killed (SIGKILL) in turn, so often each. The platform is back when an embed
that was sent after the kill is answered; the keeper, which no embed needs, when it says that it has
started. Core seconds are those of all processes of the platform until ready; they say what a start
costs where the cores are shared. The command's own process is not among them.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import sheet
from bench_million import PARTS, Platform

from verso_client import Document
from verso_core.errors import VersoError
from verso_standalone.stack import find_artifact

KILLED = ("gateway", "worker", "engine", "keeper", "valkey")
_TEXTS = 64
_LIMIT_S = 120.0
_PAUSE_S = 0.05
_QUIET_S = 3.0


def started(platform: Platform) -> dict[str, float]:
    """Start a platform; return the seconds by the clock and by its cores."""
    began = time.monotonic()
    platform.start()
    seconds = time.monotonic() - began
    spent = platform.spent()
    return {"seconds": seconds, "core_s": sum(spent.values()) - spent["client"]}


def answered(platform: Platform, text: str) -> bool:
    """Whether an embed is answered now, or once its worker is back."""
    with platform.client(patience_s=0.0) as verso:
        try:
            verso.embed([text])
        except VersoError:
            return False
    return True


def keeper_starts(log: Path) -> int:
    """Count how often the keeper has said that it started."""
    return log.read_text(encoding="utf-8").count('"started"')


def until(true: Callable[[], bool], what: str) -> float:
    """Wait until something holds; return the seconds it took."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > _LIMIT_S:
            raise SystemExit(f"{what}: not within {_LIMIT_S:g} s")
        time.sleep(_PAUSE_S)
    return time.monotonic() - began


def recovered(platform: Platform, part: str, *, log: Path, number: int) -> float:
    """Kill a part; return the seconds until the platform is back."""
    starts = keeper_starts(log)
    if not platform.kill(part):
        raise SystemExit(f"{part}: expected a process to kill")
    if part == "keeper":
        return until(lambda: keeper_starts(log) > starts, part)
    return until(lambda: answered(platform, f"after kill {number} of {part}"), part)


def main() -> None:
    """Start, kill, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="kills of each process")
    parser.add_argument("--artifact", type=Path, default=None)
    arguments = parser.parse_args()
    page = sheet.Sheet("recovery")
    artifact = arguments.artifact or find_artifact()
    with tempfile.TemporaryDirectory(prefix="verso-recovery-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "kernels").mkdir()
        kernels = {"NUMBA_CACHE_DIR": str(folder / "kernels")}
        os.environ |= kernels
        starts = {}
        for kind in ("first", "new"):
            platform = Platform(folder / kind, artifact)
            starts[kind] = started(platform)
            with platform.client() as verso:  # needs the codecs, so their first check is over then
                verso.ingest([Document("a first line", id="first")])
            platform.end(signal.SIGTERM)
        platform = Platform(folder / "new", artifact)
        starts["again"] = started(platform)
        try:
            with platform.client() as verso:
                verso.ingest([Document(f"line {n} of many", id=str(n)) for n in range(_TEXTS)])
            log = folder / "new" / "logs" / "keeper.log"
            found: dict[str, list[float]] = {part: [] for part in KILLED}
            for number in range(arguments.rounds):
                for part, seconds in found.items():
                    until(lambda: answered(platform, "quiet"), "the platform")
                    time.sleep(_QUIET_S)
                    seconds.append(recovered(platform, part, log=log, number=number))
        finally:
            platform.end(signal.SIGTERM)
    sheet.table(
        "start until ready",
        ("kind", "seconds", "core s"),
        ((k, *v.values()) for k, v in starts.items()),
    )
    sheet.table(
        f"seconds from SIGKILL to service, {arguments.rounds} kills each",
        ("killed", "median", "least", "most"),
        ((part, statistics.median(s), min(s), max(s)) for part, s in found.items()),
    )
    page.finish({"starts": starts, "recovery_s": found})


assert set(KILLED) <= PARTS.keys()

if __name__ == "__main__":
    main()
