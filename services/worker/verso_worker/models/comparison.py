"""Decide from runs of both versions whether a canary is worse than the stable version.

1. Some of a canary's jobs are run by the stable version as well, in the same process and in either
   order: a **pair**. What a busy machine does to one run it does to the other.
2. A pair, or a label that a person gave, makes one observation in [0, 1] for each measure. Its mean
   is above a bound only if the canary is worse than the margin:

       agreement  share of the job's texts of which the versions say different things; the bound is
                  the margin itself
       score      of a labelled text (1 + (b_c - b_s) / 2) / 2 with the Brier scores b_c, b_s
                  (Brier 1950; in [0, 2] with several labels, smaller is better)
       latency    whether the canary took longer than t (1 + margin) a text and the stable version
                  at most t, rather than the reverse; other pairs do not count. t is the p95 of the
                  stable version by the pairs before, the bound a half. As McNemar's test (1947) it
                  compares how often only one of the two is in the tail.

3. Workers add up the number of observations and their sum in the ledger. Sums of all workers give
   the evidence against "not worse than the margin": the mixture over means p > bound of the
   likelihood ratios of a binomial, (p/bound)^sum ((1-p)/(1-bound))^(n-sum).
4. The canary is worse when the evidence reaches 1 / false_alarm. This may be asked after every
   observation: the mixture is a supermartingale if no mean is above the bound, as a ratio is convex
   in the observation, so that it ever gets there has at most that probability (Ville 1939; Howard,
   Ramdas, McAuliffe & Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence
   sequences", section 3). The measures share the probability evenly.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from verso_core.errors import LedgerUnavailable
from verso_core.registry import Channel, Measure, channel_of

UNIT = 1_000_000
"""The sums in the ledger are integers, so that adding them up loses nothing: millionths."""
FEWEST_PAIRS = 40
"""Pairs before the p95 of the stable version is taken for known."""
_BUCKETS_PER_OCTAVE = 4
_MEANS = 64
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Margins:
    """How much worse a canary may be.

    differ: share of the texts on which it may differ from the stable version.
    score: by how much its Brier score may be above the stable version's.
    slower: by what share its p95 may be above the stable version's.
    false_alarm: probability that a canary within all margins is ever withdrawn.
    """

    differ: float = 0.5
    score: float = 0.05
    slower: float = 0.5
    false_alarm: float = 0.01

    def bound(self, measure: Measure) -> float:
        """Return the largest mean of a measure's observations within the margins."""
        match measure:
            case Measure.AGREEMENT:
                return self.differ
            case Measure.SCORE:
                return _score_observation(self.score)
            case Measure.LATENCY:
                return 0.5


@dataclass(frozen=True, slots=True)
class Worse:
    """Why a canary is worse."""

    measure: Measure
    reason: str


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """What both versions said of one job, and the seconds they took."""

    canary: T
    stable: T
    canary_s: float
    stable_s: float


Counts = Mapping[str, int]
"""Sums of one trial by name; :class:`Comparisons` writes them."""


class TrialCounts(Protocol):
    """Where the sums of all workers are."""

    def add(self, trial: str, counts: Counts) -> None:
        """Add to the sums of a trial."""

    def counts(self, trial: str) -> dict[str, int]:
        """Return the sums of a trial."""
        ...


