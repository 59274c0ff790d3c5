"""Queue depths and backlogs, read from the ledger at the moment of the scrape."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Collection, Kind, Queue, Status
from verso_core.jobs.fitting import GenerationStage
from verso_core.jobs.moves import Move, MoveReason, MoveStage
from verso_ledger import Backlog, Depth, Health, Ledger, Scrub, Server

_COUNTERS = (
    ("verso_leases_lost", "Leases that ran out", "crashes"),
    ("verso_commits_refused", "Commits refused by their fence", "stale"),
    ("verso_dead_letters", "Slices that became dead letters", "dead"),
    ("verso_scrub_buckets_unread", "Buckets that no worker could scrub", "scrub:unread"),
    ("verso_orphan_points_removed", "Points removed since no entry named them", "scrub:orphans"),
    ("verso_counts_mended", "Collections whose counts a full count corrected", "counts:mended"),
)
"""Metric, meaning, and key in the ledger's totals."""

Gauge = tuple[str, str, float | None]
"""Metric, meaning, and value; None where there is none."""


class LedgerCollector(Collector):
    """Turns the ledger's counts into metrics; nothing is counted twice or in between.

    A ledger that does not answer gives ``verso_ledger_up 0`` and no counts: a scrape that failed
    would look like a dead keeper, and stale counts like a quiet queue.

    Args:
        ledger: what is counted.
        server: asks for the state of the server under it.
    """

    def __init__(self, ledger: Ledger, *, server: Callable[[], Server]) -> None:
        self._ledger = ledger
        self._server = server

    @property
    def ledger(self) -> str:
        """Name of the ledger."""
        return self._ledger.name

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering the collector does not read the ledger."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the ledger."""
        try:
            depths = self._ledger.maintenance.depths()
            backlog = self._ledger.maintenance.backlog()
            health = self._ledger.liveness.health()
            scrub = self._ledger.scrub.state()
            collections = self._ledger.documents.collections()
            moves = list(self._ledger.moves.all().values())
            server = self._server()
        except LedgerUnavailable:
            yield GaugeMetricFamily("verso_ledger_up", "Whether the ledger answers", value=0)
            return
        yield GaugeMetricFamily("verso_ledger_up", "Whether the ledger answers", value=1)
        yield from _queues(depths)
        yield from _totals(backlog.totals)
        yield from _tables(collections)
        yield from _moves(moves, backlog.totals)
        gauges = (_backlog(backlog), _health(health), _scrub(scrub, collections), _store(server))
        for name, meaning, value in chain.from_iterable(gauges):
            if value is not None:
                yield GaugeMetricFamily(name, meaning, value=value)


class LedgersCollector(Collector):
    """The metrics of several ledgers, each with the name of its ledger as the label ``ledger``."""

    def __init__(self, collectors: Sequence[LedgerCollector]) -> None:
        self._collectors = collectors

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering the collector does not read the ledgers."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the ledgers side by side: one that does not answer holds up no other."""
        merged: dict[str, Metric] = {}
        with ThreadPoolExecutor(len(self._collectors)) as readers:
            for own in readers.map(_named, self._collectors):
                for metric in own:
                    known = merged.setdefault(metric.name, metric)
                    if known is not metric:
                        known.samples += metric.samples
        yield from merged.values()


def _named(collector: LedgerCollector) -> list[Metric]:
    """Return the metrics of a ledger, each sample with its name."""
    found = list(collector.collect())
    for metric in found:
        metric.samples = [
            one._replace(labels={"ledger": collector.ledger, **one.labels})
            for one in metric.samples
        ]
    return found


def _queues(depths: dict[Queue, Depth]) -> Iterator[Metric]:
    slices = GaugeMetricFamily(
        "verso_queue_slices",
        "Slices that are due, that wait for their time, and that run",
        labels=["queue", "status"],
    )
    oldest = GaugeMetricFamily(
        "verso_queue_oldest_seconds", "How long the oldest due slice has been due", labels=["queue"]
    )
    for queue, depth in depths.items():
        slices.add_metric([queue, "queued"], depth.queued)
        slices.add_metric([queue, "delayed"], depth.delayed)
        slices.add_metric([queue, "running"], depth.running)
        oldest.add_metric([queue], depth.oldest_s)
    yield slices
    yield oldest


def _totals(totals: dict[str, int]) -> Iterator[Metric]:
    for name, meaning, key in _COUNTERS:
        yield CounterMetricFamily(name, meaning, value=totals.get(key, 0))
    jobs = CounterMetricFamily(
        "verso_jobs_ended", "Jobs that reached their end", labels=["task", "status"]
    )
    for kind in Kind:
        for status in Status:
            if status.terminal:
                jobs.add_metric([kind, status], totals.get(f"jobs:{kind}:{status}", 0))
    yield jobs
    sent = CounterMetricFamily(
        "verso_webhooks",
        "Attempts to send webhook messages, and messages given up",
        labels=["status"],
    )
    for state in ("sent", "failed", "dead"):
        sent.add_metric([state], totals.get(f"hooks:{state}", 0))
    yield sent
    documents = CounterMetricFamily(
        "verso_scrub_documents", "Stored documents read again by the scrub", labels=["status"]
    )
    for state in ("sound", "repaired", "damaged"):
        documents.add_metric([state], totals.get(f"scrub:{state}", 0))
    yield documents


