"""Heads that score pairs, run as a worker runs them, by what they read of a text.

An engine process of its own serves copies of the heads: one as it is, one that reads further.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verso_core import heads, registry
from verso_core.jobs import Kind, Slice
from verso_core.jobs.heads.score import PairScore, ScoreItem, ScoreParams
from verso_core.registry import Channel
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.heads import HeadStore
from verso_worker.records.outputs import Timings
from verso_worker.rules.score import Score


@dataclass(frozen=True, slots=True)
class Way:
    """A head and what it reads of a text."""

    head: str
    name: str
    sentences: bool = False

    def scores(self, pairing: Score, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score texts against a query. Shape: (texts,)."""
        asked = query.encode()
        items = tuple(ScoreItem.of(asked, one.encode()) for one in texts)
        work = Slice(Kind.SCORE, ScoreParams(head=self.head, sentences=self.sentences), items)
        found = pairing.run(work, job=None, timings=Timings()).items
        return np.array([item.score for item in found if isinstance(item, PairScore)], np.float32)


def ways(models: Path, served: Path, names: Sequence[str], *, tokens: int) -> Iterator[Way]:
    """Put heads, and copies of them that read further, into a models folder of their own."""
    for name in names:
        folder = registry.head(models, name)
        head = heads.read(folder)
        place = served / registry.HEADS / name / head.version
        shutil.copytree(folder, place)
        registry.assign(served, Channel.STABLE, head.version, head=name)
        if head.max_tokens is None:
            yield Way(name, f"{name}, whole")
        else:
            longer = heads.named(
                head.model_copy(update={"name": f"{name}-longer", "max_tokens": tokens})
            )
            place = served / registry.HEADS / longer.name / longer.version
            shutil.copytree(folder, place)
            heads.write(longer, place)
            registry.assign(served, Channel.STABLE, longer.version, head=longer.name)
            yield Way(name, f"{name}, whole, {head.max_tokens} tokens")
            yield Way(longer.name, f"{name}, whole, {tokens} tokens")
        yield Way(name, f"{name}, best sentence", sentences=True)


@contextlib.contextmanager
def readers(
    models: Path, names: Sequence[str], *, tokens: int
) -> Iterator[tuple[Score, ArtifactStore, list[Way]]]:
    """Run heads as a worker does, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="verso-rerank-") as folder:
        served, keep, run = (Path(folder) / name for name in ("models", "keep", "run"))
        for one in (served, keep, run):
            one.mkdir()
        tried = list(ways(models, served, names, tokens=tokens))
        model_store = ArtifactStore(keep, run, threads=1, device="cpu")
        with contextlib.closing(model_store):
            model_store.open(registry.resolve(models))
            yield Score(HeadStore(served, model_store)), model_store, tried
