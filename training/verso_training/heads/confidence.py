"""Calibrate a classifier on texts that it was not trained on, and report every signal on others.

- Temperature (Guo et al. 2017, eq. 9): the T > 0 that minimises the negative log-likelihood of
  softmax(z / T). It changes no answer.
- A probability per signal (Platt 1999): sigmoid(a x + b), a logistic regression on "was right".
- The stack: one logistic regression on several signals together, weights in the signals' own
  units so that serving needs no statistics.
- Thresholds for "at most this error rate among accepted answers": learn-then-test with fixed
  sequence testing (Angelopoulos et al. 2021, section 4). Thresholds are tried from strict to
  loose; each must refuse H: risk > alpha by an exact binomial tail at level delta (Geifman &
  El-Yaniv 2017, lemma 3.1), and the first that cannot ends the search. The chance that the risk on
  texts like these exceeds alpha is then at most delta. It guarantees nothing under shift. With too
  few calibration texts there is no threshold.

Validation rows are halved by a fixed shuffle: temperature, probabilities and the stack come from
one half, the thresholds from the other, so that no threshold is tested on rows its signal was
fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from verso_core.heads import Calibration, Signal, SignalName, Stack
from verso_training.heads import signals
from verso_training.heads.signals import Fitted, Flags, Floats, Interval, Scores, Signals

DELTA = 0.1
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2)
_RIDGE = 1e-3


def fit_temperature(logits: Scores, targets: NDArray[np.int64]) -> float:
    """Fit the temperature for these held-out logits. Shape: (N, C) and (N,)."""
    z, y = torch.from_numpy(np.ascontiguousarray(logits)), torch.from_numpy(targets)
    log_t = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.LBFGS([log_t], lr=0.5, max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(z / log_t.exp(), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return float(log_t.detach().exp().clamp(0.05, 20.0))


def fit_platt(values: Scores, right: Flags, *, chance: float | None = None) -> Signal:
    """Fit the scale and offset that turn a signal into a probability.

    If every answer was right, or none, the signal cannot separate them: its mean then
    maps to (n + 1) / (n + 2), Laplace's rule of succession, or for 1 / (n + 2).

    Args:
        values: Shape: (N,).
        right: Shape: (N,).
        chance: For a signal that is a probability, its value if all labels are equally likely.
            It maps to itself if nothing else is known; without it the probability is
            constant.
    """
    if right.all() or not right.any():
        return _one_sided(values, right, chance=chance)
    weights, bias = _logistic(values[:, None], right)
    return Signal(scale=float(weights[0]), offset=bias)


def _one_sided(values: Scores, right: Flags, *, chance: float | None) -> Signal:
    """A straight line of log odds through the mean and, if it lies below, through chance."""
    mean, wrong = float(values.mean()), 1.0 / (len(values) + 2.0)
    reached = math.log((1.0 - wrong) / wrong) * (1.0 if right.all() else -1.0)
    if chance is None or mean <= chance:
        return Signal(scale=0.0, offset=reached)
    guessed = math.log(chance / (1.0 - chance))
    scale = max(0.0, reached - guessed) / (mean - chance)
    return Signal(scale=scale, offset=reached - scale * mean)


def fit_stack(signals: Signals, right: Flags, *, names: Sequence[SignalName]) -> Stack:
    """Fit a logistic regression on several signals."""
    weights, bias = _logistic(np.stack([signals[name] for name in names], axis=-1), right)
    return Stack(
        bias=bias, weights={name: float(w) for name, w in zip(names, weights, strict=True)}
    )


def stack_probability(model: Stack, signals: Signals) -> Scores:
    """Return the stack's probability of being right. Shape: (N,)."""
    total = sum(weight * signals[name] for name, weight in model.weights.items())
    return 1.0 / (1.0 + np.exp(-(np.asarray(total, np.float64) + model.bias)))


def thresholds(
    values: Scores, right: Flags, *, alphas: Sequence[float] = ALPHAS, delta: float = DELTA
) -> Mapping[str, float]:
    """Return the loosest safe threshold of each error rate, without rates that none guarantees.

    Returns:
        Error rate, as a string, to the least value to accept.
    """
    order = np.argsort(-values, kind="stable")
    ordered, wrong = values[order], np.cumsum(~right[order])
    # Equal values are accepted together: only the last of each run is a threshold.
    last = np.append(ordered[1:] != ordered[:-1], True)
    counts = np.flatnonzero(last) + 1
    found = {}
    for alpha in alphas:
        fewest = int(np.ceil(np.log(delta) / np.log1p(-alpha)))
        # About a hundred steps, so that one unlucky text early does not end the search.
        steps = [n for n in counts if n >= fewest]
        steps = steps[:: max(1, len(steps) // 100)] if steps else []
        safe = None
        for n in steps:
            if _tail(int(wrong[n - 1]), n=int(n), rate=alpha) > delta:
                break
            safe = float(ordered[n - 1])
        if safe is not None:
            found[f"{alpha:g}"] = safe
    return found


def _tail(errors: int, *, n: int, rate: float) -> float:
    """P(Binomial(n, rate) <= errors), summed in logarithms."""
    k = np.arange(errors + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    terms = logs[n] - logs[k] - logs[n - k] + k * np.log(rate) + (n - k) * np.log1p(-rate)
    return float(min(1.0, np.exp(terms).sum()))


def _logistic(values: NDArray[np.floating], right: Flags) -> tuple[NDArray[np.float64], float]:
    """Fit a ridge logistic regression by Newton's method; weights in the units of ``values``."""
    centre, spread = values.mean(0), values.std(0).clip(1e-9)
    x = np.concatenate([(values - centre) / spread, np.ones((len(values), 1))], axis=-1)
    # Targets a little inside (0, 1), as in Platt 1999: a perfect separation keeps finite weights.
    wins, losses = right.sum() + 1.0, (~right).sum() + 1.0
    y = np.where(right, wins / (wins + 1.0), 1.0 / (losses + 1.0))
    w = np.zeros(x.shape[1])
    ridge = np.append(np.full(values.shape[1], _RIDGE), 1e-6)
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ w, -30, 30)))
        gradient = x.T @ (p - y) / len(y) + ridge * w
        curvature = (x * (p * (1 - p))[:, None]).T @ x / len(y) + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        w = w - step
        if np.abs(step).max() < 1e-8:
            break
    weights = w[:-1] / spread
    return weights, float(w[-1] - (weights * centre).sum())


