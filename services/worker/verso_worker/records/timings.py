"""Milliseconds by phase, added up over a slice: they go into results and Server-Timing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from verso_core import tracing


@dataclass(slots=True)
class Timings:
    """What a slice spent in each phase, ms."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        start = time.perf_counter()
        with tracing.inner(name):
            try:
                yield
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + 1e3 * (time.perf_counter() - start)
