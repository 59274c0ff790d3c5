"""By how much is the confidence off on a project, or a quarter, that nothing was fitted on?

Layers are fitted without a fold, and their confidence is fitted on what is said of the others:
every fold is new to both. The *gap* is the mean confidence minus the share of right labels. Only
rows that are taken for their own source are counted. A confidence that is exact has a gap as well,
by chance: *by chance* is the 95th percentile of its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.documents import served
from studies.papers.kept import table
from verso_core import heads
from verso_core.heads import source_of
from verso_training.heads import confidence, shipping, signals
from verso_training.heads.confidence import Outputs
from verso_training.heads.signals import Flags, Floats, Interval

_ROUNDS = 2000


@dataclass(frozen=True)
class Fold:
    """One fold that nothing was fitted on, figures in percent.

    Attributes:
        rows: How many there are.
        right: Share of right labels.
        gap: Mean confidence minus that share.
        chance: 95th percentile of the gap's size where the confidence is exact.
    """

    rows: int
    right: float
    gap: Interval
    chance: float


def study(folder: Path, held: Outputs) -> dict[str, dict[str, Fold]]:
    """Return the figures of the folds of each source that has some.

    Args:
        folder: Of a head with the labels of ``held``: which signal tells the confidence.
        held: What is said of rows held out, with their folds.
    """
    head = heads.load(folder).head
    found, _ = confidence.decided(
        held, head.calibration, served.statistics(folder), labels=head.labels
    )
    values, right = found[head.calibration.accept_by], held.right
    of_label = np.array([source_of(label) for label in head.labels])
    own = of_label[held.logits.argmax(-1)]
    assert held.folds is not None
    folds = held.folds
    every = {}
    for source in sorted(set(own.tolist())):
        rows = (own == source) & (of_label[held.targets] == source) & (folds != "")
        if rows.any():
            every[source] = of_source(values[rows], right[rows], folds[rows])
    return every


def of_source(values: Floats, right: Flags, folds: np.ndarray) -> dict[str, Fold]:
    """Return the figures of each fold, by the confidence that the others give.

    Args:
        values: The signal of each row. Shape of all: (N,).
        right: Whether its label is right.
        folds: Its fold.
    """
    found = {}
    rng = np.random.default_rng(0)
    for name in sorted(set(folds.tolist())):
        held = folds == name
        signal = confidence.fit_platt(values[~held], right[~held], chance=0.5)
        sure = 1.0 / (1.0 + np.exp(-(signal.scale * values[held] + signal.offset)))
        off, count = sure - right[held], int(held.sum())
        times = signals.drawn(np.arange(count), rounds=_ROUNDS)
        gap = signals.middle(100 * (times @ off) / count)
        drawn = (rng.random((_ROUNDS, count)) < sure).mean(-1)
        chance = float(np.percentile(np.abs(drawn - sure.mean()), 95))
        found[name] = Fold(count, 100 * float(right[held].mean()), gap, 100 * chance)
    return found


def page(found: Mapping[str, Mapping[str, Fold]]) -> str:
    """Return the table."""
    rows = [
        [
            f"`{source}`",
            name,
            str(one.rows),
            shipping.share_of(one.right / 100, of=one.rows),
            _shown(one.gap),
            f"{one.chance:.1f}",
        ]
        for source, own in found.items()
        for name, one in own.items()
    ]
    return table(["source", "fold", "rows", "right, %", "gap", "by chance"], rows)


def _shown(found: Interval) -> str:
    return f"{found.value:+.1f} [{found.low:.1f}, {found.high:.1f}]"