_STACKED = (
    SignalName.CALIBRATED,
    SignalName.ENERGY,
    SignalName.MAHALANOBIS,
    SignalName.KNN,
)
"""Signals that every request can compute from the graph's outputs alone."""
_PROBABILITIES = (SignalName.SOFTMAX, SignalName.CALIBRATED)


@dataclass(frozen=True)
class Outputs:
    """The outputs of a classifier for some rows.

    Attributes:
        logits: Shape: (N, C).
        features: Shape: (N, F).
        targets: Label numbers; -1 for a row out of scope. Shape: (N,).
        extra: Further signals, such as those of the decoder. Shape of each: (N,).
    """

    logits: Floats
    features: Floats
    targets: NDArray[np.int64]
    extra: Mapping[SignalName, Floats] = field(default_factory=dict)

    def take(self, rows: NDArray[np.int64]) -> Outputs:
        """Return some of the rows."""
        extra = {name: values[rows] for name, values in self.extra.items()}
        return Outputs(self.logits[rows], self.features[rows], self.targets[rows], extra)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each row's first label is its own."""
        return self.logits.argmax(-1) == self.targets  # type: ignore[no-any-return]


def measure(outputs: Outputs, model: Calibration, fitted: Fitted | None) -> signals.Signals:
    """Return all signals of some rows, with the stack if there is one."""
    found = signals.measure(
        outputs.logits, outputs.features, temperature=model.temperature, fitted=fitted
    )
    found |= outputs.extra
    if model.stack is not None and model.stack.weights.keys() <= found.keys():
        found[SignalName.STACK] = stack_probability(model.stack, found)
    return found


def calibrate(held_out: Outputs, fitted: Fitted | None, *, seed: int = 0) -> Calibration:
    """Fit a calibration on rows that were not trained on."""
    known = np.flatnonzero(held_out.targets >= 0)
    order = np.random.default_rng(seed).permutation(len(held_out.targets))
    first = held_out.take(np.sort(order[::2]))
    second = held_out.take(np.sort(order[1::2]))
    temperature = fit_temperature(held_out.logits[known], held_out.targets[known])
    bare = Calibration(temperature=temperature)
    found = measure(first, bare, fitted)
    names = [name for name in (*_STACKED, *held_out.extra) if name in found]
    stack = fit_stack(found, first.right, names=names) if _both(first.right) else None
    with_stack = bare.model_copy(update={"stack": stack})
    found = measure(first, with_stack, fitted)
    accept_by = SignalName.STACK if stack is not None else SignalName.CALIBRATED
    chance = dict.fromkeys(_PROBABILITIES, 1.0 / held_out.logits.shape[-1])
    return Calibration(
        temperature=temperature,
        signals={
            name: fit_platt(values, first.right, chance=chance.get(name))
            for name, values in found.items()
        },
        stack=stack,
        accept_by=accept_by,
        conformal=dict(thresholds(measure(second, with_stack, fitted)[accept_by], second.right)),
    )


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
class Report:
    """Figures of a classifier on rows that nothing was fitted on.

    Attributes:
        accuracy: With its interval.
        macro_f1: Mean over the labels that occur.
        signals: By name.
        curve: Risk at 10 %, 20 %, ... of coverage, by signal.
        accepted: Requested error rate -> coverage and error rate reached.
        scope: How well each signal separates rows in and out of scope; empty without a label
            for out of scope.
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
        fitted: Statistics of its signals.
        outside: Number of the label that means "out of scope", if there is one.
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
        accuracy=signals.bootstrap(lambda i: float(right[i].mean()), len(right), rounds=rounds),
        macro_f1=macro_f1(outputs.logits.argmax(-1), outputs.targets),
        signals={n: _signal(values, right, rounds=rounds) for n, values in found.items()},
        curve={name: _curve(values, right) for name, values in found.items()},
        accepted=accepted,
        scope={} if outside is None else _scope(outputs, model, fitted, outside, rounds=rounds),
    )


def _scope(
    outputs: Outputs, model: Calibration, fitted: Fitted | None, outside: int, *, rounds: int
) -> dict[SignalName, ScopeReport]:
    """Measure the signals over the labels in scope only."""
    inside = outputs.targets != outside
    if not _both(inside):
        return {}
    within = replace(outputs, logits=np.delete(outputs.logits, outside, axis=-1))

    def interval(values: Floats, figure: Callable[[Floats, Floats], float]) -> Interval:
        def of(rows: NDArray[np.int64]) -> float:
            part, kept = values[rows], inside[rows]
            return figure(part[kept], part[~kept]) if _both(kept) else float("nan")

        return signals.bootstrap(of, len(inside), rounds=rounds)

    return {
        name: ScopeReport(interval(values, signals.auroc), interval(values, signals.fpr95))
        for name, values in measure(within, model, fitted).items()
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
            if needs_both and not _both(right[rows]):
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


def _both(right: NDArray[np.bool_]) -> bool:
    return bool(right.any() and not right.all())
