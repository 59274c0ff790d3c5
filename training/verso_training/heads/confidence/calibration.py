"""Calibrate a classifier on texts that it was not trained on.

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

- Sources: labels of several sources ("kernel/hang", "r-check/tests") have probabilities and
  thresholds each (Mondrian conformal prediction, Vovk et al. 2005, section 4.5). Rows of a split
  by time or project are later than the training rows, or foreign to them; a source that has drifted
  there does not lend the others its errors, nor they it their confidence.
- Limits of sources: see ``source_limits``.
- Scope: one logistic regression on the signals of the best label and of the vector's place tells
  texts in scope from others; ``least`` keeps ``_KEPT`` of those in scope.

Validation rows are halved by a fixed shuffle: temperature, probabilities and the stack come from
one half, the thresholds from the other, so that no threshold is tested on rows its signal was
fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from verso_core.heads import (
    Calibration,
    Scope,
    Signal,
    SignalName,
    Source,
    Stack,
    source_of,
)
from verso_training.heads import signals
from verso_training.heads.confidence import source_limits
from verso_training.heads.signals import Fitted, Flags, Floats, Scores, Signals

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


def fit_stack(
    signals: Signals,
    right: Flags,
    *,
    names: Sequence[SignalName],
    weights: NDArray[np.float64] | None = None,
) -> Stack:
    """Fit a logistic regression on several signals; ``weights`` are those of the rows."""
    values = np.stack([signals[name] for name in names], axis=-1)
    found, bias = _logistic(values, right, weights)
    return Stack(bias=bias, weights={name: float(w) for name, w in zip(names, found, strict=True)})


def stack_probability(model: Stack, signals: Signals) -> Scores:
    """Return the stack's probability of being right. Shape: (N,)."""
    total = sum(weight * signals[name] for name, weight in model.weights.items())
    return 1.0 / (1.0 + np.exp(-(np.asarray(total, np.float64) + model.bias)))


