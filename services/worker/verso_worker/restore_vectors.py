"""Restore a backup to a Qdrant server: ``python -m verso_worker.restore_vectors DIR``.

It is for a platform on many machines, whose Redis or Valkey was started with the backup's
``ledger.rdb``, each further ledger with its ``ledger-NAME.rdb``, and whose gateways, workers and
keepers do not run yet. It may be repeated after a failure. On one machine ``verso restore`` does
all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from verso_core import files
from verso_core.backup import COLD_NAME, KEPT_NAMES, VECTORS_NAME, Backup, check
from verso_core.errors import BackupInvalid
from verso_core.settings import HOME_LEDGER, LedgerAddress
from verso_ledger.epoch import Epoch, EpochState
from verso_worker.settings import WorkerSettings
from verso_worker.stores import points_file
from verso_worker.stores.backup import is_copy, other_ledgers, run_command
from verso_worker.stores.objects import ObjectStorage, copy_objects, local_objects
from verso_worker.stores.qdrant.store import QdrantVectors


def fill(
    folder: Path,
    *,
    redis_url: str,
    vectors: QdrantVectors,
    data: Path,
    cold: str,
    others: Sequence[LedgerAddress] = (),
) -> Backup:
    """Restore vectors, cold storage and artifacts, and let each ledger begin a new epoch.

    Args:
        folder: the backup.
        redis_url: a ledger that holds the backup's ``ledger.rdb``.
        vectors: the store that receives the points; existing collections are completed.
        data: the workers' data folder.
        cold: address of the object store of cold storage.
        others: the other ledgers, each with the backup's copy of it.

    Raises:
        BackupInvalid: the backup is altered, is one of an embedded store, or is not of these
            ledgers.
    """
    backup = check(folder)
    copied = {HOME_LEDGER: EpochState(backup.epoch, "", backup.seq), **other_ledgers(folder)}
    addresses = {HOME_LEDGER: redis_url, **dict(others)}
    if copied.keys() != addresses.keys():
        raise BackupInvalid(f"expected the ledgers {', '.join(copied)}, got {', '.join(addresses)}")
    with ExitStack() as stack:
        epochs = {
            name: stack.enter_context(closing(Epoch.from_url(url)))
            for name, url in addresses.items()
        }
        old = [name for name, epoch in epochs.items() if is_copy(epoch, copied[name], of=name)]
        for name in backup.collections:
            settings, pages = points_file.read(folder / VECTORS_NAME / name)
            space = settings.space
            vectors.create(
                name,
                dim=space.dim,
                precision=space.precision,
                int8_scale=space.int8_scale,
                terms=settings.terms,
            )
            for page in pages:
                vectors.put(name, page)
        for name in addresses:
            copy_objects(
                local_objects(folder / COLD_NAME, ledger=name), ObjectStorage(cold, ledger=name)
            )
        for name in KEPT_NAMES:
            if (folder / name).is_dir():
                files.copy_tree(folder / name, data / name, merge=True)
        for name in old:
            epochs[name].start_new()
    return backup


def main(arguments: Sequence[str] | None = None) -> int:
    """Restore to the stores that this worker's settings name."""
    return run_command("restore", _restore, arguments)


def _restore(folder: Path, settings: WorkerSettings) -> int:
    if settings.qdrant_url is None:
        raise BackupInvalid("expected VERSO_QDRANT_URL; on one machine use verso restore")
    store = QdrantVectors.server(
        settings.qdrant_url, api_key=settings.qdrant_api_key, replication=settings.replication
    )
    with closing(store):
        home, *others = settings.ledger_addresses
        made = fill(
            folder,
            redis_url=home.url,
            vectors=store,
            data=settings.data,
            cold=settings.cold_store,
            others=others,
        )
    return len(made.collections)


if __name__ == "__main__":
    sys.exit(main())
