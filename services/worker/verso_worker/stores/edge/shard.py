"""The open files of one collection, which any number of calls use at once.

The engine closes its files under no call ("Already borrowed"), and while another process optimises
them nobody may have them open. So calls are counted: :meth:`OpenShard.release` waits until the last
one has ended, and later ones wait until :meth:`OpenShard.open`. Until a collection has files,
:class:`NoFiles` answers.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import qdrant_edge as qdrant

from verso_core.errors import VectorsDamaged, VectorsUnavailable
from verso_worker.records.points import unknown

_PASSING = (errno.ENFILE, errno.EMFILE, errno.ENOMEM, errno.ENOSPC)
_FAULT = "Service "  # how messages of the engine begin that are not about the request
_log = logging.getLogger(__name__)

SEGMENTS_NAME = "segments"
"""Folder of the engine's files of points."""

WAIT_S = 30.0
"""Seconds a call waits for a collection that is being optimised."""


class Info(Protocol):
    """What the engine says of a collection's files."""

    @property
    def points_count(self) -> int:
        """Number of points."""

    @property
    def indexed_vectors_count(self) -> int:
        """Number of vectors in an index."""

    @property
    def payload_schema(self) -> Mapping[str, object]:
        """The fields that are indexed, by path."""


class Files(Protocol):
    """A collection's files as calls use them: a ``qdrant.EdgeShard`` or :class:`NoFiles`."""

    def retrieve(
        self, ids: list[qdrant.PointId], with_payload: bool, with_vector: list[str] | bool, /
    ) -> list[qdrant.Record]:
        """Return the points that exist."""
        ...

    def scroll(
        self, request: qdrant.ScrollRequest, /
    ) -> tuple[list[qdrant.Record], qdrant.PointId | None]:
        """Return a page of points, and where the next one begins."""
        ...

    def query(self, request: qdrant.QueryRequest, /) -> list[qdrant.ScoredPoint]:
        """Return the best points."""
        ...

    def count(self, request: qdrant.CountRequest, /) -> int:
        """Count points."""
        ...

    def info(self) -> Info:
        """Return what the engine says of the files."""
        ...

    def update(self, operation: qdrant.UpdateOperation, /) -> None:
        """Apply a change."""
        ...

    def flush(self) -> None:
        """Bring all changes to the disk."""

    def close(self) -> None:
        """Close the files."""


@dataclass(frozen=True, slots=True)
class _NoInfo:
    points_count: int = 0
    indexed_vectors_count: int = 0
    payload_schema: Mapping[str, object] = field(default_factory=dict)


