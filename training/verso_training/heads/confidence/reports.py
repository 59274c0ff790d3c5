"""Report every signal of a calibrated classifier on rows that nothing was fitted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import Calibration, Signal, SignalName, source_of
from verso_training.heads import signals
from verso_training.heads.confidence.calibration import (
    Outputs,
    has_both,
    measure,
    tail,
    taken,
)
from verso_training.heads.confidence.source_limits import best_sources
from verso_training.heads.signals import Fitted, Flags, Floats, Interval

_BINS = 10
_OUTSIDE = 0.025
"""Chance of more, on one side of a 95 % interval."""
_EXACT = 1e-5


@dataclass(frozen=True)
class SignalReport:
    """How well one signal separates right from wrong answers.

    Attributes:
        augrc: Area under the generalised risk-coverage curve; 0 is best.
        accuracy_at_80: Accuracy of the most confident 80 %.
        auroc: Right against wrong answers.
        fpr95: Share of wrong answers accepted if 95 % of the right ones are.
    """

    augrc: Interval
    accuracy_at_80: Interval
    auroc: Interval
    fpr95: Interval


@dataclass(frozen=True)
class ScopeReport:
    """How well one signal separates texts in scope from texts out of scope.

    Attributes:
        auroc: In scope against out of scope.
        fpr95: Share of texts out of scope accepted if 95 % of those in scope are.
    """

    auroc: Interval
    fpr95: Interval


@dataclass(frozen=True)
class Bin:
    """Rows whose confidence lies in one interval: its upper end, and their mean and accuracy."""

    below: float
    rows: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Report:
    """Figures of a classifier on rows that nothing was fitted on.

    Attributes:
        accuracy: With its interval.
        macro_f1: Mean over the labels that occur.
        signals: By name.
        curve: Risk at 10 %, 20 %, ... of coverage, by signal.
        accepted: Requested error rate -> coverage and error rate reached.
        calibration: The confidence that answers carry, against the share of right ones.
        scope: How well each signal separates rows in and out of scope; empty without a label
            for out of scope.
        sources: By source of the rows' labels; one without a name where labels have none.
    """

    rows: int
    accuracy: Interval
    macro_f1: Interval
    signals: Mapping[SignalName, SignalReport]
    curve: Mapping[SignalName, tuple[float, ...]]
    accepted: Mapping[str, tuple[float, float]]
    calibration: tuple[Bin, ...] = ()
    scope: Mapping[SignalName, ScopeReport] = field(default_factory=dict)
    sources: Mapping[str, SourceReport] = field(default_factory=dict)


def report(
    outputs: Outputs,
    model: Calibration,
    fitted: Fitted | None,
    *,
    labels: Sequence[str] = (),
    outside: int | None = None,
    rounds: int = 300,
) -> Report:
    """Measure a classifier and all its signals on test rows.

    Args:
        outputs: Of these rows.
        model: Of the classifier.
        fitted: Statistics of its signals.
        labels: In the order of the logits.
        outside: Number of the label that means "out of scope", if there is one.
        rounds: Of the bootstrap.
    """
    found, made = decided(outputs, model, fitted, labels=labels, outside=outside)
    right = made.right
    return Report(
        rows=len(right),
        accuracy=signals.bootstrap(lambda i: float(right[i].mean()), len(right), rounds=rounds),
        macro_f1=signals.bootstrap(
            lambda i: macro_f1(made.chosen[i], outputs.targets[i]), len(right), rounds=rounds
        ),
        signals={n: _signal(values, right, rounds=rounds) for n, values in found.items()},
        curve={name: _curve(values, right) for name, values in found.items()},
        accepted={rate: made.accepted(rate, slice(None)) for rate in model.conformal},
        calibration=_bins(made.sure, right),
        scope={}
        if outside is None
        else _scope(outputs, model, fitted, outside, found=found, rounds=rounds),
        sources=_sources(made, outputs.targets, labels=labels, rounds=rounds),
    )


def decided(
    outputs: Outputs,
    model: Calibration,
    fitted: Fitted | None,
    *,
    labels: Sequence[str] = (),
    outside: int | None = None,
) -> tuple[signals.Signals, Decided]:
    """Return the signals of some rows, and what the head says of them, as it is served.

    The arguments are those of ``report``.
    """
    found = measure(outputs, model, fitted, outside=outside)
    return found, Decided.of(outputs, model, found, labels=labels, outside=outside)


@dataclass(frozen=True)
class Decided:
    """What a head says of some rows, as it is served.

    Attributes:
        chosen: Label numbers. Shape: (N,).
        right: Shape: (N,).
        sure: The confidence that an answer carries. Shape: (N,).
        kept: Which rows each error rate accepts. Shape of each: (N,).
    """

    chosen: NDArray[np.int64]
    right: Flags
    sure: Floats
    kept: Mapping[str, Flags]

    @classmethod
    def of(
        cls,
        outputs: Outputs,
        model: Calibration,
        found: signals.Signals,
        *,
        labels: Sequence[str],
        outside: int | None,
    ) -> Decided:
        """Decide as ``verso_core.heads`` says."""
        chosen = outputs.logits.argmax(-1)
        sources, certain = best_sources(
            outputs.logits, temperature=model.temperature, labels=labels
        )
        values = found[model.accept_by]
        sure = _mapped(model.signals[model.accept_by], values)
        for source, own in model.sources.items():
            sure = np.where(sources == source, _mapped(own.signal, values), sure)
        kept = {
            rate: taken(values, model, rate=rate, sources=sources, certain=certain)
            for rate in model.conformal
        }
        if model.scope is not None and outside is not None:
            within = found[SignalName.SCOPE]
            out = within < model.scope.least
            chosen = np.where(out, outside, chosen)
            sure = np.where(out, 1.0 - within, sure)
            kept = {r: np.where(out, within <= float(r), own) for r, own in kept.items()}
        return cls(chosen, chosen == outputs.targets, sure.astype(np.float32), kept)

    def accepted(self, rate: str, rows: slice | Flags) -> tuple[float, float]:
        """Return coverage and error rate among some of the rows."""
        own, right = self.kept[rate][rows], self.right[rows]
        return float(own.mean()), float((~right[own]).mean()) if own.any() else 0.0


@dataclass(frozen=True)
class Refusals:
    """What is given a label in scope, as served.

    Attributes:
        rows: Of the kind.
        given: Share of them that get a label in scope, with the interval of ``exact``.
        auroc: The signal of scope, test rows in scope against these; None for those themselves.
    """

    rows: int
    given: Interval
    auroc: Interval | None = None


def refusals(
    test: Outputs,
    strange: Mapping[str, tuple[Floats, Floats]],
    model: Calibration,
    fitted: Fitted | None,
    *,
    outside: int,
) -> dict[str, Refusals]:
    """Measure which texts a head takes to be in scope: those that are, and kinds that are not.

    Args:
        test: Outputs for test rows; those in scope are measured.
        strange: Logits and features of further texts out of scope, by kind.
        model: Of the classifier.
        fitted: Statistics of its signals.
        outside: Number of the label that means "out of scope".
    """
    within = test.take(np.flatnonzero(test.targets != outside))
    kinds = {"in scope": (within.logits, within.features), **strange}
    found: dict[str, Refusals] = {}
    known: Floats | None = None
    for kind, (logits, features) in kinds.items():
        rows = Outputs(logits, features, np.full(len(logits), outside))
        values = measure(rows, model, fitted, outside=outside)
        made = Decided.of(rows, model, values, labels=(), outside=outside)
        scope = values.get(SignalName.SCOPE, values[SignalName.MARGIN])
        found[kind] = Refusals(
            rows=len(logits),
            given=exact(int((~made.right).sum()), of=len(logits)),
            auroc=None if known is None else _separation(known, scope, rounds=300),
        )
        known = scope if known is None else known
    return found


def _separation(inside: Floats, others: Floats, *, rounds: int) -> Interval:
    """Return the AUROC of two kinds of rows, each drawn by itself."""
    rng = np.random.default_rng(0)
    found = [signals.auroc(inside, others)]
    for _ in range(rounds):
        drawn = (own[rng.integers(0, len(own), len(own))] for own in (inside, others))
        found.append(signals.auroc(*drawn))
    return signals.middle(np.array(found))


@dataclass(frozen=True)
class SourceReport:
    """Figures of the test rows of one source of labels.

    Attributes:
        error: Expected calibration error (Naeini et al. 2015), ten bins of equal width.
        chance: Its median over as many rows if each confidence were exact.
        accepted: Requested error rate -> coverage and error rate reached.
    """

    rows: int
    accuracy: Interval
    macro_f1: Interval
    error: Interval
    chance: float
    accepted: Mapping[str, tuple[float, float]]


def _sources(
    made: Decided, targets: NDArray[np.int64], *, labels: Sequence[str], rounds: int
) -> dict[str, SourceReport]:
    of_label = np.array([source_of(label) for label in labels] or [""])
    found = {}
    for source in sorted(set(of_label.tolist())):
        rows = of_label[targets] == source if labels else np.ones(len(targets), bool)
        if not rows.any():
            continue
        own = made.right[rows], made.chosen[rows], targets[rows]
        right, sure = own[0], made.sure[rows]
        found[source] = SourceReport(
            rows=len(right),
            accuracy=_interval(own, lambda right, _, __: float(right.mean()), rounds=rounds),
            macro_f1=_interval(own, lambda _, made, gold: macro_f1(made, gold), rounds=rounds),
            error=calibration_error(sure, right, rounds=rounds),
            chance=by_chance(sure, rounds=rounds)[0],
            accepted={rate: made.accepted(rate, rows) for rate in made.kept},
        )
    return found


def calibration_error(sure: Floats, right: Flags, *, rounds: int) -> Interval:
    """Return the expected calibration error (Naeini et al. 2015) of ten bins of equal width.

    Few rows have one by chance (``by_chance``). ``sure`` and ``right`` have the shape (N,).
    """
    return signals.bootstrap(lambda i: _error(sure[i], right[i]), len(right), rounds=rounds)


def by_chance(sure: Floats, *, rounds: int, seed: int = 0) -> tuple[float, float]:
    """Return the calibration error of rows whose confidence is exact: median, 95th percentile."""
    rng = np.random.default_rng(seed)
    found = [_error(sure, rng.random(len(sure)) < sure) for _ in range(rounds)]
    median, most = np.percentile(found, [50, 95])
    return float(median), float(most)


def _error(sure: Floats, right: Flags) -> float:
    number = np.minimum((sure.astype(np.float64) * _BINS).astype(np.int64), _BINS - 1)
    off = np.bincount(number, weights=sure.astype(np.float64) - right, minlength=_BINS)
    return float(np.abs(off).sum() / len(right))


def exact(count: int, *, of: int) -> Interval:
    """Return the share of some rows with its 95 % interval of Clopper and Pearson (1934).

    ``most_errors`` is its upper end; the lower one is that of the other rows, turned round.
    """
    share = count / of if of else float("nan")
    return Interval(share, 1.0 - most_errors(of - count, of=of), most_errors(count, of=of))


def most_errors(wrong: int, *, of: int) -> float:
    """Return the upper end of the 95 % interval of Clopper and Pearson (1934)."""
    low, high = (wrong / of if of else 0.0), 1.0
    while wrong < of and high - low > _EXACT:
        rate = (low + high) / 2
        low, high = (rate, high) if tail(wrong, n=of, rate=rate) > _OUTSIDE else (low, rate)
    return high


_Own = tuple[Flags, NDArray[np.int64], NDArray[np.int64]]
"""Of some rows: whether they are right, the labels given, and their own."""


def _interval(
    own: _Own,
    figure: Callable[[Flags, NDArray[np.int64], NDArray[np.int64]], float],
    *,
    rounds: int,
) -> Interval:
    return signals.bootstrap(
        lambda i: figure(own[0][i], own[1][i], own[2][i]), len(own[0]), rounds=rounds
    )


def _mapped(fitted: Signal, values: Floats) -> Floats:
    odds = np.clip(fitted.scale * values.astype(np.float64) + fitted.offset, -60, 60)
    found: Floats = (1.0 / (1.0 + np.exp(-odds))).astype(np.float32)
    return found


def _bins(sure: Floats, right: NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Return a reliability diagram of ten bins of equal width (Guo et al. 2017, section 2), without
    empty ones."""
    number = np.minimum((sure.astype(np.float64) * _BINS).astype(np.int64), _BINS - 1)
    return tuple(
        Bin(
            below=(n + 1) / _BINS,
            rows=int(own.sum()),
            confidence=float(sure[own].mean()),
            accuracy=float(right[own].mean()),
        )
        for n in range(_BINS)
        if (own := number == n).any()
    )


