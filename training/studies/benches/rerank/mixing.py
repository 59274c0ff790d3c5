"""The scores of a search and of a head for the first records, mixed in several ways.

The parts of the search's score are kept apart: it is the mean of what the vector gave and of what
the words gave (``verso_worker.records.fusion``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_client.cli import evaluation as retrieval
from verso_core.jobs import RERANK_SHARE
from verso_core.jobs.search import DENSE_SHARE, Hit

Scores = NDArray[np.float64]
Order = Sequence[int]


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and the first records that the search gave, in its order.

    Attributes:
        name: of the question.
        text: the question.
        hits: as many as `verso eval retrieval` asks for.
        titles: whether a record is one line. Shape: (N,).
        vector: what the vector gave to the search's score, in [0, 1]. Shape: (N,).
        words: what the words gave, in [0, 1]; the score is the mean of both. Shape: (N,).
        read: scores by head. Shape of each: (N,).
    """

    name: str
    text: str
    hits: Sequence[Hit]
    titles: NDArray[np.bool_]
    vector: Scores
    words: Scores
    read: Mapping[str, Scores]

    @property
    def search(self) -> Scores:
        """The search's scores. Shape: (N,)."""
        return np.array([hit.score for hit in self.hits[: len(self.words)]])

    def documents(self, order: Order) -> list[str]:
        """Return documents where the first records stand in another order, each once."""
        hits = [*(self.hits[place] for place in order), *self.hits[len(self.words) :]]
        return list(dict.fromkeys(hit.document for hit in hits))


Mix = Callable[[Asked, Scores], Scores]
"""Scores of the first records from what the search and a head gave them. Shape: (N,)."""


def spread(values: Scores) -> Scores:
    """Spread values over 0 to 1, as a worker does."""
    found: Scores = (values - values.min()) / (np.ptp(values) or 1.0)
    return found


def _standard(values: Scores) -> Scores:
    found: Scores = (values - values.mean()) / (values.std() or 1.0)
    return found


def _places(values: Scores) -> Scores:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


def _mixed(scale: Callable[[Scores], Scores]) -> Mix:
    return lambda asked, read: (1 - RERANK_SHARE) * scale(asked.search) + RERANK_SHARE * scale(read)


WORDS = 1 - DENSE_SHARE
MIXES: Mapping[str, Mix] = {
    "served: both spread over 0 to 1": _mixed(spread),
    "both by mean and deviation": _mixed(_standard),
    "both by place": _mixed(_places),
    "the search as it is, the head spread": lambda asked, read: (
        (1 - RERANK_SHARE) * asked.search + RERANK_SHARE * spread(read)
    ),
    "words keep their half, the head replaces the vector": lambda asked, read: (
        WORDS * asked.words
        + (1 - WORDS - RERANK_SHARE) * asked.vector
        + RERANK_SHARE * spread(read) * np.ptp(asked.vector)
    ),
    "no head: the vector takes as much from the words": lambda asked, _: (
        (1 - RERANK_SHARE) * WORDS * asked.words + (1 - (1 - RERANK_SHARE) * WORDS) * asked.vector
    ),
}


def shared(share: float) -> Mix:
    """Mix as a worker does, with another share."""
    return lambda asked, read: (1 - share) * spread(asked.search) + share * spread(read)


def title(document: str) -> bool:
    """Whether a document is a title alone."""
    return "\n" not in document


def ordered(scores: Scores) -> list[int]:
    """Return places, best first, equal ones as they stood."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def within(order: Order, kinds: NDArray[np.bool_]) -> list[int]:
    """Move records among the places of their own kind only, each kind in a given order."""
    queues = {kind: iter([place for place in order if kinds[place] == kind]) for kind in (0, 1)}
    return [next(queues[int(kind)]) for kind in kinds]


def oracle(one: Asked, grades: Mapping[str, int], *, depth: int) -> float:
    """Return the nDCG@10 of the best order of so many first records."""
    there = list(dict.fromkeys(hit.document for hit in one.hits[:depth]))
    return retrieval.ndcg(sorted(there, key=lambda each: -grades.get(each, 0)), grades)


def correlation(one: Scores, other: Scores) -> float:
    """Spearman's rank correlation; 0 where one of both is the same everywhere."""
    if not (np.ptp(one) and np.ptp(other)):
        return 0.0
    return float(np.corrcoef(_places(one), _places(other))[0, 1])
