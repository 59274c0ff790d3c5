"""Take a backup of a platform while it serves: ``python -m verso_worker.stores.backup DIR``.

Run it beside a worker, with the worker's settings; on one machine ``verso backup DIR`` does the
same.

1. The ledger is frozen: no point is removed and no collection deleted from here on.
2. The ledger is copied as of one moment, over its own port. Where there are several, each is
   frozen before the first is copied.
3. The vectors are copied. A collection's writes wait while its files are copied, searches and reads
   continue.
4. The objects of cold storage are copied, wherever it is.
5. Artifacts are copied, and on one machine its own models. The folder is hashed, synced, sealed
   and renamed to its name.

A backup that fails leaves no folder under the requested name.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from verso_core import files, telemetry
from verso_core.backup import (
    COLD_NAME,
    KEPT_NAMES,
    LEDGER_NAME,
    MODELS_NAME,
    VECTORS_NAME,
    Backup,
    seal,
)
from verso_core.errors import BackupInvalid, CollectionBusy, VersoError
from verso_core.registry import REGISTRY_NAME
from verso_core.settings import HOME_LEDGER, LedgerAddress
from verso_ledger.dump import dump
from verso_ledger.epoch import Epoch, EpochState
from verso_worker.settings import WorkerSettings
from verso_worker.stores.edge.client import EdgeVectors
from verso_worker.stores.objects import ObjectStorage, copy_objects, local_objects

if TYPE_CHECKING:
    from verso_worker.stores.qdrant.store import QdrantVectors

    VectorStore = EdgeVectors | QdrantVectors

OTHERS_NAME = "ledgers.json"
"""Says where the ledgers were whose copies lie beside that of the home ledger."""
FREEZE_S = 60.0
"""A freeze lapses after so many seconds without a renewal."""
COPY_TIMEOUT_S = 3600.0
"""Longest copy of one collection."""

_log = logging.getLogger(__name__)


def take(
    target: Path,
    *,
    redis_url: str,
    vectors: VectorStore,
    data: Path,
    cold: str,
    others: Sequence[LedgerAddress] = (),
) -> Backup:
    """Take a backup.

    Args:
        target: folder to create; its parent must exist.
        redis_url: the home ledger.
        vectors: the vector store.
        data: the worker's data folder, with its artifacts.
        cold: address of the object store of cold storage.
        others: the other ledgers of the platform.

    Raises:
        BackupInvalid: the target exists.
        CollectionBusy: another backup is being taken, or this one was too slow to hold the freeze.
        LedgerUnavailable: the ledger could not be copied.
        ObjectsUnavailable: cold storage could not be copied.
        VectorsUnavailable: a collection could not be copied.
    """
    target = target.resolve()
    if target.exists():
        raise BackupInvalid(f"expected a new folder, but {target} exists")
    draft = target.parent / f".{target.name}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    try:
        with ExitStack() as stack:
            epoch = stack.enter_context(closing(Epoch.from_url(redis_url)))
            freezes = [stack.enter_context(_frozen(epoch))]
            states: dict[str, EpochState] = {}
            for one in others:
                other = stack.enter_context(closing(Epoch.from_url(one.url)))
                freezes.append(stack.enter_context(_frozen(other)))
                states[one.name] = other.current()
            known = epoch.current()
            dump(redis_url, draft / LEDGER_NAME)
            for one in others:
                dump(one.url, draft / f"ledger-{one.name}.rdb")
            if others:
                rows = {name: (state.epoch, state.seq) for name, state in states.items()}
                (draft / OTHERS_NAME).write_text(json.dumps(rows), encoding="ascii")
            (draft / VECTORS_NAME).mkdir()
            counts = {
                name: vectors.copy(name, draft / VECTORS_NAME / name) for name in vectors.names()
            }
            for name in (HOME_LEDGER, *(one.name for one in others)):
                copy_objects(
                    ObjectStorage(cold, ledger=name), local_objects(draft / COLD_NAME, ledger=name)
                )
            for freeze in freezes:
                freeze.check()
        for name in KEPT_NAMES:
            if (data / name).is_dir():
                files.copy_tree(data / name, draft / name, ignore=shutil.ignore_patterns(".*"))
        _copy_models(data / MODELS_NAME, draft / MODELS_NAME)
        made = seal(draft, epoch=known.epoch, seq=known.seq, collections=counts)
        draft.rename(target)
        files.sync(target.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return made


def other_ledgers(folder: Path) -> dict[str, EpochState]:
    """Return where the ledgers of a backup were, but the home ledger, by their names."""
    path = folder / OTHERS_NAME
    rows = json.loads(path.read_text(encoding="ascii")) if path.exists() else {}
    return {name: EpochState(epoch, "", seq) for name, (epoch, seq) in rows.items()}


def _copy_models(folder: Path, target: Path) -> None:
    """Copy the models of one machine: not those that are links, to what is shipped with Verso.

    The registry goes first: what it names is there, and is never removed.
    """
    if not (folder / REGISTRY_NAME).is_file():
        return

    def others(parent: str, names: list[str]) -> set[str]:
        return {
            name
            for name in names
            if name.startswith(".") or name == REGISTRY_NAME or Path(parent, name).is_symlink()
        }

    target.mkdir()
    files.copy(folder / REGISTRY_NAME, target / REGISTRY_NAME)
    files.copy_tree(folder, target, merge=True, ignore=others)


def is_copy(epoch: Epoch, copied: EpochState, *, of: str) -> bool:
    """Whether a ledger is still in the epoch that it was copied in.

    Raises:
        BackupInvalid: it does not hold the backup's copy.
    """
    known = epoch.current()
    if copied.epoch not in (known.epoch, known.before) or known.seq < copied.seq:
        file = "ledger.rdb" if of == HOME_LEDGER else f"ledger-{of}.rdb"
        raise BackupInvalid(f"expected a ledger that was started with this backup's {file}")
    return known.epoch == copied.epoch


class Freeze:
    """A freeze of the ledger that is renewed until it ends.

    Args:
        epoch: the ledger's.
    """

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._owner = secrets.token_hex(8)
        self._over = threading.Event()
        self._lapsed = False
        self._thread = threading.Thread(target=self._renew, name="freeze", daemon=True)

    def start(self) -> None:
        """Freeze the ledger."""
        self._epoch.freeze(self._owner, seconds=FREEZE_S)
        self._thread.start()

    def end(self) -> None:
        """Thaw the ledger."""
        self._over.set()
        self._thread.join()
        self._epoch.thaw(self._owner)

    def check(self) -> None:
        """Check that the freeze has held all the time.

        Raises:
            CollectionBusy: it has lapsed; points may have been removed meanwhile.
        """
        if self._lapsed or not self._epoch.extend_freeze(self._owner, seconds=FREEZE_S):
            raise CollectionBusy("the freeze lapsed while the stores were copied; try again")

    def _renew(self) -> None:
        while not self._over.wait(FREEZE_S / 4):
            try:
                if not self._epoch.extend_freeze(self._owner, seconds=FREEZE_S):
                    self._lapsed = True
            except VersoError as error:
                _log.warning("freeze not renewed: %s", error.detail)


@contextmanager
def _frozen(epoch: Epoch) -> Iterator[Freeze]:
    freeze = Freeze(epoch)
    freeze.start()
    try:
        yield freeze
    finally:
        freeze.end()


def run_command(
    name: str,
    action: Callable[[Path, WorkerSettings], int],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a command whose only argument is a folder, and return its exit status.

    Args:
        name: its name in logs.
        action: does the work and returns how many parts were copied.
        arguments: of the command line; by default those of this process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print(f"{name}: expected one argument, DIR", file=sys.stderr)  # noqa: T201
        return 2
    settings = WorkerSettings()
    telemetry.configure(name, level=settings.log_level)
    try:
        count = action(Path(given[0]), settings)
    except VersoError as error:
        _log.error("%s failed: %s", name, error.detail, extra={"code": error.code})
        return 1
    _log.info("%s done", name, extra={"count": count})
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Take a backup of the platform that this worker's settings name."""
    return run_command("backup", _take, arguments)


def _take(target: Path, settings: WorkerSettings) -> int:
    with closing(_store(settings)) as vectors:
        home, *others = settings.ledger_addresses
        made = take(
            target,
            redis_url=home.url,
            vectors=vectors,
            data=settings.data,
            cold=settings.cold_store,
            others=others,
        )
    return len(made.files)


def _store(settings: WorkerSettings) -> VectorStore:
    if settings.qdrant_url is not None:
        # Qdrant's client takes a second to load, which `verso up` and its backups save.
        from verso_worker.stores.qdrant.store import QdrantVectors

        return QdrantVectors.server(
            settings.qdrant_url,
            api_key=settings.qdrant_api_key,
            replication=settings.replication,
        )
    if settings.run is None:
        raise BackupInvalid("expected VERSO_RUN, where the worker's vector store listens")
    return EdgeVectors(settings.run / "vectors.sock", timeout_s=COPY_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
