"""Groups of like failures by plain vectors and by those that the decoder reads. (Decodable
Sentence-BERT, table 6.)

The paper compares two encoders, its own trained to be decoded and Sentence-BERT. Here the encoder
is the same, and a vector that is decoded differs from a plain one by its rounding alone: float32
against int8, int4 and 1 bit a dimension. DBSCAN as in ``studies.tasks.aggregation``, with its
counts and homogeneity; that of int4 moves the threshold as a worker does. *Same* is the adjusted
Rand index against the groups by float32.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.metrics import adjusted_rand_score

from studies.papers.kept import Figures, Kept, Parts, table
from studies.papers.precision import stored
from studies.quality import sets
from studies.quality.classification import Bench
from studies.tasks.aggregation import COSINES, grouped, homogeneous
from verso_core import manifest
from verso_core.jobs import Precision
from verso_training.heads.rows import RowSplit
from verso_worker.records.space import Space

STUDY = "aggregation"
SETS = sets.LOG_SETS
KINDS = ("float32", "int8", "int4", "1 bit")
_ALONE = -1


def run(bench: Bench) -> Parts:
    """Group the rows of each set."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {name: kept.of(name, partial(_measured, bench, name)) for name in SETS}


def _measured(bench: Bench, name: str) -> Figures:
    group = sets.logs(bench.data, name)
    plain = []
    for split in RowSplit:
        bench.stored(group, split)  # which keeps the vectors as they were encoded
        plain.append(np.load(bench.work / "vectors" / f"{name}-{split}.npy"))
    labels = [row.label for split in RowSplit for row in group.of(split)]
    scale = manifest.load(bench.artifact).manifest.space.int8_scale
    figures: dict[str, float] = {"rows": len(labels)}
    for cosine in COSINES:
        first = None
        for kind in KINDS:
            vectors = stored(np.concatenate(plain), kind, scale=scale)
            found = grouped(vectors, cosine=_least(kind, cosine))
            first = found if first is None else first
            figures |= {
                f"{cosine}/{kind}/groups": float(found.max() + 1),
                f"{cosine}/{kind}/alone": float((found == _ALONE).sum()),
                f"{cosine}/{kind}/homogeneity": 100 * homogeneous(labels, found),
                f"{cosine}/{kind}/same": float(adjusted_rand_score(first, found)),
            }
    return figures


def _least(kind: str, cosine: float) -> float:
    """Return the least cosine of stored vectors for one of vectors as they were encoded."""
    return (
        1 - Space(Precision.INT4, 2, 1.0).stored_distance(1 - cosine) if kind == "int4" else cosine
    )


def page(found: Parts) -> str:
    """Return the table."""
    rows = []
    for name, figures in found.items():
        for cosine in COSINES:
            for kind in KINDS:
                f = {key: figures[f"{cosine}/{kind}/{key}"] for key in _COLUMNS}
                cells = [f"{f['groups']:.0f}", f"{f['alone']:.0f}", f"{f['homogeneity']:.1f}"]
                rows.append([f"{name}, {cosine}, {kind}", *cells, f"{f['same']:.3f}"])
    return table(["set, least cosine, vectors", *_COLUMNS], rows)


_COLUMNS = ("groups", "alone", "homogeneity", "same")
