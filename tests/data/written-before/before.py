"""A platform of the recorded commit: started, asked over HTTP, and read through its ledger's file.

Imports nothing of Verso: everything goes over HTTP, through files, or through a Python process of
the old checkout. Run the recorders from the root of that checkout (README.md says how).
"""

from __future__ import annotations

import atexit
import base64
import json
import lzma
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import psutil
import redis

HERE = Path(__file__).resolve().parent
CORPUS = Path("services/standalone/verso_standalone/corpus/corpus.jsonl.xz")
ARTIFACT = Path("tests/data/artifact-tiny")
HEADS = Path("tests/data/heads-tiny/heads")
KEEP_S = 100 * 365 * 24 * 3600  # what is recorded must not expire before it is read
JSON = {"Content-Type": "application/json"}


class Recorded:
    """One `verso up` of the old commit on a data folder."""

    def __init__(self, data: Path, port: int) -> None:
        self.data = data
        self.port = port
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120.0)
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._end)

    def start(self, artifact: Path, **settings: str) -> None:
        """Start it and wait until it is ready."""
        argv = [sys.executable, "-m", "verso_standalone", "up", "--data", str(self.data)]
        argv += ["--port", str(self.port), "--artifact", str(artifact), "--threads", "1"]
        env = {"VERSO_KEEP_S": str(KEEP_S), "VERSO_WEBHOOK_ALLOW": "127.0.0.0/8"}
        env |= {"VERSO_WORKER_NAME": "recorded", **settings}
        log = self.data.with_suffix(".log")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                argv, stdout=output, stderr=subprocess.STDOUT, env=os.environ | env
            )
        self.until(lambda: b"ready at" in log.read_bytes(), seconds=180)

    def stop(
        self, how: signal.Signals = signal.SIGTERM, *, suspended: psutil.Process | None = None
    ) -> None:
        """End it, and wait until the last of its processes is gone.

        Args:
            how: signal that the supervisor gets.
            suspended: a worker that cannot end by itself: killed once its supervisor waits for it.
        """
        assert self._process is not None
        members = psutil.Process(self._process.pid).children(recursive=True)
        gateway = self.process("verso_gateway")
        self._process.send_signal(how)
        if suspended is not None:
            gateway.wait(timeout=30)
            time.sleep(1.0)
            suspended.kill()
        self._process.wait(timeout=120)
        _, alive = psutil.wait_procs(members, timeout=60)
        assert not alive, alive

    def _end(self) -> None:
        """Leave nothing behind where the recording failed."""
        if self._process is not None:
            self._process.kill()

    def process(self, module: str) -> psutil.Process:
        """Return the process that runs a module."""
        assert self._process is not None
        for one in psutil.Process(self._process.pid).children(recursive=True):
            command = one.cmdline()
            if "-I" not in command and command[-2:] == ["-m", module]:
                return one
        raise LookupError(module)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
        """Send a request; a body that is no bytes is sent as JSON, lone surrogates and all."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode("ascii")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.request(
            method, path, content=None if body is None else content, headers=JSON | named
        )

    def get(self, path: str) -> Any:
        """Send a GET and return the JSON of its answer."""
        answer = self.ask("GET", path)
        answer.raise_for_status()
        return answer.json()

    def until(self, true: Callable[[], object], *, seconds: float = 120) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.1)

    def verified(self, collection: str) -> None:
        """Wait until all documents of a collection are verified."""

        def all_verified() -> bool:
            stats = self.get(f"/v1/collections/{collection}")
            return bool(stats["verified"] == stats["documents"])

        self.until(all_verified)

    def redis(self) -> redis.Redis:
        """Connect to the ledger."""
        words = (self.data / "valkey/valkey.conf").read_text().split()
        password = (self.data / "secret").read_text()
        return redis.Redis(port=int(words[words.index("port") + 1]), password=password)

    def frames(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Read every payload and every result that the ledger was ever given, by slice.

        Both in the order in which they were written: the append-only file forgets nothing.
        """
        payloads: dict[str, bytes] = {}
        results: dict[str, bytes] = {}
        for file in sorted((self.data / "valkey/appendonlydir").glob("*.incr.aof")):
            for name, *rest in _commands(file.read_bytes()):
                if name == b"SET" and rest[0].startswith(b"verso:payload:"):
                    payloads[rest[0].decode().removeprefix("verso:payload:")] = rest[1]
                if name == b"HSET" and rest[0].startswith(b"verso:result:"):
                    job = rest[0].decode().removeprefix("verso:result:")
                    results[f"{job}.{rest[1].decode()}"] = rest[2]
        return payloads, results


