"""Backups of a one-machine platform: taken while it serves, restored into a new folder.

A restore builds the data folder under a temporary name and renames it at the end:

1. Hash every file of the backup and compare it with the manifest.
2. Copy vectors, cold storage, artifacts and models; make the ledger's copy the base of an
   append-only file.
3. Start Valkey on it once, and let the ledger begin a new epoch.

A restored folder can be checked: the platform is started on it and a scrub pass decodes every
document from the stores.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from verso_client import Client, ScrubState
from verso_core import backup, files
from verso_core.backup import (
    COLD_NAME,
    KEPT_NAMES,
    LEDGER_NAME,
    MODELS_NAME,
    VECTORS_NAME,
    Backup,
)
from verso_core.errors import BackupInvalid, NotReady, Unavailable
from verso_core.settings import HOME_LEDGER, read_settings
from verso_core.supervise import Process
from verso_ledger import Ledger
from verso_ledger.epoch import Epoch
from verso_standalone.folder import DataFolder
from verso_standalone.stack import Stack, StackConfig
from verso_standalone.valkey import AOF_FOLDER, AOF_MANIFEST, Valkey, find_program, free_port
from verso_worker.jobs.ledger_watch import describe
from verso_worker.settings import WorkerSettings
from verso_worker.stores.backup import COPY_TIMEOUT_S, is_copy, other_ledgers, take
from verso_worker.stores.edge.client import EdgeVectors
from verso_worker.stores.objects import ObjectStorage, copy_objects, local_objects

_AOF_BASE = "appendonly.aof.1.base.rdb"
_STARTED_S = 120.0
_POLL_S = 0.2
_STOP_S = 20.0
_BEAT_S = 5.0
"""A worker says that it lives within so many seconds."""


def save(data: Path, target: Path) -> Backup:
    """Take a backup of the platform that runs on a data folder.

    Raises:
        Unavailable: no platform runs there.
        BackupInvalid: the target exists.
        VersoError: one of the stores could not be copied.
    """
    folder = DataFolder(data.resolve())
    port = folder.valkey_port()
    if port is None:
        raise Unavailable(f"expected a platform running on {data}, got no data folder")
    url = Valkey(find_program(), folder.valkey, port=port, password=folder.secret()).url(0)
    settings = _settings(folder, url)
    socket = (settings.run or folder.run_folder()) / "vectors.sock"
    with closing(EdgeVectors(socket, timeout_s=COPY_TIMEOUT_S)) as vectors:
        return take(
            target,
            redis_url=url,
            vectors=vectors,
            data=folder.root,
            cold=settings.cold_store,
            others=settings.ledger_addresses[1:],
        )


def restore(source: Path, data: Path) -> Backup:
    """Build a data folder from a backup.

    Further ledgers are servers that run on the backup's ``ledger-NAME.rdb`` already.

    Raises:
        BackupInvalid: the backup is altered, the data folder exists, or a further ledger is not
            named or not of this backup.
        ObjectsUnavailable: the object store of cold storage cannot be written.
        Unavailable: its Valkey does not start.
    """
    made = backup.check(source)
    data = data.resolve()
    if data.exists() and any(data.iterdir()):
        raise BackupInvalid(f"expected a new data folder, but {data} exists")
    draft = DataFolder(data.parent / f".{data.name}.{os.getpid()}")
    shutil.rmtree(draft.root, ignore_errors=True)
    try:
        draft.prepare()
        settings = read_settings(
            WorkerSettings, data=draft.root
        )  # those that the platform will have
        with _others(source, settings) as others:
            for name in (HOME_LEDGER, *others):
                copy_objects(
                    local_objects(source / COLD_NAME, ledger=name),
                    ObjectStorage(settings.cold_store, ledger=name),
                )
            for name in (VECTORS_NAME, *KEPT_NAMES, MODELS_NAME):
                if (source / name).is_dir():
                    files.copy_tree(source / name, draft.root / name, merge=True)
            _lay_ledger(source / LEDGER_NAME, draft.valkey / AOF_FOLDER)
            with _ledger(draft) as epoch:
                if epoch.current().epoch != made.epoch:
                    raise BackupInvalid("the ledger's copy is not the one that the manifest names")
                epoch.start_new()
        shutil.rmtree(draft.logs)
        for path in draft.root.rglob("*"):
            files.sync(path)
        if data.exists():
            data.rmdir()
        draft.root.rename(data)
        files.sync(data.parent)
    except BaseException:
        shutil.rmtree(draft.root, ignore_errors=True)
        raise
    return made


@contextmanager
def _others(source: Path, settings: WorkerSettings) -> Iterator[tuple[str, ...]]:
    """Check that further ledgers hold a backup's copies; in the end each starts a new epoch."""
    copied, addresses = other_ledgers(source), dict(settings.ledger_addresses[1:])
    if lacking := sorted(copied.keys() - addresses.keys()):
        raise BackupInvalid(
            f"expected VERSO_LEDGERS with {', '.join(lacking)}: start a server on each ledger-NAME"
            ".rdb first"
        )
    with ExitStack() as stack:
        ledgers = {
            name: stack.enter_context(closing(Ledger.from_url(addresses[name], name=name)))
            for name in copied
        }
        old = [name for name, one in ledgers.items() if is_copy(one.epoch, copied[name], of=name)]
        _check_unused(ledgers)
        yield tuple(copied)
        for name in old:
            ledgers[name].epoch.start_new()


