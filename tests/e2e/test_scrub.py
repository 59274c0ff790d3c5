"""The scrub on a running platform: it goes by itself, finds damage, and says whose."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import redis
from tests.e2e.conftest import Platform

from verso_client import Client, Document, ScrubState
from verso_core.errors import VersoError
from verso_core.record import Entry, bucket_of
from verso_ledger.codec import collection_rows


def _damage(ledger: redis.Redis, collection: str, document: str) -> None:
    """Flip one bit of a stored checksum."""
    row = ledger.hget("verso:collections", collection)
    assert isinstance(row, bytes)
    settings = collection_rows.load(row)
    uid = ledger.hget("verso:uids", collection)
    assert isinstance(uid, bytes)
    name = f"verso:docs:{uid.decode()}:{bucket_of(document, buckets=settings.buckets)}"
    data = ledger.hget(name, document)
    assert isinstance(data, bytes)
    entry = Entry.unpack(data)
    first, *rest = entry.records
    wrong = replace(first, checksum=bytes([first.checksum[0] ^ 1]) + first.checksum[1:])
    ledger.hset(name, document, replace(entry, records=(wrong, *rest)).pack())


def _pass(verso: Client, *, after: int, timeout_s: float = 300.0) -> ScrubState:
    end = time.monotonic() + timeout_s
    while (state := verso.scrub()).number <= after or state.running:
        assert time.monotonic() < end, state
        time.sleep(0.2)
    return state


def test_a_damaged_document_is_found_and_named_and_its_neighbours_are_sound(
    new_platform: Callable[..., Platform], lines: Callable[[int], list[Document]]
) -> None:
    platform = new_platform(
        VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0", VERSO_SCRUB_SHARE="1"
    )
    platform.start()
    documents = lines(50)
    with platform.client() as verso, platform.redis() as ledger:
        first = _pass(verso, after=0).number  # the first one begins by itself
        verso.ingest(documents)
        platform.await_verified("default", 50)
        verso.scrub(now=True)
        state = _pass(verso, after=first)
        assert (state.documents, state.sound, state.damaged) == (50, 50, 0)
        assert state.bytes == sum(len(str(document.text)) for document in documents)
        _damage(ledger, "default", "line/7")
        verso.scrub(now=True)
        state = _pass(verso, after=state.number)
        assert (state.documents, state.sound, state.damaged) == (50, 49, 1)
        assert [one.id for one in state.damaged_documents] == ["line/7"]
    argv = [sys.executable, "-m", "verso_client", "--url", platform.url, "scrub", "--json"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert json.loads(shown.stdout)["damaged_documents"] == [
        {"collection": "default", "id": "line/7"}
    ]


def test_points_that_were_lost_while_it_was_stopped_are_told_of_and_put_again_at_once(
    new_platform: Callable[..., Platform],
) -> None:
    platform = new_platform(
        VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0", VERSO_SCRUB_SHARE="1"
    )
    platform.start()
    with platform.client() as verso:
        _pass(verso, after=0)
        verso.ingest([Document(id=str(one), text=f"disk {one} failed") for one in range(9)])
        platform.await_verified("default", 9)
    platform.stop()
    # the engine takes a segment without this file for one that was never finished
    (lost,) = (platform.data / "vectors" / "default").rglob("version.info")
    lost.unlink()
    platform.start()
    with platform.client() as verso:
        assert "the vector store has lost points" in platform.log("worker")
        end = time.monotonic() + 120
        while verso.stats("default").points < 9:
            assert time.monotonic() < end, verso.scrub()
            time.sleep(0.2)
        assert verso.scrub().damaged == 0


def test_collections_whose_vectors_are_lost_are_errors_until_they_are_put_again(
    new_platform: Callable[..., Platform],
) -> None:
    platform = new_platform(
        VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0", VERSO_SCRUB_SHARE="1"
    )
    platform.start()
    names = ("default", "others", "sound")
    with platform.client() as verso:
        _pass(verso, after=0)
        for name in names:
            if name != "default":
                verso.create_collection(name)
            documents = [Document(id=str(one), text=f"disk {one} failed") for one in range(9)]
            verso.ingest(documents, collection=name)
            platform.await_verified(name, 9)
    platform.stop()
    shutil.rmtree(platform.data / "vectors" / "default")
    for path in (platform.data / "vectors" / "others").rglob("chunk_0.mmap"):
        path.write_bytes(b"")
    platform.start()
    with platform.client() as verso:
        assert len(verso.search("disk 3 failed", collection="sound", limit=9).hits) == 9
        for name in ("default", "others"):
            end = time.monotonic() + 120
            while (found := _found(verso, name)) != 9:
                assert found == "vectors_damaged"
                assert time.monotonic() < end, verso.scrub()
                time.sleep(0.2)
            assert verso.get("3", collection=name).text == "disk 3 failed"
        assert verso.scrub().damaged == 0


def _found(verso: Client, collection: str) -> int | str:
    """Return how many points a search finds, or the code of its error."""
    try:
        return len(verso.search("disk 3 failed", collection=collection, limit=9).hits)
    except VersoError as error:
        return error.code
