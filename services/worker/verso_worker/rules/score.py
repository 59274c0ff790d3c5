"""Score pairs of texts, and texts by their best sentence or passage for a query.

A head says what of a text it was trained to read. One that was trained on pairs of sentences scores
a whole passage badly, since most of the passage does not answer the query (figures:
docs/research/search-quality.md). So a text has the score of its best sentence, or of its best
passage where the head reads passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import Reads, Task, TextUnit
from verso_core.jobs import Result, Slice
from verso_core.jobs.heads.models import TextSpan
from verso_core.jobs.heads.score import PairScore, ScoreItem, ScoreParams
from verso_core.texts import passage_spans, sentence_source, sentence_spans
from verso_worker.records.outputs import Timings
from verso_worker.rules.ports.models import Heads, ServedHead

_SPANS = {TextUnit.SENTENCE: sentence_spans, TextUnit.PASSAGE: passage_spans}


class _Best(NamedTuple):
    """The best part of a text: its score, and where it is, bytes."""

    score: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Score:
    """Runs heads that score pairs; a score is larger where the two fit better."""

    heads: Heads

    def run(
        self, work: Slice[ScoreParams, ScoreItem], *, job: str | None, timings: Timings
    ) -> Result[PairScore]:
        """Score a slice's pairs; with ``sentences`` by the best part of the second text.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
        """
        head = self.heads.get(work.params.head, task=Task.SCORE, job=job)
        pairs = [item.pair for item in work.accepted.values()]
        with timings.phase("infer"):
            if work.params.sentences:
                tokens = head.model.cutter.tokens
                rows = [
                    {
                        "score": best.score,
                        "evidence": TextSpan.of(text, best.start, best.end),
                        "tokens": tokens(query) + tokens(sentence_source(text)),
                    }
                    for (query, text), best in zip(pairs, self._best(head, pairs), strict=True)
                ]
            else:
                rows = [{"score": score} for score in self._score(head, pairs).tolist()]
        found = {
            index: PairScore.model_validate(row | head.about)
            for index, row in zip(work.accepted, rows, strict=True)
        }
        return Result(work.answered(found))

    def best(
        self, head: str, query: bytes, texts: Sequence[bytes], *, job: str | None
    ) -> NDArray[np.float32]:
        """Score texts against a query, each by its best part. Shape: (texts,).

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served; also where there is no text.
        """
        served = self.heads.get(head, task=Task.SCORE, job=job)
        found = self._best(served, [(query, text) for text in texts])
        return np.array([best.score for best in found], np.float32)

    def _best(self, head: ServedHead, pairs: Sequence[tuple[bytes, bytes]]) -> list[_Best]:
        """Return the best part of each pair's second text."""
        spans_of = _SPANS[head.head.text_unit or TextUnit.SENTENCE]
        spans = [spans_of(text) for _, text in pairs]
        flat = [
            (query, text[start:end])
            for (query, text), own in zip(pairs, spans, strict=True)
            for start, end in own
        ]
        scores = self._score(head, flat)
        found, first = [], 0
        for own in spans:
            own_scores = scores[first : first + len(own)]
            row = int(own_scores.argmax())
            found.append(_Best(float(own_scores[row]), *own[row]))
            first += len(own)
        return found

    def _score(self, head: ServedHead, pairs: Sequence[tuple[bytes, bytes]]) -> NDArray[np.float32]:
        if not pairs:
            return np.zeros(0, np.float32)
        first, second = [a for a, _ in pairs], [b for _, b in pairs]
        if head.head.reads is Reads.TOKEN_PAIR:
            return head.run(lambda e, n, v: e.score_texts(n, v, first=first, second=second))
        # A text of many pairs, such as a query, is encoded once.
        texts = list(dict.fromkeys([*first, *second]))
        rows = {text: row for row, text in enumerate(texts)}
        vectors = head.model.recorder.engine.encode(texts).vectors
        stacked = vectors[np.array([[rows[a], rows[b]] for a, b in pairs])]
        return head.run(lambda e, n, v: e.score_vectors(n, v, pairs=stacked))
