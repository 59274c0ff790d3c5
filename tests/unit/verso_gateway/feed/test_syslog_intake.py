"""What one collection cannot take in costs no other, and doubles nothing."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from tests.support.clock import run_by_own_clock

from verso_core.errors import BodyTooLarge, CollectionUnknown, LedgerUnavailable
from verso_core.jobs import CollectionKind
from verso_gateway.feed.acceptance import Accepted
from verso_gateway.feed.batch import Batch
from verso_gateway.feed.routing import Routing
from verso_gateway.metrics import Metrics
from verso_gateway.syslog.intake import Intake


class Collections:
    """Collections of logs, one of documents, and one of another tenant."""

    async def get(self, name: str) -> Any:
        kind = CollectionKind.DOCUMENTS if name == "documents" else CollectionKind.LOGS
        owner = "other" if name == "theirs" else None
        return SimpleNamespace(name=name, kind=kind, owner=owner, parted=None, made="now")

    def parts(self, collection: Any) -> dict[str, Any]:
        return {collection.name: collection}


class Room:
    """There is room."""

    async def check(self) -> None:
        return


class Acceptance:
    """Takes what comes in, but that of a ledger which is away for a while."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.away = 3

    async def accept(self, _tenant: str, batch: Batch, *, hold_s: float) -> Accepted:
        assert hold_s > 0
        names = [key.collection for key in batch.streams]
        assert {key.made for key in batch.streams} == {"now"}
        if "far" in names and self.away:
            self.away -= 1
            raise LedgerUnavailable("it does not answer")
        if "full" in names:
            raise CollectionUnknown("it was deleted")
        lines = {key.collection: len(one.lines) for key, one in batch.streams.items()}
        if lines.get("small", 0) > 2:
            raise BodyTooLarge("expected <= 2 lines")
        self.taken.update(lines)
        return Accepted(frozenset([0]) if "small" in lines else frozenset())


def intake(acceptance: Any, metrics: Metrics) -> Intake:
    collections: Any = Collections()
    room: Any = Room()
    maker: Any = None
    return Intake(
        acceptance,
        collections=collections,
        room=room,
        maker=maker,
        routing=Routing.parse("doc=documents,their=theirs,far=far,full=full,small=small,app=logs"),
        metrics=metrics,
        tenant="default",
        offset_s=0,
    )


def messages(*apps: str) -> list[bytes]:
    return [b"<13>1 - - %b - - - text" % app.encode() for app in apps]


def counts(metrics: Metrics) -> dict[str, float]:
    return {
        sample.labels["status"]: sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "verso_feed_records_total" and sample.labels["protocol"] == "syslog"
    }


def test_what_a_collection_cannot_take_costs_no_other_and_doubles_nothing() -> None:
    acceptance, metrics = Acceptance(), Metrics()
    apps = ("app", "doc", "their", "far", "full", "unrouted", "app")
    run_by_own_clock(intake(acceptance, metrics).take(messages(*apps)))
    assert acceptance.taken == {"logs": 2, "far": 1}
    assert counts(metrics) == {"accepted": 3, "repeated": 0, "rejected": 4}


def test_more_than_a_queue_may_hold_comes_in_parts() -> None:
    acceptance, metrics = Acceptance(), Metrics()
    run_by_own_clock(intake(acceptance, metrics).take(messages(*["small"] * 9)))
    assert acceptance.taken == {"small": 9}
    assert counts(metrics) == {"accepted": 4, "repeated": 5, "rejected": 0}