def thresholds(
    values: Scores,
    right: Flags,
    *,
    alphas: Sequence[float] = ALPHAS,
    delta: float = DELTA,
    fewest: int = 1,
) -> Mapping[str, float]:
    """Return the loosest safe threshold of each error rate, without rates that none guarantees.

    Args:
        values: Shape: (N,).
        right: Shape: (N,).
        alphas: The error rates.
        delta: The chance that a rate is exceeded.
        fewest: Rows that the strictest threshold accepts. Of a high rate it should be many: one
            wrong row among very few would end the search.

    Returns:
        Error rate, as a string, to the least value to accept.
    """
    order = np.argsort(-values, kind="stable")
    ordered, wrong = values[order], np.cumsum(~right[order])
    # Equal values are accepted together: only the last of each run is a threshold.
    last = np.append(ordered[1:] != ordered[:-1], True)
    counts = np.flatnonzero(last) + 1
    found: dict[str, float] = {}
    for alpha in sorted(alphas):
        least = max(fewest, int(np.ceil(np.log(delta) / np.log1p(-alpha))))
        # About a hundred steps, so that one unlucky text early does not end the search.
        steps = [n for n in counts if n >= least]
        steps = steps[:: max(1, len(steps) // 100)] if steps else []
        safe = None
        for n in steps:
            if tail(int(wrong[n - 1]), n=int(n), rate=alpha) > delta:
                break
            safe = float(ordered[n - 1])
        if safe is not None:
            # what guarantees a stricter rate guarantees this one
            found[f"{alpha:g}"] = min([safe, *found.values()])
        elif found:
            found[f"{alpha:g}"] = min(found.values())
    return found


def fold_thresholds(
    values: Scores, right: Flags, folds: NDArray[np.str_], *, delta: float = DELTA
) -> Mapping[str, float]:
    """Return the loosest threshold of each error rate that holds for a fold not seen as well.

    A threshold is one of all rows, and one that folds hold: of the next fold's n rows above any
    stricter one at most alpha n are wrong, or one. Each fold has a loosest value that it holds so,
    and the k-th largest of these, of m folds, is exceeded by the next one's with a chance of
    k / (m + 1) if the folds are exchangeable (split conformal prediction, Vovk et al. 2005, where a
    fold is one example): k / (m + 1) <= ``delta``, so fewer than nine folds promise nothing.

    Args:
        values: Shape: (N,).
        right: Shape: (N,).
        folds: What each row drifts with. Shape: (N,).
        delta: The chance that a fold exceeds the rate.
    """
    own = [folds == name for name in np.unique(folds)]
    rank = math.floor(delta * (len(own) + 1))
    if rank < 1:
        return {}
    found = {}
    for rate, least in thresholds(values, right, delta=delta).items():
        held = sorted(_held(values[rows], right[rows], rate=float(rate)) for rows in own)
        found[rate] = max(least, held[-rank])
    return found


def _held(values: Scores, right: Flags, *, rate: float) -> float:
    """Return the loosest value above which, and above any larger one, a fold holds a rate."""
    order = np.argsort(-values, kind="stable")
    wrong = np.cumsum(~right[order])
    kept = wrong <= np.maximum(1.0, rate * np.arange(1, len(order) + 1))
    if kept.all():
        return -math.inf
    first = int(np.argmin(kept))
    return float(np.nextafter(values[order[first]], np.inf))


def tail(errors: int, *, n: int, rate: float) -> float:
    """Return P(Binomial(n, rate) <= errors), summed in logarithms."""
    k = np.arange(errors + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    terms = logs[n] - logs[k] - logs[n - k] + k * np.log(rate) + (n - k) * np.log1p(-rate)
    return float(min(1.0, np.exp(terms).sum()))


def _logistic(
    values: NDArray[np.floating], right: Flags, rows: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], float]:
    """Fit a ridge logistic regression by Newton's method; weights in the units of ``values``."""
    of_row = np.ones(len(right)) if rows is None else rows / rows.mean()
    centre, spread = values.mean(0), values.std(0).clip(1e-9)
    x = np.concatenate([(values - centre) / spread, np.ones((len(values), 1))], axis=-1)
    # Targets a little inside (0, 1), as in Platt 1999: a perfect separation keeps finite weights.
    wins, losses = right.sum() + 1.0, (~right).sum() + 1.0
    y = np.where(right, wins / (wins + 1.0), 1.0 / (losses + 1.0))
    w = np.zeros(x.shape[1])
    ridge = np.append(np.full(values.shape[1], _RIDGE), 1e-6)
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ w, -30, 30)))
        gradient = x.T @ (of_row * (p - y)) / len(y) + ridge * w
        curvature = (x * (of_row * p * (1 - p))[:, None]).T @ x / len(y) + np.diag(ridge)
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
_SCOPED = (SignalName.INSIDE, SignalName.MARGIN, SignalName.MAHALANOBIS, SignalName.KNN)
_PLACED = (SignalName.MAHALANOBIS, SignalName.KNN)
"""Signals of the vector's place among those trained on."""
_CONSTANT = 1e-4
_KEPT = 0.96
"""Share of the validation rows in scope that stay in scope."""
_FEWEST_OF_SOURCE = 20
_STEPS = 21
_PROBABILITIES = (SignalName.SOFTMAX, SignalName.CALIBRATED)


