"""Calibrate a classifier on held-out rows and report every signal on others.

Validation rows are halved by a fixed shuffle: temperature, probabilities and the stack come from
one half, the thresholds from the other, so that a threshold is tried on rows its signal was not
fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import Calibration, SignalName
from verso_training.heads import calibration, selective, signals
from verso_training.heads.selective import Interval
from verso_training.heads.signals import Fitted, Floats

_STACKED = (
    SignalName.CALIBRATED,
    SignalName.ENERGY,
    SignalName.MAHALANOBIS,
    SignalName.KNN,
)
"""What every request can compute from the graph's outputs alone."""
_PROBABILITIES = (SignalName.SOFTMAX, SignalName.CALIBRATED)


@dataclass(frozen=True)
class Outputs:
    """What a classifier gave for some rows.

    Attributes:
        logits: Shape: (N, C).
        features: Shape: (N, F).
        targets: Label numbers; -1 for a row that no label fits (out of scope). Shape: (N,).
        extra: Further signals, such as those of the decoder. Shape of each: (N,).
    """

    logits: Floats
    features: Floats
    targets: NDArray[np.int64]
    extra: Mapping[SignalName, Floats] = field(default_factory=dict)

    def take(self, rows: NDArray[np.int64]) -> Outputs:
        """Some of the rows."""
        extra = {name: values[rows] for name, values in self.extra.items()}
        return Outputs(self.logits[rows], self.features[rows], self.targets[rows], extra)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each row's first label is its own."""
        return self.logits.argmax(-1) == self.targets  # type: ignore[no-any-return]


def measure(outputs: Outputs, model: Calibration, fitted: Fitted | None) -> signals.Signals:
    """All signals of some rows, the stack included where there is one."""
    found = signals.measure(
        outputs.logits, outputs.features, temperature=model.temperature, fitted=fitted
    )
    found |= outputs.extra
    if model.stack is not None and model.stack.weights.keys() <= found.keys():
        found[SignalName.STACK] = calibration.stacked(model.stack, found)
    return found


def calibrate(held_out: Outputs, fitted: Fitted | None, *, seed: int = 0) -> Calibration:
    """Fit a calibration on rows that were not trained on."""
    known = np.flatnonzero(held_out.targets >= 0)
    order = np.random.default_rng(seed).permutation(len(held_out.targets))
    first = held_out.take(np.sort(order[::2]))
    second = held_out.take(np.sort(order[1::2]))
    temperature = calibration.temperature(held_out.logits[known], held_out.targets[known])
    bare = Calibration(temperature=temperature)
    found = measure(first, bare, fitted)
    names = [name for name in (*_STACKED, *held_out.extra) if name in found]
    stack = calibration.stack(found, first.right, names=names) if _both(first.right) else None
    stacked = bare.model_copy(update={"stack": stack})
    found = measure(first, stacked, fitted)
    accept_by = SignalName.STACK if stack is not None else SignalName.CALIBRATED
    chance = dict.fromkeys(_PROBABILITIES, 1.0 / held_out.logits.shape[-1])
    return Calibration(
        temperature=temperature,
        signals={
            name: calibration.platt(values, first.right, chance=chance.get(name))
            for name, values in found.items()
        },
        stack=stack,
        accept_by=accept_by,
        conformal=dict(
            calibration.thresholds(measure(second, stacked, fitted)[accept_by], second.right)
        ),
    )


@dataclass(frozen=True)
class SignalReport:
    """How good one signal is at telling right answers from wrong ones.

    Attributes:
        augrc: Area under the generalised risk-coverage curve; 0 is best.
        accuracy_at_80: Accuracy of the surest 80 %.
        auroc: Right against wrong answers.
        fpr95: Wrong answers accepted where 95 % of the right ones are.
    """

    augrc: Interval
    accuracy_at_80: Interval
    auroc: Interval
    fpr95: Interval


@dataclass(frozen=True)
class ScopeReport:
    """How good one signal is at telling texts in scope from texts out of scope.

    Attributes:
        auroc: In scope against out of scope.
        fpr95: Texts out of scope accepted where 95 % of those in scope are.
    """

    auroc: Interval
    fpr95: Interval