class Comparisons:
    """The pairs of this worker and the sums of all; any number of threads may use it.

    Args:
        store: the sums of all workers.
        margins: how much worse a canary may be.
        share: share of a canary's jobs that the stable version runs as well.
        clock: seconds, for how long a run takes.
        on_pair: called with the seconds that the canary and the stable version took.
        on_worse: called with the measure in which a canary is worse.
    """

    def __init__(
        self,
        store: TrialCounts,
        *,
        margins: Margins | None = None,
        share: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
        on_pair: Callable[[float, float], None] = lambda _canary_s, _stable_s: None,
        on_worse: Callable[[Measure], None] = lambda _measure: None,
    ) -> None:
        self._store = store
        self._margins = margins or Margins()
        self._share = share
        self._clock = clock
        self._on_pair = on_pair
        self._on_worse = on_worse
        self._lock = threading.Lock()
        self._new: dict[str, Counter[str]] = {}
        self._known: dict[str, Counter[str]] = {}

    def run(
        self, call: Callable[[], T], beside: Callable[[], T], *, job: str
    ) -> tuple[T, Pair[T] | None]:
        """Run a canary's job, and if the job is of the sample, ``beside`` it the stable version.

        Which of them goes first depends on the job's id, so neither profits from the other's
        caches. An error of the stable version is logged only.

        Returns:
            What ``call`` returns, and the pair if there is one.
        """
        if channel_of(f"pair {job}", self._share) is Channel.STABLE:
            return call(), None
        first = channel_of(f"order {job}", 0.5) is Channel.STABLE
        stable = self._timed(beside) if first else None
        started = self._clock()
        result = call()
        canary_s = self._clock() - started
        stable = stable if first else self._timed(beside)
        if stable is None:
            return result, None
        self._on_pair(canary_s, stable[1])
        return result, Pair(result, stable[0], canary_s, stable[1])

    def _timed(self, beside: Callable[[], T]) -> tuple[T, float] | None:
        started = self._clock()
        try:
            found = beside()
        except Exception as error:  # noqa: BLE001  # the caller waits for the canary's result alone
            _log.warning("no pair, the stable version failed: %s", type(error).__name__)
            return None
        return found, self._clock() - started

    def add_agreement(self, trial: str, *, agreed: int, differed: int) -> None:
        """Add on how many texts of one job a canary and the stable version agreed and differed."""
        if agreed + differed:
            share = differed / (agreed + differed)
            observation = _observed(Measure.AGREEMENT, share)
            self.add(trial, observation | {"agreed": agreed, "differed": differed})

    def add_seconds(self, trial: str, *, canary_s: float, stable_s: float, texts: int) -> None:
        """Add how long both took for one job of so many texts."""
        if texts:
            canary_s, stable_s = canary_s / texts, stable_s / texts
            with self._lock:
                known = self._known.get(trial, Counter())
            seconds = {f"canary:{_bucket(canary_s)}": 1, f"stable:{_bucket(stable_s)}": 1}
            tail = _tail(known, canary_s, stable_s, slower=self._margins.slower)
            self.add(trial, seconds | tail)

    def add_scores(self, trial: str, scores: Sequence[tuple[float, float]]) -> None:
        """Add the Brier scores of the canary and the stable version on labelled texts."""
        for canary, stable in scores:
            sums = {"brier:canary": round(UNIT * canary), "brier:stable": round(UNIT * stable)}
            observation = _observed(Measure.SCORE, _score_observation(canary - stable))
            self.add(trial, observation | sums)

    def add(self, trial: str, counts: Counts) -> None:
        """Add to a trial's sums; other workers see it after the next :meth:`review`."""
        with self._lock:
            self._new.setdefault(trial, Counter()).update(counts)

    def review(self, trial: str) -> Worse | None:
        """Exchange sums with the other workers; return why the canary is worse, if it is.

        While the ledger does not answer nothing is decided, and the sums are kept.
        """
        with self._lock:
            new = self._new.pop(trial, Counter())
        try:
            if new:
                self._store.add(trial, new)
                new = Counter()
            known = Counter(self._store.counts(trial))
        except LedgerUnavailable as error:
            self.add(trial, new)
            _log.warning("canary not compared: %s", error.detail)
            return None
        with self._lock:
            self._known[trial] = known
        worse = judge(known, self._margins)
        if worse is not None:
            self._on_worse(worse.measure)
        return worse

    def described(self, trial: str) -> dict[str, float]:
        """Describe a trial as the last review found it; empty before the first pair."""
        with self._lock:
            known = self._known.get(trial)
        return describe(known) if known else {}

    def forget(self, trials: set[str]) -> None:
        """Drop the sums of all trials but these."""
        with self._lock:
            for gone in (self._new.keys() | self._known.keys()) - trials:
                self._new.pop(gone, None)
                self._known.pop(gone, None)


def judge(counts: Counts, margins: Margins) -> Worse | None:
    """Return why a canary with these sums is worse than the margins allow; None if it is not."""
    enough = math.log(len(Measure) / margins.false_alarm)
    for measure in Measure:
        n, total = counts.get(f"{measure}:n", 0), counts.get(f"{measure}:sum", 0) / UNIT
        if log_evidence(n, total, bound=margins.bound(measure)) >= enough:
            return Worse(measure, _reason(measure, counts, margins))
    return None


