"""Blocks: up to 128 lines of a stream, coded together and decoded alone.

    version (1 byte), lines - 1 (1), generation, size, shapes, first sequence number, times,
    digest (16), payload, CRC (4)

The version says by which rules the payload is coded; both are read, and the second is written.
Numbers are little-endian in groups of seven bits, the highest bit set where another follows. *Size*
is that of the lines with a line feed after each; *shapes* is how many were known when the block was
coded. *Times* are 0, or the first time plus 2^63 + 1 and by how much the last is later. The digest
is BLAKE2b over all before the CRC, the lines, and where they end: it shows every wrong line. The
CRC is of all before it, and shows a damaged block before it is decoded.
"""

import hashlib
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs.memory import RULES_1, RULES_2
from verso_codecs.logs.parsing import Lines, Parsed
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables, read_lines, write_lines
from verso_codecs.logs.times import MISSING
from verso_core.errors import RecordCorrupt

MAX_LINES = 128
"""Most lines of a block."""

MAX_SIZE_BYTES = 1 << 27
"""Most bytes of a block's lines."""

_VERSION = RULES_2
_VERSIONS = (RULES_1, RULES_2)
_DIGEST_BYTES = 16
_CRC_BYTES = 4
_NUMBERS = 6
_TIME_OFFSET = (1 << 63) + 1


@dataclass(frozen=True)
class Header:
    """What a block says of itself.

    generation: of the tables it was coded with
    line_count: 1..MAX_LINES
    size_bytes: of its lines with a line feed after each
    shape_count: shapes that were known when it was coded
    first_sequence: sequence number of its first line
    times: of its first and last moment, in ns since 1970, or MISSING twice
    digest: of block and lines, 16 bytes
    """

    generation: int
    line_count: int
    size_bytes: int
    shape_count: int
    first_sequence: int
    times: tuple[int, int]
    digest: bytes