def _scope(
    outputs: Outputs,
    model: Calibration,
    fitted: Fitted | None,
    outside: int,
    *,
    found: signals.Signals,
    rounds: int,
) -> dict[SignalName, ScopeReport]:
    """Measure the signals over the labels in scope only; ``found`` are those over all."""
    inside = outputs.targets != outside
    if not has_both(inside):
        return {}
    within = replace(outputs, logits=np.delete(outputs.logits, outside, axis=-1))
    bare = Calibration(temperature=model.temperature)

    def interval(values: Floats, figure: Callable[[Floats, Floats], float]) -> Interval:
        def of(rows: NDArray[np.int64]) -> float:
            part, kept = values[rows], inside[rows]
            return figure(part[kept], part[~kept]) if has_both(kept) else float("nan")

        return signals.bootstrap(of, len(inside), rounds=rounds)

    return {
        name: ScopeReport(interval(values, signals.auroc), interval(values, signals.fpr95))
        for name, values in {**found, **measure(within, bare, fitted)}.items()
    }


def macro_f1(predicted: NDArray[np.int64], targets: NDArray[np.int64]) -> float:
    """Return the mean F1 over the labels that occur among targets or answers (scikit-learn's
    default)."""
    scores = []
    for label in np.union1d(predicted, targets):
        hit = int(((predicted == label) & (targets == label)).sum())
        made, there = int((predicted == label).sum()), int((targets == label).sum())
        scores.append(2.0 * hit / (made + there))
    return float(np.mean(scores))


def _signal(values: Floats, right: NDArray[np.bool_], *, rounds: int) -> SignalReport:
    def interval(figure: signals.Figure, *, needs_both: bool = False) -> Interval:
        def of(rows: NDArray[np.int64]) -> float:
            if needs_both and not has_both(right[rows]):
                return float("nan")
            return figure(values[rows], right[rows])

        return signals.bootstrap(of, len(right), rounds=rounds)

    return SignalReport(
        augrc=interval(signals.augrc),
        accuracy_at_80=interval(lambda v, r: signals.accuracy_at(v, r, 0.8)),
        auroc=interval(lambda v, r: signals.auroc(v[r], v[~r]), needs_both=True),
        fpr95=interval(lambda v, r: signals.fpr95(v[r], v[~r]), needs_both=True),
    )


def _curve(values: Floats, right: NDArray[np.bool_]) -> tuple[float, ...]:
    return tuple(1.0 - signals.accuracy_at(values, right, c / 10) for c in range(1, 11))
