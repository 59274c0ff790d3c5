"""What a head's canary fails is done with what is stable, and noted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from verso_core.errors import EngineUnavailable, HeadUnknown, QuestionTooLong
from verso_core.jobs import AnySlice, IngestItem, IngestParams, Kind, Slice
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.canary import CODED_CHUNKS, ArtifactCanary, run_job, verdict
from verso_worker.models.comparison import Comparisons, Pair
from verso_worker.models.heads import HeadStore

BROKEN = EngineUnavailable("head kinds failed on an input")


class Noted:
    """Heads of which ``kinds`` has a canary for every job; keeps what it is told of it."""

    def __init__(self) -> None:
        self.comparisons: Comparisons | None = None
        self.notes: list[tuple[str, str, BaseException | None]] = []

    def canary(self, name: str, job: str) -> str | None:
        return "v2" if name == "kinds" else None

    def tried(self, name: str, version: str, error: BaseException | None) -> None:
        self.notes.append((name, version, error))

    def compared(self, canaries: Mapping[str, str], work: AnySlice, pair: Pair[Any]) -> None:
        raise AssertionError((canaries, work, pair))


def failing(error: Exception, *, stable: Exception | None = None) -> Callable[[str | None], str]:
    def do(job: str | None) -> str:
        if job is not None:
            raise error
        if stable is not None:
            raise stable
        return "stable"

    return do


@pytest.mark.parametrize("names", [["other", "kinds"], ["kinds"]])
def test_what_a_canary_fails_is_done_again_and_noted(names: list[str]) -> None:
    heads = Noted()
    assert run_job(heads, names, failing(BROKEN), job="7") == "stable"
    assert heads.notes == [("kinds", "v2", BROKEN)]


def test_what_it_does_well_is_noted_too() -> None:
    heads = Noted()
    assert run_job(heads, ["kinds"], lambda job: f"job {job}", job="7") == "job 7"
    assert heads.notes == [("kinds", "v2", None)]


@pytest.mark.parametrize(
    ("error", "stable", "raised"),
    [
        (QuestionTooLong("it is"), None, QuestionTooLong),  # the caller is to blame
        (BROKEN, EngineUnavailable("the engine died"), EngineUnavailable),  # stable fails too
        (BROKEN, HeadUnknown("no stable version"), EngineUnavailable),  # nothing stable is there
    ],
)
def test_a_canary_is_blamed_only_for_what_is_its_own(
    error: Exception, stable: Exception | None, raised: type[Exception]
) -> None:
    heads = Noted()
    with pytest.raises(raised):
        run_job(heads, ["kinds"], failing(error, stable=stable), job="7")
    assert heads.notes == []


def test_without_a_canary_nothing_is_done_twice() -> None:
    heads = Noted()
    with pytest.raises(EngineUnavailable):
        run_job(heads, ["other"], failing(BROKEN), job="7")
    assert heads.notes == []


def test_two_failures_may_be_chance_and_a_small_share_as_well() -> None:
    assert verdict(0, 2, BROKEN) is None
    assert verdict(1000, 3, BROKEN) is None
    assert verdict(50, 3, BROKEN) == "3 of 53 slices failed, the last with engine_unavailable"


class Coding:
    """A pipeline that codes, or fails to."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.asked: list[int] = []

    def code(self, _work: AnySlice, *, most: int) -> int:
        self.asked.append(most)
        if self._error is not None:
            raise self._error
        return 1


class Sums:
    """The sums of all workers, which keep nothing."""

    def add(self, trial: str, counts: Mapping[str, int]) -> None:
        """Take sums."""

    def counts(self, trial: str) -> dict[str, int]:
        del trial
        return {}


