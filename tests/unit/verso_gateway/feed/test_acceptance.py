"""Requests are answered in time, whatever the ledger does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from starlette.requests import Request
from tests.integration.verso_gateway.conftest import collection
from tests.support.clock import run_by_own_clock

from verso_core.errors import (
    CollectionUnknown,
    LedgerUnavailable,
    NotReady,
    QueueFull,
    RequestInvalid,
    VersoError,
)
from verso_core.jobs import Collection
from verso_core.jobs.collections import Partitioned, RolloverRule, Stage, TimePart
from verso_core.segments import Reserved
from verso_gateway.app import create_app
from verso_gateway.feed.acceptance import Acceptance, Accepted
from verso_gateway.feed.batch import Batch, batch_of
from verso_gateway.feed.records import LogRecord
from verso_gateway.metrics import Metrics
from verso_gateway.settings import Settings
from verso_ledger import NewJob
from verso_ledger.models import PartitionRolled

Asked = tuple[str, Mapping[str, str], int, str]


class Stuck:
    """A ledger of which a step never ends, the first or none."""

    name = "home"

    def __init__(self, *, stuck: bool = True) -> None:
        self._stuck = stuck

    async def reserve_each(self, asked: Sequence[Asked]) -> list[Reserved]:
        stuck, self._stuck = self._stuck, False
        if stuck:
            await asyncio.get_running_loop().create_future()
        return [Reserved("1", 0, 0) for _ in asked]

    async def known_identities(self, *_: object, **__: object) -> Sequence[int]:
        return []


class Only:
    """The ledgers of a platform that has one."""

    several = False
    partitioned: Mapping[str, Partitioned] = MappingProxyType({})

    def __init__(self, ledger: Stuck | Crowded) -> None:
        self.home = ledger

    def rolled_before(self, *_: object, **__: object) -> list[str]:
        return []


class Jobs:
    """Takes every job."""

    async def submit(self, *_: object, **__: object) -> None:
        return


def batch() -> Batch:
    return batch_of([(0, LogRecord(b"disk full"))], {"": "logs"}, arrived_ns=1)


def test_a_step_that_never_ends_fails_its_requests_and_no_others() -> None:
    async def run() -> None:
        ledger: Any = Only(Stuck())
        jobs: Any = Jobs()
        acceptance = Acceptance(
            ledger, jobs, metrics=Metrics(), gather_s=0.01, keep_s=60, identity_s=60, late_s=2.0
        )
        clock = asyncio.get_running_loop().time
        stuck = asyncio.create_task(acceptance.accept("a", batch(), hold_s=0.1))
        await asyncio.sleep(0.05)
        later = asyncio.create_task(acceptance.accept("a", batch(), hold_s=60.0))
        with pytest.raises(QueueFull):  # it waits behind, and no longer than it may
            await acceptance.accept("a", batch(), hold_s=0.05)
        with pytest.raises(LedgerUnavailable):
            await stuck
        assert await later == Accepted()
        assert clock() < 2.5

    run_by_own_clock(run())


def test_a_request_without_time_ends_alone() -> None:
    """It goes away while the step that would take it in waits for others."""

    async def run() -> None:
        ledger: Any = Only(Stuck(stuck=False))
        jobs: Any = Jobs()
        acceptance = Acceptance(
            ledger, jobs, metrics=Metrics(), gather_s=0.05, keep_s=60, identity_s=60
        )
        with pytest.raises(QueueFull):
            await acceptance.accept("a", batch(), hold_s=0.0)
        [drain] = asyncio.all_tasks() - {asyncio.current_task()}
        await drain
        assert await acceptance.accept("a", batch(), hold_s=1.0) == Accepted()

    run_by_own_clock(run())


class Counting:
    """Notes how many slices each job has."""

    def __init__(self) -> None:
        self.slices: list[int] = []

    async def submit(self, job: NewJob, **_: object) -> None:
        self.slices.append(len(job.slices))


def test_more_streams_than_one_job_takes_are_several_jobs() -> None:
    """The ledger did not answer in time, and the agent sent again what had been accepted."""

    async def run() -> None:
        ledger: Any = Only(Stuck(stuck=False))
        counting = Counting()
        jobs: Any = counting
        acceptance = Acceptance(
            ledger, jobs, metrics=Metrics(), gather_s=0.01, keep_s=60, identity_s=60
        )

        def pods(count: int) -> Batch:
            rows = [LogRecord(b"x", {"pod": str(n)}) for n in range(count)]
            return batch_of(enumerate(rows), {"": "logs"}, arrived_ns=1)

        assert await acceptance.accept("a", pods(20_000), hold_s=1.0) == Accepted()
        assert counting.slices == [8192, 8192, 3616]
        counting.slices.clear()
        together = (acceptance.accept("a", pods(5_000), hold_s=1.0) for _ in range(2))
        assert await asyncio.gather(*together) == [Accepted(), Accepted()]
        assert counting.slices == [5_000, 5_000]

    run_by_own_clock(run())


class Crowded:
    """A ledger that makes no more streams, and does not know a collection."""

    name = "home"

    async def reserve_each(self, asked: Sequence[Asked]) -> list[Reserved | VersoError]:
        return [self._reserved(collection, labels) for collection, labels, *_ in asked]

    def _reserved(self, collection: str, labels: Mapping[str, str]) -> Reserved | VersoError:
        if collection == "gone":
            return CollectionUnknown("no collection of this name")
        if labels.get("pod") == "new":
            return RequestInvalid("too many sets of labels")
        return Reserved("1", 0, 0)

    async def known_identities(self, *_: object, **__: object) -> Sequence[int]:
        return []


def test_a_stream_that_cannot_be_written_costs_its_records() -> None:
    async def run() -> None:
        ledger: Any = Only(Crowded())
        jobs: Any = Jobs()
        acceptance = Acceptance(
            ledger, jobs, metrics=Metrics(), gather_s=0.05, keep_s=60, identity_s=60
        )

        async def accept(*sent: tuple[str, str]) -> Accepted:
            rows = [LogRecord(b"x", {"pod": pod}, source=source) for source, pod in sent]
            made = batch_of(enumerate(rows), {one: one for one, _ in sent}, arrived_ns=1)
            return await acceptance.accept("a", made, hold_s=1.0)

        mixed = accept(("logs", "old"), ("logs", "new"), ("gone", "old"), ("logs", "old"))
        new, old = accept(("logs", "new"), ("logs", "new")), accept(("logs", "old"))
        found = await asyncio.gather(mixed, new, old, return_exceptions=True)
        assert isinstance(found[0], Accepted)
        codes = {n: error.code for n, error in found[0].refused.items()}
        assert codes == {1: "request_invalid", 2: "collection_unknown"}
        assert isinstance(found[1], RequestInvalid)
        assert found[2] == Accepted()

    run_by_own_clock(run())


def test_a_repeat_of_a_record_that_is_refused_was_not_accepted_before() -> None:
    async def run() -> None:
        ledger: Any = Only(Crowded())
        jobs: Any = Jobs()
        acceptance = Acceptance(
            ledger, jobs, metrics=Metrics(), gather_s=0.05, keep_s=60, identity_s=60
        )
        sent = [("new", "1"), ("old", "1"), ("old", "2"), ("old", "2")]
        rows = [LogRecord(b"x", {"pod": pod}, identity=name) for pod, name in sent]
        made = batch_of(enumerate(rows), {"": "logs"}, arrived_ns=1)
        found = await acceptance.accept("a", made, hold_s=1.0)
        assert {n: error.code for n, error in found.refused.items()} == {
            0: "request_invalid",
            1: "request_invalid",
        }
        assert found.repeated == {3}

    run_by_own_clock(run())


class Rolled:
    """A ledger whose partition ``logs.0`` takes no more lines; ``logs.1`` does."""

    name = "home"
    several = False
    partitioned = MappingProxyType(
        {
            "logs": Partitioned(
                partitions=1,
                rollover=RolloverRule(),
                parts=tuple(TimePart(number=n, stage=Stage.LIVE, since=0.0) for n in range(2)),
                writing=1,
            )
        }
    )

    def __init__(self, made: datetime) -> None:
        self.home = self
        self._made = made
        self.asked: list[Asked] = []

    async def reserve_each(self, asked: Sequence[Asked]) -> list[Reserved | VersoError]:
        self.asked += asked
        rolled = PartitionRolled("it takes no more lines")
        return [rolled if name == "logs.0" else Reserved("1", 0, 0) for name, *_ in asked]

    async def collections(self) -> dict[str, Collection]:
        return {
            name: collection(name).model_copy(update={"created": self._made})
            for name in ("logs.0", "logs.1")
        }

    async def has_rolled(self, _: str) -> bool:
        return True

    async def known_identities(self, *_: object, **__: object) -> Sequence[int]:
        return []

    def rolled_before(self, *_: object, **__: object) -> list[str]:
        return []


def test_lines_go_to_the_partition_behind_the_one_that_was_seen() -> None:
    """Where another collection has the name by then, perhaps another tenant's, none is written."""
    seen, later = (datetime(year, 1, 1, tzinfo=UTC) for year in (2026, 2027))

    async def accept(ledger: Any) -> None:
        jobs: Any = Jobs()
        acceptance = Acceptance(
            ledger, jobs, metrics=Metrics(), gather_s=0.0, keep_s=60, identity_s=60
        )
        made = {"logs.0": collection("logs.0").model_copy(update={"created": seen}).made}
        sent = batch_of([(0, LogRecord(b"x"))], {"": "logs.0"}, arrived_ns=1, made=made)
        await acceptance.accept("a", sent, hold_s=1.0)

    same, replaced = Rolled(seen), Rolled(later)
    run_by_own_clock(accept(same))
    assert [name for name, *_ in same.asked] == ["logs.0", "logs.1"]
    with pytest.raises(NotReady):
        run_by_own_clock(accept(replaced))
    assert [name for name, *_ in replaced.asked] == ["logs.0"]


class Full:
    """A queue that has room when it is told so."""

    def __init__(self) -> None:
        self.has_room = False

    async def submit(self, *_: object, **__: object) -> None:
        if not self.has_room:
            raise QueueFull("the queue is full", retry_after_s=1.0)


def test_an_answered_request_ends_none_that_waits_with_it() -> None:
    """They share the error of one step, which goes on for those that may wait longer."""

    async def run() -> None:
        ledger: Any = Only(Stuck(stuck=False))
        jobs: Any = Full()
        acceptance = Acceptance(
            ledger, jobs, metrics=Metrics(), gather_s=0.05, keep_s=60, identity_s=60
        )
        handler: Any = create_app(Settings()).exception_handlers[VersoError]
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": []})
        patient = asyncio.create_task(acceptance.accept("a", batch(), hold_s=30.0))
        with pytest.raises(QueueFull) as refused:
            await acceptance.accept("a", batch(), hold_s=0.3)
        assert (await handler(request, refused.value)).status_code == 429
        jobs.has_room = True
        assert await patient == Accepted()

    run_by_own_clock(run())
