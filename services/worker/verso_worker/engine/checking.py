"""Confirm what a payload is believed to say, in one pass of the decoder instead of one a token.

Whoever has just coded a text knows what its payload should give. The decoder then scores the whole
draft at once, and the payload chooses token after token as it would when reading. As long as it
chooses the draft's tokens, every score was made from exactly the tokens that reading would have
seen, so a draft that is confirmed *is* what the payload gives; any other must be read step by step.
This is block verification of speculative decoding (Stern et al. 2018), with a draft that is nearly
always right. That scores of a block and of a step differ by float noise is what the payload's
margins are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs.ranks import RankTables, Streams
from verso_worker.engine.decoder import Decoder
from verso_worker.engine.noise import Noise


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A payload with its stored vector, widened, and the tokens it is believed to give."""

    payload: bytes
    vector: NDArray[np.float32]
    tokens: list[int]
    disturbed: bool


class Checker:
    """Confirms drafts in batches; one thread at a time."""

    def __init__(self, decoder: Decoder, tables: RankTables, noise: Noise) -> None:
        self._decoder = decoder
        self._tables = tables
        self._noise = noise

    def run(self, batch: Sequence[Draft]) -> list[bool]:
        """Tell of each draft whether it is exactly what its payload gives."""
        memory = self._decoder.memory(np.stack([draft.vector for draft in batch]))
        scores = self._decoder.score([draft.tokens for draft in batch], memory)
        streams = Streams([draft.payload for draft in batch], self._tables)
        wanted = [np.array([*draft.tokens, self._decoder.codec.eos]) for draft in batch]
        open_rows = list(range(len(batch)))
        confirmed = [False] * len(batch)
        for place in range(scores.logits.shape[1]):
            logits, confidence = (
                scores.logits[open_rows, place],
                scores.confidence[open_rows, place],
            )
            for index, row in enumerate(open_rows):
                if batch[row].disturbed:
                    self._noise.add(logits[index], confidence[index : index + 1])
            chosen = streams.step(np.array(open_rows, np.int32), logits, confidence)
            going = []
            for row, token in zip(open_rows, chosen.tolist(), strict=True):
                if token != wanted[row][place]:
                    continue
                if place + 1 == wanted[row].size:
                    confirmed[row] = streams.unread(row) == 0
                else:
                    going.append(row)
            open_rows = going
            if not open_rows:
                break
        return confirmed
