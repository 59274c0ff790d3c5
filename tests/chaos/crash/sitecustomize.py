"""Named places at which a test may end a process, at exactly that moment and once.

Python imports a module of this name at its start when it finds one on its path. A test puts this
folder on the path of the processes it starts, with ``CRASH_FILE`` in their environment; the product
knows nothing of it and pays nothing for it. When the file holds the name of a place, the first
process that comes by removes the file and ends itself as SIGKILL would.

A place is before or after one call. What is between two calls of the product is so between two
places: after the first, and before the second.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

Call = tuple[Any, ...]


def _any(_args: Call, _result: Any) -> bool:
    return True


def _of_ingest(args: Call, _result: Any) -> bool:
    return bool(args[1].kind == "ingest")


def _of_lines(args: Call, _result: Any) -> bool:
    return bool(args[1].kind == "ingest_lines")


def _with_result(_args: Call, result: Any) -> bool:
    return bool(result)


def _reference(_args: Call, result: Any) -> bool:
    return bool(result[:1] == b"\x57")


def _to_cold(args: Call, _result: Any) -> bool:
    return bool(args[3] == "segment")


@dataclass(frozen=True)
class Place:
    """Before or after a call of ``function``, of those calls that ``only`` chooses."""

    module: str
    function: str
    after: bool = False
    only: Callable[[Call, Any], bool] = _any


_LOGS = "verso_ledger.collections.logs"
_LEASES = "verso_ledger.leases"
_MAINTENANCE = "verso_ledger.maintenance"
PLACES: Mapping[str, Place] = {
    # gateway
    "a job is not accepted yet": Place("verso_ledger.async_client", "AsyncLedger.accept"),
    "a job is accepted, unanswered": Place(
        "verso_ledger.async_client", "AsyncLedger.accept", after=True
    ),
    # worker: a slice's way
    "a slice is claimed": Place(_LEASES, "Leases.claim", after=True, only=_with_result),
    "vectors are not put yet": Place("verso_worker.stores.edge.client", "EdgeVectors.put"),
    "vectors are put, patches are not": Place(
        "verso_worker.stores.edge.client", "EdgeVectors.put", after=True
    ),
    "patches are made, not committed": Place(_LEASES, "Leases.commit", only=_of_ingest),
    "patches are committed": Place(_LEASES, "Leases.commit", after=True, only=_of_ingest),
    # worker: a slice of lines
    "numbers of lines are reserved": Place(
        "verso_ledger.async_client", "AsyncLedger.reserve_each", after=True
    ),
    "shapes or vectors of lines are not stored yet": Place(
        "verso_ledger.collections.logs", "Logs.append"
    ),
    "shapes or vectors of lines are stored": Place(
        "verso_ledger.collections.logs", "Logs.append", after=True
    ),
    "tables of lines are stored": Place(
        "verso_ledger.collections.logs", "Logs.put_tables", after=True
    ),
    "lines are coded, not committed": Place(_LEASES, "Leases.commit", only=_of_lines),
    "lines are committed": Place(_LEASES, "Leases.commit", after=True, only=_of_lines),
    "segments are merged, not swapped": Place(_LOGS, "Logs.swap"),
    "segments are swapped": Place(_LOGS, "Logs.swap", after=True),
    # worker: the blocks of a segment, or entries of documents, to cold storage
    "an object is not written yet": Place("verso_worker.stores.objects", "ObjectStorage.put"),
    "an object is written, not read back": Place(
        "verso_worker.stores.objects", "ObjectStorage.put", after=True
    ),
    "an object is read back that nothing names": Place(
        "verso_worker.rules.cold.storage", "ColdStorage.write", after=True
    ),
    "an object is named in place of blocks": Place(
        _LOGS, "Logs.correct", after=True, only=_to_cold
    ),
    "an object is named in place of some entries": Place(
        "verso_ledger.collections.documents", "Documents.to_cold", after=True
    ),
    "a result is in its file, not committed": Place(
        "verso_core.result_files", "ResultFiles.keep", after=True, only=_reference
    ),
    "records are read, not marked verified": Place(_LEASES, "Leases.commit_verified"),
    "records are marked verified": Place(_LEASES, "Leases.commit_verified", after=True),
    "garbage is taken, points are there": Place(
        _MAINTENANCE, "Maintenance.gc_take", after=True, only=_with_result
    ),
    "points are gone, garbage is not done": Place(_MAINTENANCE, "Maintenance.gc_done"),
    # the vector store's process
    "the files for a first point are made, it is not in them": Place(
        "verso_worker.stores.edge.collection", "EdgeCollection._make_files", after=True
    ),
    "points are applied, not flushed": Place(
        "verso_worker.stores.edge.collection", "EdgeCollection.flush"
    ),
    "points are flushed, unanswered": Place(
        "verso_worker.stores.edge.collection", "EdgeCollection.flush", after=True
    ),
    "a collection is deleted, its vectors are there": Place(
        "verso_ledger.collections.documents", "Documents.collection_delete", after=True
    ),
    # keeper
    "texts are about to be dropped": Place(_MAINTENANCE, "Maintenance.drop_due"),
    "texts are dropped": Place(_MAINTENANCE, "Maintenance.drop_due", after=True, only=_with_result),
    # publishing
    "a release is not written yet": Place("verso_core.registry", "_write"),
    "a release is written, not committed": Place("verso_core.registry", "_write", after=True),
    "an artifact is loaded, not served": Place(
        "verso_worker.models.artifacts", "ArtifactStore.load", after=True
    ),
    # trainer: the process of one training
    "a head is in its draft": Place("verso_training.heads.shipping", "_placed"),
}
"""Every place by the name a test gives it."""


def install(file: Path) -> None:
    """Watch every place of this process from when its module is imported."""
    wanted: dict[str, list[str]] = {}
    for name, place in PLACES.items():
        wanted.setdefault(place.module, []).append(name)
    sys.meta_path.insert(0, _Finder(wanted, file))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, wanted: Mapping[str, Sequence[str]], file: Path) -> None:
        self._wanted = wanted
        self._file = file

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._wanted:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            for name in self._wanted[fullname]:
                _watch(module, name, self._file)

        loader.exec_module = exec_module
        return spec


def _watch(module: ModuleType, name: str, file: Path) -> None:
    place = PLACES[name]
    *holder, function = place.function.split(".")
    owner = functools.reduce(getattr, holder, module)
    inner: Callable[..., Any] = getattr(owner, function)

    def come_by(args: Call, result: Any) -> None:
        if file.is_file() and file.read_text() == name and place.only(args, result):
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(inner)
    def outer(*args: Any, **options: Any) -> Any:
        if not place.after:
            come_by(args, None)
        result = inner(*args, **options)
        if place.after:
            come_by(args, result)
        return result

    @functools.wraps(inner)
    async def outer_async(*args: Any, **options: Any) -> Any:
        if not place.after:
            come_by(args, None)
        result = await inner(*args, **options)
        if place.after:
            come_by(args, result)
        return result

    setattr(owner, function, outer_async if inspect.iscoroutinefunction(inner) else outer)


if "CRASH_FILE" in os.environ:
    install(Path(os.environ["CRASH_FILE"]))
