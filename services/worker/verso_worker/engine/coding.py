"""Runs of the decoder over whole records: the payloads of texts, and how typical texts are."""

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


class Prober:
    """Measures how well texts can be reconstructed from their vectors; for one thread at a time.

    The decoder reads the text's own tokens shifted by one, given the vector, and guesses each next
    one (teacher forcing). The share of right first guesses is the self-generation accuracy of the
    Decodable Sentence-BERT (its section 3.3): texts unlike the training data have a low one.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def run(self, batch: Sequence[Codable]) -> list[list[int]]:
        """Return the first guess of each record's tokens, and last of the end token."""
        memory = self._decoder.memory(np.stack([work.vector for work in batch]))
        scores = self._decoder.score([work.tokens for work in batch], memory)
        return [
            scores.logits[row, : len(work.tokens) + 1].argmax(axis=-1).tolist()
            for row, work in enumerate(batch)
        ]
