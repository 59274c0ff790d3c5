"""BLEU, as Papineni et al. 2002 define it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from studies.papers.kept import ends
from verso_training.heads.signals import bootstrap

_TOKEN = re.compile(r"\w+|[^\w\s]")
_LONGEST = 4
Texts = Sequence[Sequence[str]]
"""Words of texts."""


def words(text: bytes) -> list[str]:
    """Split a text into words and marks."""
    return _TOKEN.findall(text.decode("utf-8", "replace"))


def bleu(guesses: Texts, wanted: Texts) -> float:
    """Return the BLEU of a set, one reference each, in [0, 100]; 0 where an n-gram order has no
    hit.

    Papineni et al. 2002: counts are clipped to the reference's and added up over the set; the
    brevity penalty is exp(1 - r/c) where the guesses are shorter in all.
    """
    hits, grams = [0] * _LONGEST, [0] * _LONGEST
    for guess, text in zip(guesses, wanted, strict=True):
        for order in range(1, _LONGEST + 1):
            found, there = _grams(guess, order), _grams(text, order)
            hits[order - 1] += sum((found & there).values())
            grams[order - 1] += sum(found.values())
    if not all(hits):
        return 0.0
    mean = sum(math.log(h / g) for h, g in zip(hits, grams, strict=True)) / _LONGEST
    length, reference = sum(map(len, guesses)), sum(map(len, wanted))
    return 100 * min(1.0, math.exp(1 - reference / length)) * math.exp(mean)


def right_words(guesses: Texts, wanted: Texts) -> float:
    """Return the share of the words that stand in the guesses, as often as they are there, in %."""
    right = sum(
        sum((Counter(a) & Counter(b)).values()) for a, b in zip(guesses, wanted, strict=True)
    )
    return 100 * right / sum(map(len, wanted))


def with_ends(guesses: Texts, wanted: Texts) -> dict[str, float]:
    """Return ``bleu`` and ``right``, the right words, with intervals over the texts."""

    def told(key: str, measure: Callable[[Texts, Texts], float]) -> dict[str, float]:
        def of(rows: NDArray[np.int64]) -> float:
            return measure([guesses[row] for row in rows], [wanted[row] for row in rows])

        return ends(key, bootstrap(of, len(wanted)))

    return told("bleu", bleu) | told("right", right_words)


def _grams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[at : at + order]) for at in range(len(tokens) - order + 1))