def _check_unused(ledgers: Mapping[str, Ledger]) -> None:
    """Check that no worker uses a further ledger: that of the platform itself is no copy.

    Raises:
        BackupInvalid: a worker does.
    """
    before = {name: one.liveness.health().worker_beat_age_s for name, one in ledgers.items()}
    time.sleep(_BEAT_S if ledgers else 0.0)
    for name, one in ledgers.items():
        age_s, older_s = one.liveness.health().worker_beat_age_s, before[name]
        if age_s is not None and (older_s is None or age_s < older_s + _BEAT_S - 1.0):
            raise BackupInvalid(
                f"expected a server on the backup's ledger-{name}.rdb, got one that workers use"
            )


def _settings(folder: DataFolder, url: str) -> WorkerSettings:
    """Return a worker's settings: its stores are where those of the platform were at its start.

    This process may have been started without the environment of the platform.
    """
    given = {**folder.stores(), "redis_url": url, "data": folder.root}
    return read_settings(WorkerSettings, **given)


def read_back(
    config: StackConfig, *, on_progress: Callable[[ScrubState], None] = lambda _: None
) -> ScrubState:
    """Start a platform on a restored folder, let a scrub pass read every document, and stop it.

    Args:
        config: the platform's settings; its data folder is the restored one.
        on_progress: called with the state of the pass several times a second.

    Raises:
        VersoError: the platform does not start.
    """
    stack = Stack(config)
    stack.start()
    try:
        with Client(stack.url) as client:
            # The pass that ran when the backup was taken is finished first.
            wanted = client.scrub(now=True).number + 1
            while (state := client.scrub()).number < wanted or state.running:
                on_progress(state)
                time.sleep(_POLL_S)
            return state
    finally:
        stack.stop()


def ledger_state(data: Path, *, trust: bool) -> tuple[str, bool]:
    """Describe a data folder's ledger; if it is read-only and ``trust`` is set, accept it as it is.

    The ledger of a platform that does not run is started alone.

    Returns:
        The description, and whether the ledger is read-only.

    Raises:
        Unavailable: there is no platform in the folder, or its Valkey does not start.
    """
    folder = DataFolder(data.resolve())
    port = folder.valkey_port()
    if port is None:
        raise Unavailable(f"expected the data folder of a platform, got {data}")
    valkey = Valkey(find_program(), folder.valkey, port=port, password=folder.secret())
    with ExitStack() as stack:
        if valkey.answers():
            epoch = stack.enter_context(closing(Epoch.from_url(valkey.url(0))))
        else:
            lock = folder.lock()
            stack.callback(os.close, lock)
            epoch = stack.enter_context(_ledger(folder))
        description = describe(epoch, accept=trust)
        return description, epoch.read_only() is not None


def _lay_ledger(copy: Path, folder: Path) -> None:
    """Make the ledger's copy the base of an append-only file, from which a server starts."""
    folder.mkdir(parents=True)
    shutil.copyfile(copy, folder / _AOF_BASE)
    (folder / AOF_MANIFEST).write_text(f"file {_AOF_BASE} seq 1 type b\n", encoding="ascii")


@contextmanager
def _ledger(folder: DataFolder) -> Iterator[Epoch]:
    """Run a folder's Valkey alone and yield its epoch."""
    valkey = Valkey(find_program(), folder.valkey, port=free_port(), password=folder.secret())
    process = Process("valkey", valkey.argv(), log_path=folder.log_path("valkey"), environment={})
    process.start()
    try:
        deadline = time.monotonic() + _STARTED_S
        while not valkey.answers():
            if process.deaths:
                raise BackupInvalid(f"Valkey refuses the ledger's copy:\n{process.last_words()}")
            if time.monotonic() > deadline:
                raise NotReady(f"Valkey did not load the ledger's copy in {_STARTED_S:g} s")
            time.sleep(_POLL_S)
        with closing(Epoch.from_url(valkey.url(0))) as epoch:
            yield epoch
    finally:
        process.stop(grace_s=_STOP_S)
