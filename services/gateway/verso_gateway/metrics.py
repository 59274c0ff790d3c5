"""The gateway's metrics: requests, wake-ups, waits, event streams, files and agents.

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
from verso_gateway.protocols import FEEDS, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNROUTED = "unrouted"
READ = "read"
_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_JOINED = (1, 2, 5, 10, 20, 50, 100, 200)
# from the fastest GET to the longest wait that a caller may ask for
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class FeedMetrics:
    """The metrics of what agents send: requests, records and bytes, and how they are taken in.

    Args:
        registry: where they are kept.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "verso_feed_requests_total",
            "Requests of agents, by how they ended.",
            ["protocol", "status"],
            registry=registry,
        )
        self._records = Counter(
            "verso_feed_records_total",
            "Log records that agents sent, by what became of them.",
            ["protocol", "status"],
            registry=registry,
        )
        self._bytes = Counter(
            "verso_feed_bytes_total",
            "Bytes of the bodies that agents sent, inflated.",
            ["protocol"],
            registry=registry,
        )
        self._dropped = Counter(
            "verso_feed_dropped_total",
            "Datagrams of syslog for which there was no room.",
            registry=registry,
        )
        self._requests_joined = Histogram(
            "verso_feed_joined_requests",
            "Requests of agents that one job took in.",
            buckets=_JOINED,
            registry=registry,
        )
        self._seconds = Histogram(
            "verso_feed_acceptance_seconds",
            "Time to take joined requests in, from the end of gathering them.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.waiting = Gauge(
            "verso_feed_waiting_requests",
            "Requests of agents that are gathered, or held for room.",
            registry=registry,
        )
        for protocol in FEEDS:
            self._bytes.labels(protocol)
            for status in ("accepted", "refused", "rejected", "failed"):
                self._requests.labels(protocol, status)
            for status in ("accepted", "repeated", "rejected"):
                self._records.labels(protocol, status)

    def request(self, protocol: Protocol, status: str) -> None:
        """Count one request of an agent: ``accepted``, ``refused``, ``rejected`` or ``failed``."""
        self._requests.labels(protocol, status).inc()

    def received(self, protocol: Protocol, size_bytes: int) -> None:
        """Count the bytes of a body."""
        self._bytes.labels(protocol).inc(size_bytes)

    def records(self, protocol: Protocol, *, accepted: int, repeated: int, rejected: int) -> None:
        """Count the records of a request that was accepted."""
        self._records.labels(protocol, "accepted").inc(accepted)
        self._records.labels(protocol, "repeated").inc(repeated)
        self._records.labels(protocol, "rejected").inc(rejected)

    def dropped(self) -> None:
        """Count a datagram that was dropped."""
        self._dropped.inc()

    def joined(self, requests: int, *, seconds: float) -> None:
        """Note that requests were taken in together."""
        self._requests_joined.observe(requests)
        self._seconds.observe(seconds)


class FileMetrics:
    """The metrics of files whose text is read.

    Args:
        registry: where they are kept.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._files = Counter(
            "verso_files_total",
            "Files whose text was to be read, by how that ended: read, or the code of an error.",
            ["status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "verso_file_seconds",
            "Time to read the text of a file, without the wait for a process.",
            buckets=_SECONDS,
            registry=registry,
        )
        for status in (READ, "not_installed", *(one for one in CLASSES if one[:5] == "file_")):
            self._files.labels(status)

    def read(self, status: str, *, seconds: float) -> None:
        """Count one file: ``READ``, or the code of the error."""
        self._files.labels(status).inc()
        self._seconds.observe(seconds)


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
        self.feed = FeedMetrics(self.registry)
        self.files = FileMetrics(self.registry)
        self.tails = Gauge(
            "verso_tail_streams", "Live tails of log lines open now.", registry=self.registry
        )
        self._tailed = Counter(
            "verso_tail_lines_total",
            "Lines that live tails sent, or that the ledger had dropped before.",
            ["status"],
            registry=self.registry,
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
        for status in ("sent", "lost"):
            self._tailed.labels(status)

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

    def tailed(self, *, sent: int = 0, lost: int = 0) -> None:
        """Count lines of a live tail."""
        self._tailed.labels("sent").inc(sent)
        self._tailed.labels("lost").inc(lost)

    def page(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
