"""A backup of a platform at work misses nothing acknowledged before it, and no damage passes."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import ValkeyServer, server_folder
from tests.e2e.conftest import Platform, publish_heads

from verso_client import Document
from verso_core import files
from verso_core.errors import BackupInvalid
from verso_core.jobs import CollectionKind, Precision
from verso_core.jobs.logs.lines import LinesRequest
from verso_standalone.backup import restore
from verso_standalone.valkey import find_program

_ROOM_BYTES = 32 << 20
"""The copies have two collections of a few hundred points; each is 70 MB long with its holes."""


def verso_standalone(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "verso_standalone", *arguments]
    environment = {**os.environ, "VERSO_FIT_AFTER_CHUNKS": "0"}  # a check would wait for the fit
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=600, check=False, env=environment
    )


def log_lines(number: int, count: int) -> bytes:
    rows = (
        f"2026-01-01T00:00:{n % 60:02}Z step {number}: item {n * number} took {n} ms\n"
        for n in range(count)
    )
    return "".join(rows).encode()


class Load(threading.Thread):
    """Takes texts and log lines in, one upload after another, until told to stop."""

    def __init__(self, platform: Platform, lines: Callable[[int], list[Document]]) -> None:
        super().__init__()
        self.over = threading.Event()
        self.texts: dict[str, bytes] = {}
        self.log = b""
        self.faults: list[Exception] = []
        self._platform = platform
        self._lines = lines(40)

    def run(self) -> None:
        with self._platform.client() as verso:
            for number in itertools.count():
                batch = [
                    Document(f"{number} {one.text!s}", id=f"load/{number}/{n}", metadata={"n": n})
                    for n, one in enumerate(self._lines)
                ]
                try:
                    report = verso.ingest(batch)
                    assert report.documents == len(batch)
                    log = log_lines(1 + number, 30)
                    assert verso.ingest_lines([log], collection="log").lines == 30
                except Exception as error:  # noqa: BLE001 - told by the test's own thread
                    self.faults.append(error)
                    return
                self.log += log
                self.texts.update({str(one.id): str(one.text).encode() for one in batch})
                if self.over.is_set():
                    return


def test_a_backup_under_load_restores_whatever_was_acknowledged_before_it(
    new_platform: Callable[..., Platform], lines: Callable[[int], list[Document]], tmp_path: Path
) -> None:
    platform = new_platform(
        VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0", VERSO_SCRUB_SHARE="1"
    )
    platform.start()
    publish_heads(platform)
    first = {str(one.id): str(one.text).encode() for one in lines(100)}
    with platform.client() as verso:
        heads = {name: one.stable for name, one in verso.registry().heads.items()}
        verso.create_collection("coded", precision=Precision.INT8)
        verso.ingest(lines(100))
        verso.ingest(lines(100), collection="coded")
        verso.create_collection("log", kind=CollectionKind.LOGS)
        verso.ingest_lines([log_lines(0, 1200)], collection="log")
        verso.delete("0:7", collection="log")
        verso.ingest([Document("rewritten before", id="line/3")])
        first["line/3"] = b"rewritten before"
        verso.delete("line/4")
    load = Load(platform, lines)
    load.start()
    while len(load.texts) < 40:
        assert load.is_alive(), load.faults
    before, log_before = dict(load.texts), load.log
    saved = tmp_path / "saved"
    done = verso_standalone("backup", str(saved), "--data", str(platform.data))
    assert done.returncode == 0, done.stdout
    assert files.used_bytes(saved / "vectors") < _ROOM_BYTES
    assert {path.name for path in (saved / "models").iterdir()} == {"heads", "registry.json"}
    with platform.client() as verso:
        verso.ingest([Document("written after", id="line/3")])
        verso.ingest([Document("never in the backup", id="late")])
        verso.delete_collection("coded")
        verso.delete("0:8", collection="log")
    load.over.set()
    load.join()
    assert not load.faults
    platform.stop()
    shutil.rmtree(platform.data)  # another machine has nothing but the backup

    restored = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    options = ["--data", str(restored.data), "--artifact", str(platform.artifact)]
    done = verso_standalone("restore", str(saved), *options, "--threads", "1")
    assert done.returncode == 0, done.stdout
    told = re.search(r"read ([\d,]+) documents: ([\d,]+) sound, 0 repaired, 0 dam", done.stdout)
    assert told is not None, done.stdout
    assert told[1] == told[2]
    assert int(told[1].replace(",", "")) >= 99 + 100 + len(before)
    assert files.used_bytes(restored.data / "vectors") < _ROOM_BYTES
    restored.start()
    del first["line/4"]
    assert restored.read_all("default", list(first)) == first
    assert restored.read_all("default", list(before)) == before
    with restored.client() as verso:
        assert {name: one.stable for name, one in verso.registry().heads.items()} == heads
        assert verso.reconstruct(["line/4", "late"])[0].error is not None
        hit = verso.search(first["line/7"].decode(), collection="coded").hits[0]
        assert (hit.document, hit.metadata["host"]) == ("line/7", "host-0")
        verso.ingest([Document("life goes on", id="line/3")])
        assert verso.get("line/3").data == b"life goes on"
        request = LinesRequest(collection="log", limit=0, raw=True)
        log = b"".join(verso.lines(request))
        rows = (log_lines(0, 1200) + load.log).splitlines(keepends=True)
        sent = b"".join(rows[:7] + rows[8:])
        # All that was acknowledged before, and of what came meanwhile whole uploads, in order.
        assert sent.startswith(log)
        assert log.count(b"\n") >= 1199 + log_before.count(b"\n")
        assert verso.search("an item took long", collection="log").hits
        files_of_lines = (restored.data / "vectors" / "log").iterdir()
        assert [path.name for path in files_of_lines] == ["collection.json"]
        verso.ingest([Document("the first record", id="note")], collection="log")
        assert verso.get("note", collection="log").data == b"the first record"
        verso.ingest_lines([b"life goes on\n"], collection="log")
        assert b"".join(verso.lines(request)).endswith(b"life goes on\n")
    restored.stop()


def test_a_backup_that_was_altered_is_refused_and_leaves_nothing_behind(
    platform: Platform, lines: Callable[[int], list[Document]], tmp_path: Path
) -> None:
    with platform.client() as verso:
        verso.ingest(lines(3))
    saved, target = tmp_path / "saved", tmp_path / "target"
    assert verso_standalone("backup", str(saved), "--data", str(platform.data)).returncode == 0
    again = verso_standalone("backup", str(saved), "--data", str(platform.data))
    assert (again.returncode, again.stderr.split(":")[0]) == (1, "backup_invalid")
    for path in sorted(path for path in saved.rglob("*") if path.is_file() and path.stat().st_size):
        good = path.read_bytes()
        at = len(good) // 2
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        with pytest.raises(BackupInvalid):  # what the command does, without a process for each file
            restore(saved, target)
        path.write_bytes(good)
    (saved / "extra").write_bytes(b"not the manifest's")
    done = verso_standalone("restore", str(saved), "--data", str(target), "--no-check")
    assert (done.returncode, done.stderr.split(":")[0]) == (1, "backup_invalid")
    (saved / "extra").unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    done = verso_standalone("restore", str(saved), "--data", str(target), "--no-check")
    assert done.returncode == 0, done.stdout


def test_a_backup_of_nothing_says_what_is_missing(tmp_path: Path) -> None:
    done = verso_standalone("backup", str(tmp_path / "b"), "--data", str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr.startswith("unavailable: expected a platform running on ")
    done = verso_standalone("restore", str(tmp_path / "none"), "--data", str(tmp_path / "d"))
    assert done.returncode == 1
    assert done.stderr.startswith("backup_invalid: expected backup.json in ")


def test_a_backup_finds_sockets_that_lie_elsewhere_and_none_are_left_in_the_end(
    new_platform: Callable[..., Platform], lines: Callable[[int], list[Document]], tmp_path: Path
) -> None:
    """The path of the data is too long for them, and a timer's backup has no XDG_RUNTIME_DIR."""
    own = Path(tempfile.mkdtemp(prefix="run"))
    platform = new_platform(XDG_RUNTIME_DIR=str(own))
    platform.data = platform.data.parent / ("d" * 120)
    platform.start()
    with platform.client() as verso:
        verso.ingest(lines(3))
    assert len(list(own.glob("verso-*/vectors.sock"))) == 1
    done = verso_standalone("backup", str(tmp_path / "saved"), "--data", str(platform.data))
    assert done.returncode == 0, done.stdout + done.stderr
    platform.stop()
    own.rmdir()


