"""Count the groups of similar failures among labelled logs, as in Decodable Sentence-BERT, table 6.

DBSCAN (Ester et al. 1996) on the cosine of the vectors as stored, at the two published thresholds,
with two neighbours for a core as the platform serves it. A count proves nothing by itself, so the
homogeneity goes with it (Rosenberg & Hirschberg 2007, eq. 1): 1 - H(label | group) / H(label),
which is 1 where no group holds two labels. A row without neighbours is a group.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN
from sklearn.metrics import homogeneity_score

from studies.quality import sets
from studies.quality.classification import Bench
from studies.tasks.pages.paragraphs import wrapped
from studies.tasks.result import StudyResult
from verso_training.heads.rows import RowSplit

STUDY = "aggregation"
COSINES = (0.95, 0.78)
_ALONE = -1
_PAPER = (
    ("*QE Test Logs 1, 0.95, Sentence-BERT*", 25_803, 1_079),
    ("*QE Test Logs 1, 0.95, Decodable Sentence-BERT*", 25_803, 964),
    ("*QE Test Logs 2, 0.78, Sentence-BERT*", 760, 358),
    ("*QE Test Logs 2, 0.78, Decodable Sentence-BERT*", 760, 331),
)
"""Decodable Sentence-BERT, table 6: samples and clusters."""


def run(bench: Bench) -> StudyResult:
    """Group the rows of every labelled log set."""
    figures: dict[str, float] = {}
    for name in sets.LOG_SETS:
        group = sets.logs(bench.data, name)
        vectors = np.concatenate([bench.stored(group, split) for split in RowSplit])
        labels = [row.label for split in RowSplit for row in group.of(split)]
        for cosine in COSINES:
            found = grouped(vectors, cosine=cosine)
            figures |= {
                f"{name}/rows": float(len(labels)),
                f"{name}/labels": float(len(set(labels))),
                f"{name}/clusters/{cosine}": float(found.max() + 1),
                f"{name}/alone/{cosine}": float((found == _ALONE).sum()),
                f"{name}/homogeneity/{cosine}": 100 * homogeneous(labels, found),
            }
    return StudyResult(STUDY, figures, {})


def grouped(vectors: NDArray[np.float32], *, cosine: float) -> NDArray[np.int64]:
    """The group of each row, -1 where it stands alone. Shape: (N, D) to (N,)."""
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    made = DBSCAN(eps=1.0 - cosine, min_samples=2, metric="cosine").fit(unit)
    found: NDArray[np.int64] = made.labels_.astype(np.int64)
    return found


def homogeneous(labels: list[str], found: NDArray[np.int64]) -> float:
    """Return the homogeneity, in [0, 1]."""
    own = np.where(found == _ALONE, found.max() + 1 + np.arange(len(found)), found)
    return float(homogeneity_score(labels, own))


def section(found: Mapping[str, StudyResult]) -> str:
    """The table; empty where the study was not done."""
    if (part := found.get(STUDY)) is None:
        return ""
    f = part.figures
    lines = [
        "### Groups of like logs",
        "",
        wrapped(
            "DBSCAN on the cosine of stored vectors, all rows of a set, at the published "
            "thresholds. "
            "The publication gives counts alone; homogeneity is 100 where no group holds two "
            "labels, "
            "each row that stands alone being a group. Lines by their statement: "
            "[their page](log-templates.md). Of logs_rcheck's training rows every third is read."
        ),
        "",
        "| set, least cosine | rows | labels | groups | alone | homogeneity |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in sets.LOG_SETS:
        for cosine in COSINES:
            cells = (f"{f[f'{name}/{key}/{cosine}']:,.0f}" for key in ("clusters", "alone"))
            lines.append(
                f"| {name}, {cosine} | {f[f'{name}/rows']:,.0f} | {f[f'{name}/labels']:.0f} "
                f"| {' | '.join(cells)} | {f[f'{name}/homogeneity/{cosine}']:.1f} |"
            )
    lines += [f"| {title} | {rows:,} | | {count:,} | | |" for title, rows, count in _PAPER]
    return "\n".join(lines)
