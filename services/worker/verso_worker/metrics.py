"""What a worker counts, in Prometheus' terms; names and labels are in docs/reference/metrics.md."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from verso_core.jobs import Kind, Result
from verso_core.record import Codec

# From a search of a few milliseconds to a bulk slice on one busy core.
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OUTCOMES = ("done", "stale", "verified", "rewritten", "retried", "failed")

SWAPS = ("taken_up", "refused", "withdrawn")


class Metrics:
    """The worker's counters.

    Args:
        registry: where they are registered; a worker has one of its own.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._slices = Counter(
            "verso_worker_slices",
            "Slices worked on, by what came of them",
            ["task", "phase", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "verso_worker_slice_seconds",
            "Time from claim to commit of a slice",
            ["task", "phase"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._items = Counter(
            "verso_worker_items",
            "Items of committed slices",
            ["task", "status"],
            registry=registry,
        )
        self._records = Counter(
            "verso_records_written", "Records committed, by codec", ["codec"], registry=registry
        )
        self._text = Counter(
            "verso_text_bytes", "Bytes of text taken in and committed", registry=registry
        )
        self._patch = Counter("verso_patch_bytes", "Bytes of patches committed", registry=registry)
        self._verified = Counter(
            "verso_documents_verified",
            "Documents compared with their raw text by the independent verify",
            ["status"],
            registry=registry,
        )
        self._swaps = Counter(
            "verso_model_swaps",
            "Artifacts and heads that were published, by what came of them",
            ["status"],
            registry=registry,
        )
        self._trials = Counter(
            "verso_canary_slices", "Slices done with a canary", ["status"], registry=registry
        )
        self.engines = Gauge("verso_engines", "Engine processes that run", registry=registry)
        for status in SWAPS:
            self._swaps.labels(status)
        for status in ("passed", "failed"):
            self._trials.labels(status)
        for kind in Kind:
            for phase in ("work", "verify") if kind is Kind.INGEST else ("work",):
                self._seconds.labels(kind, phase)
                for outcome in OUTCOMES:
                    self._slices.labels(kind, phase, outcome)
            for status in ("ok", "error"):
                self._items.labels(kind, status)
        for codec in Codec:
            self._records.labels(codec.name.lower())
        for status in ("sound", "rewritten"):
            self._verified.labels(status)

    def slice_done(self, kind: Kind, phase: str, outcome: str, *, seconds: float) -> None:
        """Count a slice that left this worker's hands."""
        self._slices.labels(kind, phase, outcome).inc()
        self._seconds.labels(kind, phase).observe(seconds)

    def result(self, kind: Kind, result: Result) -> None:
        """Count what a committed slice holds."""
        self._items.labels(kind, "ok").inc(result.ok)
        self._items.labels(kind, "error").inc(len(result.items) - result.ok)
        if kind is Kind.INGEST:
            for item in result.items:
                if item["ok"]:
                    self._text.inc(item["bytes_text"])
                    self._patch.inc(item["bytes_patch"])
                    for codec, records in item["codecs"].items():
                        self._records.labels(codec).inc(records)

    def swap(self, status: str) -> None:
        """Count something published that was taken up, refused or withdrawn."""
        self._swaps.labels(status).inc()

    def trial(self, status: str) -> None:
        """Count a slice done with a canary: passed or failed."""
        self._trials.labels(status).inc()

    def verified(self, *, sound: int, rewritten: int) -> None:
        """Count documents that an independent verify looked at."""
        self._verified.labels("sound").inc(sound)
        self._verified.labels("rewritten").inc(rewritten)
