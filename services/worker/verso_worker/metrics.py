"""The worker's Prometheus metrics; docs/reference/metrics.md lists their names and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from verso_core.jobs import AnyResult, Failed, ItemResult, Kind, Queue
from verso_core.jobs.heads.answer import Answered
from verso_core.jobs.heads.classify import Classification, Classified
from verso_core.jobs.heads.models import HeadResult
from verso_core.jobs.heads.score import PairScore
from verso_core.jobs.models import OpenModel, Text
from verso_core.jobs.search import Hits
from verso_core.record import Codec, Entry
from verso_core.registry import Channel, Measure
from verso_worker.rules.ports.outcome import Write

# From a search of a few milliseconds to a bulk slice on one busy core.
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# From a slot that was listening to a queue that is an hour behind.
_WAIT_SECONDS = (0.002, 0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600)
OUTCOMES = ("done", "stale", "verified", "rewritten", "retried", "failed")
_PHASES = ("tokenize", "infer", "store", "restore")
_READS = (Kind.SEARCH, Kind.RECONSTRUCT)
_HEAD_KINDS = (Kind.CLASSIFY, Kind.FEEDBACK, Kind.ANSWER, Kind.SCORE)
SWAPS = ("taken_up", "refused", "withdrawn")
_CORRUPT = frozenset({"record_corrupt", "patch_corrupt"})


class Metrics:
    """The worker's counters.

    Args:
        registry: where they are registered; a worker has one of its own.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._count_slices()
        self._count_stored()
        self._count_read()
        self._count_files()
        self._count_objects()
        self._count_models()

    def _counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        """Return a counter that has a sample of 0 for every combination of its labels' values.

        A counter that starts to exist with its first increment has no rate for that increment.
        """
        counter = Counter(name, text, list(labels), registry=self._registry)
        for values in product(*labels.values()) if labels else ():
            counter.labels(*values)
        return counter

    def _count_slices(self) -> None:
        self._slices = Counter(
            "verso_worker_slices",
            "Slices worked on, by outcome",
            ["task", "phase", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "verso_worker_slice_seconds",
            "Time from claim to commit of a slice",
            ["task", "phase"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        for kind in Kind:
            for phase in (
                ("work", "verify") if kind in (Kind.INGEST, Kind.INGEST_LINES) else ("work",)
            ):
                self._seconds.labels(kind, phase)
                for outcome in OUTCOMES:
                    self._slices.labels(kind, phase, outcome)
        self._waits = Histogram(
            "verso_worker_wait_seconds",
            "Time from due to claim of a slice",
            ["queue"],
            buckets=_WAIT_SECONDS,
            registry=self._registry,
        )
        for queue in Queue:
            self._waits.labels(queue)
        self._phases = self._counter(
            "verso_worker_phase_seconds",
            "Time that committed slices spent in each phase of their work",
            task=Kind,
            phase=_PHASES,
        )
        self._items = self._counter(
            "verso_worker_items", "Items of committed slices", task=Kind, status=("ok", "error")
        )

    def _count_stored(self) -> None:
        codecs = [codec.name.lower() for codec in Codec]
        self._text = self._counter("verso_text_bytes", "Bytes of text ingested and committed")
        self._records = self._counter("verso_records_written", "Records committed", codec=codecs)
        self._patch = self._counter("verso_patch_bytes", "Bytes of patches committed", codec=codecs)
        self._verified = self._counter(
            "verso_documents_verified",
            "Documents compared with their raw text by the independent verify",
            status=("sound", "rewritten"),
        )
        self._coded_lookups = self._counter(
            "verso_encode_cache_lookups",
            "Distinct chunks of ingested slices looked up among those coded lately",
            status=("hit", "miss"),
        )
        self._coded_bytes = Gauge(
            "verso_encode_cache_bytes", "Memory of the encode cache", registry=self._registry
        )

    def _count_read(self) -> None:
        self._restored = self._counter(
            "verso_restored_bytes", "Bytes of text read back for callers"
        )
        self._restore_seconds = self._counter(
            "verso_restore_seconds", "Time spent on reading them back"
        )
        self._corrupt = self._counter(
            "verso_records_corrupt",
            "Reads refused because a record or its patch is corrupt",
            task=_READS,
        )
        self._cache_lookups = self._counter(
            "verso_text_cache_lookups",
            "Chunks looked up in the text cache",
            status=("hit", "miss"),
        )
        self._cache_bytes = Gauge(
            "verso_text_cache_bytes", "Memory of the text cache", registry=self._registry
        )

    def _count_files(self) -> None:
        self._files = self._counter(
            "verso_files_read",
            "Files of artifacts and heads that were hashed again, by state",
            status=("sound", "mended", "corrupt"),
        )
        self._files_corrupt = Gauge(
            "verso_files_corrupt",
            "Files of artifacts and heads that the newest pass found corrupt",
            registry=self._registry,
        )

    def _count_objects(self) -> None:
        self._objects = self._counter(
            "verso_objects",
            "Objects of cold storage that were written, read or removed, by how that ended",
            operation=("put", "get", "delete"),
            status=("ok", "missing", "error"),
        )
        self._object_bytes = self._counter(
            "verso_object_bytes", "Bytes of objects written and read", operation=("put", "get")
        )
        self._object_seconds = self._counter(
            "verso_object_seconds",
            "Time that the object store took",
            operation=("put", "get", "delete"),
        )

    def _count_models(self) -> None:
        self._swaps = self._counter(
            "verso_model_swaps", "Published artifacts and heads, by outcome", status=SWAPS
        )
        self._canary_slices = self._counter(
            "verso_canary_slices", "Slices done with a canary", status=("passed", "failed")
        )
        # Heads are published while a worker runs: their labels exist after their first job.
        self._asked = Counter(
            "verso_head_items",
            "Items that heads classified, answered or scored",
            ["task", "head", "channel", "status"],
            registry=self._registry,
        )
        self._compared = Counter(
            "verso_canary_answers",
            "Items that a head's canary was asked about, by whether the stable version agreed",
            ["head", "status"],
            registry=self._registry,
        )
        self._pair_seconds = self._counter(
            "verso_canary_pair_seconds",
            "Time of the reads that a canary and the stable version both ran",
            channel=tuple(Channel),
        )
        self._worse = self._counter(
            "verso_canary_worse",
            "Canaries that were found worse than the stable version, by what they were worse in",
            measure=tuple(Measure),
        )
        self.engines = Gauge("verso_engines", "Engine processes that run", registry=self._registry)

    def claimed(self, queue: Queue, *, waited_s: float) -> None:
        """Count a claimed slice and the time it waited."""
        self._waits.labels(queue).observe(waited_s)

    def slice_done(self, kind: Kind, phase: str, outcome: str, *, seconds: float) -> None:
        """Count a slice by its outcome."""
        self._slices.labels(kind, phase, outcome).inc()
        self._seconds.labels(kind, phase).observe(seconds)

    def result(self, kind: Kind, result: AnyResult) -> None:
        """Count the items of a committed slice."""
        self._items.labels(kind, "ok").inc(result.ok)
        self._items.labels(kind, "error").inc(len(result.items) - result.ok)
        for phase, spent_ms in result.timings_ms.items():
            if phase != "queue":
                self._phases.labels(kind, phase).inc(spent_ms / 1e3)
        if kind in _READS:
            self._read(kind, result)
        if kind in _HEAD_KINDS:
            self._heads(kind, result)

    def _heads(self, kind: Kind, result: AnyResult) -> None:
        """Count the items of each head."""
        for item in result.items:
            for one in _head_results(item):
                withheld = (isinstance(one, Classification) and one.abstained) or (
                    isinstance(one, Answered) and not one.answered
                )
                for status in ("ok", "withheld"):
                    counted = self._asked.labels(kind, one.head, one.channel, status)
                    counted.inc(status == ("withheld" if withheld else "ok"))

    def written(self, writes: Iterable[Write]) -> None:
        """Count the records of committed documents."""
        for write in writes:
            entry = Entry.unpack(write.entry)
            self._text.inc(entry.size_bytes)
            for record in entry.records:
                codec = record.codec.name.lower()
                self._records.labels(codec).inc()
                self._patch.labels(codec).inc(1 + len(record.payload))

    def text_cache(self, hits: int, misses: int, size_bytes: int) -> None:
        """Count lookups in the text cache, and show its size."""
        self._cache_lookups.labels("hit").inc(hits)
        self._cache_lookups.labels("miss").inc(misses)
        self._cache_bytes.set(size_bytes)

    def encode_cache(self, hits: int, misses: int, size_bytes: int) -> None:
        """Count lookups of chunks to ingest, and show the size of their cache."""
        self._coded_lookups.labels("hit").inc(hits)
        self._coded_lookups.labels("miss").inc(misses)
        self._coded_bytes.set(size_bytes)

    def file_read(self, status: str) -> None:
        """Count a file that was hashed again: sound, mended or corrupt."""
        self._files.labels(status).inc()

    def files_corrupt(self, count: int) -> None:
        """Show how many corrupt files the newest pass found."""
        self._files_corrupt.set(count)

    def object_call(self, operation: str, status: str, size_bytes: int, seconds: float) -> None:
        """Count an object that was written, read or removed: ok, missing or error."""
        self._objects.labels(operation, status).inc()
        self._object_seconds.labels(operation).inc(seconds)
        if status == "ok" and operation != "delete":
            self._object_bytes.labels(operation).inc(size_bytes)

    def swap(self, status: str) -> None:
        """Count a published artifact or head: taken_up, refused or withdrawn."""
        self._swaps.labels(status).inc()

    def canary_slice(self, status: str) -> None:
        """Count a slice that ran with a canary: passed or failed."""
        self._canary_slices.labels(status).inc()

    def compared(self, head: str, agreed: int, differed: int) -> None:
        """Count on how many subjects a head's canary and stable version agreed and differed."""
        self._compared.labels(head, "agreed").inc(agreed)
        self._compared.labels(head, "differed").inc(differed)

    def canary_pair(self, canary_s: float, stable_s: float) -> None:
        """Count the seconds of a read that a canary and the stable version both ran."""
        self._pair_seconds.labels(Channel.CANARY).inc(canary_s)
        self._pair_seconds.labels(Channel.STABLE).inc(stable_s)

    def canary_worse(self, measure: Measure) -> None:
        """Count a canary that is worse than the stable version."""
        self._worse.labels(measure).inc()

    def verified(self, *, sound: int, rewritten: int) -> None:
        """Count documents that an independent verify checked."""
        self._verified.labels("sound").inc(sound)
        self._verified.labels("rewritten").inc(rewritten)

    def _read(self, kind: Kind, result: AnyResult) -> None:
        self._restored.inc(sum(map(_text_bytes, result.items)))
        self._restore_seconds.inc(result.timings_ms.get("restore", 0.0) / 1e3)
        self._corrupt.labels(kind).inc(sum(_corrupt(item) for item in result.items))


def _head_results(item: ItemResult) -> Sequence[HeadResult]:
    """Return the results of an item by head; none for an item that failed."""
    match item:
        case Classified():
            return item.heads
        case Answered() | PairScore():
            return [item]
        case _:
            return []


def _text_bytes(item: ItemResult) -> int:
    """Count the bytes of the texts in an item's result."""
    texts: Sequence[OpenModel] = item.hits if isinstance(item, Hits) else [item]
    return sum(
        len(one.data)
        for one in texts
        if isinstance(one, Text) and (one.text, one.text_base64) != (None, None)
    )


def _corrupt(item: ItemResult) -> int:
    """Count the corrupt records among an item and its hits."""
    errors = [hit.error for hit in item.hits] if isinstance(item, Hits) else []
    if isinstance(item, Failed):
        errors.append(item.error)
    return sum(error is not None and error.code in _CORRUPT for error in errors)