def _tables(collections: Mapping[str, Collection]) -> Iterator[Metric]:
    tables = GaugeMetricFamily(
        "verso_fitted_tables", "Tables fitted to collections, by their stage", labels=["status"]
    )
    found = [one for own in collections.values() for one in own.fitting.generations]
    stages = Counter(one.stage for one in found)
    for stage in GenerationStage:
        tables.add_metric([stage], stages[stage])
    yield tables
    size = sum(one.bytes for one in found)
    yield GaugeMetricFamily("verso_fitted_tables_bytes", "Bytes of those in the ledger", value=size)


def _moves(moves: Sequence[Move], totals: Mapping[str, int]) -> Iterator[Metric]:
    """Yield how the moves of collections from this ledger stand."""
    running = [one for one in moves if one.running]
    stages = GaugeMetricFamily(
        "verso_moves", "Collections that move to another ledger, by stage", labels=["phase"]
    )
    count = Counter(one.stage for one in running)
    for stage in MoveStage:
        if stage is not MoveStage.DONE:
            stages.add_metric([stage], count[stage])
    yield stages
    waits = GaugeMetricFamily("verso_moves_waiting", "Those that wait, by why", labels=["reason"])
    reasons = Counter(one.reason for one in running)
    for reason in MoveReason:
        waits.add_metric([reason], reasons[reason])
    yield waits
    left = sum(one.left for one in running)
    yield GaugeMetricFamily("verso_move_units_left", "Units that they still copy", value=left)
    now = time.time()
    oldest = max((now - max(one.progressed, one.started) for one in running), default=0.0)
    name, meaning = "verso_move_progress_age_seconds", "Since the one that waits longest went on"
    yield GaugeMetricFamily(name, meaning, value=max(0.0, oldest))
    ended = CounterMetricFamily("verso_moves_ended", "Moves that ended", labels=["status"])
    for status in ("done", "cancelled"):
        ended.add_metric([status], totals.get(f"moves:{status}", 0))
    yield ended
    fences = CounterMetricFamily(
        "verso_move_fences", "Times that writes waited, by how that ended", labels=["status"]
    )
    for status in ("switched", "opened"):
        fences.add_metric([status], totals.get(f"moves:fences:{status}", 0))
    yield fences
    fence_s = totals.get("moves:fence_ms", 0) / 1000
    yield CounterMetricFamily("verso_move_fence_seconds", "How long they waited", value=fence_s)
    size = totals.get("moves:bytes", 0)
    yield CounterMetricFamily("verso_move_bytes", "Bytes copied to other ledgers", value=size)


def _backlog(backlog: Backlog) -> list[Gauge]:
    behind = "Whether the ledger is older than what it has acknowledged, and so read-only"
    unverified = "Committed slices whose texts were not read back yet"
    to_send = "Webhook messages that wait to be sent, or for their next attempt"
    orphans = "Points that the scrub found no entry to name, and that are not removed yet"
    to_collect = "Replaced entries whose points are not removed yet"
    return [
        ("verso_ledger_behind", behind, backlog.read_only),
        ("verso_dead_slices", "Dead letters: crashed or failed too often", backlog.dead),
        ("verso_unverified_slices", unverified, backlog.unverified),
        ("verso_unverified_bytes", "Payload bytes of those", backlog.unverified_bytes),
        ("verso_staged_bytes", "Payload bytes of jobs not accepted yet", backlog.staged_bytes),
        ("verso_drops_pending", "Verified payloads still retained", backlog.to_drop),
        ("verso_webhooks_pending", to_send, backlog.to_send),
        ("verso_orphan_points", orphans, backlog.orphans),
        ("verso_entries_discarded_pending", to_collect, backlog.to_collect),
    ]


def _health(health: Health) -> list[Gauge]:
    return [
        ("verso_last_embed_age_seconds", "Since the last real embed", health.last_embed_age_s),
        ("verso_worker_beat_age_seconds", "Since any worker's heartbeat", health.worker_beat_age_s),
    ]


def _scrub(scrub: Scrub, collections: Mapping[str, Collection]) -> list[Gauge]:
    damaged = "Documents that the newest pass found damaged"
    progress = "Part of all buckets that the newest pass is done with"
    recent_progress = (
        "Part of all buckets that the walk over recent documents is done with; 1 without one"
    )
    recent = scrub.recent_walked(collections)
    recent_part = 1.0 if recent is None else recent.part
    return [
        ("verso_records_damaged", damaged, scrub.counts.get("damaged", 0)),
        ("verso_scrub_pass_progress_ratio", progress, scrub.progress(collections)),
        ("verso_scrub_recent_progress_ratio", recent_progress, recent_part),
        ("verso_scrub_pass_age_seconds", "Since the newest pass began", scrub.age_s),
    ]


def _store(server: Server) -> list[Gauge]:
    return [
        ("verso_ledger_append_ok", "Whether the append-only file is written", server.append_ok),
        ("verso_ledger_memory_bytes", "Memory that the ledger takes", server.memory_bytes),
        ("verso_ledger_memory_limit_bytes", "Memory it may take", server.memory_limit_bytes),
        ("verso_ledger_clients", "Connections to the ledger", server.clients),
    ]
