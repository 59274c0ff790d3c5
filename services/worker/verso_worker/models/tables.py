"""Fitted tables that this worker holds in memory, by generation, the least used ones let go."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core.errors import EngineUnavailable
from verso_worker.records import generation


class TableCache:
    """Loads fitted tables, checks their golden samples, and keeps them while there is room.

    Args:
        load: returns stored tables by generation; None for a deleted generation.
        limit_bytes: memory that all tables may take; those in use are never refused.
    """

    def __init__(self, load: Callable[[str], bytes | None], *, limit_bytes: int) -> None:
        self._load = load
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}
        self._held: OrderedDict[str, MixtureTables] = OrderedDict()

    def get(self, name: str, general: NgramTables) -> MixtureTables:
        """Return the tables of a generation; a second or two where they must be loaded.

        Args:
            name: of the generation.
            general: the n-gram tables of its artifact.

        Raises:
            EngineUnavailable: the generation is deleted.
            ArtifactInvalid: the tables are damaged, or decode to other texts here.
        """
        with self._lock:
            if (found := self._find(name)) is not None:
                return found
            loading = self._loading.setdefault(name, threading.Lock())
        with loading:
            with self._lock:
                if (found := self._find(name)) is not None:
                    return found
            stored = self._load(name)
            if stored is None:
                raise EngineUnavailable(f"no tables are stored of generation {name}")
            tables = generation.unpack(generation.opened(name, stored), general)
            with self._lock:
                self._held[name] = tables
                self._loading.pop(name, None)
                while len(self._held) > 1 and self.size_bytes > self._limit:
                    self._held.popitem(last=False)
            return tables

    @property
    def size_bytes(self) -> int:
        """Memory of the tables that are held."""
        return sum(tables.size_bytes for tables in self._held.values())

    def _find(self, name: str) -> MixtureTables | None:
        found = self._held.get(name)
        if found is not None:
            self._held.move_to_end(name)
        return found
