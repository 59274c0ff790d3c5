"""Score pairs of texts, and re-order texts by how well they fit a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import Reads, Task
from verso_core.jobs import Item, Result, Slice
from verso_worker.head_ports import Heads, ServedHead
from verso_worker.items import pass_on
from verso_worker.timings import Timings


@dataclass(frozen=True, slots=True)
class Pairing:
    """Runs heads that score pairs; a score is larger where the two fit better."""

    heads: Heads

    def run(self, work: Slice, *, job: str | None, timings: Timings) -> Result:
        """Score a slice's pairs: each item's blob is both texts, its ``split`` the first's bytes.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
        """
        head = self.heads.get(str(work.params["head"]), task=Task.SCORE, job=job)
        result = Result([{} for _ in work.items])
        rows = [row for row, item in enumerate(work.items) if pass_on(item, result.items, row)]
        pairs = [_pair(work.items[row]) for row in rows]
        with timings.phase("infer"):
            scores = self._score(head, pairs) if pairs else np.zeros(0, np.float32)
        for row, score in zip(rows, scores.tolist(), strict=True):
            result.items[row] = {"ok": True, "score": score} | head.about
        return result

    def order(
        self, name: str, query: bytes, texts: Sequence[bytes], *, job: str | None
    ) -> NDArray[np.float32]:
        """Score texts against a query. Shape: (texts,).

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served; also where there is no text.
        """
        head = self.heads.get(name, task=Task.SCORE, job=job)
        if not texts:
            return np.zeros(0, np.float32)
        return self._score(head, [(query, text) for text in texts])

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
