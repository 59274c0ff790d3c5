"""Which lines are chosen by what they are: by their statement, and by values in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import filters
from verso_codecs.logs.parsing import Lines
from verso_core.segments import Segment
from verso_worker.rules.logs.blocks import blocks_with
from verso_worker.rules.logs.index import View

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Chooses lines in blocks.

    Attributes:
        shapes: whether lines of a shape are chosen; None: of every shape. Shape: (shapes,).
        tokens: values all of which a chosen line has.
        without: values some of which a chosen line lacks, if there are any.
    """

    shapes: Mask | None = None
    tokens: Sequence[bytes] = ()
    without: Sequence[bytes] = ()

    def blocks(self, view: View) -> dict[Segment, list[int]]:
        """Return the blocks that may hold chosen lines, by segment."""
        held = filters.find_joined(view.filters, self.tokens)
        if self.shapes is None:
            named = [(view.segments[row], int(held[row])) for row in np.flatnonzero(held).tolist()]
            return {one: numbers for one, told in named if (numbers := blocks_with(one, told))}
        entries = np.flatnonzero(self._has(view.shapes) & (held > 0)[view.rows])
        if not len(entries):
            return {}
        rows, starts = np.unique(view.rows[entries], return_index=True)
        masks = np.bitwise_or.reduceat(view.blocks[entries], starts)
        found = {}
        for row, mask in zip(rows.tolist(), masks.tolist(), strict=True):
            segment = view.segments[row]
            numbers = [n for n in blocks_with(segment, int(held[row])) if mask >> n & 1]
            if numbers:
                found[segment] = numbers
        return found

    def of_lines(self, lines: Lines, shapes: NDArray[np.int32]) -> Mask:
        """Return which lines are chosen. Shape: (lines,), as of ``shapes``."""
        chosen = np.ones(len(shapes), np.bool_)
        if self.shapes is not None:
            chosen &= self._has(shapes)
        for token in self.tokens:
            chosen &= filters.lines_with(lines, token)
        if self.without:
            chosen &= ~np.logical_and.reduce([filters.lines_with(lines, t) for t in self.without])
        return chosen

    def _has(self, shapes: NDArray[np.int32]) -> Mask:
        assert self.shapes is not None
        known = np.append(self.shapes, False)  # of shapes that came since
        found: Mask = known[np.minimum(shapes, len(known) - 1)]
        return found
