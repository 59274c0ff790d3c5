"""Facts about what a scrape shows."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Collection, Precision, Queue, TextPolicy
from verso_core.jobs.moves import Move, MoveReason, MoveStage
from verso_keeper.collector import LedgerCollector, LedgersCollector
from verso_ledger import Backlog, Depth, Health, Ledger, Scrub, Server

SERVER = Server(append_ok=False, memory_bytes=100, memory_limit_bytes=400, clients=5)


class FakeLedger:
    """A ledger with a few things in it, which can be away."""

    def __init__(self, *, away: bool = False) -> None:
        self._away = away

    def depths(self) -> dict[Queue, Depth]:
        if self._away:
            raise LedgerUnavailable("away")
        return {queue: Depth(queued=3, delayed=2, running=1, oldest_s=1.5) for queue in Queue}

    def backlog(self) -> Backlog:
        totals = {"jobs:ingest:succeeded": 5, "crashes": 2, "stale": 1, "dead": 4}
        totals |= {"scrub:sound": 90, "scrub:damaged": 3}
        totals |= {"moves:done": 3, "moves:fences:opened": 2, "moves:fence_ms": 4500}
        totals |= {"moves:bytes": 1000}
        return Backlog(
            dead=4, unverified=6, unverified_bytes=70, to_drop=8, to_collect=9, totals=totals
        )

    def health(self) -> Health:
        return Health(last_embed_age_s=0.5, worker_beat_age_s=None)

    def state(self) -> Scrub:
        return Scrub(
            turn=7,
            number=2,
            started=100.0,
            ended=None,
            collection="b",
            bucket=4,
            job_id=None,
            tries=0,
            due=0.0,
            asked=False,
            now=160.0,
            counts={"damaged": 1},
        )

    def collections(self) -> dict[str, Collection]:
        return {name: _collection(name) for name in "abcd"}

    def all(self) -> dict[str, Move]:
        return {
            "a": _move("a", time.time() - 100, reason=MoveReason.DEAD_LETTERS, left=7),
            "b": _move("b", time.time() - 9000, stage=MoveStage.DONE, ended=time.time()),
        }


def _move(name: str, progressed: float, **state: Any) -> Move:
    return Move(
        collection=name,
        own=name,
        uid="1",
        buckets=16,
        texts=False,
        lines=False,
        source="home",
        target="b",
        started=1.0,
        progressed=progressed,
        **state,
    )


def _collection(name: str) -> Collection:
    return Collection(
        name=name,
        precision=Precision.FLOAT16,
        text_policy=TextPolicy.PATCH,
        space="0123456789abcdef",
        dim=384,
        int8_scale=0.3,
        artifacts=(),
        buckets=16,
        checksum_key="00ff",
        created=datetime.now(UTC),
    )


def _scrape(ledger: FakeLedger) -> str:
    registry = CollectorRegistry()
    parts = dict.fromkeys(("documents", "liveness", "maintenance", "scrub", "moves"), ledger)
    counted = cast("Ledger", SimpleNamespace(**parts))
    registry.register(LedgerCollector(counted, server=lambda: SERVER))
    return generate_latest(registry).decode()


def test_a_scrape_counts_queues_by_status_and_jobs_by_outcome() -> None:
    page = _scrape(FakeLedger())
    for line in (
        "verso_ledger_up 1.0",
        'verso_queue_slices{queue="scrub",status="delayed"} 2.0',
        'verso_queue_oldest_seconds{queue="bulk"} 1.5',
        'verso_jobs_ended_total{status="succeeded",task="ingest"} 5.0',
        'verso_jobs_ended_total{status="dead",task="search"} 0.0',
        "verso_leases_lost_total 2.0",
        "verso_dead_slices 4.0",
        "verso_unverified_bytes 70.0",
        "verso_last_embed_age_seconds 0.5",
        'verso_scrub_documents_total{status="sound"} 90.0',
        'verso_scrub_documents_total{status="repaired"} 0.0',
        "verso_records_damaged 1.0",
        "verso_scrub_pass_progress_ratio 0.3125",
        "verso_scrub_pass_age_seconds 60.0",
        "verso_ledger_append_ok 0.0",
        "verso_ledger_memory_bytes 100.0",
        "verso_ledger_memory_limit_bytes 400.0",
        "verso_ledger_clients 5.0",
        'verso_moves{phase="copy"} 1.0',
        'verso_moves{phase="fence"} 0.0',
        'verso_moves_waiting{reason="dead_letters"} 1.0',
        "verso_move_units_left 7.0",
        'verso_moves_ended_total{status="done"} 3.0',
        'verso_moves_ended_total{status="cancelled"} 0.0',
        'verso_move_fences_total{status="opened"} 2.0',
        "verso_move_fence_seconds_total 4.5",
        "verso_move_bytes_total 1000.0",
    ):
        assert line in page
    assert "verso_worker_beat_age_seconds" not in page
    (age_s,) = re.findall(r"^verso_move_progress_age_seconds (\S+)$", page, re.MULTILINE)
    assert 100 <= float(age_s) < 200


def test_a_ledger_that_is_away_fails_no_scrape_and_shows_no_old_counts() -> None:
    page = _scrape(FakeLedger(away=True))
    assert re.findall(r"^verso_\S+.*$", page, re.MULTILINE) == ["verso_ledger_up 0.0"]


def test_the_metrics_of_several_ledgers_say_whose_they_are() -> None:
    registry = CollectorRegistry()
    names = ("documents", "liveness", "maintenance", "scrub", "moves")
    home, away = (
        LedgerCollector(
            cast("Ledger", SimpleNamespace(name=name, **dict.fromkeys(names, ledger))),
            server=lambda: SERVER,
        )
        for name, ledger in (("home", FakeLedger()), ("b", FakeLedger(away=True)))
    )
    registry.register(LedgersCollector([home, away]))
    page = generate_latest(registry).decode()
    assert 'verso_ledger_up{ledger="home"} 1.0' in page
    assert 'verso_ledger_up{ledger="b"} 0.0' in page
    assert 'verso_queue_slices{ledger="home",queue="scrub",status="delayed"} 2.0' in page
    assert page.count("# TYPE verso_ledger_up gauge") == 1
