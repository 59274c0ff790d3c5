"""Whatever dies comes back, nothing accepted is lost, and nobody gets a wrong text."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import psutil
import pytest

from verso_client import Client, Document
from verso_core.errors import DiskFull, RecordCorrupt
from verso_core.jobs import Status
from verso_core.record import Entry, bucket_of
from verso_ledger.codec import collection_rows

if TYPE_CHECKING:
    import redis
    from tests.e2e.conftest import Platform

TEXTS = 600


@pytest.fixture(scope="module")
def target(new_platform: Callable[..., Platform]) -> Platform:
    """A platform to shoot at, or to stop and start again; a test leaves it running.

    Settle and grace are short, so that texts really are dropped.
    """
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    return platform


def numbered(documents: list[Document], prefix: str) -> list[Document]:
    return [Document(d.text, id=f"{prefix}/{n}") for n, d in enumerate(documents)]


@pytest.mark.parametrize("part", ["worker", "engine", "shard", "gateway", "keeper", "valkey"])
def test_sigkill_in_the_middle_of_an_ingest_loses_nothing(
    target: Platform, lines: Callable[[int], list[Document]], part: str
) -> None:
    documents = numbered(lines(TEXTS), part)
    name = f"kill-{part}"
    with target.client() as verso:
        verso.create_collection(name)
        [job] = verso.submit(documents, collection=name)
        while verso.job(job.id).ok == 0:
            time.sleep(0.02)
        first = target.kill(part)
        ended = verso.wait(job.id, timeout_s=300)
        assert ended.status is Status.SUCCEEDED
        assert (ended.ok, ended.failed) == (TEXTS, 0)
        assert target.pid(part) != first
        target.await_verified(name, TEXTS, timeout_s=300)
        texts = {str(d.id): str(d.text).encode() for d in documents}
        assert target.read_all(name, list(texts)) == texts
        assert verso.stats(name).documents == TEXTS
        verso.delete_collection(name)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_second_start_finds_everything_again(
    target: Platform, lines: Callable[[int], list[Document]], how: signal.Signals
) -> None:
    name = f"stopped-by-{how.name.lower()}"
    documents = numbered(lines(100), "kept")
    texts = {str(d.id): str(d.text).encode() for d in documents}
    with target.client() as verso:
        verso.create_collection(name)
        verso.ingest(documents, collection=name)
        [job] = verso.submit(numbered(lines(300), "under-way"), collection=name)
        status = target.stop(how)
        assert status == (0 if how is not signal.SIGKILL else -signal.SIGKILL)
        target.start()
        assert target.read_all(name, list(texts)) == texts
        assert verso.wait(job.id, timeout_s=300).ok == 300
        assert verso.search(str(documents[3].text), collection=name).hits[0].score > 0.99


def test_a_folder_in_use_is_refused_and_its_owner_goes_on(target: Platform) -> None:
    argv = [sys.executable, "-m", "verso_standalone", "up", "--port", "0"]
    argv += ["--data", str(target.data), "--artifact", str(target.artifact)]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert second.returncode == 1
    assert "unavailable: " in second.stderr
    with target.client() as verso:
        assert len(verso.embed(["still here"])) == 1


def test_an_artifact_with_one_flipped_bit_is_refused(
    new_platform: Callable[..., Platform], artifact: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(artifact, broken)
    path = broken / "decoder.onnx"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    argv = [sys.executable, "-m", "verso_standalone", "up", "--port", "0"]
    argv += ["--data", str(tmp_path / "data"), "--artifact", str(broken)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("artifact_invalid: worker: ")
    assert "decoder.onnx" in done.stderr


def test_a_platform_whose_output_nobody_reads_is_stopped_in_order(
    artifact: Path, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "verso_standalone", "up", "--port", "0", "--threads", "1"]
    argv += ["--data", str(tmp_path), "--artifact", str(artifact)]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        done = subprocess.run(argv, stdout=output, timeout=600, check=False)
    assert done.returncode == 1
    assert "ready to exit" in (tmp_path / "logs" / "valkey.log").read_text(encoding="utf-8")


def text_of(value: object) -> str:
    assert isinstance(value, bytes)
    return value.decode()


def entry_of(ledger: redis.Redis, collection: str, document: str) -> tuple[str, str, bytes]:
    """Return the hash, the field and the bytes where the ledger keeps a short document."""
    row = ledger.hget("verso:collections", collection)
    assert isinstance(row, bytes)
    stored = collection_rows.load(row)
    uid = text_of(ledger.hget("verso:uids", collection))
    bucket = bucket_of(document, buckets=stored.buckets)
    name = f"verso:docs:{uid}:{bucket}"
    value = ledger.hget(name, document)
    assert isinstance(value, bytes)
    return name, document, value


def test_a_corrupted_patch_byte_is_record_corrupt_and_never_wrong_text(target: Platform) -> None:
    text = b"the quick brown fox jumps over the lazy dog, 4711 times, 0xdeadbeef"
    with target.client(patience_s=60.0) as verso, target.redis() as ledger:
        verso.create_collection("corrupt")
        verso.ingest([Document(text, id="d"), Document(b"intact", id="e")], collection="corrupt")
        target.await_verified("corrupt", 2)
        name, field, good = entry_of(ledger, "corrupt", "d")
        payload = len(Entry.unpack(good).records[0].payload)
        for offset in range(1, payload + 3):
            bad = bytearray(good)
            bad[-offset] ^= 0x10
            ledger.hset(name, field, bytes(bad))
            try:
                stored = verso.get("d", collection="corrupt")
            except RecordCorrupt:
                continue
            assert stored.data == text  # a bit that carries nothing, and the checksum agreed
        bad = bytearray(good)
        bad[-3 - payload] ^= 0x01  # the checksum itself
        ledger.hset(name, field, bytes(bad))
        with pytest.raises(RecordCorrupt):
            verso.get("d", collection="corrupt")
        first, second = verso.reconstruct(["d", "e"], collection="corrupt")
        assert first.error is not None
        assert first.error.code == "record_corrupt"
        assert second.data == b"intact"
        hits = {hit.document: hit for hit in verso.search("fox", collection="corrupt").hits}
        assert hits["d"].error is not None
        assert hits["d"].text is None
        assert hits["e"].data == b"intact"
        ledger.hset(name, field, good)
        assert verso.get("d", collection="corrupt").data == text
        verso.delete_collection("corrupt")


def test_without_redis_the_api_answers_503_and_recovers_by_itself(target: Platform) -> None:
    pid = target.pid("valkey")
    with httpx2.Client(base_url=target.url, timeout=120) as http:
        # Stopped, not killed: the supervisor would have a new one up in no time.
        subprocess.run(["kill", "-STOP", str(pid)], check=True)
        try:
            started = time.monotonic()
            answer = http.post("/v1/search", json={"query": "a"})
            took_s = time.monotonic() - started
            assert answer.status_code == 503
            assert answer.json()["code"] == "ledger_unavailable"
            assert answer.json()["retryable"] is True
            assert "retry-after" in answer.headers
            assert took_s < 60.0
            assert http.get("/healthz").status_code == 200
            assert http.get("/readyz").status_code == 503
        finally:
            subprocess.run(["kill", "-CONT", str(pid)], check=True)
    with target.client() as verso:
        assert len(verso.embed(["back again"])) == 1


def _is_refused(client: Client) -> bool:
    try:
        client.submit([Document("there is none", id="c")])
    except DiskFull:
        return True
    return False


def test_a_disk_below_its_floor_refuses_new_texts_and_still_reads(
    target: Platform, new_platform: Callable[..., Platform]
) -> None:
    with target.client() as verso:
        verso.ingest([Document("there was room", id="a")])
        psutil.Process(target.pid("worker")).suspend()
        [job] = verso.submit([Document("there was none then", id="b")])
        target.stop(signal.SIGKILL)
        full = new_platform(VERSO_FREE_FLOOR_MIB=str(10**9))
        full.data, full.port, full.url = target.data, target.port, target.url
        full.start()
        assert verso.get("a").data == b"there was room"
        deadline = time.monotonic() + 240
        with full.client(patience_s=0.0) as hasty:  # the heartbeat says that it is full
            while not _is_refused(hasty):
                assert time.monotonic() < deadline, "a full disk takes texts"
                time.sleep(0.5)
        deadline = time.monotonic() + 240
        with full.redis() as ledger:
            while ledger.hget(f"verso:slice:{job.id}.0", "code") != b"disk_full":
                assert time.monotonic() < deadline, "nobody tried"
                time.sleep(0.1)
        assert verso.job(job.id).ok == 0
        full.stop()
        target.start()
        # The text was accepted, so it is kept, and taken in as soon as there is room.
        assert verso.wait(job.id, timeout_s=300).status is Status.SUCCEEDED
        assert verso.get("b").data == b"there was none then"