def _commands(data: bytes) -> Iterator[list[bytes]]:
    """Split an append-only file into its commands (RESP arrays of bulk strings)."""
    at = 0

    def line() -> bytes:
        nonlocal at
        end = data.index(b"\r\n", at)
        found, at = data[at:end], end + 2
        return found

    while at < len(data):
        parts = []
        for _ in range(int(line()[1:])):
            size = int(line()[1:])
            parts.append(data[at : at + size])
            at += size + 2
        yield [parts[0].upper(), *parts[1:]]


def decoded(frame: bytes) -> dict[str, Any]:
    """Read a frame by its description alone, blobs as base64: an oracle that shares no code."""
    magic, size = struct.unpack_from("<BI", frame)
    assert magic == 0x56
    header: dict[str, Any] = json.loads(frame[5 : 5 + size])
    (count,) = struct.unpack_from("<I", frame, 5 + size)
    sizes = struct.unpack_from(f"<{count}I", frame, 9 + size)
    at = 9 + size + 4 * count
    blobs = []
    for length in sizes:
        blobs.append(base64.b64encode(frame[at : at + length]).decode("ascii"))
        at += length
    assert at == len(frame)
    return {"header": header, "blobs": blobs}


def old(code: str, *arguments: str) -> str:
    """Run code of the old checkout in a process of its own and return what it prints."""
    path = os.environ["PYTHONPATH"] + ":.:tests/bench"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def shipped(folder: Path, *heads: str) -> Path:
    """Make a folder with the tiny artifact and tiny heads, as a release ships them."""
    shutil.copytree(ARTIFACT, folder / "tiny")
    versions = {}
    for name in heads:
        shutil.copytree(HEADS / name, folder / "heads" / name)
        versions[name] = {"stable": next((HEADS / name).iterdir()).name}
    registry = {"stable": "tiny", "heads": versions}
    (folder / "registry.json").write_text(json.dumps(registry))
    return folder / "tiny"


def variant(folder: Path, number: int) -> Path:
    """Make an artifact of the same space with another codec."""
    old(
        "import sys, pathlib, variants\n"
        "variants.make_variant(pathlib.Path(sys.argv[1]), int(sys.argv[2]))",
        str(folder), str(number),
    )  # fmt: skip
    return folder


def other_space(folder: Path) -> Path:
    """Make an artifact of another space."""
    old(
        "import sys, pathlib\n"
        "from tests.integration.verso_worker.test_migrate import other_artifact\n"
        "other_artifact(pathlib.Path(sys.argv[1]), space=True)",
        str(folder),
    )
    return folder


def assign(models: Path, channel: str, name: str, *, share: str = "0.1") -> None:
    """Have a channel serve an artifact."""
    old(
        "import sys, pathlib\n"
        "from verso_core import registry\n"
        "registry.assign(pathlib.Path(sys.argv[1]), registry.Channel(sys.argv[2]), sys.argv[3],"
        " share=float(sys.argv[4]))",
        str(models), channel, name, share,
    )  # fmt: skip


def sample(kinds: Mapping[str, int]) -> list[dict[str, Any]]:
    """Take documents of the sample corpus: so many of each kind, of sources under free licences.

    ``lines`` kernel crash reports (Apache-2.0), ``checks`` R package checks (MIT), ``books`` and
    ``factbook`` (public domain).
    """
    chosen = {
        "lines": ("line", "google/syzkaller"),
        "checks": ("check", "tidyverse/tibble"),
        "books": ("paragraph", "classic-books"),
        "factbook": ("page", "cia-world-factbook-1995"),
    }
    with lzma.open(CORPUS, "rt", encoding="utf-8") as file:
        corpus = [json.loads(line) for line in file]
    found = []
    for name, count in kinds.items():
        kind, source = chosen[name]
        rows = [
            one for one in corpus
            if (one["metadata"]["kind"], one["metadata"]["source"]) == (kind, source)
        ]  # fmt: skip
        found += rows[:count]
    return found
