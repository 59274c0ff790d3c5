"""The gateway's metrics: requests, wake-ups, waits and open event streams.

``task`` is a route's name. Labels never hold ids, tenants or text. Every label set exists from the
start, so that a rate includes the first error.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from verso_core.errors import CLASSES
from verso_core.jobs import Kind, Queue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNROUTED = "unrouted"
_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
# from the fastest GET to the longest wait that a caller may ask for
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "verso_requests_total",
            "HTTP requests answered.",
            ["task", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "verso_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["task"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._accepted = Counter(
            "verso_jobs_accepted_total",
            "Jobs that the ledger accepted, without replays.",
            ["task", "queue"],
            registry=self.registry,
        )
        self._waits = Counter(
            "verso_waits_total",
            "Waits for a job, by whether it ended in time.",
            ["status"],
            registry=self.registry,
        )
        self._wakeups = Counter(
            "verso_wakeups_total",
            "Wake-ups sent to the broker.",
            ["queue", "status"],
            registry=self.registry,
        )
        self._problems = Counter(
            "verso_problems_total",
            "Requests answered with an error, by its code.",
            ["reason"],
            registry=self.registry,
        )
        self.streams = Gauge(
            "verso_event_streams", "Event streams open now.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        self._create()

    def _create(self) -> None:
        for queue in Queue:
            for status in ("sent", "failed"):
                self._wakeups.labels(queue, status)
            for kind in Kind:
                self._accepted.labels(kind, queue)
        for status in ("ended", "deferred"):
            self._waits.labels(status)
        for code in CLASSES:
            self._problems.labels(code)

    def create_tasks(self, names: Iterable[str]) -> None:
        """Create the label sets of routes by their names."""
        for name in (*names, UNROUTED):
            self._seconds.labels(name)
            for status in _CLASSES:
                self._requests.labels(name, status)

    def request(self, task: str, *, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(task, f"{status // 100}xx").inc()
        self._seconds.labels(task).observe(seconds)

    def problem(self, code: str) -> None:
        """Count one error that was answered."""
        self._problems.labels(code).inc()

    def accepted(self, kind: Kind, queue: Queue) -> None:
        """Count one accepted job."""
        self._accepted.labels(kind, queue).inc()

    def waited(self, *, ended: bool) -> None:
        """Count one wait."""
        self._waits.labels("ended" if ended else "deferred").inc()

    def wakeup(self, queue: Queue, *, sent: bool) -> None:
        """Count one wake-up."""
        self._wakeups.labels(queue, "sent" if sent else "failed").inc()

    def page(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