def _number(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _read(block: bytes) -> tuple[Header, int]:
    """Return the header and where the payload begins."""
    if len(block) < 2 or block[0] not in _VERSIONS or block[1] >= MAX_LINES:
        raise RecordCorrupt(f"block: expected version 1 or 2, got {block[:2].hex()}")
    at, numbers = 2, []
    for _ in range(_NUMBERS):
        value = shift = 0
        while True:
            if at == len(block) or shift > 63:
                raise RecordCorrupt("block: expected a number, got the end of the header")
            group = block[at]
            at += 1
            value |= (group & 127) << shift
            shift += 7
            if group < 128:
                break
        numbers.append(value)
        if len(numbers) == _NUMBERS - 1 and value == 0:
            numbers.append(0)
            break
    generation, size_bytes, shape_count, first_sequence, first, length = numbers
    line_count = block[1] + 1
    digest = block[at : at + _DIGEST_BYTES]
    if (
        len(block) < at + _DIGEST_BYTES + _CRC_BYTES
        or not line_count <= size_bytes <= MAX_SIZE_BYTES
    ):
        raise RecordCorrupt(f"block: expected {line_count} lines, got {size_bytes} bytes of them")
    times = (MISSING, MISSING)
    if first:
        times = (first - _TIME_OFFSET, first - _TIME_OFFSET + length)
    head = Header(generation, line_count, size_bytes, shape_count, first_sequence, times, digest)
    return head, at + _DIGEST_BYTES


def header(block: bytes) -> Header:
    """Return a block's header without decoding it; nothing of it is verified yet.

    Raises:
        RecordCorrupt: when it is no header.
    """
    return _read(block)[0]


def payload_bytes(block: bytes) -> int:
    """Return how many bytes of a block are not its header.

    Raises:
        RecordCorrupt: when it has none.
    """
    return len(block) - _read(block)[1] - _CRC_BYTES


def check(block: bytes) -> None:
    """Verify the bytes of a block without decoding it.

    Raises:
        RecordCorrupt: when one bit is not as it was written.
    """
    if zlib.crc32(block[:-_CRC_BYTES]).to_bytes(_CRC_BYTES, "little") != block[-_CRC_BYTES:]:
        raise RecordCorrupt("block: expected another CRC")


def _text(lines: Lines, first: int, count: int) -> bytes:
    """Return lines with a line feed after each."""
    begins, ends = lines.begins[first : first + count], lines.ends[first : first + count]
    if (begins[1:] == ends[:-1] + 1).all() and (lines.data[ends[:-1]] == 10).all():
        return lines.data[begins[0] : ends[-1]].tobytes() + b"\n"
    return b"".join(lines.line(number) + b"\n" for number in range(first, first + count))


def _digest(
    head: bytes, payload: bytes, text: bytes, lines: Lines, first: int, count: int
) -> bytes:
    sizes = lines.ends[first : first + count] - lines.begins[first : first + count]
    parts = (head, len(payload).to_bytes(8, "little"), payload, text, sizes.astype("<u4").tobytes())
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def encode(
    parsed: Parsed,
    shapes: Shapes,
    tables: Tables,
    *,
    first: int,
    count: int,
    first_sequence: int = 0,
    times: tuple[int, int] = (MISSING, MISSING),
) -> bytes:
    """Return the block of lines [first, first + count).

    parsed: numbered, all shapes in `shapes`
    times: of the first and the last moment, in ns since 1970

    Raises:
        ValueError: when there are no lines or too many, or a shape has no number.
    """
    if not 0 < count <= MAX_LINES or not 0 <= first <= parsed.count - count:
        raise ValueError(f"expected 1 to {MAX_LINES} of {parsed.count} lines, got {count}")
    numbers = parsed.shapes[first : first + count]
    shape_count = int(numbers.max()) + 1
    if int(numbers.min()) < 0 or shape_count > len(shapes):
        raise ValueError(f"expected numbers of shapes below {len(shapes)}")
    text = _text(parsed.lines, first, count)
    if len(text) > MAX_SIZE_BYTES:
        raise ValueError(f"expected at most {MAX_SIZE_BYTES} bytes of lines, got {len(text)}")
    work = tables.borrow(len(text))
    payload = write_lines(work, parsed, shapes, shape_count, first=first, count=count)
    tables.give_back(work)
    head = bytes([_VERSION, count - 1])
    for value in (tables.generation, len(text), shape_count, first_sequence):
        head += _number(value)
    if times[0] == MISSING:
        head += _number(0)
    else:
        head += _number(times[0] + _TIME_OFFSET) + _number(times[1] - times[0])
    body = head + _digest(head, payload, text, parsed.lines, first, count) + payload
    return body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")


def decode(block: bytes, shapes: Shapes, tables: Tables) -> Lines:
    """Return the lines of a block; between two lines, and after the last, is a line feed.

    Raises: as `decode_numbered`
    """
    return decode_numbered(block, shapes, tables)[0]


def decode_numbered(
    block: bytes, shapes: Shapes, tables: Tables
) -> tuple[Lines, NDArray[np.int32]]:
    """Return the lines of a block and the numbers of their shapes, Shape: (lines,).

    shapes: at least as many as the header says
    tables: of the header's generation

    Raises:
        RecordCorrupt: when one bit of the block is not as it was written.
        ValueError: when shapes or tables are others.
    """
    check(block)
    head, begin = _read(block)
    if head.generation != tables.generation or head.shape_count > len(shapes):
        raise ValueError(
            f"expected generation {head.generation} and {head.shape_count} shapes, got "
            f"{tables.generation} and {len(shapes)}"
        )
    payload = block[begin:-_CRC_BYTES]
    work = tables.borrow(head.size_bytes)
    read = read_lines(
        work,
        payload,
        shapes,
        head.shape_count,
        count=head.line_count,
        size_bytes=head.size_bytes,
        rules=block[0],
    )
    tables.give_back(work)
    if read is None:
        raise RecordCorrupt("block: the payload is not one of lines of these shapes")
    lines, numbers = read
    start = block[: begin - _DIGEST_BYTES]
    digest = _digest(start, payload, lines.data.tobytes(), lines, 0, head.line_count)
    if digest != head.digest:
        raise RecordCorrupt("block: expected other lines, by the digest")
    return lines, numbers