@dataclass(frozen=True)
class Outputs:
    """The outputs of a classifier for some rows.

    Attributes:
        logits: Shape: (N, C).
        features: Shape: (N, F).
        targets: Label numbers; -1 for a row out of scope. Shape: (N,).
        extra: Further signals, such as those of the decoder. Shape of each: (N,).
        weights: Of the rows where scope is learned; None: all alike. Shape: (N,).
        folds: What each row drifts with, such as a project; "" for none. None: no row has one.
            Shape: (N,).
    """

    logits: Floats
    features: Floats
    targets: NDArray[np.int64]
    extra: Mapping[SignalName, Floats] = field(default_factory=dict)
    weights: NDArray[np.float64] | None = None
    folds: NDArray[np.str_] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Outputs]) -> Outputs:
        """Return the rows of several, which have folds and no further signals."""
        logits, features, targets = (
            np.concatenate(rows)
            for rows in zip(
                *((one.logits, one.features, one.targets) for one in parts), strict=True
            )
        )
        folds = np.concatenate([one.folds for one in parts if one.folds is not None])
        return cls(logits, features, targets, folds=folds)

    def take(self, rows: NDArray[np.int64]) -> Outputs:
        """Return some of the rows."""
        extra = {name: values[rows] for name, values in self.extra.items()}
        folds = None if self.folds is None else self.folds[rows]
        return Outputs(
            self.logits[rows], self.features[rows], self.targets[rows], extra, folds=folds
        )

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each row's first label is its own."""
        return self.logits.argmax(-1) == self.targets  # type: ignore[no-any-return]


def measure(
    outputs: Outputs, model: Calibration, fitted: Fitted | None, *, outside: int | None = None
) -> signals.Signals:
    """Return all signals of some rows, with the stacks if there are any."""
    found = signals.measure(
        outputs.logits,
        outputs.features,
        temperature=model.temperature,
        fitted=fitted,
        outside=outside,
    )
    found |= outputs.extra
    scope = None if model.scope is None else model.scope.stack
    for name, stack in ((SignalName.STACK, model.stack), (SignalName.SCOPE, scope)):
        if stack is not None and stack.weights.keys() <= found.keys():
            found[name] = stack_probability(stack, found)
    return found


def calibrate(
    held_out: Outputs,
    fitted: Fitted | None,
    *,
    seed: int = 0,
    labels: Sequence[str] = (),
    outside: int | None = None,
) -> Calibration:
    """Fit a calibration on rows that were not trained on.

    Args:
        held_out: Outputs for these rows.
        fitted: Statistics of the signals.
        seed: Of the shuffle.
        labels: In the order of the logits; without them there are no sources.
        outside: Number of the label that means "out of scope", if there is one.
    """
    known = np.flatnonzero(held_out.targets >= 0)
    order = np.random.default_rng(seed).permutation(len(held_out.targets))
    first = held_out.take(np.sort(order[::2]))
    second = held_out.take(np.sort(order[1::2]))
    temperature = fit_temperature(held_out.logits[known], held_out.targets[known])
    bare = Calibration(temperature=temperature)
    found = measure(first, bare, fitted)
    blind = _without_features(held_out)
    names = [
        name
        for name in (*_STACKED, *held_out.extra)
        # a signal that is the same for all rows, or unknown for some, tells nothing of the others
        if name in found and found[name].std() > _CONSTANT and not (blind.any() and name in _PLACED)
    ]
    stack = fit_stack(found, first.right, names=names) if has_both(first.right) else None
    accept_by = SignalName.STACK if stack is not None else SignalName.CALIBRATED
    scope = None if outside is None else _fit_scope(held_out, bare, fitted, outside=outside)
    model = bare.model_copy(update={"stack": stack, "scope": scope, "accept_by": accept_by})
    found = measure(first, model, fitted, outside=outside)
    held = measure(second, model, fitted, outside=outside)[accept_by]
    chance = dict.fromkeys(_PROBABILITIES, 1.0 / held_out.logits.shape[-1])
    mapped = {
        name: fit_platt(values, first.right, chance=chance.get(name))
        for name, values in found.items()
    }
    usual: tuple[float, ...] = ()
    if SignalName.KNN in found and not blind.all():
        usual = _quantiles(measure(held_out.take(np.flatnonzero(~blind)), bare, fitted))
    return model.model_copy(
        update={
            "signals": mapped,
            "conformal": dict(thresholds(held, second.right)),
            "sources": _fit_sources(first, second, found[accept_by], held, labels=labels),
            "source_limits": source_limits.fit(
                held_out.logits, held_out.targets, temperature=temperature, labels=labels
            ),
            "usual": usual,
        }
    )


