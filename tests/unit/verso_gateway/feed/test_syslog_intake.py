"""What one collection cannot take in costs no other, and doubles nothing."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from tests.support.clock import run_by_own_clock

from verso_core.errors import CollectionUnknown, LedgerUnavailable
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
        return SimpleNamespace(name=name, kind=kind, owner=owner, parted=None)


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
        names = [name for name, _ in batch.streams]
        if "far" in names and self.away:
            self.away -= 1
            raise LedgerUnavailable("it does not answer")
        if "full" in names:
            raise CollectionUnknown("it was deleted")
        self.taken.update(names)
        return Accepted()


def test_what_a_collection_cannot_take_costs_no_other_and_doubles_nothing() -> None:
    acceptance: Any = Acceptance()
    collections: Any = Collections()
    room: Any = Room()
    maker: Any = None
    metrics = Metrics()
    intake = Intake(
        acceptance,
        collections=collections,
        room=room,
        maker=maker,
        routing=Routing.parse("doc=documents,their=theirs,far=far,full=full,app=logs"),
        metrics=metrics,
        tenant="default",
        offset_s=0,
    )
    apps = ("app", "doc", "their", "far", "full", "unrouted", "app")
    messages = [b"<13>1 - - %b - - - text" % app.encode() for app in apps]
    run_by_own_clock(intake.take(messages))
    assert acceptance.taken == {"logs": 1, "far": 1}
    counts = {
        sample.labels["status"]: sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "verso_feed_records_total" and sample.labels["protocol"] == "syslog"
    }
    assert counts["accepted"] == 3
    assert counts["rejected"] == 4