def test_a_backup_has_the_ledgers_of_the_platform_and_is_restored_on_their_copies(
    new_platform: Callable[..., Platform],
    second_ledger: ValkeyServer,
    lines: Callable[[int], list[Document]],
    tmp_path: Path,
) -> None:
    platform = new_platform(VERSO_LEDGERS=f"b={second_ledger.url}", VERSO_VERIFY_DELAY_S="0.1")
    platform.start()
    texts = {str(one.id): str(one.text).encode() for one in lines(60)}
    with platform.client() as verso:
        verso.create_collection("spread", partitions=4)
        verso.ingest(lines(60), collection="spread")
        assert all(one.collections > 1 for one in verso.ledgers())
    saved = tmp_path / "saved"
    done = verso_standalone("backup", str(saved), "--data", str(platform.data))
    assert done.returncode == 0, done.stdout + done.stderr
    platform.stop()

    data = tmp_path / "restored"
    with pytest.raises(BackupInvalid, match="VERSO_LEDGERS with b"):
        restore(saved, data)
    with server_folder() as folder:
        append_only = folder / "appendonlydir"
        append_only.mkdir()
        shutil.copy(saved / "ledger-b.rdb", append_only / "appendonly.aof.1.base.rdb")
        (append_only / "appendonly.aof.manifest").write_text(
            "file appendonly.aof.1.base.rdb seq 1 type b\n"
        )
        server = ValkeyServer(str(find_program()), folder, {})
        restored = new_platform(VERSO_LEDGERS=f"b={server.url}", VERSO_VERIFY_DELAY_S="0.1")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VERSO_LEDGERS", f"b={server.url}")
            restore(saved, restored.data)
        restored.start()
        assert restored.read_all("spread", list(texts)) == texts
        with restored.client() as verso:
            verso.ingest([Document("life goes on", id="line/3")], collection="spread")
        restored.stop()
        server.stop()
