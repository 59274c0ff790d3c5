"""Which recipe of a classifier of documents do validation rows choose?

Each trial is fitted by a recipe, with so many chunks of a document read, and judged by the
validation rows of each source, beside the head that ships. Rows of folds are said by layers that
were not fitted on them. Only rows that every trial was not fitted on are counted. Test rows are not
read.

Validation rows have chosen settings of every trial as well, so figures are flattered alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.documents.fitting import HeldOut
from studies.papers.kept import table
from verso_core import manifest
from verso_core.heads import source_of
from verso_training.heads import confidence, signals
from verso_training.heads.rows import RowSplit
from verso_training.heads.signals import Interval
from verso_worker.records.artifact import cutter

_ROUNDS = 2000


@dataclass(frozen=True)
class Trial:
    """One trial's figures on validation rows of one source, in percent.

    Attributes:
        rows: How many there are.
        accuracy: Of labels of all sources.
        macro_f1: Likewise.
        gain: Of accuracy over the first trial, paired.
        alone: Rows that the first alone has right, and that this one alone has right.
    """

    rows: int
    accuracy: Interval
    macro_f1: Interval
    gain: Interval
    alone: tuple[int, int]


def compared(found: Mapping[str, HeldOut], labels: Sequence[str]) -> dict[str, dict[str, Trial]]:
    """Return the figures of trials on the rows that all of them were not fitted on, by source.

    Args:
        found: By name; gains are over the first.
        labels: In the order of the logits.
    """
    parts = list(found.values())
    rows = sorted(set.intersection(*({int(n) for n in one.rows if n >= 0} for one in parts)))
    taken = []
    for one in parts:
        place = {int(number): at for at, number in enumerate(one.rows)}
        taken.append(one.outputs.take(np.array([place[row] for row in rows], np.int64)))
    targets = taken[0].targets
    of_row = np.array([source_of(labels[target]) for target in targets])
    chosen = [one.logits.argmax(-1) for one in taken]
    figures: dict[str, dict[str, Trial]] = {}
    for source in sorted(set(of_row.tolist())):
        own = of_row == source
        said, truth = [one[own] for one in chosen], targets[own]
        figures[source] = {
            name: _trial(said[0], one, truth) for name, one in zip(found, said, strict=True)
        }
    return figures


def _trial(first: np.ndarray, said: np.ndarray, truth: np.ndarray) -> Trial:
    before, right = first == truth, said == truth

    def drawn(values: np.ndarray) -> Interval:
        return signals.bootstrap(
            lambda i: 100 * float(values[i].mean()), len(values), rounds=_ROUNDS
        )

    return Trial(
        len(truth),
        drawn(right),
        signals.bootstrap(
            lambda i: 100 * confidence.macro_f1(said[i], truth[i]), len(truth), rounds=300
        ),
        drawn(right.astype(float) - before),
        (int((before & ~right).sum()), int((right & ~before).sum())),
    )


def chunk_counts(
    texts: Mapping[str, Mapping[RowSplit, Sequence[str]]], artifact: Path
) -> dict[str, dict[RowSplit, list[int]]]:
    """Return how many chunks each text of each set is stored in, by split."""
    cuts = cutter(manifest.load(artifact))
    return {
        name: {
            split: [len(cuts.cut(text.encode())) for text in own] for split, own in parts.items()
        }
        for name, parts in texts.items()
    }


def page(
    found: Mapping[str, Mapping[str, Trial]],
    counts: Mapping[str, Mapping[RowSplit, Sequence[int]]],
    most: Sequence[int],
) -> str:
    """Return the tables: figures by source, and how many texts have more chunks than are read."""
    rows = [
        [
            f"`{source}`", name, f"{one.rows:,}", _shown(one.accuracy), _shown(one.macro_f1),
            _shown(one.gain, "+"), "{}, {}".format(*one.alone),
        ]
        for source, own in found.items()
        for name, one in own.items()
    ]  # fmt: skip
    columns = ["source", "trial", "rows", "accuracy", "macro-F1", "gain of accuracy"]
    long = [
        [
            f"`{name}`", str(split), f"{len(own):,}", str(int(np.median(own))), f"{max(own):,}",
            *(f"{sum(count > one for count in own):,}" for one in most),
        ]
        for name, parts in counts.items()
        for split, own in parts.items()
    ]  # fmt: skip
    return "\n\n".join(
        [
            table([*columns, "right by one alone: the first, this"], rows),
            table(
                ["set", "part", "texts", "median", "longest", *(f"> {one}" for one in most)], long
            ),
        ]
    )


def _shown(found: Interval, sign: str = "") -> str:
    return f"{found.value:{sign}.1f} [{found.low:.1f}, {found.high:.1f}]"
