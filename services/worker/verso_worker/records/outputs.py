"""What the engine returns for heads and fits are given and find; the time that work took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verso_core import tracing
from verso_core.jobs import CodecPolicy
from verso_core.record import Codec
from verso_worker.records.points import Terms


@dataclass(frozen=True, slots=True, eq=False)
class Classified:
    """Outputs of a classifier. Shapes: (n, C) and (n, F); features None where it has none."""

    logits: NDArray[np.float32]
    features: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """What a head reads of a document; see ``verso_core.heads``.

    vectors: of its chunks. Shape: (K, D), float32.
    terms: Shape: (M,), int64; empty for a head that reads none.
    weights: of the terms. Shape: (M,), float32.
    """

    vectors: NDArray[np.float32]
    terms: NDArray[np.int64]
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: NDArray[np.float32], terms: Sequence[Terms] = ()) -> Document:
        """Join the terms of a document's chunks."""
        total: dict[int, float] = {}
        for chunk in terms:
            for word, weight in zip(chunk.ids, chunk.weights, strict=True):
                total[word] = total.get(word, 0.0) + weight
        ids = np.array(sorted(total), np.int64)
        return cls(vectors, ids, np.array([total[word] for word in sorted(total)], np.float32))


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a context: characters [start, end), and its score."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """The best spans of one context, best first, no two of which overlap, and its null score."""

    spans: list[Span]
    null_score: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """A token of a text, and the decoder's first guess of it; empty for a guess of the end."""

    token: bytes
    guess: bytes


@dataclass(slots=True)
class Timings:
    """What a slice spent in each phase, ms."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        start = time.perf_counter()
        with tracing.inner(name):
            try:
                yield
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + 1e3 * (time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is fitted to.

    texts: chunks in the order in which they were written
    stored: for each the codec of its record and the size of its payload, bytes
    chunks: how many the collection has
    serving: packed tables that the collection writes with now
    force: keep the tables whatever they gain
    """

    texts: Sequence[bytes]
    stored: Sequence[tuple[Codec, int]]
    chunks: int
    policy: CodecPolicy
    serving: bytes | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """What a fit found; ``packed`` is None if the tables do not pay.

    ``before`` and ``after`` are patch bytes of a held-out chunk, as they are now and fitted.
    """

    held_out: int
    before: float
    after: float
    size_bytes: int
    packed: bytes | None
