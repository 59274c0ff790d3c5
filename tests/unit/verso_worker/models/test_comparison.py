"""A canary that is worse by more than a margin is found out; one that is not hardly ever is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import EngineUnavailable, LedgerUnavailable
from verso_core.registry import Channel, Measure
from verso_worker.models.comparison import (
    FEWEST_PAIRS,
    UNIT,
    Comparisons,
    Margins,
    Pair,
    judge,
    log_evidence,
    p95_s,
)

TRIAL = "a1b2"


class Sums:
    """The sums of all workers, in memory; ``away`` as a ledger that does not answer."""

    def __init__(self) -> None:
        self.kept: dict[str, Counter[str]] = {}
        self.away = False

    def add(self, trial: str, counts: Mapping[str, int]) -> None:
        if self.away:
            raise LedgerUnavailable("away")
        self.kept.setdefault(trial, Counter()).update(counts)

    def counts(self, trial: str) -> dict[str, int]:
        if self.away:
            raise LedgerUnavailable("away")
        return dict(self.kept.get(trial, {}))


def jobs_until_worse(
    observe: Callable[[Comparisons, random.Random], None], *, most: int, seed: int = 0
) -> tuple[int, Measure | None]:
    """Make observations until the canary is found worse; how many, and in what it is."""
    comparisons, chance = Comparisons(Sums()), random.Random(seed)
    for number in range(1, most + 1):
        observe(comparisons, chance)
        worse = comparisons.review(TRIAL)
        if worse is not None:
            return number, worse.measure
    return most, None


def shuffled_labels(comparisons: Comparisons, chance: random.Random) -> None:
    differed = sum(chance.random() < 0.9 for _ in range(8))
    comparisons.add_agreement(TRIAL, agreed=8 - differed, differed=differed)


def as_good_and_often_of_another_opinion(comparisons: Comparisons, chance: random.Random) -> None:
    differed = sum(chance.random() < 0.45 for _ in range(8))
    comparisons.add_agreement(TRIAL, agreed=8 - differed, differed=differed)
    comparisons.add_scores(TRIAL, [(chance.random(), chance.random())])
    both = chance.lognormvariate(0, 1) / 100  # what a busy machine does to both
    own = [both * chance.lognormvariate(0, 0.3) for _ in range(2)]
    comparisons.add_seconds(TRIAL, canary_s=own[0], stable_s=own[1], texts=1)


def three_times_slower(comparisons: Comparisons, chance: random.Random) -> None:
    both = chance.lognormvariate(0, 1) / 100
    comparisons.add_seconds(TRIAL, canary_s=24 * both, stable_s=8 * both, texts=8)


def slow_once_in_ten(comparisons: Comparisons, chance: random.Random) -> None:
    canary_s = 0.5 if chance.random() < 0.1 else 0.01
    comparisons.add_seconds(TRIAL, canary_s=canary_s, stable_s=0.01, texts=1)


def worse_on_labels(comparisons: Comparisons, chance: random.Random) -> None:
    stable = chance.random() / 2
    comparisons.add_scores(TRIAL, [(stable + 0.8, stable)])


@pytest.mark.parametrize(
    ("observe", "measure", "most"),
    [
        (shuffled_labels, Measure.AGREEMENT, 40),
        (worse_on_labels, Measure.SCORE, 150),
        (three_times_slower, Measure.LATENCY, 400),
        (slow_once_in_ten, Measure.LATENCY, 400),
    ],
)
def test_a_canary_that_is_worse_is_found_out(
    observe: Callable[[Comparisons, random.Random], None], measure: Measure, most: int
) -> None:
    for seed in range(5):
        jobs, found = jobs_until_worse(observe, most=most, seed=seed)
        assert found is measure, f"after {jobs} jobs"


def test_a_canary_that_is_as_good_stays_however_often_it_is_asked_about() -> None:
    for seed in range(5):
        _, found = jobs_until_worse(as_good_and_often_of_another_opinion, most=150, seed=seed)
        assert found is None


def test_false_alarms_are_no_more_frequent_than_asked() -> None:
    """At the very bound, asked after each observation; a tenth is asked so that some occur."""
    margins, chance, alarms = Margins(differ=0.3, false_alarm=0.1), random.Random(1), 0
    for _ in range(100):
        total = 0
        for n in range(1, 60):
            total += chance.random() < margins.differ
            counts = {"agreement:n": n, "agreement:sum": UNIT * total}
            if judge(counts, margins) is not None:
                alarms += 1
                break
    assert alarms <= 0.1 * 100


@given(
    n=st.integers(0, 500),
    share=st.floats(0, 1),
    bound=st.floats(0, 1),
)
def test_evidence_is_none_without_observations_and_never_infinite(
    n: int, share: float, bound: float
) -> None:
    found = log_evidence(n, n * share, bound=bound)
    assert abs(found) < 1e5
    if n == 0:
        assert found == 0.0
    if share <= bound:
        assert found <= 1e-6


def test_the_order_in_which_workers_add_does_not_matter() -> None:
    one, other = Counter({"agreement:n": 3, "canary:7": 2}), Counter({"agreement:n": 4})
    sums = [Sums(), Sums()]
    for kept, parts in zip(sums, ([one, other], [other, one]), strict=True):
        for part in parts:
            comparisons = Comparisons(kept)
            comparisons.add(TRIAL, part)
            comparisons.review(TRIAL)
    assert sums[0].kept == sums[1].kept


def test_nothing_is_lost_while_the_ledger_is_away() -> None:
    sums = Sums()
    comparisons = Comparisons(sums)
    comparisons.add_agreement(TRIAL, agreed=0, differed=4)
    sums.away = True
    assert comparisons.review(TRIAL) is None
    sums.away = False
    comparisons.review(TRIAL)
    assert sums.kept[TRIAL]["differed"] == 4


def test_a_p95_is_that_of_the_runs_to_a_fifth() -> None:
    comparisons = Comparisons(Sums())
    for number in range(1, 101):
        seconds = number / 1000
        comparisons.add_seconds(TRIAL, canary_s=3 * seconds, stable_s=seconds, texts=1)
    comparisons.review(TRIAL)
    found = comparisons.described(TRIAL)
    assert 95 <= found["p95_ms_stable"] <= 95 * 1.2
    assert 3 * 95 <= found["p95_ms_canary"] <= 3 * 95 * 1.2
    assert p95_s({}, Channel.STABLE) is None


def test_the_tail_is_judged_once_enough_pairs_are_known() -> None:
    sums = Sums()
    comparisons = Comparisons(sums)
    for _ in range(FEWEST_PAIRS):
        comparisons.add_seconds(TRIAL, canary_s=9.0, stable_s=0.01, texts=1)
        comparisons.review(TRIAL)
    assert "latency:n" not in sums.kept[TRIAL]
    comparisons.add_seconds(TRIAL, canary_s=9.0, stable_s=0.01, texts=1)
    comparisons.review(TRIAL)
    assert sums.kept[TRIAL]["latency:n"] == 1


class Work:
    """Runs of two versions, which take as long as they say by a clock that only they move."""

    def __init__(self, *, canary_s: float, stable_s: float) -> None:
        self.order: list[str] = []
        self.now = 0.0
        self._takes = {"canary": canary_s, "stable": stable_s}

    def run(self, version: str) -> str:
        self.order.append(version)
        self.now += self._takes[version]
        return f"says the {version}"

    def pair(self, comparisons: Comparisons, job: str) -> Pair[str] | None:
        self.order.clear()
        result, pair = comparisons.run(
            lambda: self.run("canary"), lambda: self.run("stable"), job=job
        )
        assert result == "says the canary"
        return pair


def test_of_a_share_of_jobs_both_versions_are_run_in_either_order() -> None:
    work = Work(canary_s=3.0, stable_s=2.0)
    seconds: list[tuple[float, float]] = []
    comparisons = Comparisons(
        Sums(), share=0.5, clock=lambda: work.now, on_pair=lambda *both: seconds.append(both)
    )
    firsts: list[str] = []
    for job in map(str, range(200)):
        pair = work.pair(comparisons, job)
        if pair is None:
            assert work.order == ["canary"]
            continue
        assert pair == Pair("says the canary", "says the stable", 3.0, 2.0)
        firsts.append(work.order[0])
    assert 60 <= len(firsts) <= 140
    assert 0.3 <= firsts.count("canary") / len(firsts) <= 0.7
    assert seconds == [(3.0, 2.0)] * len(firsts)


def test_a_canary_made_slower_on_purpose_is_found_out() -> None:
    work = Work(canary_s=0.02, stable_s=0.01)
    comparisons = Comparisons(Sums(), clock=lambda: work.now)
    worse = None
    for job in map(str, range(120)):
        pair = work.pair(comparisons, job)
        assert pair is not None
        comparisons.add_seconds(TRIAL, canary_s=pair.canary_s, stable_s=pair.stable_s, texts=1)
        worse = worse or comparisons.review(TRIAL)
    assert worse is not None
    assert worse.measure is Measure.LATENCY
    assert "longer by more than 50%" in worse.reason


def test_a_stable_version_that_fails_makes_no_pair_and_no_fault() -> None:
    def failing() -> str:
        raise EngineUnavailable("died")

    for job in "abcdef":
        assert Comparisons(Sums()).run(lambda: "c", failing, job=job) == ("c", None)


def test_what_the_canary_raises_is_raised() -> None:
    def failing() -> str:
        raise EngineUnavailable("died")

    for job in "abcdef":
        with pytest.raises(EngineUnavailable):
            Comparisons(Sums()).run(failing, lambda: "s", job=job)
