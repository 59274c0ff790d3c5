"""A head that reads documents beside a TF-IDF of each source, on the same test rows.

TF-IDF with logistic regression (``studies.quality.baselines``) is trained on the training rows of
one source and told that a text is of it; the head is told nothing. Differences are paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.papers.kept import table
from studies.quality import baselines
from verso_core.heads import source_of
from verso_training.heads import confidence, signals
from verso_training.heads.confidence import Outputs
from verso_training.heads.rows import Checked, RowSplit
from verso_training.heads.signals import Interval

_ROUNDS = 2000
_ROUNDS_F1 = 300


@dataclass(frozen=True)
class Beside:
    """Figures of one source's test rows, in percent.

    Attributes:
        rows: How many there are.
        baseline: Accuracy and macro-F1 of the TF-IDF.
        head: Of the head.
        gain: Of the head over the TF-IDF, paired.
    """

    rows: int
    baseline: tuple[Interval, Interval]
    head: tuple[Interval, Interval]
    gain: tuple[Interval, Interval]


def study(rows: Checked, test: Outputs) -> dict[str, Beside]:
    """Return the figures of each source.

    Args:
        rows: That the head was trained and measured on.
        test: Of its graph, on the test rows.
    """
    of_label = np.array([source_of(label) for label in rows.labels])
    texts = [str(row.text) for row in rows.of(RowSplit.TEST)]
    found = {}
    for source in sorted(set(of_label.tolist())):
        own = np.flatnonzero(of_label[test.targets] == source)
        shown = [row for row in rows.of(RowSplit.TRAIN) if source_of(row.label) == source]
        (words,) = baselines.tfidf(
            [str(row.text) for row in shown],
            [row.label for row in shown],
            others=[[texts[at] for at in own]],
        )
        told = words.aligned(rows.labels).argmax(-1)
        found[source] = compared(told, test.logits[own].argmax(-1), test.targets[own])
    return found


def compared(
    baseline: NDArray[np.int64], head: NDArray[np.int64], targets: NDArray[np.int64]
) -> Beside:
    """Return the figures of labels by two classifiers. Shape of all: (N,)."""
    both = [_figures(one, targets) for one in (baseline, head)]
    right = 100.0 * ((head == targets).astype(float) - (baseline == targets))
    gain = (
        signals.bootstrap(lambda i: float(right[i].mean()), len(right), rounds=_ROUNDS),
        signals.bootstrap(
            lambda i: (
                100 * confidence.macro_f1(head[i], targets[i])
                - 100 * confidence.macro_f1(baseline[i], targets[i])
            ),
            len(right),
            rounds=_ROUNDS_F1,
        ),
    )
    return Beside(len(targets), both[0], both[1], gain)


def _figures(chosen: NDArray[np.int64], targets: NDArray[np.int64]) -> tuple[Interval, Interval]:
    right = 100.0 * (chosen == targets)
    return (
        signals.bootstrap(lambda i: float(right[i].mean()), len(right), rounds=_ROUNDS),
        signals.bootstrap(
            lambda i: 100 * confidence.macro_f1(chosen[i], targets[i]),
            len(right),
            rounds=_ROUNDS_F1,
        ),
    )


def page(found: Mapping[str, Beside]) -> str:
    """Return the table."""
    rows = [
        [
            f"`{source}`", f"{one.rows:,}",
            *(_shown(figure) for figure in (*one.baseline, *one.head)),
            *(_shown(figure, "+") for figure in one.gain),
        ]
        for source, one in found.items()
    ]  # fmt: skip
    columns: Sequence[str] = ("source", "rows", "TF-IDF: accuracy", "macro-F1", "head: accuracy")
    return table([*columns, "macro-F1", "gain of accuracy", "of macro-F1"], rows)


def _shown(found: Interval, sign: str = "") -> str:
    return f"{found.value:{sign}.1f} [{found.low:.1f}, {found.high:.1f}]"
