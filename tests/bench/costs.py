"""Where in a text its bits are spent: byte by byte, and in what the known texts never showed.

A *value* is a run of letters, digits and underscores with a digit in it, or numbers joined by
single marks (an address, a time, a version); a *word* is such a run without a digit. One that
stands nowhere in the known texts is *new*: no model that knows only those can have it from them, it
can only guess how it is built.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verso_codecs import mixture_fit
from verso_codecs.mixture import MixtureTables

Costs = NDArray[np.float64]

_PIECE = re.compile(rb"[0-9]+(?:[.:,/-][0-9]+)+|[\w\x80-\xff]+")
_DIGIT = re.compile(rb"[0-9]")


def byte_costs(decided: tuple[NDArray[np.uint8], NDArray[np.uint16]]) -> Costs:
    """Bits of each byte of a text, with the end flag before it, and last of the end itself."""
    bits, chances = decided
    chance = chances / 65_536.0
    costs = -np.log2(np.where(bits != 0, chance, 1.0 - chance))
    return np.append(costs[:-1].reshape(-1, 9).sum(1), costs[-1])


def shares(
    known: Sequence[bytes], texts: Sequence[bytes], fitted: MixtureTables
) -> dict[str, float]:
    """Bytes a text that the fitted codec spends in new values, in new words, and in all else.

    They are ideal code lengths, without rounding up to bytes.
    """
    seen = {piece for text in known for piece in _PIECE.findall(text)}
    bits = dict.fromkeys(("new values", "new words", "all else"), 0.0)
    for text in texts:
        costs = byte_costs(mixture_fit.decisions(text, fitted.tables))
        bits["all else"] += float(costs.sum())
        for piece in _PIECE.finditer(text):
            if piece[0] not in seen:
                kind = "new values" if _DIGIT.search(piece[0]) else "new words"
                spent = float(costs[piece.start() : piece.end()].sum())
                bits[kind] += spent
                bits["all else"] -= spent
    return {kind: spent / 8 / len(texts) for kind, spent in bits.items()}
