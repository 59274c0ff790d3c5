"""One round of the long proof: a whole platform under mixed load, and every kind of fault at once.

A storm (:mod:`tests.chaos.storm`) with more to it: the platform lies on a small disk that is filled
to its last byte, its clock jumps, its callers' connections are reset, stalled or lose answers, and
besides documents it takes in lines of logs. At the end every line and every document that was
acknowledged is read back.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TextIO

import psutil
import redis
from tests.chaos.clock import Clock
from tests.chaos.load import COLLECTION, Journal, Load
from tests.chaos.proxy import Proxy
from tests.chaos.storm import PARTS, SETTINGS, Storm, judge, probe
from tests.e2e.conftest import Platform

from verso_client import Client, Retries
from verso_core.errors import VersoError
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LinesRequest

LINES = "chaos-lines"
KEPT = "kept"
"""Folder of a round's folder with the platform's data, if a promise was broken."""
_DISK_MIB = 1500
_PATIENCE_S = 300.0
_FULL_S = 3.0
_IN_A_ROW = 0.6
"""How likely a fault follows within the recovery from another one: two and a half on average."""
_PAUSE_S = 0.3
_JUMPS_S = (-15.0, -2.0, 0.0, 2.0, 15.0)
_SAMPLE_S = 5.0


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


class SmallDisk(Platform):
    """A platform on a small disk of its own, behind a proxy, under a clock that a test sets."""

    def __init__(self, folder: Path, artifact: Path) -> None:
        self.clock = Clock(folder)
        settings = SETTINGS | self.clock.settings | {"VERSO_FREE_FLOOR_MIB": "64"}
        super().__init__(folder / "data", artifact, **settings)
        self.data.mkdir()
        self.proxy = Proxy(("127.0.0.1", self.port))
        self.has_disk = subprocess.run(
            ["unshare", "-Urm", "true"], check=False, capture_output=True
        ).returncode == 0  # fmt: skip
        if self.has_disk:
            mount = f'mount -t tmpfs -o size={_DISK_MIB}M none "{self.data}" && exec "$@"'
            self.prefix = ["unshare", "-Urm", "sh", "-c", mount, "sh"]

    @property
    def folder(self) -> Path:
        """Return the data folder as it is seen from outside."""
        if not self.has_disk:
            return self.data
        return Path(f"/proc/{self.supervisor.pid}/root") / self.data.relative_to("/")

    def redis(self) -> redis.Redis:
        """Connect to the ledger, past every rule."""
        words = (self.folder / "valkey" / "valkey.conf").read_text(encoding="utf-8").split()
        port = int(words[words.index("port") + 1])
        return redis.Redis(port=port, password=(self.folder / "secret").read_text("ascii"))

    def keep(self, target: Path) -> None:
        """Copy the data folder, which ends with the platform, as far as it can be read."""
        with contextlib.suppress(OSError, psutil.Error, AssertionError):
            shutil.copytree(self.folder, target, dirs_exist_ok=True, ignore=_sockets)

    def caller(self) -> Client:
        """Return a client that comes through the proxy."""
        url = f"http://127.0.0.1:{self.proxy.port}"
        return Client(url, retries=Retries(patience_s=_PATIENCE_S, longest_pause_s=0.5))


@dataclass
class LinesTold:
    """Lines that were acknowledged, and those of calls that had no answer."""

    acknowledged: list[str] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)


class LineCaller:
    """Sends numbered lines, some at a time, until it is told to stop."""

    def __init__(self, connect: Callable[[], Client], name: str, *, lines: int) -> None:
        self._connect = connect
        self._name = name
        self._lines = lines
        self.told = LinesTold()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lines-{name}")

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Let the open call come to its end."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        dice, number = Random(self._name), 0
        with self._connect() as client:
            while not self._over.wait(0.5):
                sent = [
                    f"{self._name} {number + n:09d} sshd[{dice.randrange(99999)}]: "
                    f"Failed password for user{dice.randrange(50)} from 10.0.0.{dice.randrange(99)}"
                    for n in range(self._lines)
                ]
                number += self._lines
                try:
                    text = ("\n".join(sent) + "\n").encode()
                    client.ingest_lines([text], collection=LINES, labels={"from": self._name})
                    self.told.acknowledged += sent
                except VersoError:
                    self.told.unanswered.update(sent)


class Proof(Storm):
    """A storm with broken connections, full disks and jumping clocks besides."""

    platform: SmallDisk

    def ways(self) -> dict[Callable[[], str], float]:
        """Return the faults that are drawn from, and how often each is drawn."""
        more: dict[Callable[[], str], float] = {
            self._reset: 2, self._stall: 1, self._swallow: 2, self._jump: 2,
        }  # fmt: skip
        if self.platform.has_disk:
            more[self._fill] = 1
        return super().ways() | more

    def _reset(self) -> str:
        self.platform.proxy.reset()
        return "reset connections"

    def _stall(self) -> str:
        with self.platform.proxy.stalled():
            time.sleep(self.dice.choice([0.5, 3.0]))
        return "stall connections"

    def _swallow(self) -> str:
        self.platform.proxy.swallow = True
        time.sleep(0.5)
        self.platform.proxy.swallow = False
        return "swallow answers"

    def _jump(self) -> str:
        """Let the clocks of all parts be others at once, by up to half a minute."""
        self.platform.clock.jump(self.dice.choice(_JUMPS_S))
        return "clock jumps"

    def _fill(self) -> str:
        """Fill the disk to its last byte for some seconds."""
        filler = self.platform.folder / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(1 << 20)):
                pass
        time.sleep(_FULL_S)
        filler.unlink()
        return "full disk"


def memory_mib(platform: Platform) -> dict[str, float]:
    """Return the resident memory of each part."""
    found = dict.fromkeys(PARTS, 0.0)
    for process in platform.members():
        with contextlib.suppress(psutil.Error):
            size = process.memory_info().rss / 2**20
            for part in PARTS:
                if platform.runs(part, process):
                    found[part] += size
    return found


class Sampler(threading.Thread):
    """Looks at the memory of a platform's parts, and at the disk below it, every few seconds."""

    def __init__(self, platform: Platform, used_bytes: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._platform = platform
        self._used_bytes = used_bytes
        self._over = threading.Event()
        self.rows: list[dict[str, float]] = []

    def run(self) -> None:
        """Sample until it is told to stop."""
        started = time.monotonic()
        while not self._over.wait(_SAMPLE_S):
            with contextlib.suppress(OSError, psutil.Error):
                row = {f"{part} MiB": size for part, size in memory_mib(self._platform).items()}
                row["disk MiB"] = self._used_bytes() / 2**20
                self.rows.append({"s": time.monotonic() - started} | row)

    def stop(self) -> list[dict[str, float]]:
        """Stop, and return at most 40 of the samples, evenly taken."""
        self._over.set()
        self.join()
        step = max(1, len(self.rows) // 40)
        return [{name: round(at, 1) for name, at in row.items()} for row in self.rows[::step]]


def run_round(
    folder: Path, artifact: Path, *, seed: int, minutes: float, log: TextIO
) -> dict[str, Any]:
    """Run a platform under load and faults for some minutes; return what it kept and lost."""
    platform, journal = SmallDisk(folder, artifact), Journal()
    sender = LineCaller(platform.caller, f"s{seed}", lines=400)
    platform.start(timeout_s=_PATIENCE_S)
    try:
        with platform.client() as client:
            client.create_collection(COLLECTION)
            client.create_collection(LINES, kind=CollectionKind.LOGS)
            probe(client, "before/all", journal)  # the first work of all waits for what is compiled
        storm = Proof(platform, journal, Random(seed), log, in_a_row=_IN_A_ROW, pause_s=_PAUSE_S)
        load = Load(platform.caller, journal, callers=2, seed=seed)
        sampler = Sampler(platform, lambda: shutil.disk_usage(platform.folder).used)
        started = time.monotonic()
        sampler.start()
        load.start()
        sender.start()
        try:
            storm.rage(faults=1 << 30, until=started + 60 * minutes)
        finally:
            load.stop()
            sender.stop()
        platform.clock.jump(0.0)
        spent = time.monotonic() - started
        verdict = judge(platform, journal)
        lines = judge_lines(platform, sender.told)
        samples = sampler.stop()
        if is_broken(verdict | {"lines": lines}):
            platform.keep(folder / KEPT)
        platform.stop()
    except BaseException:
        platform.keep(folder / KEPT)
        raise
    finally:
        platform.proxy.close()
        platform.close()
    return {
        "minutes": round(spent / 60, 1), "kills": storm.kills, "faults": storm.faults,
        "recovery_s": {what: [round(s, 2) for s in row] for what, row in storm.recovery_s.items()},
        "full_disk": platform.has_disk, **verdict, "lines": lines, "samples": samples,
    }  # fmt: skip


def is_broken(found: Mapping[str, Any]) -> bool:
    """Whether a round found a broken promise."""
    lines = found["lines"]
    return any(
        (found["lost"], found["twice"], found["broken"],
         lines["lost"], lines["doubled"], lines["unknown"])
    )  # fmt: skip


def judge_lines(platform: SmallDisk, told: LinesTold) -> dict[str, int]:
    """Read every line back: acknowledged ones are there once, unanswered ones at most once."""
    asked = LinesRequest.model_validate({"collection": LINES, "limit": 0, "raw": True})
    read = Counter(platform.read_lines(asked).decode().splitlines())
    known = {*told.acknowledged, *told.unanswered}
    return {
        "acknowledged": len(told.acknowledged),
        "unanswered": len(told.unanswered),
        "read": sum(read.values()),
        "lost": sum(read[line] == 0 for line in told.acknowledged),
        "doubled": sum(count > 1 for count in read.values()),
        "unknown": len(read.keys() - known),
    }
