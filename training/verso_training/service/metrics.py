"""What a trainer counts, in Prometheus' terms; docs/reference/metrics.md names them all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge

from verso_core import tracing

OUTCOMES = ("done", "stale", "stopped", "retried", "failed")
PHASES = ("rows", "train", "publish")


class Metrics:
    """The trainer's counters.

    Args:
        registry: where they are registered; a trainer has one of its own.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._trainings = Counter(
            "verso_trainings",
            "Trainings that ended here, by what came of them",
            ["status"],
            registry=registry,
        )
        self._seconds = Counter(
            "verso_training_seconds",
            "Time that trainings spent in each phase",
            ["phase"],
            registry=registry,
        )
        self._running = Gauge("verso_trainings_running", "Trainings under way", registry=registry)
        for outcome in OUTCOMES:
            self._trainings.labels(outcome)
        for phase in PHASES:
            self._seconds.labels(phase)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the block as a training under way."""
        with self._running.track_inprogress():
            yield

    def ended(self, outcome: str) -> None:
        """Count a training that ended."""
        self._trainings.labels(outcome).inc()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase, and make a span of it."""
        start = time.perf_counter()
        with tracing.span(name):
            try:
                yield
            finally:
                self._seconds.labels(name).inc(time.perf_counter() - start)
