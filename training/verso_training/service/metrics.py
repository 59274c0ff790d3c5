"""The trainer's Prometheus metrics; docs/reference/metrics.md lists them all."""

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
        registry: the registry of this trainer.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._trainings = Counter(
            "verso_trainings",
            "Trainings that ended here, by outcome",
            ["status"],
            registry=registry,
        )
        self._seconds = Counter(
            "verso_training_seconds",
            "Time that trainings spent in each phase",
            ["phase"],
            registry=registry,
        )
        self._running = Gauge("verso_trainings_running", "Running trainings", registry=registry)
        for outcome in OUTCOMES:
            self._trainings.labels(outcome)
        for phase in PHASES:
            self._seconds.labels(phase)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the block as a running training."""
        with self._running.track_inprogress():
            yield

    def ended(self, outcome: str) -> None:
        """Count a training that ended."""
        self._trainings.labels(outcome).inc()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase and record a span."""
        start = time.perf_counter()
        with tracing.span(name):
            try:
                yield
            finally:
                self._seconds.labels(name).inc(time.perf_counter() - start)
