"""How sure a head must be of a text's source before it accepts a label of it.

Thresholds of a source are chosen on the validation rows that are taken for it. Where nearly all of
these are right, they end far down, and a text of no source that the head knows, or of another one,
is accepted by them. The probability of the source itself tells such texts better than that of the
label.

The rule: of the validation rows of a source that are taken for it, the k-th smallest probability of
the source, where k = floor(``SHARE`` (n + 1)). A new text of the source that is taken for it lies
below with a chance of k / (n + 1) at most, so the limit withholds one in a hundred of them (split
conformal prediction, Vovk et al. 2005, section 4.1). With fewer than 99 rows there is no limit.

What that assumes: that the text and these rows are exchangeable. Later texts, or those of other
projects, are less sure, and more of them are withheld; no text is accepted because of a limit. How
many texts of other sources lie above it no row says: the rule bounds what a limit costs, not what
is still accepted wrongly. The temperature is fitted on the same rows, which is one number of them
all. Thresholds are chosen without the limit: what it withholds of right labels raises the share of
wrong ones among the rest by as much at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import source_of
from verso_training.heads import signals
from verso_training.heads.signals import Floats

SHARE = 0.01
"""Of a source's own texts, how many its limit may withhold."""
_MOST = 1.0 - 1e-4
"""Probabilities above differ by rounding: those of a text in another batch by less than 1e-5."""


def best_sources(
    logits: Floats, *, temperature: float, labels: Sequence[str]
) -> tuple[NDArray[np.str_], Floats]:
    """Return the source of each row's best label, and its probability: the sum over its labels.

    Args:
        logits: Shape: (N, C).
        temperature: Of the calibration.
        labels: In the order of the logits; without them there is one source, of no name.
    """
    of_label = np.array([source_of(label) for label in labels] or [""] * logits.shape[-1])
    sources = of_label[logits.argmax(-1)]
    own = of_label == sources[:, None]
    return sources, (signals.softmax(logits / temperature) * own).sum(-1)


def fit(
    logits: Floats,
    targets: NDArray[np.int64],
    *,
    temperature: float,
    labels: Sequence[str],
    share: float = SHARE,
) -> dict[str, float]:
    """Return the limit of each source that has enough rows; empty for labels of one source.

    Args:
        logits: Of rows that were not trained on. Shape: (N, C).
        targets: Label numbers; -1 for a row without a label. Shape: (N,).
        temperature: Of the calibration.
        labels: In the order of the logits.
        share: Of a source's own texts, how many may be withheld.
    """
    of_label = np.array([source_of(label) for label in labels])
    names = sorted(set(of_label.tolist()))
    if len(names) < 2:
        return {}
    sources, certain = best_sources(logits, temperature=temperature, labels=labels)
    own = (targets >= 0) & (of_label[targets] == sources)
    found = {}
    for name in names:
        values = np.sort(certain[own & (sources == name)])
        rank = math.floor(share * (len(values) + 1))
        if rank:
            found[name] = min(float(values[rank - 1]), _MOST)
    return found
