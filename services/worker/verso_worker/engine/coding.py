"""Texts and vectors to payloads of the neural codec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs import ranks
from verso_codecs.ranks import RankTables
from verso_worker.engine.decoder import Decoder


@dataclass(frozen=True, slots=True, eq=False)
class Codable:
    """A text that can be coded: its tokens, and its stored vector, widened. Shape: (D,)."""

    tokens: list[int]
    vector: NDArray[np.float32]


class Coder:
    """Runs the decoder over whole records and writes the ranks of their tokens."""

    def __init__(self, decoder: Decoder, tables: RankTables) -> None:
        self._decoder = decoder
        self._tables = tables

    def run(self, batch: Sequence[Codable]) -> list[bytes]:
        """Return each record's payload."""
        codec = self._decoder.codec
        memory = self._decoder.memory(np.stack([work.vector for work in batch]))
        scores = self._decoder.score([work.tokens for work in batch], memory)
        payloads = []
        for row, work in enumerate(batch):
            targets = np.array([*work.tokens, codec.eos], np.int32)
            payloads.append(
                ranks.encode(
                    scores.logits[row, : targets.size],
                    scores.confidence[row, : targets.size],
                    targets=targets,
                    tables=self._tables,
                    epsilon=codec.epsilon,
                    confidence_epsilon=codec.confidence_epsilon,
                )
            )
        return payloads
