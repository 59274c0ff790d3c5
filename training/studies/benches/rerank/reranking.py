"""Searches reranked by a head: sets ingested once, and the order of each share.

The order of a share is computed by :func:`verso_worker.records.fusion.reranked`, as a worker does
it, from
what the search and the head scored; so one pass of the head serves every share.
"""

from __future__ import annotations

import random
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verso_client import Client
from verso_client.cli import evaluation as retrieval
from verso_client.cli.evaluation import Gain
from verso_client.operations.documents import Document
from verso_core.jobs import Precision, SearchMode
from verso_core.jobs.search import Hit
from verso_worker.records import fusion

HITS = 300
"""Records a search gives, as in `verso eval retrieval`."""


@dataclass(frozen=True, slots=True)
class Read:
    """The hits of a search in their order, and a head's scores of the first ones."""

    hits: Sequence[Hit]
    scores: NDArray[np.float32]

    def documents(self, *, share: float) -> list[str]:
        """Return documents in the order that a share gives, each once."""
        read = len(self.scores)
        order = fusion.reranked([one.score for one in self.hits[:read]], self.scores, share=share)
        hits = [*(self.hits[place] for place in order), *self.hits[read:]]
        return list(dict.fromkeys(hit.document for hit in hits))


def drawn(folder: Path, *, split: str, count: int) -> retrieval.Set:
    """Read a set in BEIR's layout, with so many of its questions, drawn at random."""
    given = retrieval.read(folder, split=split)
    names = sorted(given.questions)
    names = random.Random(1).sample(names, min(count, len(names)))
    questions = {name: given.questions[name] for name in names}
    return retrieval.Set(given.name, given.documents, questions, given.relevant)


@contextmanager
def taken_in(client: Client, given: retrieval.Set, *, collection: str | None) -> Iterator[str]:
    """Yield a collection that holds a set.

    Args:
        collection: holds it already, or shall, and is kept; one of its own, deleted at the end,
            where None.
    """
    name = collection or f"bench-{uuid.uuid4().hex[:12]}"
    known = {one.name for one in client.collections()}
    try:
        if name in known:
            if (held := client.stats(name).documents) != len(given.documents):
                sys.exit(f"expected {len(given.documents)} documents in {name}, got {held}")
        else:
            client.create_collection(name, precision=Precision.INT8, search=SearchMode.HYBRID)
            documents = [Document(text, id=key) for key, text in given.documents.items()]
            client.ingest(documents, collection=name)
        yield name
    finally:
        if collection is None:
            client.delete_collection(name)


def reached(given: retrieval.Set, found: Sequence[Read], *, share: float) -> list[float]:
    """Return the nDCG@10 of each question of a set."""
    return [
        retrieval.ndcg(one.documents(share=share), given.relevant[name])
        for name, one in zip(given.questions, found, strict=True)
    ]


def percent(values: Sequence[float]) -> float:
    """Return a mean in percent."""
    return round(100 * float(np.mean(values)), 1)


def told(gain: Gain) -> str:
    """Show a gain and its interval, in points."""
    return f"{100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
