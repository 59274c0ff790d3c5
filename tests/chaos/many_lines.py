"""Millions of lines taken in under faults, and each read back and compared.

A line follows from its number, so nothing is remembered but which numbers were acknowledged, and
how often each was read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TextIO

import numpy as np
from tests.chaos.load import COLLECTION, Journal
from tests.chaos.proof import Sampler
from tests.chaos.storm import SETTINGS, Storm, judge, probe
from tests.e2e.conftest import Platform

from verso_client import Client, Retries
from verso_core import files
from verso_core.errors import VersoError
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LinesRequest

LINES = "many-lines"
_TOGETHER = 25_000
"""Lines of one call, about 2.5 MB."""
_CALLERS = 2
_PATIENCE_S = 300.0
_PAUSE_S = 15.0
"""Between two faults, in the mean."""
_MIX = 2_654_435_761
_APART_MS = 7
_NUMBER = slice(25, 35)
"""Where a line has its number."""
_SAID: tuple[Callable[[int], str], ...] = (
    lambda n: f"sshd[{n % 30_000}]: Failed password for user{n % 97} from 10.0.{n % 251}.{n % 13}",
    lambda n: f"nginx: GET /item/{n % 100_003}?page={n % 17} 200 {n % 9_973} in {n % 733} ms",
    lambda n: f"kernel: [{n}.{n % 1000:03d}] eth{n % 2}: link is up, {n % 3} errors",
    lambda n: f"store: block blk_{n * 4099} of {n % 67_108_864} bytes written to rack {n % 41}",
    lambda n: f"cron: ({('root', 'app')[n % 2]}) CMD (run-parts /etc/cron.hourly)",
)


def line_of(number: int) -> bytes:
    """Return a line without its end: a time, its number, a statement and its values."""
    mixed = number * _MIX & 0xFFFFFFFF
    seconds, milliseconds = divmod(number * _APART_MS, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    month, day = divmod(days, 28)
    date = f"2026-{month + 1:02d}-{day + 1:02d}"
    at = f"{date}T{hour:02d}:{minute:02d}:{second:02d}.{milliseconds:03d}Z"
    said = _SAID[(mixed >> 28) % len(_SAID)](mixed)
    return f"{at} {number:010d} {said}".encode()


@dataclass
class Sent:
    """The numbers below which a caller's lines were acknowledged, and calls without an answer."""

    start: int
    acknowledged: int
    unanswered: int = 0


class Sender(threading.Thread):
    """Sends the lines of a range of numbers, one call after the other."""

    def __init__(self, connect: Callable[[], Client], start: int, end: int, until: float) -> None:
        super().__init__(daemon=True)
        self._connect = connect
        self._end = end
        self._until = until
        self.sent = Sent(start, start)

    def run(self) -> None:
        """Send until the end, or until the time is over."""
        sent = self.sent
        with self._connect() as client:
            while sent.acknowledged < self._end and time.monotonic() < self._until:
                end = min(sent.acknowledged + _TOGETHER, self._end)
                part = b"".join(line_of(n) + b"\n" for n in range(sent.acknowledged, end))
                try:
                    client.ingest_lines([part], collection=LINES, labels={"from": str(sent.start)})
                except VersoError:
                    sent.unanswered = end - sent.acknowledged
                    return  # whether they are stored is not known: nothing more is sent
                sent.acknowledged = end


def run_many(
    folder: Path, artifact: Path, *, seed: int, lines: int, minutes: float, log: TextIO
) -> dict[str, Any]:
    """Take in so many lines under faults, for so long at most; read them; return what was lost."""
    platform, journal = Platform(folder / "data", artifact, **SETTINGS), Journal()
    platform.start(timeout_s=_PATIENCE_S)
    try:
        with platform.client() as client:
            client.create_collection(COLLECTION)
            client.create_collection(LINES, kind=CollectionKind.LOGS)
            probe(client, "before/all", journal)
        started = time.monotonic()
        until, share = started + 60 * minutes, -(-lines // _CALLERS)
        senders = [
            Sender(_connect(platform), start, min(start + share, lines), until)
            for start in range(0, lines, share)
        ]
        storm, sampler = (
            Storm(platform, journal, Random(seed), log),
            Sampler(platform, lambda: files.used_bytes(platform.data)),
        )
        for thread in (*senders, sampler):
            thread.start()
        while any(sender.is_alive() for sender in senders):
            storm.rage(faults=storm.faults + 1, until=until + _PATIENCE_S)
            senders[0].join(storm.dice.expovariate(1 / _PAUSE_S))
        taken_s = time.monotonic() - started
        verdict = judge(platform, journal)
        read_at = time.monotonic()
        found = compare(platform, [sender.sent for sender in senders])
        read_s = time.monotonic() - read_at
        samples = sampler.stop()
        platform.stop()
    finally:
        platform.close()
    return {
        "minutes": round((time.monotonic() - started) / 60, 1), "kills": storm.kills,
        "faults": storm.faults, **verdict, "full_disk": False, "samples": samples,
        "recovery_s": {what: [round(s, 2) for s in row] for what, row in storm.recovery_s.items()},
        "lines": found, "taken_s": round(taken_s, 1), "read_s": round(read_s, 1),
    }  # fmt: skip


def _connect(platform: Platform) -> Callable[[], Client]:
    return lambda: Client(
        platform.url, retries=Retries(patience_s=_PATIENCE_S, longest_pause_s=0.5)
    )


def compare(platform: Platform, sent: list[Sent]) -> dict[str, int]:
    """Read every line: acknowledged ones are there once, others at most once."""
    most = max(one.acknowledged + one.unanswered for one in sent)
    read = np.zeros(most, np.uint8)
    wrong = 0
    for line in _lines(platform):
        number = int(line[_NUMBER]) if line[_NUMBER].isdigit() else most
        if number < most and line == line_of(number):
            read[number] = min(read[number] + 1, 2)
        else:
            wrong += 1
    acknowledged, unanswered = np.zeros(most, bool), np.zeros(most, bool)
    for one in sent:
        acknowledged[one.start : one.acknowledged] = True
        unanswered[one.acknowledged : one.acknowledged + one.unanswered] = True
    return {
        "acknowledged": int(acknowledged.sum()),
        "unanswered": int(unanswered.sum()),
        "read": int(read.sum(dtype=np.int64)) + wrong,
        "lost": int((acknowledged & (read == 0)).sum()),
        "doubled": int((read > 1).sum()),
        "unknown": wrong + int(((read > 0) & ~(acknowledged | unanswered)).sum()),
    }


def _lines(platform: Platform) -> Iterator[bytes]:
    asked = LinesRequest.model_validate({"collection": LINES, "limit": 0, "raw": True})
    with platform.client(patience_s=_PATIENCE_S) as client:
        left = b""
        for data in client.lines(asked):
            *whole, left = (left + data).split(b"\n")
            yield from whole
        if left:
            yield left
