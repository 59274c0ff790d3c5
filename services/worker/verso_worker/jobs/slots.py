"""How many hands of a worker are on a queue: asleep, awake and listening, or at work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """Counts the hands on one queue; any number of threads may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._awake = 0
        self._busy = 0
        self._called = False
        self._lock = threading.Lock()

    @property
    def most(self) -> int:
        """How many there may be."""
        return self._most

    @property
    def at_work(self) -> int:
        """How many are at work now."""
        return self._busy

    def wake(self) -> bool:
        """Be one hand more; False when there are as many as there may be."""
        with self._lock:
            if self._awake >= self._most:
                return False
            self._awake += 1
            self._called = False
            return True

    def sleep(self) -> None:
        """Be one hand less."""
        with self._lock:
            self._awake -= 1
            self._called = False  # whoever was called may have found no place

    @contextmanager
    def busy(self) -> Iterator[bool]:
        """Be at work; yields whether another hand should be called.

        One should when all that are awake are at work, more may be, and none was called already.
        """
        with self._lock:
            self._busy += 1
            alone = self._busy == self._awake < self._most and not self._called
            self._called = self._called or alone
        try:
            yield alone
        finally:
            with self._lock:
                self._busy -= 1