@pytest.mark.parametrize(
    ("canary", "stable", "pairs"),
    [(None, None, 1), (BROKEN, None, 0), (None, BROKEN, 0), (ValueError("a fault"), None, 0)],
)
def test_an_ingest_that_succeeded_stands_whatever_the_comparison_meets(
    canary: Exception | None, stable: Exception | None, pairs: int
) -> None:
    seen: list[tuple[float, float]] = []
    comparisons = Comparisons(Sums(), on_pair=lambda *both: seen.append(both))
    none = cast(Any, None)  # nothing is served or withdrawn
    trials = ArtifactCanary(
        none,
        Metrics(CollectorRegistry()),
        make=none,
        withdraw=none,
        comparisons=comparisons,
        trial=lambda: "t",
    )
    both = Coding(canary), Coding(stable)
    work = Slice(Kind.INGEST, IngestParams(collection="c"), (IngestItem(id="a", text=b"a"),))
    for job in "abcd":  # in either order
        trials.compare_coding(work, cast(Any, both[0]), cast(Any, both[1]), job=job)
    assert len(seen) == 4 * pairs
    assert both[0].asked == [CODED_CHUNKS] * 4


def test_jobs_of_one_canary_share_a_pipeline_and_what_it_keeps() -> None:
    codecs = ["first"]
    serving = SimpleNamespace(current=lambda: SimpleNamespace(codec=codecs[-1]))
    canary = ArtifactCanary(
        cast("ArtifactStore", SimpleNamespace(canary=lambda _: serving)),
        Metrics(CollectorRegistry()),
        make=lambda _: cast("Any", object()),
        withdraw=lambda _codec, _reason: None,
    )
    first = canary.pipeline("a")
    assert canary.pipeline("b") is first
    codecs.append("second")
    assert canary.pipeline("a") is not first


def test_an_artifact_that_is_tried_again_starts_at_zero() -> None:
    serving = SimpleNamespace(current=lambda: SimpleNamespace(codec="c0d3c"))
    models = cast("ArtifactStore", SimpleNamespace(canary=lambda _: serving))
    trials, withdrawn = ["first"], []
    canary = ArtifactCanary(
        models,
        Metrics(CollectorRegistry()),
        make=lambda _: cast("Any", None),
        withdraw=lambda codec, _: withdrawn.append(codec),
        trial=lambda: trials[-1],
    )
    for _ in range(3):
        canary.pipeline("job")
        canary.failed(BROKEN)
    assert withdrawn == ["c0d3c"]
    trials.append("second")
    canary.pipeline("job")
    canary.failed(BROKEN)
    assert withdrawn == ["c0d3c"]


def test_a_head_that_is_tried_again_starts_at_zero(tmp_path: Path) -> None:
    heads = HeadStore(tmp_path, cast("Any", None))

    def assign(trial: str) -> None:
        rollout = {"stable": "v1", "canary": "v2", "trial": trial}
        (tmp_path / "registry.json").write_text(json.dumps({"heads": {"kinds": rollout}}))

    assign("first")
    for _ in range(3):
        heads.tried("kinds", "v2", BROKEN)
    assert heads.canary("kinds", "canary") is None
    assign("the second one")
    heads.tried("kinds", "v2", BROKEN)
    assert heads.states()[0]["trial"]["failed"] == 1
    assert ("kinds", "v2") not in heads._faults


def test_what_a_canary_of_a_head_fails_after_another_replaced_it_is_not_the_others(
    tmp_path: Path,
) -> None:
    heads = HeadStore(tmp_path, cast("Any", None))
    rollout = {"stable": "v1", "canary": "v3", "trial": "third"}
    (tmp_path / "registry.json").write_text(json.dumps({"heads": {"kinds": rollout}}))
    for _ in range(3):
        heads.tried("kinds", "v2", BROKEN)
    assert heads.states()[0]["trial"]["failed"] == 0
    heads.tried("kinds", "v3", BROKEN)
    assert heads.states()[0]["trial"]["failed"] == 1
    assert ("kinds", "v3") not in heads._faults


def test_a_head_is_described_with_the_tasks_that_it_is_known_as(tmp_path: Path) -> None:
    heads = {name: {"stable": "v1"} for name in ("alike", "duplicate")}
    tasks = {"similarity": "alike", "duplicate": "alike"}  # the second is a head of its own now
    (tmp_path / "registry.json").write_text(json.dumps({"heads": heads, "tasks": tasks}))
    states = HeadStore(tmp_path, cast("Any", None)).states()
    assert [(one["name"], one["tasks"]) for one in states] == [
        ("alike", ["similarity"]),
        ("duplicate", []),
    ]
