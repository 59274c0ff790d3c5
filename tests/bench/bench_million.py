"""Is every record exact when a machine is filled while every process is killed in turn?

Log lines of all systems of a data folder (without one: the shipped corpus) are repeated, each time
with other digits, so that every record differs and can be made again from its number. They go in
over HTTP through a running platform, while every few seconds one of its processes is killed
(SIGKILL): worker, engine, vector store, keeper, gateway, Valkey. Then, when all are verified and
their texts dropped, the whole platform is killed and started again, and

- a scrub pass decodes every record from the stores and compares checksums, vectors and points;
- documents are read back over HTTP and compared with what was sent, byte by byte.

Without kills (``--kill-every-s 0``) it also reports what each part's processes spent on a record
until it was verified; the client is this process, which makes the lines and sends them.

A record counts as **lost** if it cannot be read, **wrong** if it reads as other bytes, **damaged**
if the scrub says so. All three must be 0.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import sheet
import texts

from verso_client import Client, Document, Retries, ScrubState
from verso_standalone.stack import find_artifact
from verso_standalone.valkey import free_port

PARTS = {
    "worker": "verso_worker",
    "engine": "verso_worker.engine",
    "shard": "verso_worker.stores.edge.process",
    "keeper": "verso_keeper",
    "gateway": "verso_gateway",
    "valkey": "valkey-server",
}
_DIGITS = re.compile(rb"\d+")
_READ_BATCH = 256
_PATIENCE_S = 600.0
_START_S = 600.0


class Lines:
    """Record number n, for any n, from real lines."""

    def __init__(self, base: Sequence[bytes]) -> None:
        self._base = base

    def __getitem__(self, number: int) -> bytes:
        turn, place = divmod(number, len(self._base))
        rng = random.Random(number)

        def other(match: re.Match[bytes]) -> bytes:
            size = len(match[0])
            return str(rng.randrange(10 ** min(size, 18))).zfill(size).encode()

        line = self._base[place]
        varied = _DIGITS.sub(other, line) if turn else line
        return varied if varied != line or not turn else line + b" #%d" % turn


class Platform:
    """`verso up` in a process of its own, to be killed in part or whole."""

    def __init__(self, data: Path, artifact: Path, **settings: str) -> None:
        self._data = data
        self._artifact = artifact
        self._port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [sys.executable, "-m", "verso_standalone", "up", "--data", str(self._data)]
        argv += ["--port", str(self._port), "--artifact", str(self._artifact)]
        with (self._data.parent / "up.txt").open("wb") as output:
            environment = os.environ | self._settings
            self._process = subprocess.Popen(argv, stdout=output, stderr=output, env=environment)
        deadline = time.monotonic() + _START_S
        with self.client(patience_s=0.0) as verso:
            while not verso.ready():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit((self._data.parent / "up.txt").read_text())
                time.sleep(0.5)

    @property
    def url(self) -> str:
        """Address of the gateway."""
        return f"http://127.0.0.1:{self._port}"

    def client(self, patience_s: float = _PATIENCE_S) -> Client:
        return Client(self.url, retries=Retries(patience_s=patience_s))

    def kill(self, part: str) -> bool:
        """Kill one process; False where it is just being restarted."""
        for process in self._processes(part):
            with contextlib.suppress(psutil.Error):
                process.kill()
                return True
        return False

    def spent(self) -> dict[str, float]:
        """Return the core seconds of each part's present processes, and of this one, the client."""
        found = {}
        for part in PARTS:
            with contextlib.suppress(psutil.Error):
                found[part] = sum(map(_cpu_s, self._processes(part)))
        return found | {"client": _cpu_s(psutil.Process())}

    def _processes(self, part: str) -> Iterator[psutil.Process]:
        assert self._process is not None
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                command = process.cmdline()
            except psutil.Error:
                continue
            # Valkey's title is one word for the operating system: program, blank, address.
            names = [Path(one).name.partition(" ")[0] for one in command]
            if "-I" not in command and PARTS[part] in names:
                yield process

    def end(self, how: signal.Signals) -> None:
        """End all processes and wait for them."""
        assert self._process is not None
        members = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(how)
        self._process.wait(_START_S)
        psutil.wait_procs(members, timeout=60)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class Killer(threading.Thread):
    """Kills one part after another while texts go in; none where ``every_s`` is 0."""

    def __init__(self, platform: Platform, *, every_s: float) -> None:
        super().__init__(daemon=True)
        self.kills: Counter[str] = Counter()
        self.over = threading.Event()
        self._platform = platform
        self._every_s = every_s

    def run(self) -> None:
        for part in itertools.cycle(PARTS) if self._every_s else ():
            if self.over.wait(self._every_s):
                return
            self.kills[part] += self._platform.kill(part)


def produced(lines: Lines, *, count: int, until: float, sent: list[int]) -> Iterator[Document]:
    """Yield documents until there are enough or the time is over."""
    for number in range(count):
        if time.monotonic() > until:
            return
        sent[0] = number + 1
        yield Document(lines[number], id=str(number), metadata={"turn": number % 97})


def verified(verso: Client, count: int, *, until: float) -> int:
    """Wait until all are verified or the time is over; return how many are."""
    while True:
        done = verso.stats().verified
        if done >= count or time.monotonic() > until:
            return done
        time.sleep(0.5)


