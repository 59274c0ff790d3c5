"""From signals to decisions: fitted on texts that the head was not trained on.

- Temperature (Guo et al. 2017, eq. 9): the T > 0 that minimises the negative log-likelihood of
  softmax(z / T). It changes no answer.
- A probability per signal (Platt 1999): sigmoid(a x + b), a logistic regression on "was right".
- The stack: one logistic regression on several signals together, weights in the signals' own
  units so that serving needs no statistics.
- Thresholds for "at most this error rate among what is accepted": learn-then-test with fixed
  sequence testing (Angelopoulos et al. 2021, section 4). Thresholds are tried from strict to
  loose; each must refuse H: risk > alpha by an exact binomial tail at level delta (Geifman &
  El-Yaniv 2017, lemma 3.1), and the first that cannot ends the search. The chance that the risk on
  texts like these exceeds alpha is then at most delta. It promises nothing under shift, and
  nothing where calibration texts are too few; then there is no threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from verso_core.heads import Signal, SignalName, Stack
from verso_training.heads.selective import Flags, Floats
from verso_training.heads.signals import Signals

DELTA = 0.1
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2)
_RIDGE = 1e-3


def temperature(logits: Floats, targets: NDArray[np.int64]) -> float:
    """The temperature for these held-out logits. Shape: (N, C) and (N,)."""
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


def platt(values: Floats, right: Flags, *, chance: float | None = None) -> Signal:
    """Scale and offset that make a probability of a signal.

    Where every answer was right, or none, nothing tells how the signal parts them: its mean then
    stands for (n + 1) / (n + 2), Laplace's rule of succession, or for 1 / (n + 2).

    Args:
        values: Shape: (N,).
        right: Shape: (N,).
        chance: Of a signal that is itself a probability, what it is where all labels are as likely.
            It stands for itself where nothing else is known; without it the probability is the
            same everywhere.
    """
    if right.all() or not right.any():
        return _one_sided(values, right, chance=chance)
    weights, bias = _logistic(values[:, None], right)
    return Signal(scale=float(weights[0]), offset=bias)


def _one_sided(values: Floats, right: Flags, *, chance: float | None) -> Signal:
    """A straight line of log odds through the mean and, where it lies below, through chance."""
    mean, wrong = float(values.mean()), 1.0 / (len(values) + 2.0)
    reached = math.log((1.0 - wrong) / wrong) * (1.0 if right.all() else -1.0)
    if chance is None or mean <= chance:
        return Signal(scale=0.0, offset=reached)
    guessed = math.log(chance / (1.0 - chance))
    scale = max(0.0, reached - guessed) / (mean - chance)
    return Signal(scale=scale, offset=reached - scale * mean)


def stack(signals: Signals, right: Flags, *, names: Sequence[SignalName]) -> Stack:
    """A logistic regression on several signals."""
    weights, bias = _logistic(np.stack([signals[name] for name in names], axis=-1), right)
    return Stack(
        bias=bias, weights={name: float(w) for name, w in zip(names, weights, strict=True)}
    )


def stacked(model: Stack, signals: Signals) -> Floats:
    """The stack's probability of being right. Shape: (N,)."""
    total = sum(weight * signals[name] for name, weight in model.weights.items())
    return 1.0 / (1.0 + np.exp(-(np.asarray(total, np.float64) + model.bias)))


def thresholds(
    values: Floats, right: Flags, *, alphas: Sequence[float] = ALPHAS, delta: float = DELTA
) -> Mapping[str, float]:
    """The loosest safe threshold for each error rate; a rate that cannot be promised is left out.

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
    """Ridge logistic regression by Newton's method; weights in the units of ``values``."""
    centre, spread = values.mean(0), values.std(0).clip(1e-9)
    x = np.concatenate([(values - centre) / spread, np.ones((len(values), 1))], axis=-1)
    # Targets a little inside (0, 1), as Platt has them: a perfect separation keeps finite weights.
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
