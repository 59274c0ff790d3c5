"""Which head puts the sentence that answers a question first more often? Two heads, paired.

Both rank the same sentences of the same questions (``selection.reported``): a head that reads
vectors by the cosine of vectors as an int8 collection stores them, one that reads pairs by its
score. Questions are drawn for the intervals, and the difference is that of the same draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.papers.kept import table
from studies.quality import selection, similarity
from studies.quality.classification import Bench
from studies.quality.pairsets import Ranking
from verso_core import heads, manifest
from verso_core.heads import Reads
from verso_training.heads import backbone, graph, signals
from verso_training.heads.modules import CrossEncoder
from verso_training.heads.recipe import ScoreConfig
from verso_training.heads.signals import Interval

Scores = Sequence[NDArray[np.float32]]
"""Of each question's candidates."""
_ROUNDS = 2000


@dataclass(frozen=True)
class Ranked:
    """Figures of one head in percent, and by how much they exceed those of the first.

    Attributes:
        reciprocal: Mean reciprocal rank of the first right sentence.
        first: Share of the questions with a right one first.
        gain: Of both over the first head that is compared.
    """

    reciprocal: Interval
    first: Interval
    gain: tuple[Interval, Interval]


def study(bench: Bench, folders: Sequence[Path]) -> dict[str, dict[str, Ranked]]:
    """Return the figures by set and head."""
    found = {}
    for name, rankings in selection.reported(bench.data).items():
        places = {
            folder.parent.name: selection.places(_scores(bench, folder, name, rankings), rankings)
            for folder in folders
        }
        found[name] = compared(places)
    return found


def compared(places: Mapping[str, NDArray[np.float64]]) -> dict[str, Ranked]:
    """Return the figures of heads by the rank of each question's first right sentence.

    Args:
        places: From 1 on. Shape of each: (questions,).
    """
    base = next(iter(places.values()))

    def mean(values: NDArray[np.float64]) -> Interval:
        return signals.bootstrap(
            lambda i: 100 * float(values[i].mean()), len(values), rounds=_ROUNDS
        )

    return {
        name: Ranked(
            mean(1 / own),
            mean((own == 1).astype(np.float64)),
            (mean(1 / own - 1 / base), mean((own == 1).astype(np.float64) - (base == 1))),
        )
        for name, own in places.items()
    }


def _scores(bench: Bench, folder: Path, name: str, rankings: Sequence[Ranking]) -> Scores:
    if heads.load(folder).head.reads is Reads.VECTOR_PAIR:
        return similarity.cosines(bench, name, rankings)
    start = graph.load(folder, space=manifest.load(bench.artifact).manifest.space.id)
    base, config = backbone.load(bench.artifact), graph.shaped(ScoreConfig(), start)
    module = CrossEncoder(backbone.adapt(base, rank=config.rank, alpha=config.alpha))
    start.restore(module)
    most = start.head.max_tokens or config.max_tokens
    return selection.scores(module.eval(), base, rankings, max_tokens=most)


def page(found: Mapping[str, Mapping[str, Ranked]]) -> str:
    """Return the table."""
    columns = ["set", "head", "reciprocal rank", "right one first, %", "gain", "gain, first"]
    rows = [
        [name, f"`{head}`", _shown(one.reciprocal), _shown(one.first)]
        + [_shown(gain, "+") for gain in one.gain]
        for name, own in found.items()
        for head, one in own.items()
    ]
    return table(columns, rows)


def _shown(found: Interval, sign: str = "") -> str:
    return f"{found.value:{sign}.1f} [{found.low:.1f}, {found.high:.1f}]"
