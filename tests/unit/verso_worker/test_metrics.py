"""Facts about what a worker counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from verso_core.errors import RecordCorrupt
from verso_core.jobs import Failed, ItemError, Kind, Result
from verso_core.jobs.search import Hit, Hits
from verso_core.record import Codec, Entry, Record
from verso_worker.metrics import Metrics
from verso_worker.rules.ports.outcome import Write


def test_what_is_written_is_counted_by_the_codec_that_won() -> None:
    registry = CollectorRegistry()
    records = tuple(
        Record(codec, 0, b"h" * 8, b"c" * 4, b"x" * size)
        for codec, size in ((Codec.RAW, 10), (Codec.NEURAL, 5), (Codec.RAW, 3))
    )
    entry = Entry(seq=1, size_bytes=100, records=records)
    Metrics(registry).written([Write("d", entry.pack(), None)])
    value = registry.get_sample_value
    assert value("verso_text_bytes_total") == 100
    assert value("verso_records_written_total", {"codec": "raw"}) == 2
    assert value("verso_patch_bytes_total", {"codec": "raw"}) == 15
    assert value("verso_patch_bytes_total", {"codec": "neural"}) == 6
    assert value("verso_patch_bytes_total", {"codec": "zstd"}) == 0


def test_a_read_counts_its_bytes_its_time_and_every_corrupt_record() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    corrupt = RecordCorrupt("odd")
    named = {"document": "d", "chunk": 0, "score": 0.5}
    hits = (
        Hit(id="d#0", **named, error=ItemError.of(corrupt)),
        Hit(id="d#0", **named, text="abc"),
        Hit(id="d#0", **named, text_base64="ZGU="),
    )
    metrics.result(
        Kind.SEARCH, Result([Hits(hits=hits), Hits(hits=())], {"restore": 250.0, "queue": 9.0})
    )
    metrics.result(Kind.RECONSTRUCT, Result([Failed.of(corrupt)]))
    value = registry.get_sample_value
    assert value("verso_restored_bytes_total") == 5
    assert value("verso_restore_seconds_total") == 0.25
    assert value("verso_worker_phase_seconds_total", {"task": "search", "phase": "restore"}) == 0.25
    assert value("verso_worker_phase_seconds_total", {"task": "search", "phase": "queue"}) is None
    assert value("verso_records_corrupt_total", {"task": "search"}) == 1
    assert value("verso_records_corrupt_total", {"task": "reconstruct"}) == 1