def _fit_sources(
    first: Outputs, second: Outputs, fitting: Floats, held: Floats, *, labels: Sequence[str]
) -> dict[str, Source]:
    """Return the calibration of each source of labels; empty for one alone without folds."""
    of_label = np.array([source_of(label) for label in labels])
    if len(set(of_label.tolist())) < 2 and first.folds is None:
        return {}
    one, other = (of_label[rows.logits.argmax(-1)] for rows in (first, second))
    every = np.concatenate([one, other])
    values, right = np.concatenate([fitting, held]), np.concatenate([first.right, second.right])
    folds = np.concatenate([_folds(first), _folds(second)])
    targets = np.concatenate([first.targets, second.targets])
    # A row of another source may be taken for one of this: it is the source's own that have folds.
    drifting = set(of_label[targets[(folds != "") & (targets >= 0)]].tolist())
    found = {}
    for source in sorted(set(of_label.tolist())):
        if source in drifting:
            # Folds tell how far rows drift: there are too few to be halved.
            own = (every == source) & (folds != "")
            fitted = values[own], right[own]
            limits = fold_thresholds(*fitted, folds[own])
        else:
            fitted = fitting[one == source], first.right[one == source]
            limits = thresholds(held[other == source], second.right[other == source])
        if len(fitted[0]) >= _FEWEST_OF_SOURCE:
            signal = fit_platt(*fitted, chance=0.5)
            found[source] = Source(signal=signal, conformal=dict(limits))
    return found


def _folds(outputs: Outputs) -> NDArray[np.str_]:
    if outputs.folds is None:
        return np.full(len(outputs.targets), "", dtype=np.str_)
    return outputs.folds


def _fit_scope(
    held_out: Outputs, model: Calibration, fitted: Fitted | None, *, outside: int
) -> Scope | None:
    """Return what tells texts in scope from others, and from which value on; None without both."""
    inside = held_out.targets != outside
    if not has_both(inside):
        return None
    found = measure(held_out, model, fitted, outside=outside)
    names = [name for name in _SCOPED if name in found]
    stack = fit_stack(found, inside, names=names, weights=held_out.weights)
    values = stack_probability(stack, found)
    # a best label "out of scope" counts as such whatever the signal says
    usable = values[inside & (held_out.logits.argmax(-1) != outside)]
    dropped = int(inside.sum()) - len(usable)
    more = max(0, math.floor((1.0 - _KEPT) * int(inside.sum())) - dropped)
    return Scope(stack=stack, least=float(np.sort(usable)[min(more, len(usable) - 1)]))


def _without_features(outputs: Outputs) -> Flags:
    """Return which rows were read by their words alone: their features are zeros."""
    found: Flags = np.abs(outputs.features).sum(-1) == 0
    return found


def _quantiles(found: Signals) -> tuple[float, ...]:
    steps = np.linspace(0.0, 1.0, _STEPS)
    return tuple(float(x) for x in np.quantile(found[SignalName.KNN], steps))


def taken(
    values: Floats,
    model: Calibration,
    *,
    rate: str,
    sources: NDArray[np.str_],
    certain: Floats,
) -> NDArray[np.bool_]:
    """Return which rows are accepted at an error rate that the head has a threshold for.

    Args:
        values: Of the signal that the head accepts by. Shape: (N,).
        model: Of the head.
        rate: One of its error rates.
        sources: Of the rows' best labels. Shape: (N,).
        certain: The probabilities of these sources. Shape: (N,).
    """
    limits = np.full(len(values), model.conformal[rate])
    for source, own in model.sources.items():
        strict = [float(one) for one in own.conformal if float(one) <= float(rate) + 1e-12]
        limits[sources == source] = own.conformal[f"{max(strict):g}"] if strict else np.inf
    least = np.zeros(len(values))
    for source, limit in model.source_limits.items():
        least[sources == source] = limit
    found: NDArray[np.bool_] = (values >= limits) & (certain >= least)
    return found


def has_both(right: NDArray[np.bool_]) -> bool:
    """Whether some of the rows are right and some are not."""
    return bool(right.any() and not right.all())
