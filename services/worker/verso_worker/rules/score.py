"""Score pairs of texts, and texts by the sentence of theirs that fits a query best.

A head that scores pairs has learnt what one sentence says of another. Of a whole passage, most of
which is beside the question, it makes little (docs/research/search-quality.md has figures). So a
text is worth what its best sentence is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import Reads, Task
from verso_core.jobs import Item, Result, Slice
from verso_core.texts import sentences
from verso_worker.records.outputs import Timings
from verso_worker.rules.head_ports import Heads, ServedHead
from verso_worker.rules.items import is_accepted


@dataclass(frozen=True, slots=True)
class Score:
    """Runs heads that score pairs; a score is larger where the two fit better."""

    heads: Heads

    def run(self, work: Slice, *, job: str | None, timings: Timings) -> Result:
        """Score a slice's pairs: each item's blob is both texts, its ``split`` the first's bytes.

        With ``sentences`` the second text counts by its best one.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
        """
        head = self.heads.get(str(work.params["head"]), task=Task.SCORE, job=job)
        result = Result([{} for _ in work.items])
        rows = [row for row, item in enumerate(work.items) if is_accepted(item, result.items, row)]
        pairs = [_pair(work.items[row]) for row in rows]
        score = self._best if work.params.get("sentences") else self._score
        with timings.phase("infer"):
            scores = score(head, pairs) if pairs else np.zeros(0, np.float32)
        for row, score in zip(rows, scores.tolist(), strict=True):
            result.items[row] = {"ok": True, "score": score} | head.about
        return result

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
        # A text that stands in many pairs, such as a query, is encoded once.
        texts = list(dict.fromkeys([*first, *second]))
        places = {text: place for place, text in enumerate(texts)}
        vectors = head.model.recorder.engine.encode(texts).vectors
        rows = [[places[a], places[b]] for a, b in pairs]
        stacked = vectors[np.array(rows)]
        return head.run(lambda e, n, v: e.score_vectors(n, v, pairs=stacked))


def _pair(item: Item) -> tuple[bytes, bytes]:
    blob, split = item.blob or b"", int(item.header["split"])
    return blob[:split], blob[split:]
