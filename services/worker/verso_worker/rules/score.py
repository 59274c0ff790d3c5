"""Score pairs of texts, and texts by their best sentence for a query.

A head that scores pairs was trained on pairs of sentences. It scores a whole passage badly, since
most of the passage does not answer the query (figures: docs/research/search-quality.md). So a text
has the score of its best sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import Reads, Task
from verso_core.jobs import Result, Slice
from verso_core.jobs.heads import PairScore, ScoreItem, ScoreParams
from verso_core.texts import sentences
from verso_worker.records.outputs import Timings
from verso_worker.rules.ports import Heads, ServedHead


@dataclass(frozen=True, slots=True)
class Score:
    """Runs heads that score pairs; a score is larger where the two fit better."""

    heads: Heads

    def run(
        self, work: Slice[ScoreParams, ScoreItem], *, job: str | None, timings: Timings
    ) -> Result[PairScore]:
        """Score a slice's pairs; with ``sentences`` by the best sentence of the second text.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
        """
        head = self.heads.get(work.params.head, task=Task.SCORE, job=job)
        pairs = [item.pair for item in work.accepted.values()]
        score = self._best if work.params.sentences else self._score
        with timings.phase("infer"):
            scores = score(head, pairs) if pairs else np.zeros(0, np.float32)
        found = {
            index: PairScore(score=score, **head.about)
            for index, score in zip(work.accepted, scores.tolist(), strict=True)
        }
        return Result(work.answered(found))

    def best(
        self, head: str, query: bytes, texts: Sequence[bytes], *, job: str | None
    ) -> NDArray[np.float32]:
        """Score texts against a query, each by its best sentence. Shape: (texts,).

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served; also where there is no text.
        """
        served = self.heads.get(head, task=Task.SCORE, job=job)
        return self._best(served, [(query, text) for text in texts])

    def _best(self, head: ServedHead, pairs: Sequence[tuple[bytes, bytes]]) -> NDArray[np.float32]:
        if not pairs:
            return np.zeros(0, np.float32)
        parts = [sentences(text) for _, text in pairs]
        asked = [query for query, _ in pairs]
        flat = [(query, one) for query, part in zip(asked, parts, strict=True) for one in part]
        starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
        best: NDArray[np.float32] = np.maximum.reduceat(self._score(head, flat), starts)
        return best

    def _score(self, head: ServedHead, pairs: Sequence[tuple[bytes, bytes]]) -> NDArray[np.float32]:
        first, second = [a for a, _ in pairs], [b for _, b in pairs]
        if head.head.reads is Reads.TOKEN_PAIR:
            return head.run(lambda e, n, v: e.score_texts(n, v, first=first, second=second))
        # A text of many pairs, such as a query, is encoded once.
        texts = list(dict.fromkeys([*first, *second]))
        rows = {text: row for row, text in enumerate(texts)}
        vectors = head.model.recorder.engine.encode(texts).vectors
        stacked = vectors[np.array([[rows[a], rows[b]] for a, b in pairs])]
        return head.run(lambda e, n, v: e.score_vectors(n, v, pairs=stacked))
