"""What a record costs when it is written: a model card's figures, with intervals over its texts.

The texts are those of the model card, held-out chunks of every source that a decoder is trained on
and questions of a set that none is. Bits are of real patch bytes, without a record's header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from studies.papers.kept import Figures, Kept, Parts, rate, table, with_interval
from studies.quality.classification import Bench
from verso_core import manifest
from verso_training import config
from verso_training.artifact import evaluate, weights
from verso_training.config import Recipe, TokenizerConfig
from verso_training.data import chunks, sources
from verso_training.data.sources import Chunk

STUDY = "written"
CODECS = ("neural", "neural, no vector", "smallest")
_TRAINED = "all"


def run(bench: Bench) -> Parts:
    """Measure the bench's artifact."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {"artifact": kept.of("artifact", partial(_measured, bench))}


def recipe_of(artifact: Path) -> Recipe:
    """Return a recipe with the sizes of an artifact's decoder."""
    about = manifest.load(artifact).manifest
    found = weights.decoder(artifact, about.codec, vector_dim=about.space.dim)
    words = TokenizerConfig(vocab=about.codec.vocab)
    return replace(config.load("cpu"), tokenizer=words, model=found.config)


def _measured(bench: Bench) -> Figures:
    suite = evaluate.Suite.load(bench.artifact, recipe_of(bench.artifact))
    count = suite.recipe.publish.report_chunks
    documents = sources.documents(bench.data)
    held = chunks.draw_held_out(documents, fit_chunks=0, report_chunks=count).reporting
    return told(suite, held) | told(suite, sources.foreign(bench.data), together=False)


def told(
    suite: evaluate.Suite, texts: Sequence[Chunk], *, together: bool = True
) -> dict[str, float]:
    """Return texts and bits a byte by source, and of all together if they belong together."""
    numbered = [replace(chunk, source=f"{at}") for at, chunk in enumerate(texts)]
    tallies = suite.measure(numbered)
    found = [tallies[chunk.source] for chunk in numbered]
    sizes = np.array([one.size_bytes for one in found])
    owners = np.array([chunk.source for chunk in texts])
    parts = {name: owners == name for name in sorted({*owners.tolist()})}
    if together:
        parts = {_TRAINED: np.ones(len(texts), bool), **parts}
    figures: dict[str, float] = {}
    for name, rows in parts.items():
        figures[f"{name}/texts"] = float(rows.sum())
        for codec in CODECS:
            bits = np.array([8.0 * one.patch_bytes[codec] for one in found])
            figures |= rate(f"{name}/{codec}", bits[rows], sizes[rows])
    return figures


def page(found: Parts) -> str:
    """Return the table, bits a byte."""
    figures = found["artifact"]
    names = [key.removesuffix("/texts") for key in figures if key.endswith("/texts")]
    rows = [
        [
            f"{name} ({figures[f'{name}/texts']:.0f})",
            *(with_interval(figures, f"{name}/{codec}", digits=3) for codec in CODECS),
        ]
        for name in names
    ]
    return table(["source (texts)", *CODECS], rows)
