"""Cold storage on a real platform: lines and documents move, parts are killed, and backups."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.conftest import Platform

from verso_client import Client, Document
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LinesRequest
from verso_standalone.backup import restore

NAME, NOTES = "log", "notes"
SETTINGS = {
    "VERSO_COLD_AFTER_DAYS": "0",
    "VERSO_SCRUB_SHARE": "1",
    "VERSO_VERIFY_DELAY_S": "0.1",
}
COUNT = 2048  # lines of a whole segment


def text(number: int) -> bytes:
    drawn = random.Random(number)
    rows = (
        f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z sshd: user u{drawn.randrange(90)} came from "
        f"10.0.0.{drawn.randrange(90)} by port {drawn.randrange(90)} in {drawn.randrange(90)} ms\n"
        for n in range(COUNT)
    )
    return "".join(rows).encode()


def note(number: int) -> Document:
    """Return a text that no codec makes small, with metadata."""
    drawn = random.Random(number)
    words = " ".join(f"{drawn.getrandbits(40):x}" for _ in range(10))
    return Document(f"note {number}: {words}".encode(), id=f"n{number}", metadata={"n": number})


NOTES_SENT = [note(number) for number in range(200)]


def notes(verso: Client) -> list[bytes]:
    found = []
    for at in range(0, len(NOTES_SENT), 50):
        part = verso.reconstruct(
            [one.id or "" for one in NOTES_SENT[at : at + 50]], collection=NOTES
        )
        found += [one.data or b"" for one in part]
    return found


def read(verso: Client) -> bytes:
    asked = LinesRequest(collection=NAME, limit=0, raw=True)
    return b"".join(verso.lines(asked))


def scrub(verso: Client, timeout_s: float = 400.0) -> None:
    """Run a whole pass over all records, which moves what is due."""
    wanted = verso.scrub(now=True).number + 1
    deadline = time.monotonic() + timeout_s
    while (state := verso.scrub()).number < wanted or state.running:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (state.damaged, state.repaired) == (0, 0)


def objects(platform: Platform) -> list[Path]:
    return [path for path in (platform.data / "cold").rglob("*") if path.is_file()]


def test_lines_and_documents_move_are_read_survive_kills_and_are_in_a_backup(
    new_platform: Callable[..., Platform], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = new_platform(**SETTINGS)
    platform.start()
    whole = b"".join(map(text, range(4)))
    texts = [bytes(one.text) for one in NOTES_SENT if isinstance(one.text, bytes)]
    with platform.client() as verso:
        verso.create_collection(NOTES)
        verso.ingest(NOTES_SENT, collection=NOTES)
        verso.create_collection(NAME, kind=CollectionKind.LOGS)
        for number in range(4):
            assert verso.ingest_lines([text(number)], collection=NAME).lines == COUNT
        before, notes_before = verso.stats(NAME), verso.stats(NOTES)
        platform.await_verified(NOTES, len(texts))
        verso.scrub(now=True)
        time.sleep(0.3)
        platform.kill("worker")  # while it moves lines, or just before or behind
        scrub(verso)
        after, notes_after = verso.stats(NAME), verso.stats(NOTES)
        assert before.lines is not None
        assert notes_after.kept is not None
        assert notes_after.kept.bytes_cold > notes_after.bytes_entries
        assert notes_after.bytes_entries < notes_before.bytes_entries / 2
        assert after.lines is not None
        assert after.kept is not None
        assert 0 < after.kept.bytes_cold <= sum(path.stat().st_size for path in objects(platform))
        assert after.lines.bytes_segments + after.lines.bytes_cold > before.lines.bytes_segments
        assert after.lines.bytes_segments < before.lines.bytes_segments
        assert read(verso) == whole
        assert notes(verso) == texts
        hit = verso.search(texts[7].decode(), collection=NOTES).hits[0]
        assert (hit.document, hit.data) == ("n7", texts[7])
        texts[3] = b"another text"
        verso.ingest([Document(texts[3], id="n3")], collection=NOTES)
        verso.update("n4", collection=NOTES, metadata={"n": "four"})
        platform.kill("worker")
        platform.kill("valkey")
        [text_back] = verso.reconstruct(["0:5000"], collection=NAME)
        assert text_back.data == whole.splitlines()[5000]
        assert read(verso) == whole
        assert notes(verso) == texts
    shown = _verso("--url", platform.url, "stats", NAME)
    assert "kept in cold storage" in shown
    copy = tmp_path / "copy"
    _standalone("backup", str(copy), "--data", str(platform.data))
    assert len([path for path in (copy / "cold").rglob("*") if path.is_file()]) == len(
        objects(platform)
    )
    platform.stop()
    monkeypatch.setenv("VERSO_COLD_URL", (tmp_path / "elsewhere").as_uri())
    restored = new_platform(**SETTINGS)
    restore(copy, restored.data)
    assert not objects(restored)
    restored.start()
    with restored.client() as verso:
        assert read(verso) == whole
        assert notes(verso) == texts
        scrub(verso)
        assert verso.get("n4", collection=NOTES).metadata == {"n": "four"}
        verso.delete_collection(NAME)
        verso.delete_collection(NOTES)
    restored.stop()


def _verso(*arguments: str) -> str:
    return _run("-m", "verso_client", *arguments)


def _standalone(*arguments: str) -> str:
    return _run("-m", "verso_standalone", *arguments)


def _run(*argv: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **SETTINGS},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
