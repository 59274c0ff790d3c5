"""Queue depths and backlogs, read from the ledger at the moment of the scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Collection, Kind, Queue, Status
from verso_ledger import Backlog, Depth, Health, Ledger, Scrub, Server


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

    def describe(self) -> list[Metric]:
        """Promise nothing, so that registering asks the ledger nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the ledger."""
        try:
            depths = self._ledger.maintenance.depths()
            backlog = self._ledger.maintenance.backlog()
            health = self._ledger.liveness.health()
            scrub = self._ledger.scrub.state()
            collections = self._ledger.documents.collections()
            server = self._server()
        except LedgerUnavailable:
            yield GaugeMetricFamily("verso_ledger_up", "Whether the ledger answers", value=0)
            return
        yield GaugeMetricFamily("verso_ledger_up", "Whether the ledger answers", value=1)
        yield from _queues(depths)
        yield from _backlog(backlog)
        yield from _totals(backlog.totals)
        yield from _webhooks(backlog.totals)
        yield from _signs(health)
        yield from _scrub(scrub, backlog.totals, collections=collections)
        yield from _store(server)


def _queues(depths: dict[Queue, Depth]) -> Iterator[Metric]:
    slices = GaugeMetricFamily(
        "verso_queue_slices",
        "Slices that are due, that wait for their time, and that run",
        labels=["queue", "status"],
    )
    oldest = GaugeMetricFamily(
        "verso_queue_oldest_seconds",
        "How long the oldest due slice has been due",
        labels=["queue"],
    )
    for queue, depth in depths.items():
        slices.add_metric([queue, "queued"], depth.queued)
        slices.add_metric([queue, "delayed"], depth.delayed)
        slices.add_metric([queue, "running"], depth.running)
        oldest.add_metric([queue], depth.oldest_s)
    yield slices
    yield oldest


def _backlog(backlog: Backlog) -> Iterator[Metric]:
    for name, meaning, value in (
        (
            "verso_ledger_behind",
            "Whether the ledger is older than what it has acknowledged, and so read-only",
            backlog.read_only,
        ),
        ("verso_dead_slices", "Dead letters: crashed or failed too often", backlog.dead),
        (
            "verso_unverified_slices",
            "Committed slices whose texts were not read back yet",
            backlog.unverified,
        ),
        ("verso_unverified_bytes", "Payload bytes of those", backlog.unverified_bytes),
        ("verso_drops_pending", "Verified payloads that wait for their grace", backlog.to_drop),
        (
            "verso_webhooks_pending",
            "Webhook messages that wait to be sent, or for their next attempt",
            backlog.to_send,
        ),
        (
            "verso_orphan_points",
            "Points that no entry named when the scrub came by, and that are not removed yet",
            backlog.orphans,
        ),
        (
            "verso_entries_discarded_pending",
            "Replaced entries whose points are not removed yet",
            backlog.to_collect,
        ),
    ):
        yield GaugeMetricFamily(name, meaning, value=value)


def _totals(totals: dict[str, int]) -> Iterator[Metric]:
    jobs = CounterMetricFamily(
        "verso_jobs_ended", "Jobs that reached their end", labels=["task", "status"]
    )
    for kind in Kind:
        for status in Status:
            if status.terminal:
                jobs.add_metric([kind, status], totals.get(f"jobs:{kind}:{status}", 0))
    yield jobs
    yield CounterMetricFamily(
        "verso_leases_lost", "Leases that ran out", value=totals.get("crashes", 0)
    )
    yield CounterMetricFamily(
        "verso_commits_refused", "Commits refused by their fence", value=totals.get("stale", 0)
    )
    yield CounterMetricFamily(
        "verso_dead_letters", "Slices that became dead letters", value=totals.get("dead", 0)
    )


def _webhooks(totals: dict[str, int]) -> Iterator[Metric]:
    sent = CounterMetricFamily(
        "verso_webhooks",
        "Attempts to send webhook messages, and messages given up",
        labels=["status"],
    )
    for status in ("sent", "failed", "dead"):
        sent.add_metric([status], totals.get(f"hooks:{status}", 0))
    yield sent


def _signs(health: Health) -> Iterator[Metric]:
    for name, meaning, age_s in (
        ("verso_last_embed_age_seconds", "Since the last real embed", health.last_embed_age_s),
        ("verso_worker_beat_age_seconds", "Since any worker's heartbeat", health.worker_beat_age_s),
    ):
        if age_s is not None:
            yield GaugeMetricFamily(name, meaning, value=age_s)


def _scrub(
    scrub: Scrub, totals: dict[str, int], *, collections: Mapping[str, Collection]
) -> Iterator[Metric]:
    documents = CounterMetricFamily(
        "verso_scrub_documents", "Stored documents read again by the scrub", labels=["status"]
    )
    for status in ("sound", "repaired", "damaged"):
        documents.add_metric([status], totals.get(f"scrub:{status}", 0))
    yield documents
    yield CounterMetricFamily(
        "verso_scrub_buckets_unread",
        "Buckets that no worker could scrub",
        value=totals.get("scrub:unread", 0),
    )
    yield CounterMetricFamily(
        "verso_orphan_points_removed",
        "Points removed since no entry named them",
        value=totals.get("scrub:orphans", 0),
    )
    yield CounterMetricFamily(
        "verso_counts_mended",
        "Collections whose counts were put right by a count of all entries",
        value=totals.get("counts:mended", 0),
    )
    yield GaugeMetricFamily(
        "verso_records_damaged",
        "Documents that the newest pass found damaged",
        value=scrub.counts.get("damaged", 0),
    )
    yield GaugeMetricFamily(
        "verso_scrub_pass_progress_ratio",
        "Part of all buckets that the newest pass is done with",
        value=scrub.progress(collections),
    )
    recent = scrub.recent_walked(collections)
    yield GaugeMetricFamily(
        "verso_scrub_recent_progress_ratio",
        "Part of all buckets that the walk over recent documents is done with; 1 without one",
        value=1.0 if recent is None else recent.part,
    )
    if scrub.age_s is not None:
        yield GaugeMetricFamily(
            "verso_scrub_pass_age_seconds", "Since the newest pass began", value=scrub.age_s
        )


def _store(server: Server) -> Iterator[Metric]:
    for name, meaning, value in (
        ("verso_ledger_append_ok", "Whether the append-only file is written", server.append_ok),
        ("verso_ledger_memory_bytes", "Memory that the ledger takes", server.memory_bytes),
        ("verso_ledger_memory_limit_bytes", "Memory it may take", server.memory_limit_bytes),
        ("verso_ledger_clients", "Connections to the ledger", server.clients),
    ):
        yield GaugeMetricFamily(name, meaning, value=value)
