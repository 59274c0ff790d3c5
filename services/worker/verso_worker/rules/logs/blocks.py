"""Decoded blocks of segments; those that were used last stay in memory.

A block is decoded in one to four milliseconds and never changes, and searches show the same newest
lines again and again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from verso_codecs.logs import filters
from verso_core.errors import RecordCorrupt
from verso_core.segments import Segment
from verso_worker.records.cache import Cache
from verso_worker.records.segments import BLOCK_LINES
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.segments import Block, Opened, opened_segment

BlockRef = tuple[Segment, int]
"""A segment, and the number of a block in it."""

_KEPT_BYTES = 32 << 20


class Blocks:
    """Reads blocks for searches; any number of threads may share it.

    What is gone or damaged is left out: a search shows what there is, and the scrub reports it.

    Args:
        store: the log collections.
        limit_bytes: memory for decoded blocks.
    """

    def __init__(self, store: LogStore, *, limit_bytes: int = _KEPT_BYTES) -> None:
        self._store = store
        self._kept: Cache[Block] = Cache(limit_bytes)

    def read(
        self, log: LogCollection, places: Sequence[BlockRef], *, keep: bool = True
    ) -> dict[BlockRef, Block]:
        """Return blocks, by where they stand; ``keep``: they will be asked for again."""
        names = {block_key(log, place): place for place in places}
        found = {names[name]: block for name, block in self._kept.find(list(names)).items()}
        missing: dict[Segment, list[int]] = defaultdict(list)
        for segment, number in names.values():
            if (segment, number) not in found:
                missing[segment].append(number)
        if missing:
            new = self._decoded(log, missing)
            if keep:
                self._kept.keep({block_key(log, place): block for place, block in new.items()})
            found |= new
        return found

    def _decoded(
        self, log: LogCollection, wanted: Mapping[Segment, Sequence[int]]
    ) -> dict[BlockRef, Block]:
        rows = self._store.read(log.uid, [(one.stream, one.first) for one in wanted])
        read: list[tuple[Opened, int]] = []
        for (segment, numbers), data in zip(wanted.items(), rows, strict=True):
            one = _opened(segment, data)
            if one is not None:
                read += [(one, number) for number in numbers if number < len(one.blocks)]
        blocks = self._store.readers.map(lambda row: _block(log, *row), read)
        return {
            (one.segment, number): block
            for (one, number), block in zip(read, blocks, strict=True)
            if block is not None
        }


def blocks_with(segment: Segment, held: int) -> list[int]:
    """Return the blocks of a segment that may hold the values of a question.

    held: what filters say of the segment; see :func:`verso_codecs.logs.filters.find_joined`
    """
    every = range(-(-segment.lines // BLOCK_LINES))
    # A filter that is wrong may name a block that there is not.
    return [n for n in every if held in (n + 1, filters.ANY_BLOCK)]


def block_key(log: LogCollection, place: BlockRef) -> bytes:
    """Return a name of a block that no other has, whatever is written later."""
    segment, number = place
    return b"%b %b%d" % (log.uid.encode(), segment.pack(), number)


def _opened(segment: Segment, data: bytes | None) -> Opened | None:
    try:
        return opened_segment(segment, data)
    except RecordCorrupt:
        return None


def _block(log: LogCollection, one: Opened, number: int) -> Block | None:
    try:
        return one.block(log, number)
    except RecordCorrupt:
        return None
