"""The open files of one collection, which any number of calls use at once.

The engine closes its files under no call ("Already borrowed"), and while another process optimises
them nobody may have them open. So calls are counted: :meth:`OpenShard.release` waits until the last
one has ended, and later ones wait until :meth:`OpenShard.reopen`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import qdrant_edge as qdrant

from verso_core.errors import VectorsUnavailable
from verso_worker.records.points import unknown

WAIT_S = 30.0
"""Seconds a call waits for a collection that is being optimised."""


class OpenShard:
    """The engine's files of one collection.

    Args:
        path: of the engine's own files.
        name: of the collection.

    Raises:
        VectorsUnavailable: the files cannot be opened.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._gate = threading.Condition()
        self._users = 0
        self._closed = False
        self._edge: qdrant.EdgeShard | None = self._load()

    @contextmanager
    def using(self) -> Iterator[qdrant.EdgeShard]:
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

    def reopen(self) -> qdrant.ShardInfo:
        """Open the files for the calls that wait, and return what the engine says of them.

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
            return qdrant.EdgeShard.load(str(self._path))
        except Exception as exc:
            raise VectorsUnavailable(f"collection {self._name!r} cannot be opened: {exc}") from exc
