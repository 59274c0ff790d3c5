"""What a lane of the engine has done since it was started: the figures behind its use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Tally:
    """Counts batches, the texts in them and the time they took; any number of threads may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches = 0
        self._texts = 0
        self._failed = 0
        self._tokens = 0
        self._busy_s = 0.0

    @contextmanager
    def batch(self, *, texts: int = 0, tokens: int = 0) -> Iterator[None]:
        """Count a batch of so many texts and tokens, and the time of the block.

        Args:
            texts: how many begin with it; a step of the decoder only goes on with its own.
            tokens: what the graph is given, padding left out.
        """
        start = time.perf_counter()
        try:
            yield
        finally:
            spent_s = time.perf_counter() - start
            with self._lock:
                self._batches += 1
                self._texts += texts
                self._tokens += tokens
                self._busy_s += spent_s

    def failed(self, texts: int = 1) -> None:
        """Count texts that ended in an error."""
        with self._lock:
            self._failed += texts

    def figures(self) -> dict[str, float]:
        """Return the counts by name; ``busy_s`` in seconds."""
        with self._lock:
            return {
                "batches": self._batches,
                "texts": self._texts,
                "failed": self._failed,
                "tokens": self._tokens,
                "busy_s": self._busy_s,
            }
