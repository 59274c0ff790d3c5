"""Documents past their retention are deleted: one job for each collection and span of time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.chaos.clock import Clock
from tests.simulation.server import Server

from verso_core.jobs import Collection, Kind, Precision, Queue, TextPolicy, read_slice
from verso_core.jobs.documents import DeleteMatchingParams, PartItem
from verso_keeper.retention import Retention
from verso_ledger import Ledger

HOUR = 3600.0


@pytest.fixture
def ledger(valkey_url: str) -> Iterator[Ledger]:
    with kept(valkey_url) as ledger:
        yield ledger


@contextmanager
def kept(url: str) -> Iterator[Ledger]:
    """Yield a ledger with a collection that keeps its documents and one with a retention."""
    with closing(Ledger.from_url(url)) as ledger:
        for name, days in (("kept", None), ("logs", 2.0)):
            ledger.documents.collection_put(
                Collection(
                    name=name,
                    precision=Precision.FLOAT16,
                    text_policy=TextPolicy.PATCH,
                    space="0123456789abcdef",
                    dim=4,
                    int8_scale=1.0,
                    artifacts=(),
                    buckets=64,
                    checksum_key="00",
                    created=datetime.now(UTC),
                    retention_days=days,
                )
            )
        yield ledger


def test_each_span_has_one_job_whoever_keeps(ledger: Ledger) -> None:
    now = [1000 * HOUR + 17]
    keepers = [Retention(ledger, every_s=HOUR, clock=lambda: now[0]) for _ in range(2)]
    assert [keeper.step() for keeper in keepers * 2] == [1, 0, 0, 0]
    now[0] += HOUR
    assert [keeper.step() for keeper in keepers * 2] == [1, 0, 0, 0]
    first, second = ledger.leases.claim(Queue.BULK, owner="w", n=9)
    work = read_slice(first.payload)
    assert work.kind is Kind.DELETE_MATCHING
    assert isinstance(work.params, DeleteMatchingParams)
    assert work.params.collection == "logs"
    assert work.params.filter.model_dump() == {"field": "time", "lt": 952 * HOUR}
    assert work.items == (PartItem(part=0, parts=1),)
    assert read_slice(second.payload).params.filter.lt == 953 * HOUR


def test_another_retention_counts_at_once(ledger: Ledger) -> None:
    keeper = Retention(ledger, every_s=HOUR, clock=lambda: 1000 * HOUR)
    assert keeper.step() == 1
    ledger.documents.collection_change(
        "logs", lambda now: now.model_copy(update={"retention_days": 1.0})
    )
    assert [keeper.step(), keeper.step()] == [1, 0]


def test_the_ledgers_clock_decides_what_is_old_and_not_the_keepers(
    valkey_binary: str, tmp_path: Path
) -> None:
    if (lacks := Clock.lacks()) is not None:
        if os.environ.get("CI"):
            pytest.fail(lacks)
        pytest.skip(lacks)
    with Server(valkey_binary, tmp_path) as server, kept(server.url) as ledger:
        server.set_ms(round(1000 * HOUR + 17) * 1000)  # half a century before the keeper's
        assert Retention(ledger, every_s=HOUR).step() == 1
        (job,) = ledger.leases.claim(Queue.BULK, owner="w", n=9)
        assert read_slice(job.payload).params.filter.lt == 952 * HOUR
