"""A migration under SIGKILLs, searches and writes ends, and every document reads exactly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.conftest import Platform
from tests.integration.verso_worker.rules.test_migrate import other_artifact

from verso_client import Document

TEXTS = 400
_SHOT = (("worker", "keeper"), ("shard",))
"""What is killed together, and what then; without the first two no migration ends."""


class Searches(threading.Thread):
    """Searches for texts that nobody writes, until told to stop; each must be the first hit."""

    def __init__(self, platform: Platform, wanted: list[Document], *, collection: str) -> None:
        super().__init__()
        self.over = threading.Event()
        self.done = 0
        self.faults: list[object] = []
        self._platform = platform
        self._wanted = wanted
        self._collection = collection

    def run(self) -> None:
        with self._platform.client() as verso:
            while not self.over.wait(0.2):
                one = self._wanted[self.done % len(self._wanted)]
                try:
                    hits = verso.search(str(one.text), collection=self._collection, limit=3).hits
                except Exception as error:  # noqa: BLE001 - told by the test's own thread
                    self.faults.append(error)
                    return
                if not hits or hits[0].document != one.id:
                    self.faults.append((one.id, hits))
                self.done += 1


@pytest.mark.slow
def test_a_migration_shot_at_under_searches_and_writes_loses_nothing(
    new_platform: Callable[..., Platform], lines: Callable[[int], list[Document]], tmp_path: Path
) -> None:
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    documents = lines(TEXTS)
    texts = {str(one.id): str(one.text).encode() for one in documents}
    with platform.client() as verso:
        verso.create_collection("moved")
        verso.ingest(documents, collection="moved")
        old = verso.stats("moved").space
    platform.await_verified("moved", TEXTS)
    platform.stop()
    platform.artifact = other_artifact(tmp_path / "other", space=True)
    platform.start()

    searches = Searches(platform, documents[-50:], collection="moved")
    searches.start()
    try:
        with platform.client() as verso:
            assert verso.migrate("moved").stage == "copy"
            assert verso.migration("moved").running
            for number, parts in enumerate(_SHOT):
                for part in parts:
                    platform.kill(part)
                verso.ingest(
                    [Document(f"rewritten {number}", id=f"line/{number}")], collection="moved"
                )
                texts[f"line/{number}"] = b"rewritten %d" % number
                verso.delete(f"line/{100 + number}", collection="moved")
                del texts[f"line/{100 + number}"]
            deadline = time.monotonic() + 240
            while (state := verso.migration("moved")).running and time.monotonic() < deadline:
                time.sleep(0.2)
            assert (state.stage, state.unread) == ("done", ())
            assert verso.stats("moved").space != old
    finally:
        searches.over.set()
        searches.join()
    assert searches.done
    assert not searches.faults
    with platform.client() as verso:
        verso.end_migration("moved")
        assert verso.stats("moved").documents == len(texts)
    assert platform.read_all("moved", list(texts)) == texts
    platform.stop()
