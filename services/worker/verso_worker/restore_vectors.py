"""Restore a backup to a Qdrant server: ``python -m verso_worker.restore_vectors DIR``.

It is for a platform on many machines, whose Redis or Valkey was started with the backup's
``ledger.rdb`` and whose gateways, workers and keepers do not run yet. It may be repeated after a
failure. On one machine ``verso restore`` does all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from verso_core import files
from verso_core.backup import KEPT_NAMES, VECTORS_NAME, Backup, check
from verso_core.errors import BackupInvalid
from verso_ledger.epoch import Epoch
from verso_worker.settings import WorkerSettings
from verso_worker.stores import points_file
from verso_worker.stores.backup import run_command
from verso_worker.stores.qdrant.store import QdrantVectors


def fill(folder: Path, *, redis_url: str, vectors: QdrantVectors, data: Path) -> Backup:
    """Restore vectors and artifacts, and let the ledger begin a new epoch.

    Args:
        folder: the backup.
        redis_url: a ledger that holds the backup's ``ledger.rdb``.
        vectors: the store that receives the points; existing collections are completed.
        data: the workers' data folder.

    Raises:
        BackupInvalid: the backup is altered, is one of an embedded store, or is not this ledger's.
    """
    backup = check(folder)
    with closing(Epoch.from_url(redis_url)) as epoch:
        known = epoch.current()
        if backup.epoch not in (known.epoch, known.before) or known.seq < backup.seq:
            raise BackupInvalid("expected a ledger that was started with this backup's ledger.rdb")
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
        for name in KEPT_NAMES:
            if (folder / name).is_dir():
                files.copy_tree(folder / name, data / name, merge=True)
        if known.epoch == backup.epoch:
            epoch.start_new()
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
        made = fill(folder, redis_url=settings.redis_url, vectors=store, data=settings.data)
    return len(made.collections)


if __name__ == "__main__":
    sys.exit(main())
