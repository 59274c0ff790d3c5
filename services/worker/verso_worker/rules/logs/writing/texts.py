"""Whether lines are text that no statement wrote, by what is stored for them.

Of lines that programs write few have a shape that no line had before; of questions, paragraphs and
messages of people nearly all have one. But so have lines of builds and test runs that name a file
or a test each. What tells them apart is what their shapes take once they are packed: those of a
build repeat what stands before them, 0.04 to 0.17 of their bytes are left; of texts 0.19 to 0.38
are left, about what the patch of a record keeps (``docs/research/log-blocks.md``). Texts gain
nothing from the lines before them, so they are stored as records, whose search has
the words of each.

1. The lines of a request are looked at in windows of ``JUDGED_LINES``; small requests are counted
   together until they have so many.
2. The new shapes of each window are counted. Where they are many they are packed, as they would be
   stored.
3. A stream becomes text by a window of which nearly all lines have a new shape that is dear.
4. In a stream of text, blocks whose lines mostly have known shapes stay lines.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs.parsing import Parsed
from verso_codecs.logs.shapes import Shapes
from verso_worker.records.segments import BLOCK_LINES

JUDGED_LINES = 2048
"""Least lines that are judged, of one request or of several: a system that boots writes a thousand
different ones."""
MOST_STATEMENTS = 1 << 16
"""Statements of a collection from which on new shapes are dear whatever they take: a worker keeps
some 3 kB of memory for each."""
_PACKED_LINES = JUDGED_LINES * 3 // 4
"""Lines after which shapes are packed: the first ones of a collection have nothing behind which
they could be packed, and many small requests are not to be packed one by one."""


class Bounds(NamedTuple):
    """What the lines of a window must exceed to be text.

    new: share of them that have a new shape
    packed: share of their bytes that these shapes take packed
    """

    new: float
    packed: float


TO_TEXT = Bounds(0.7, 0.18)
"""Of a stream of lines."""
TO_LINES = Bounds(0.4, 0.15)
"""Of a stream of texts, which would be lines again."""


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive lines, and how many of them have a shape that no line had before.

    Attributes:
        lines: how many.
        new: how many new shapes they have.
        bytes_new: bytes of those of these shapes that were packed.
        bytes_packed: bytes that they take packed.
    """

    lines: int
    new: int
    bytes_new: int = 0
    bytes_packed: int = 0

    def __add__(self, other: Window) -> Window:
        """Return both together."""
        return Window(
            self.lines + other.lines,
            self.new + other.new,
            self.bytes_new + other.bytes_new,
            self.bytes_packed + other.bytes_packed,
        )

    def is_new(self, bounds: Bounds) -> bool:
        """Whether enough lines have a new shape."""
        return self.new > bounds.new * self.lines

    def is_text(self, bounds: Bounds) -> bool:
        """Whether enough lines have a new shape, and these are dear."""
        return self.is_new(bounds) and self.bytes_packed > bounds.packed * self.bytes_new


_NOTHING = Window(0, 0)


@dataclass(slots=True)
class _Stream:
    seen: Window = _NOTHING
    is_text: bool = False

    @property
    def bounds(self) -> Bounds:
        return TO_LINES if self.is_text else TO_TEXT


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges whether the lines of a stream are text; any number of threads may share it."""

    _streams: dict[Hashable, _Stream] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def texts(
        self, stream: Hashable, parsed: Parsed, shapes: Shapes, *, statements: int
    ) -> NDArray[np.bool_]:
        """Return which lines of a request are text. Shape: (lines,).

        Args:
            stream: whose lines they are.
            parsed: the lines, new shapes not numbered yet.
            shapes: of the collection.
            statements: that the collection has.
        """
        is_new = _first_of_new(parsed)
        found = np.zeros(parsed.count, np.bool_)
        for begin in range(0, parsed.count, JUDGED_LINES):
            own = is_new[begin : begin + JUDGED_LINES]
            window = Window(len(own), int(own.sum()))
            if self._packs(stream, window):
                rows = _rows(parsed, begin + np.flatnonzero(own))
                size = sum(map(len, rows))
                few = statements < MOST_STATEMENTS
                packed = len(shapes.pack_rows(rows)) if few else size
                window = Window(window.lines, window.new, size, packed)
            if self.is_text(stream, window):
                found[begin : begin + len(own)] = _mostly_new(own)
        return found

    def is_text(self, stream: Hashable, window: Window) -> bool:
        """Whether lines that came are text.

        Args:
            stream: whose lines they are.
            window: what came, after what was asked about before.
        """
        with self._lock:
            known = self._streams.setdefault(stream, _Stream())
            known.seen += window
            if known.seen.lines >= JUDGED_LINES:
                known.is_text = known.seen.is_text(known.bounds)
                known.seen = _NOTHING
            return known.is_text

    def _packs(self, stream: Hashable, window: Window) -> bool:
        """Whether it is to be known what the new shapes of a window take."""
        with self._lock:
            known = self._streams.setdefault(stream, _Stream())
            both = known.seen + window
            return both.lines > _PACKED_LINES and both.is_new(known.bounds)


def _first_of_new(parsed: Parsed) -> NDArray[np.bool_]:
    """Return which lines are the first of a new shape. Shape: (lines,)."""
    found = np.zeros(parsed.count, np.bool_)
    numbers, first = np.unique(parsed.shapes, return_index=True)
    found[first[numbers < 0]] = True
    return found


def _rows(parsed: Parsed, lines: NDArray[np.int64]) -> Sequence[bytes]:
    """Return the new shapes of lines that have one."""
    return [parsed.new_rows[-1 - number] for number in parsed.shapes[lines].tolist()]


def _mostly_new(is_new: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which lines are of blocks that have many new shapes. Shape: (lines,)."""
    return np.concatenate(list(_by_block(is_new)))


def _by_block(is_new: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    for begin in range(0, len(is_new), BLOCK_LINES):
        block = is_new[begin : begin + BLOCK_LINES]
        yield np.full(len(block), block.mean() > TO_LINES.new)
