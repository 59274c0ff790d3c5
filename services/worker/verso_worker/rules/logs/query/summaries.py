"""What a block holds, without its lines: which shapes, how many of each, from when to when.

A summary takes a fiftieth of the memory of a decoded block, so those of a million lines stay in
memory, and a question about counts and times decodes a block once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_worker.records.cache import Cache
from verso_worker.rules.logs.blocks import BlockRef, Blocks, block_key
from verso_worker.rules.logs.collection import LogCollection
from verso_worker.rules.logs.segments import Block

_KEPT_BYTES = 32 << 20
_DECODED_TOGETHER = 256


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """What a block holds. Shape of each array: (shapes,); times in Unix nanoseconds.

    Attributes:
        shapes: the numbers of its shapes, ascending.
        counts: how many lines have each.
        first: the least time of these lines.
        last: the greatest one.
    """

    shapes: NDArray[np.int32]
    counts: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @classmethod
    def of(cls, block: Block) -> Summary:
        """Return the summary of a block."""
        shapes, places, counts = np.unique(block.shapes, return_inverse=True, return_counts=True)
        first = np.full(len(shapes), np.iinfo(np.int64).max)
        last = np.full(len(shapes), np.iinfo(np.int64).min)
        np.minimum.at(first, places, block.when)
        np.maximum.at(last, places, block.when)
        return cls(shapes, counts, first, last)

    def __len__(self) -> int:
        """Return the bytes that it takes in memory."""
        return self.shapes.nbytes + self.counts.nbytes + self.first.nbytes + self.last.nbytes

    def of_shapes(self, chosen: NDArray[np.bool_]) -> Summary:
        """Return the summary of the lines of some shapes. Shape: (shapes,)."""
        return Summary(
            self.shapes[chosen], self.counts[chosen], self.first[chosen], self.last[chosen]
        )

    @property
    def lines(self) -> int:
        """Count the lines of the block."""
        return int(self.counts.sum())

    @property
    def span(self) -> tuple[int, int]:
        """Return the least and the greatest time of a line."""
        return int(self.first.min()), int(self.last.max())


class Summaries:
    """Summaries of blocks, those that were used last; any number of threads may share it."""

    def __init__(self, blocks: Blocks, *, limit_bytes: int = _KEPT_BYTES) -> None:
        self._blocks = blocks
        self._kept: Cache[Summary] = Cache(limit_bytes)

    def read(self, log: LogCollection, places: Sequence[BlockRef]) -> dict[BlockRef, Summary]:
        """Return the summaries of blocks; those that are gone or damaged are left out."""
        names = {block_key(log, place): place for place in places}
        known = self._kept.find(list(names))
        found = {names[name]: summary for name, summary in known.items()}
        missing = [place for name, place in names.items() if name not in known]
        for start in range(0, len(missing), _DECODED_TOGETHER):
            part = missing[start : start + _DECODED_TOGETHER]
            blocks = self._blocks.read(log, part, keep=False)
            new = {place: Summary.of(block) for place, block in blocks.items()}
            self._kept.keep({block_key(log, place): one for place, one in new.items()})
            found |= new
        return found