def read_back(verso: Client, lines: Lines, numbers: Sequence[int]) -> tuple[int, int, int]:
    """Read documents and compare them: exact, lost, wrong."""
    exact = lost = wrong = 0
    for start in range(0, len(numbers), _READ_BATCH):
        batch = numbers[start : start + _READ_BATCH]
        for number, text in zip(batch, verso.reconstruct([str(n) for n in batch]), strict=True):
            if text.error is not None:
                lost += 1
            elif text.data == lines[number]:
                exact += 1
            else:
                wrong += 1
    return exact, lost, wrong


def scrubbed(verso: Client) -> ScrubState:
    """Scrub all stores and return the findings."""
    wanted = verso.scrub(now=True).number + 1
    while (state := verso.scrub()).number < wanted or state.running:
        time.sleep(1.0)
    return state


def per_record(core_ms: dict[str, float], records: int) -> dict[str, float]:
    """Return the core milliseconds of each part, and of all, for a record."""
    parts = {f"core ms a record: {part}": ms / records for part, ms in core_ms.items()}
    return parts | {"core ms a record": sum(parts.values())}


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=25.0, help="longest time for the ingest")
    parser.add_argument("--read", type=int, default=20_000, help="documents read back over HTTP")
    parser.add_argument("--kill-every-s", type=float, default=20.0, help="0: never")
    parser.add_argument("--artifact", type=Path, default=None, help="default: the stable one")
    parser.add_argument("--data", type=Path, default=None, help="folder of public data sets")
    given = parser.parse_args()
    artifact = given.artifact or find_artifact()
    sets = texts.public(given.data) if given.data else {}
    base = [line for name, own in sets.items() if name.startswith("loghub") for line in own]
    lines = Lines(texts.chosen(base or texts.corpus(), len(base) or 10**6))
    result = sheet.Sheet("million")
    with tempfile.TemporaryDirectory(prefix="verso-million-", ignore_cleanup_errors=True) as name:
        figures = run(Path(name) / "data", artifact, lines, given)
    sheet.table("a million records", ["what", "figure"], list(figures.items()))
    result.finish({"artifact": artifact.name, **figures})
    if figures["lost"] or figures["wrong"] or figures["damaged"]:
        raise SystemExit(1)


def run(
    data: Path, artifact: Path, lines: Lines, given: argparse.Namespace
) -> dict[str, float | int]:
    """Ingest, kill, restart, scrub and read back."""
    settings = {
        "VERSO_VERIFY_DELAY_S": "0.5",
        "VERSO_RAW_TEXT_RETENTION_S": "0",
        "VERSO_SCRUB_SHARE": "0",
    }
    platform = Platform(data, artifact, **settings)
    platform.start()
    taken = take_in(platform, lines, given)
    platform.end(signal.SIGKILL)
    again = Platform(data, artifact, **settings | {"VERSO_SCRUB_SHARE": "1"})
    began = time.monotonic()
    again.start()
    up = {"start again s": time.monotonic() - began}
    documents = int(taken["acknowledged"])
    found = look(again, lines, documents=documents, most=given.read)
    again.end(signal.SIGTERM)
    return taken | up | found


def take_in(platform: Platform, lines: Lines, given: argparse.Namespace) -> dict[str, float | int]:
    """Take lines in while processes are killed, and wait until all are verified."""
    killer = Killer(platform, every_s=given.kill_every_s)
    sent = [0]
    before, started = platform.spent(), time.monotonic()
    killer.start()
    try:
        with platform.client() as verso:
            until = started + 60 * given.minutes
            report = verso.ingest(produced(lines, count=given.records, until=until, sent=sent))
            took_s = time.monotonic() - started
            killer.over.set()
            killer.join()
            done = verified(verso, report.documents, until=time.monotonic() + 60 * given.minutes)
            whole_s = time.monotonic() - started
            core_ms = {part: 1e3 * (s - before[part]) for part, s in platform.spent().items()}
            stats = verso.stats()
    finally:
        killer.over.set()
    return {
        "sent": sent[0],
        "acknowledged": report.documents,
        "refused": len(report.failed),
        "kills": sum(killer.kills.values()),
        **{f"kills of {part}": killer.kills[part] for part in PARTS},
        "verified before the restart": done,
        "text bytes": report.bytes_text,
        "patch bytes": stats.bytes_patches,
        "ingest s": took_s,
        "records/s in": report.documents / took_s,
        "records/s in and verified": done / whole_s,
        # A process that was killed took its count with it.
        **({} if sum(killer.kills.values()) else per_record(core_ms, report.documents)),
    }


def look(platform: Platform, lines: Lines, *, documents: int, most: int) -> dict[str, float | int]:
    """Scrub all documents and read some back."""
    with platform.client() as verso:
        began = time.monotonic()
        state = scrubbed(verso)
        scrub_s = time.monotonic() - began
        numbers = random.Random(7).sample(range(documents), min(most, documents))
        began = time.monotonic()
        exact, lost, wrong = read_back(verso, lines, numbers)
        read_s = time.monotonic() - began
    return {
        "documents after it": state.documents,
        "sound": state.sound,
        "repaired": state.repaired,
        "damaged": state.damaged,
        "read back over HTTP": len(numbers),
        "exact": exact,
        "lost": lost + documents - state.documents,
        "wrong": wrong,
        "scrub s": scrub_s,
        "records/s scrubbed": state.documents / scrub_s,
        "records/s read": len(numbers) / read_s,
    }


if __name__ == "__main__":
    main()
