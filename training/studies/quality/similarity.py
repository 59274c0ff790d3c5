"""Similarity of sentences from stored vectors alone: STS-B."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from studies.quality import pairsets, selection, sets
from studies.quality.classification import Bench
from studies.quality.pairsets import Ranking
from verso_core import manifest
from verso_core.jobs import Precision
from verso_training.heads.scoring import Pair, spearman
from verso_training.heads.signals import Interval


def stored_cosine(bench: Bench, part: str) -> float:
    """Spearman of the cosine of int8 vectors with the gold scores, in percent."""
    rows = pairsets.stsb(bench.data, part)
    cosine = stored_cosines(bench, rows, part=part)
    return 100 * spearman(cosine, np.array([row.score for row in rows]))


def stored_cosines(
    bench: Bench, rows: Sequence[Pair], *, part: str, precision: Precision = Precision.INT8
) -> NDArray[np.float32]:
    """Return the cosines of pairs of texts as a collection stores them. Shape: (N,).

    Args:
        bench: Whose artifact encodes, and which keeps the vectors.
        rows: Pairs of STS-B.
        part: Of STS-B, in the cache.
        precision: Of the collection.
    """
    vectors = sets.stored_vectors(
        [text for row in rows for text in (row.a, row.b)],
        artifact=bench.artifact,
        cache=bench.work / "vectors" / f"sim_stsb-{part}",
        scale=manifest.load(bench.artifact).manifest.space.int8_scale,
        precision=precision,
    )
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    found: NDArray[np.float32] = (vectors[::2] * vectors[1::2]).sum(-1)
    return found


def ranked_by_cosine(bench: Bench) -> dict[str, Interval]:
    """How well the cosine of stored vectors ranks the sentences that ``pairs`` is measured on."""
    figures: dict[str, Interval] = {}
    for name, rankings in selection.reported(bench.data).items():
        figures[f"{name}_mrr"], figures[f"{name}_first"] = selection.with_intervals(
            cosines(bench, name, rankings), rankings
        )
    return figures


def cosines(
    bench: Bench, name: str, rankings: Sequence[Ranking], *, precision: Precision = Precision.INT8
) -> list[NDArray[np.float32]]:
    """Return the cosine of each question with its candidates, by stored vectors.

    Args:
        bench: Whose artifact encodes, and which keeps the vectors.
        name: Of the questions, in the cache.
        rankings: The questions.
        precision: Of the collection that stores both.
    """
    texts = [text for row in rankings for text in (row.question, *row.candidates)]
    vectors = sets.stored_vectors(
        texts,
        artifact=bench.artifact,
        cache=bench.work / "vectors" / f"ranking-{name}",
        scale=manifest.load(bench.artifact).manifest.space.int8_scale,
        precision=precision,
    )
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    found, place = [], 0
    for row in rankings:
        question, *_ = vectors[place : place + 1]
        candidates = vectors[place + 1 : place + 1 + len(row.candidates)]
        found.append((candidates @ question).astype(np.float32))
        place += 1 + len(row.candidates)
    return found
