"""The open files of one collection, which any number of calls use at once.

The engine closes its files under no call ("Already borrowed"), and while another process optimises
them nobody may have them open. So calls are counted: :meth:`OpenShard.release` waits until the last
one has ended, and later ones wait until :meth:`OpenShard.open`. Until a collection has files,
:class:`NoFiles` answers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import qdrant_edge as qdrant

from verso_core.errors import VectorsUnavailable
from verso_worker.records.points import unknown

_SEGMENTS = "segments"

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
        VectorsUnavailable: the files cannot be opened.
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
            VectorsUnavailable: the files cannot be opened.
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
        try:
            # The engine opens a folder that has lost its segments as one without points.
            if not any((self._path / _SEGMENTS).iterdir()):
                raise FileNotFoundError(f"{self._path / _SEGMENTS} is empty")
            return qdrant.EdgeShard.load(str(self._path))
        except BaseException as exc:
            # On a file that is cut short the engine may panic, which is no Exception.
            if not isinstance(exc, Exception) and type(exc).__module__ != "pyo3_runtime":
                raise
            raise VectorsUnavailable(f"collection {self._name!r} cannot be opened: {exc}") from exc