def log_evidence(n: int, total: float, *, bound: float) -> float:
    """Return the logarithm of the evidence that ``n`` observations have a mean above ``bound``.

    Args:
        n: number of observations.
        total: their sum.
        bound: in [0, 1]; 0 is taken for a little more, and 1 is never exceeded.
    """
    if n == 0 or bound > 1 - 1 / UNIT:
        return 0.0
    bound = max(bound, 1 / UNIT)
    means = [bound + (1 - bound) * (at + 0.5) / _MEANS for at in range(_MEANS)]
    logs = [
        total * math.log(mean / bound) + (n - total) * math.log((1 - mean) / (1 - bound))
        for mean in means
    ]
    largest = max(logs)
    return largest + math.log(sum(math.exp(one - largest) for one in logs) / _MEANS)


def p95_s(counts: Counts, channel: Channel) -> float | None:
    """Return the seconds a text that 95 % of a channel's runs did not pass; None without runs.

    They are known to a fifth: runs are counted in buckets of a quarter of an octave.
    """
    prefix = f"{channel}:"
    buckets = sorted(
        (int(name.removeprefix(prefix)), count)
        for name, count in counts.items()
        if name.startswith(prefix)
    )
    left = math.ceil(0.95 * sum(count for _, count in buckets))
    for bucket, count in buckets:
        left -= count
        if left <= 0:
            return float(2.0 ** ((bucket + 1) / _BUCKETS_PER_OCTAVE) / UNIT)
    return None


def describe(counts: Counts) -> dict[str, float]:
    """Describe the sums of a trial, by name; only what is known."""
    found: dict[str, float] = {
        "pairs": counts.get("agreement:n", 0),
        "agreed": counts.get("agreed", 0),
        "differed": counts.get("differed", 0),
        "labels": counts.get("score:n", 0),
        "read_back": counts.get("read_back", 0),
    }
    for channel in Channel:
        if (p95 := p95_s(counts, channel)) is not None:
            found[f"p95_ms_{channel}"] = round(1e3 * p95, 3)
        if found["labels"]:
            mean = counts.get(f"brier:{channel}", 0) / UNIT / found["labels"]
            found[f"brier_{channel}"] = round(mean, 4)
    return found


def _observed(measure: Measure, value: float) -> dict[str, int]:
    return {f"{measure}:n": 1, f"{measure}:sum": round(UNIT * min(1.0, max(0.0, value)))}


def _score_observation(difference: float) -> float:
    return (1 + difference / 2) / 2


def _bucket(seconds: float) -> int:
    return math.floor(_BUCKETS_PER_OCTAVE * math.log2(max(1.0, UNIT * seconds)))


def _tail(known: Counts, canary_s: float, stable_s: float, *, slower: float) -> dict[str, int]:
    """Return the observation of the latency, if the pair is one."""
    limit_s = p95_s(known, Channel.STABLE)
    pairs = sum(count for name, count in known.items() if name.startswith(f"{Channel.STABLE}:"))
    if limit_s is None or pairs < FEWEST_PAIRS:
        return {}
    canary, stable = canary_s > (1 + slower) * limit_s, stable_s > limit_s
    return {} if canary == stable else _observed(Measure.LATENCY, float(canary))


def _reason(measure: Measure, counts: Counts, margins: Margins) -> str:
    found = describe(counts)
    match measure:
        case Measure.AGREEMENT:
            share = found["differed"] / max(1, found["agreed"] + found["differed"])
            return (
                f"it differs from the stable version on {share:.0%} of the texts of "
                f"{found['pairs']:.0f} jobs, more than {margins.differ:.0%}"
            )
        case Measure.SCORE:
            return (
                f"its Brier score on {found['labels']:.0f} labels is {found['brier_canary']:.3f}, "
                f"the stable version's {found['brier_stable']:.3f}: worse by more than "
                f"{margins.score:g}"
            )
        case Measure.LATENCY:
            return (
                f"its p95 is {found['p95_ms_canary']:.3g} ms a text, the stable version's "
                f"{found['p95_ms_stable']:.3g}: longer by more than {margins.slower:.0%}"
            )