class NoFiles:
    """The files of a collection that never had a point: there are none, and nothing is found."""

    def retrieve(self, *_: object) -> list[qdrant.Record]:
        """Return no point."""
        return []

    def scroll(self, *_: object) -> tuple[list[qdrant.Record], qdrant.PointId | None]:
        """Return an empty page."""
        return [], None

    def query(self, *_: object) -> list[qdrant.ScoredPoint]:
        """Return no point."""
        return []

    def count(self, *_: object) -> int:
        """Return 0."""
        return 0

    def info(self) -> Info:
        """Return that there is no point and no index."""
        return _NoInfo()

    def update(self, *_: object) -> None:
        """Refuse: the files are to be made before they are changed.

        Raises:
            VectorsUnavailable: always.
        """
        raise VectorsUnavailable("expected the files of the collection to be made first")

    def flush(self) -> None:
        """Do nothing: nothing was written."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class OpenShard:
    """The engine's files of one collection.

    Args:
        path: of the engine's own files.
        name: of the collection.
        made: whether there are files; else :meth:`open` has to be called once there are.

    Raises:
        VectorsDamaged: the files cannot be opened.
    """

    def __init__(self, path: Path, name: str, *, made: bool) -> None:
        self._path = path
        self._name = name
        self._gate = threading.Condition()
        self._users = 0
        self._closed = False
        self._edge: Files | None = self._load() if made else NoFiles()

    @property
    def made(self) -> bool:
        """Whether there are files."""
        return not isinstance(self._edge, NoFiles)

    @contextmanager
    def using(self) -> Iterator[Files]:
        """Yield the open files, which stay open meanwhile.

        Raises:
            CollectionUnknown: the shard was closed for good.
            VectorsUnavailable: it was not opened again in :data:`WAIT_S`.
        """
        with self._gate:
            self._gate.wait_for(lambda: self._closed or self._edge is not None, WAIT_S)
            if self._closed:
                raise unknown(self._name)
            edge = self._edge
            if edge is None:
                raise VectorsUnavailable(f"collection {self._name!r} is being optimised")
            self._users += 1
        try:
            yield edge
        finally:
            with self._gate:
                self._users -= 1
                self._gate.notify_all()

    @contextmanager
    def reading(self) -> Iterator[Files]:
        """Yield the open files to a call that only reads.

        A write uses :meth:`using`: what the engine raises there is for the committer to judge.

        Raises:
            CollectionUnknown: the shard was closed for good.
            VectorsDamaged: the engine cannot read them.
            VectorsUnavailable: it was not opened again in :data:`WAIT_S`.
        """
        with self.using() as edge:
            try:
                yield edge
            except BaseException as exc:
                if not is_of_files(exc):
                    raise
                # The message may quote a payload, which holds users' data.
                _log.error("collection %s cannot be read: %s", self._name, type(exc).__name__)
                raise VectorsDamaged(
                    f"the vectors of collection {self._name!r} cannot be read: files are damaged"
                ) from exc

    def release(self) -> None:
        """Close the files once the calls under way have ended; later calls wait."""
        with self._gate:
            edge, self._edge = self._edge, None
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._users == 0)
        if edge is not None:
            edge.close()

    def open(self) -> qdrant.ShardInfo:
        """Open the files for later calls and those that wait; return what the engine says of them.

        Raises:
            VectorsDamaged: the files cannot be opened.
        """
        edge = self._load()
        info = edge.info()
        with self._gate:
            self._edge = edge
            self._gate.notify_all()
        return info

    def close(self) -> None:
        """Release the files for good: later calls, and those that wait, find no collection."""
        with self._gate:
            self._closed = True
        self.release()

    def _load(self) -> qdrant.EdgeShard:
        return loaded(self._path, self._name)


def loaded(path: Path, name: str) -> qdrant.EdgeShard:
    """Open the engine's files of a collection.

    Raises:
        VectorsDamaged: they cannot be opened as they are.
        VectorsUnavailable: this process may not open them, or not now.
    """
    try:
        # The engine opens a folder that has lost its segments as one without points.
        if not any((path / SEGMENTS_NAME).iterdir()):
            raise FileNotFoundError(f"{path / SEGMENTS_NAME} is empty")
        return qdrant.EdgeShard.load(str(path))
    except BaseException as exc:
        if not isinstance(exc, Exception) and not _is_panic(exc):
            raise
        fault = f"collection {name!r} cannot be opened: {exc}"
        if (closed := _not_allowed(path)) is not None:
            said = f"collection {name!r} cannot be opened: {closed} may not be read and written"
            raise VectorsUnavailable(said) from exc
        if any(f"(os error {number})" in fault for number in _PASSING):
            raise VectorsUnavailable(fault) from exc
        raise VectorsDamaged(fault) from exc


def _not_allowed(path: Path) -> Path | None:
    """Return a file that this process may not read and write, or a folder above one."""
    for one in (path.parent, path, *path.rglob("*")):
        if one.exists() and not os.access(one, os.R_OK | os.W_OK):
            return one
    return None


def is_of_files(exc: BaseException) -> bool:
    """Whether the engine raised this for what its files are like, and not for what it was asked."""
    return _is_panic(exc) or (type(exc) is Exception and str(exc).startswith(_FAULT))


def _is_panic(exc: BaseException) -> bool:
    """Whether this is a panic of the engine, as on a file that is cut short: it is no Exception."""
    return type(exc).__module__ == "pyo3_runtime"
