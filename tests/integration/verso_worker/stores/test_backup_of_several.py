"""A backup of several ledgers and a Qdrant server is restored to all of them or to none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from qdrant_client import QdrantClient
from tests.conftest import ValkeyServer

from verso_core.errors import BackupInvalid
from verso_core.settings import LedgerAddress
from verso_ledger.epoch import Epoch
from verso_worker.restore_vectors import fill
from verso_worker.stores.backup import take
from verso_worker.stores.objects import local_objects
from verso_worker.stores.qdrant.store import QdrantVectors


def epoch_of(url: str) -> str:
    with closing(Epoch.from_url(url)) as epoch:
        return epoch.current().epoch


def test_each_ledger_begins_a_new_epoch_and_a_wrong_one_is_refused(
    valkey_server: Callable[..., ValkeyServer], tmp_path: Path
) -> None:
    home, other, empty = valkey_server(), valkey_server(), valkey_server()
    b = [LedgerAddress("b", other.url)]
    vectors = QdrantVectors(QdrantClient(path=str(tmp_path / "qdrant")))
    data = tmp_path / "data"
    data.mkdir()
    before = {url: epoch_of(url) for url in (home.url, other.url)}
    copy = tmp_path / "copy"
    cold, restored = (local_objects(tmp_path / name, ledger="b") for name in ("cold", "restored"))
    cold.put("7/object", b"blocks")
    url = home.url
    made = take(copy, redis_url=url, vectors=vectors, data=data, cold=cold.url, others=b)
    assert {"ledger.rdb", "ledger-b.rdb", "ledgers.json"} <= made.files.keys()

    def restore(others: list[LedgerAddress]) -> None:
        fill(copy, redis_url=url, vectors=vectors, data=data, cold=restored.url, others=others)

    for wrong in ([], [LedgerAddress("c", other.url)], [LedgerAddress("b", empty.url)]):
        with pytest.raises(BackupInvalid):
            restore(wrong)
    assert {url: epoch_of(url) for url in before} == before
    restore(b)
    assert restored.get(["7/object"]) == [b"blocks"]
    after = {url: epoch_of(url) for url in before}
    assert all(after[url] != before[url] for url in before)
    restore(b)  # again, after a failure
    assert {url: epoch_of(url) for url in before} == after
    vectors.close()
