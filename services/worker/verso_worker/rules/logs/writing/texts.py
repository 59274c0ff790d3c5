"""Whether lines are text that no statement wrote, by what is stored for them.

Of lines that programs write few have a shape that no line had before; of questions, paragraphs and
messages of people nearly all have one. But so have lines of builds and test runs that name a file
or a test each. What tells them apart is what their shapes take once they are packed: those of a
build repeat what stands before them, 0.04 to 0.17 of their bytes are left; of texts 0.19 to 0.38
are left, about what the patch of a record keeps (``docs/research/log-blocks.md``). Texts gain
nothing from the lines before them, so they are stored as records, whose search has
the words of each. Of lines that have a text in a constant frame one is counted for each frame:
together they are few statements, whose words are searched as well, in a tenth of a record's bytes.

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
from verso_codecs.logs.shapes import Shapes, masked
from verso_worker.records.segments import BLOCK_LINES
from verso_worker.rules.grouping.templates import frames_of

JUDGED_LINES = 2048
"""Least lines that are judged, of one request or of several: a system that boots writes a thousand
different ones."""
MOST_STATEMENTS = 1 << 16
"""Statements of a collection from which on new shapes are dear whatever they take: a worker keeps
some 3 kB of memory for each."""
MOST_SHAPES = 1 << 18
"""Shapes of a collection from which on lines in a frame count each, and are dear: a worker keeps
some 500 bytes of memory for such a shape."""
_QUOTE = b'"'
_PACKED_LINES = JUDGED_LINES // 2
"""Lines after which new shapes are kept to be packed: many streams never come to be judged."""


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


@dataclass(slots=True)
class _Seen:
    """The lines that will be judged together.

    Attributes:
        lines: how many.
        new: how many of them have a shape that no line had before.
        rows: such shapes, of the last of them.
        behind: how many shapes the collection had before ``rows``.
        frames: hashes of the frames that were counted.
        framed: how many of ``new`` have a frame that was counted before.
    """

    lines: int = 0
    new: int = 0
    rows: list[bytes] = field(default_factory=list)
    behind: int = 0
    frames: set[int] = field(default_factory=set)
    framed: int = 0

    def add(self, lines: int, rows: Sequence[bytes], *, bounds: Bounds, behind: int) -> None:
        """Add lines with their new shapes; where these are many, one of each frame."""
        self.lines += lines
        first = rows
        if len(rows) > bounds.new * lines:
            first = [row for row in rows if self._is_first(row)]
        if behind < MOST_SHAPES:
            rows = first
        self.framed += len(rows) - len(first)
        self.new += len(rows)
        if self.lines > _PACKED_LINES and self.is_new(bounds):
            self.behind = self.behind if self.rows else behind
            self.rows += rows

    def _is_first(self, row: bytes) -> bool:
        """Whether no row of the same frame was added, if the row has one."""
        if _QUOTE not in row:
            return True
        text = masked(row).decode("utf-8", "replace")
        frame = frames_of(text)[0]
        before = len(self.frames)
        if frame != text:
            self.frames.add(hash(frame))
        return frame == text or len(self.frames) > before

    def is_new(self, bounds: Bounds) -> bool:
        """Whether enough lines have a new shape."""
        return self.new > bounds.new * self.lines

    def is_dear(self, bounds: Bounds, shapes: Shapes) -> bool:
        """Whether the new shapes take enough of their bytes, packed as they would be stored."""
        if 2 * self.framed > self.new:
            return True
        rows = list(dict.fromkeys(self.rows))  # of texts they are not stored, and may come again
        if not rows:
            return False  # the last lines had none
        packed = shapes.pack_rows(rows, behind=self.behind)
        return len(packed) > bounds.packed * sum(map(len, rows))


@dataclass(slots=True)
class _Stream:
    seen: _Seen = field(default_factory=_Seen)
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
            rows = _rows(parsed, begin + np.flatnonzero(own))
            if self._is_text(stream, shapes, lines=len(own), rows=rows, statements=statements):
                found[begin : begin + len(own)] = _mostly_new(own)
        return found

    def _is_text(
        self,
        stream: Hashable,
        shapes: Shapes,
        *,
        lines: int,
        rows: Sequence[bytes],
        statements: int,
    ) -> bool:
        """Whether lines with these new shapes are text, after those that came before."""
        with self._lock:
            known = self._streams.setdefault(stream, _Stream())
            bounds, seen = known.bounds, known.seen
            seen.add(lines, rows, bounds=bounds, behind=len(shapes))
            if seen.lines < JUDGED_LINES:
                return known.is_text
            known.seen = _Seen()
        is_text = seen.is_new(bounds) and (
            statements >= MOST_STATEMENTS or seen.is_dear(bounds, shapes)
        )
        with self._lock:
            known.is_text = is_text
        return is_text


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
