"""A head of the platform as a cross-encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from mteb.types import Array

from verso_client import Client
from verso_mteb.meta import meta

_TOGETHER = 256
"""Pairs of one request."""


class VersoReranker:
    """Scores pairs of a query and a text.

    Args:
        head: a head that scores pairs.
        client: of the platform; by default of the one on this machine.
    """

    def __init__(self, head: str = "pairs", client: Client | None = None, **_kwargs: Any) -> None:
        self._head = head
        self._client = Client() if client is None else client
        self.mteb_model_meta = meta(f"reranker-{head}", kind="cross-encoder")

    def predict(self, inputs1: Any, inputs2: Any, **_kwargs: Any) -> Array:
        """Return the scores of pairs of texts. Shape: (n,), float32; larger fits better."""
        pairs = list(zip(_texts(inputs1), _texts(inputs2), strict=True))
        scores: list[float] = []
        for start in range(0, len(pairs), _TOGETHER):
            part = pairs[start : start + _TOGETHER]
            scores += self._client.score(part, head=self._head)
        return np.asarray(scores, np.float32)


def _texts(inputs: Any) -> Iterator[str]:
    for batch in inputs:
        yield from batch["text"]