@dataclass(frozen=True)
class Report:
    """A classifier on rows that nothing was fitted on.

    Attributes:
        accuracy: With its interval.
        macro_f1: Mean over the labels that occur.
        signals: By name.
        curve: Risk at 10 %, 20 %, ... of coverage, by signal.
        accepted: Error rate asked for -> coverage and error rate that came.
        scope: How well each signal tells rows in scope from those out of it; empty where no label
            says that.
    """

    rows: int
    accuracy: Interval
    macro_f1: float
    signals: Mapping[SignalName, SignalReport]
    curve: Mapping[SignalName, tuple[float, ...]]
    accepted: Mapping[str, tuple[float, float]]
    scope: Mapping[SignalName, ScopeReport] = field(default_factory=dict)


def report(
    outputs: Outputs,
    model: Calibration,
    fitted: Fitted | None,
    *,
    outside: int | None = None,
    rounds: int = 300,
) -> Report:
    """Measure a classifier and all its signals on test rows.

    Args:
        outputs: Of these rows.
        model: Of the classifier.
        fitted: What its signals need.
        outside: Number of the label that means "out of scope", where there is one.
        rounds: Of the bootstrap.
    """
    right = outputs.right
    found = measure(outputs, model, fitted)
    chosen = found[model.accept_by]
    accepted = {}
    for rate, threshold in model.conformal.items():
        taken = chosen >= threshold
        wrong = float((~right[taken]).mean()) if taken.any() else 0.0
        accepted[rate] = (float(taken.mean()), wrong)
    return Report(
        rows=len(right),
        accuracy=selective.bootstrap(lambda i: float(right[i].mean()), len(right), rounds=rounds),
        macro_f1=macro_f1(outputs.logits.argmax(-1), outputs.targets),
        signals={n: _signal(values, right, rounds=rounds) for n, values in found.items()},
        curve={name: _curve(values, right) for name, values in found.items()},
        accepted=accepted,
        scope={} if outside is None else _scope(outputs, model, fitted, outside, rounds=rounds),
    )


def _scope(
    outputs: Outputs, model: Calibration, fitted: Fitted | None, outside: int, *, rounds: int
) -> dict[SignalName, ScopeReport]:
    """Measure the signals on the labels in scope: how like one of them a text is."""
    inside = outputs.targets != outside
    if not _both(inside):
        return {}
    within = replace(outputs, logits=np.delete(outputs.logits, outside, axis=-1))

    def told(values: Floats, figure: Callable[[Floats, Floats], float]) -> Interval:
        def of(rows: NDArray[np.int64]) -> float:
            part, kept = values[rows], inside[rows]
            return figure(part[kept], part[~kept]) if _both(kept) else float("nan")

        return selective.bootstrap(of, len(inside), rounds=rounds)

    return {
        name: ScopeReport(told(values, selective.auroc), told(values, selective.fpr95))
        for name, values in measure(within, model, fitted).items()
    }


def macro_f1(predicted: NDArray[np.int64], targets: NDArray[np.int64]) -> float:
    """Mean F1 over the labels that occur among targets or answers (scikit-learn's default)."""
    scores = []
    for label in np.union1d(predicted, targets):
        hit = int(((predicted == label) & (targets == label)).sum())
        made, there = int((predicted == label).sum()), int((targets == label).sum())
        scores.append(2.0 * hit / (made + there))
    return float(np.mean(scores))


def _signal(values: Floats, right: NDArray[np.bool_], *, rounds: int) -> SignalReport:
    def interval(figure: selective.Figure, *, needs_both: bool = False) -> Interval:
        def of(rows: NDArray[np.int64]) -> float:
            if needs_both and not _both(right[rows]):
                return float("nan")
            return figure(values[rows], right[rows])

        return selective.bootstrap(of, len(right), rounds=rounds)

    return SignalReport(
        augrc=interval(selective.augrc),
        accuracy_at_80=interval(lambda v, r: selective.accuracy_at(v, r, 0.8)),
        auroc=interval(lambda v, r: selective.auroc(v[r], v[~r]), needs_both=True),
        fpr95=interval(lambda v, r: selective.fpr95(v[r], v[~r]), needs_both=True),
    )


def _curve(values: Floats, right: NDArray[np.bool_]) -> tuple[float, ...]:
    return tuple(1.0 - selective.accuracy_at(values, right, c / 10) for c in range(1, 11))


def _both(right: NDArray[np.bool_]) -> bool:
    return bool(right.any() and not right.all())
