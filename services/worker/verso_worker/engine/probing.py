"""How well a text can be made again from its vector: a sign of how typical both are.

The decoder reads the text's own tokens one place behind, given the vector, and guesses each next
one (teacher forcing). The share of right first guesses is the self-generation accuracy of the
Decodable Sentence-BERT (its section 3.3): texts unlike those it was trained on have a low one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verso_worker.engine.coding import Codable
from verso_worker.engine.decoder import Decoder


class Prober:
    """Scores whole records; one thread at a time."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def run(self, batch: Sequence[Codable]) -> list[int]:
        """Count each record's tokens, the end token included, that are the first guess."""
        memory = self._decoder.memory(np.stack([work.vector for work in batch]))
        scores = self._decoder.score([work.tokens for work in batch], memory)
        right = []
        for row, work in enumerate(batch):
            targets = np.array([*work.tokens, self._decoder.codec.eos])
            guesses = scores.logits[row, : targets.size].argmax(axis=-1)
            right.append(int((guesses == targets).sum()))
        return right
