"""A cache of a bounded size, in which a value's key is a hash of all that determines the value."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Generic, TypeVar

ENTRY_BYTES = 200
"""Memory of a value besides its bytes: its key, and its position in the order of use."""

OnLookup = Callable[[int, int, int], None]
"""Receives the hits and misses of a lookup, and the size of the cache in bytes."""

Value = TypeVar("Value", bound=Sized)


class Cache(Generic[Value]):
    """The values that were used last, up to a number of bytes; any number of threads may share it.

    Args:
        limit_bytes: largest size of the cache, keys included; 0 keeps nothing. The size of a value
            is its ``len``.
        on_lookup: called after each lookup, for the metrics.
    """

    def __init__(self, limit_bytes: int, *, on_lookup: OnLookup = lambda *_: None) -> None:
        self._limit = limit_bytes
        self._on_lookup = on_lookup
        self._lock = threading.Lock()
        self._values: OrderedDict[bytes, Value] = OrderedDict()
        self._size = 0

    def find(self, names: Sequence[bytes]) -> dict[bytes, Value]:
        """Return those of the named values that are cached."""
        with self._lock:
            found = {name: self._values[name] for name in names if name in self._values}
            for name in found:
                self._values.move_to_end(name)
            size = self._size
        if names:
            hits = sum(name in found for name in names)
            self._on_lookup(hits, len(names) - hits, size)
        return found

    def keep(self, values: Mapping[bytes, Value]) -> None:
        """Add values, and remove the least recently used ones beyond the limit."""
        with self._lock:
            for name, value in values.items():
                if name in self._values or len(value) + ENTRY_BYTES > self._limit:
                    continue
                self._values[name] = value
                self._size += len(value) + ENTRY_BYTES
            while self._size > self._limit:
                _, value = self._values.popitem(last=False)
                self._size -= len(value) + ENTRY_BYTES
