"""Isolation: one bad item of a slice fails alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import (
    CollectionUnknown,
    EngineUnavailable,
    LedgerUnavailable,
    RecordCorrupt,
    VersoError,
)
from verso_core.jobs import AnySlice, Failed, IngestItem, IngestParams, Kind, Result, Slice
from verso_core.jobs.ingest import Ingested
from verso_worker.jobs.bisect import bisect_failures, worth_bisecting
from verso_worker.rules.ports.outcome import Delete, SliceOutcome


class Machine:
    """Echoes texts; fails a whole slice in which a bad text stands."""

    def __init__(self, bad: set[bytes], error: Exception) -> None:
        self.bad = bad
        self.error = error
        self.runs = 0

    def run(self, work: AnySlice) -> SliceOutcome:
        self.runs += 1
        result: Result[Ingested] = Result([], timings_ms={"infer": 1.0})
        for item in work.accepted.values():
            if item.text in self.bad:
                raise self.error
            result.items.append(Ingested(id=item.id))
        deletes = [Delete(item.id) for item in work.accepted.values()]
        return SliceOutcome(result, deletes=deletes, collection="logs")


def work_of(count: int, kind: Kind = Kind.INGEST) -> AnySlice:
    items = tuple(IngestItem(f"d{n}", b"%d" % n) for n in range(count))
    return Slice(kind=kind, params=IngestParams(collection="logs"), items=items)


@given(st.integers(2, 64), st.data())
def test_every_good_item_has_its_own_result_and_every_bad_one_an_error_in_its_place(
    count: int, data: st.DataObject
) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=5))
    machine = Machine({b"%d" % n for n in bad}, RecordCorrupt("odd"))
    outcome = bisect_failures(machine.run, work_of(count), attempt=1)
    assert len(outcome.result.items) == count
    for n, item in enumerate(outcome.result.items):
        if n in bad:
            assert isinstance(item, Failed)
            assert (item.id, item.error.code) == (f"d{n}", "record_corrupt")
        else:
            assert item == Ingested(id=f"d{n}")
    assert outcome.deletes == [Delete(f"d{n}") for n in range(count) if n not in bad]
    assert outcome.collection == ("logs" if outcome.deletes else "")


def test_one_bad_item_among_64_costs_twelve_runs() -> None:
    machine = Machine({b"37"}, ValueError("a text could stand here"))
    outcome = bisect_failures(machine.run, work_of(64), attempt=1)
    assert machine.runs == 12
    [failed] = [item for item in outcome.result.items if isinstance(item, Failed)]
    assert (failed.id, failed.error.detail) == ("d37", "ValueError")


def test_a_passing_error_is_tried_again_before_anybody_is_blamed() -> None:
    machine = Machine({b"3"}, EngineUnavailable("died"))
    with pytest.raises(EngineUnavailable):
        bisect_failures(machine.run, work_of(8), attempt=4)
    outcome = bisect_failures(machine.run, work_of(8), attempt=5)
    assert len(outcome.result.items) - outcome.result.ok == 1


def test_while_the_engine_is_away_nobody_is_blamed() -> None:
    machine = Machine({b"%d" % n for n in range(8)}, EngineUnavailable("away"))
    with pytest.raises(EngineUnavailable):
        bisect_failures(machine.run, work_of(8), attempt=7)


@pytest.mark.parametrize("error", [LedgerUnavailable("away"), CollectionUnknown("gone")])
def test_what_concerns_all_items_is_no_items_fault(error: VersoError) -> None:
    assert not worth_bisecting(work_of(8), error, attempt=9)
    with pytest.raises(type(error)):
        bisect_failures(Machine({b"1"}, error).run, work_of(8), attempt=9)


def test_when_halving_helps() -> None:
    assert worth_bisecting(work_of(2), ValueError(), attempt=1)
    assert worth_bisecting(work_of(2), RecordCorrupt("odd"), attempt=1)
    assert not worth_bisecting(work_of(1), ValueError(), attempt=1)
    assert not worth_bisecting(work_of(2), EngineUnavailable("died"), attempt=2)
    assert worth_bisecting(work_of(2), EngineUnavailable("died"), attempt=3)
    assert not worth_bisecting(work_of(2, Kind.SEARCH), ValueError(), attempt=3)
