"""Templates of the shapes of a log collection, mined in the order of their numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs.headers import message
from verso_codecs.logs.shapes import Shapes, masked
from verso_worker.rules.grouping.templates import LIMITS, Miner
from verso_worker.rules.logs.bodies import statement_text

_SIMILAR, _WORDS = 0.8, 16
"""Chosen on half of fourteen systems (``docs/research/log-search.md``)."""


class Templates:
    """The template of each shape, for which only new shapes are looked at.

    Args:
        shapes: of the collection.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._miner = Miner(similar=_SIMILAR, words=_WORDS, limits=LIMITS)
        self._mined: list[int] = []
        self._templates: list[str] = []

    def found(self) -> list[str]:
        """Return the template of each shape."""
        for number in range(len(self._mined), len(self._shapes)):
            self._mined.append(self._miner.add(text_of(self._shapes.row(number))))
        if len(self._templates) < len(self._mined):
            found = self._miner.templates()
            self._templates = [found[mined] for mined in self._mined]
        return self._templates

    def own_texts(self) -> NDArray[np.int64]:
        """Return the shapes whose statement lacks the words that they have."""
        is_rest = self._miner.is_rest
        numbers = [number for number, mined in enumerate(self._mined) if is_rest(mined)]
        return np.array(numbers, np.int64)


def text_of(row: bytes) -> str:
    """Return what templates are mined from: the message of a shape, its values masked."""
    return statement_text(message(masked(row))).decode("utf-8", "replace")
