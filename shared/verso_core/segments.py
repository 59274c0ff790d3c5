"""Segments of lines: their places in the ledger, and what a log collection holds of them.

A line has a stream and a number in it. A segment is a value of up to 2,048 consecutive lines of a
stream; the workers know its inside, the ledger only its place.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from verso_core import crc
from verso_core.errors import PatchCorrupt

MISSING = -(2**63)
"""Time of a segment none of whose lines has one."""
_MEMBER = struct.Struct(">IQIqqB")

LogValue = Literal["shapes", "statements", "fitted", "streams", "segments", "segment", "gone"]
"""Kinds of keys of a log collection whose values have a check."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The place of a segment, and what its lines are.

    Attributes:
        stream: number of the stream.
        first: number of its first line.
        lines: how many, > 0, deleted ones included.
        earliest: least time of a line, Unix nanoseconds; ``MISSING`` without any.
        latest: greatest one.
        flags: as the segment itself has them.
    """

    stream: int
    first: int
    lines: int
    earliest: int = MISSING
    latest: int = MISSING
    flags: int = 0

    @property
    def end(self) -> int:
        """Return the number behind its last line."""
        return self.first + self.lines

    def pack(self) -> bytes:
        """Return the member that the ledger lists the segment as."""
        return crc.closed(
            _MEMBER.pack(
                self.stream, self.first, self.lines, self.earliest, self.latest, self.flags
            )
        )

    @classmethod
    def unpack(cls, member: bytes) -> Segment:
        """Read what :meth:`pack` wrote; one flipped bit is corrected.

        Raises:
            PatchCorrupt: more of it is not as it was written.
        """
        place = crc.opened(member)
        if len(place) != _MEMBER.size:
            raise PatchCorrupt(f"expected the place of a segment, got {len(place)} bytes")
        return cls(*_MEMBER.unpack(place))


@dataclass(frozen=True, slots=True)
class SegmentWrite:
    """A segment to be written, with the bytes of text that it holds."""

    segment: Segment
    data: bytes
    text_bytes: int


@dataclass(frozen=True, slots=True)
class Basis:
    """What blocks were coded by, as their writer has read it: without it they cannot be read.

    Attributes:
        shapes: length of the list of packed shapes.
        last: how the last of them ends.
        generation: of the tables; 0 if none are needed.
        tables: how they end.
    """

    shapes: int = 0
    last: bytes = b""
    generation: int = 0
    tables: bytes = b""


@dataclass(frozen=True, slots=True)
class LinesWrite:
    """Segments that are committed with a slice; ``uid`` is that of their collection's lines."""

    collection: str
    uid: str
    segments: Sequence[SegmentWrite]
    basis: Basis = Basis()


@dataclass(frozen=True, slots=True)
class LinesDelete:
    """Lines of a segment to be deleted.

    Attributes:
        segment: theirs.
        old: the bitmap of its deleted lines as it is stored, empty without one.
        new: the bitmap that replaces it.
        before: how many lines the old one names.
        after: how many the new one names; all of them: the segment goes.
        text_bytes: size of the text of the lines that go.
    """

    segment: Segment
    old: bytes
    new: bytes
    before: int
    after: int
    text_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogState:
    """What a log collection holds now.

    Attributes:
        uid: of the collection's lines, which both sides of a migration have.
        vectors: uid of the collection itself, which the vectors of its statements are of.
        written: number of the segment that was written last.
        removed: how often a segment was removed or lines of one deleted.
        shapes: length of the list of packed shapes.
        statements: length of the list of vectors.
        lines: lines in segments, deleted ones and those that are documents included.
        deleted: deleted lines in segments.
        bitmaps: segments with such lines.
        verified: lines that were read back from what is stored, without deleted ones.
        text_bytes: bytes of text in blocks, without that of deleted lines.
        segment_bytes: bytes of all segments.
        cold_bytes: bytes of blocks in cold storage.
        newest: member of the segment that was written last.
    """

    uid: str
    written: int = 0
    removed: int = 0
    shapes: int = 0
    statements: int = 0
    lines: int = 0
    deleted: int = 0
    bitmaps: int = 0
    verified: int = 0
    text_bytes: int = 0
    segment_bytes: int = 0
    cold_bytes: int = 0
    vectors: str = ""
    newest: bytes = b""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the keys of a log collection take in the server's memory, bytes."""

    total: int
    shapes: int
    statements: int
    tables: int
    segments: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """Numbers reserved for the lines of a request."""

    uid: str
    stream: int
    first: int
