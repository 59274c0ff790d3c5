"""The shapes of a collection: its lines with their values masked, byte for byte.

A shape is a row of bytes: the literal bytes of the line, and for each value a marker. `SLOT` stands
for a value, `STAMP` with the `stamps.STAMP_BYTES` bytes after it for a timestamp, and `ESCAPE`
precedes a literal byte that is itself one of the three. The row and the values give the line back.

The table is append-only, and a shape's number is its position, so a block refers to shapes below
the count that was known when it was coded.
"""

# Compiled with what it imports: fcba6dcf59a45ab6

import re
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.stamps import FORMS, STAMP_BYTES
from verso_core.errors import ArtifactInvalid

FORMAT = 2
"""Version of packed rows. Those of the first, whose sizes stood before them, are read too."""

SLOT, STAMP, ESCAPE = 1, 2, 3

_END = b"\n"
_ESCAPED_END = bytes([ESCAPE]) + b"n"
"""The end of a packed row, and a line feed within one: `ESCAPE` precedes no such byte in a row."""
_PAIRS = re.compile(bytes([ESCAPE]) + b".", re.DOTALL)
_LEVEL = 19
_DICTIONARY_BYTES = 1 << 18
_MAX_ROW_BYTES = 1 << 26
_MAX_PACKED_BYTES = 1 << 28
_HASH_MASK = (1 << 37) - 1


class Table(NamedTuple):
    """Rows and where they are found.

    text: uint8, the rows one after the other
    bounds: Shape: (capacity + 1,), int64, where each row begins and ends in `text`
    hashes: Shape: (capacity,), int64
    places: Shape: (a power of 2,), int32, by hash: number of the row plus 1, or 0
    rows: Shape: (1,), int64, how many
    """

    text: Bytes
    bounds: State
    hashes: State
    places: NDArray[np.int32]
    rows: State


def new_table(rows: int, size_bytes: int) -> Table:
    """Return an empty table with room for so many rows of so many bytes together."""
    places = 1 << max(4, (2 * rows).bit_length())
    return Table(
        np.empty(size_bytes, np.uint8),
        np.zeros(rows + 1, np.int64),
        np.zeros(rows, np.int64),
        np.zeros(places, np.int32),
        np.zeros(1, np.int64),
    )


@inlined
def hash_row(row: Bytes, length: Int) -> Int:
    """Hash the first bytes of `row`."""
    value: Int = np.int64(length)
    for index in range(length):
        value = ((value ^ np.int64(row[index])) * 0x2000193) & _HASH_MASK
    return value ^ (value >> 17)


@inlined
def find_row(table: Table, row: Bytes, length: Int, value: Int) -> Int:
    """Return the number of a row, or minus 1 minus the free place where it belongs."""
    mask = table.places.size - 1
    place: Int = value & mask
    while table.places[place] != 0:
        number = np.int64(table.places[place]) - 1
        begin = table.bounds[number]
        if table.hashes[number] == value and table.bounds[number + 1] - begin == length:
            index: Int = np.int64(0)
            while index < length and table.text[begin + index] == row[index]:
                index += 1
            if index == length:
                return number
        place = (place + 1) & mask
    return -1 - place


@inlined
def add_row(table: Table, row: Bytes, length: Int, value: Int, place: Int) -> Int:
    """Append a row at the place that `find_row` named; return its number."""
    number: Int = table.rows[0]
    begin = table.bounds[number]
    for index in range(length):
        table.text[begin + index] = row[index]
    table.bounds[number + 1] = begin + length
    table.hashes[number] = value
    table.places[place] = number + 1
    table.rows[0] = number + 1
    return number


@kernel
def _find(table: Table, row: Bytes) -> Int:
    return find_row(table, row, np.int64(row.size), hash_row(row, np.int64(row.size)))


@kernel
def _extend(table: Table, text: Bytes, bounds: State) -> Int:
    """Append rows; return how many there were before the first that was known, or all."""
    for number in range(bounds.size - 1):
        row = text[bounds[number] : bounds[number + 1]]
        value = hash_row(row, np.int64(row.size))
        place = find_row(table, row, np.int64(row.size), value)
        if place >= 0:
            return np.int64(number)
        add_row(table, row, np.int64(row.size), value, -1 - place)
    return np.int64(bounds.size - 1)


_VALID = re.compile(
    rb"(?:[^\x01-\x03]|\x01|\x02[%s][ -~]{4}[0-9]|\x03[\x01-\x03])*" % FORMS, re.DOTALL
)


class Shapes:
    """The append-only table of a collection's shapes; rows may be read while others are added."""

    def __init__(self, rows: Sequence[bytes] = ()) -> None:
        self._lock = threading.Lock()
        self._table = new_table(64, 1 << 12)
        self.extend(rows)

    def __len__(self) -> int:
        return int(self._table.rows[0])

    @property
    def table(self) -> Table:
        """What kernels read. Rows below its count at this moment never change."""
        return self._table

    def extend(self, rows: Sequence[bytes]) -> None:
        """Append rows; the first gets the number `len(self)`.

        Raises:
            ArtifactInvalid: when a row is no shape.
            ValueError: when a row is in the table already; those before it were appended.
        """
        for row in rows:
            if len(row) > _MAX_ROW_BYTES or _VALID.fullmatch(row) is None:
                raise ArtifactInvalid(f"shapes: expected a row of a shape, got {row[:80]!r}")
        if not rows:
            return
        text = np.frombuffer(bytearray(b"".join(rows)), np.uint8)
        bounds = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        with self._lock:
            table = _with_room(self._table, len(rows), text.size)
            before = int(table.rows[0])
            added = int(_extend(table, text, bounds))
            self._table = table
        if added < len(rows):
            raise ValueError(f"expected new shapes, got number {self.find(rows[added])} again")
        assert int(table.rows[0]) == before + len(rows)

    def row(self, number: int) -> bytes:
        """Return the bytes of a shape."""
        table = self._table
        if not 0 <= number < int(table.rows[0]):
            raise IndexError(f"expected a shape below {len(self)}, got {number}")
        return table.text[table.bounds[number] : table.bounds[number + 1]].tobytes()

    def find(self, row: bytes) -> int:
        """Return the number of a row, or -1."""
        return max(-1, int(_find(self._table, np.frombuffer(bytearray(row), np.uint8))))

    def pack(self, begin: int, end: int) -> bytes:
        """Return rows [begin, end), compressed with the rows before them as dictionary."""
        return self._packed([self.row(number) for number in range(begin, end)], begin)

    def pack_rows(self, rows: Sequence[bytes], *, behind: int | None = None) -> bytes:
        """Return what `pack` would of these rows, if they came behind so many; None: behind all."""
        return self._packed(rows, len(self) if behind is None else behind)

    def _packed(self, rows: Sequence[bytes], begin: int) -> bytes:
        body = b"".join(row.replace(_END, _ESCAPED_END) + _END for row in rows)
        packer = zstandard.ZstdCompressor(level=_LEVEL, dict_data=self._dictionary(begin))
        return bytes([FORMAT]) + begin.to_bytes(4, "little") + packer.compress(body)

    def unpack(self, packed: bytes) -> list[bytes]:
        """Return the rows of `pack`; the rows before them must be in the table.

        Raises:
            ArtifactInvalid: when the bytes are not packed rows, or follow other rows.
        """
        if len(packed) < 5 or packed[0] not in (1, FORMAT):
            raise ArtifactInvalid("shapes: expected packed rows of format 1 or 2")
        begin = int.from_bytes(packed[1:5], "little")
        if begin > len(self):
            raise ArtifactInvalid(f"shapes: expected {begin} rows before, got {len(self)}")
        reader = zstandard.ZstdDecompressor(dict_data=self._dictionary(begin))
        try:
            size = zstandard.frame_content_size(packed[5:])
            if not 0 <= size <= _MAX_PACKED_BYTES:
                raise ArtifactInvalid(f"shapes: expected a frame with its size, got {size}")
            body = reader.decompress(packed[5:], allow_extra_data=False)
        except zstandard.ZstdError as exc:
            raise ArtifactInvalid(f"shapes: {exc}") from exc
        if packed[0] == 1:
            return _sized_rows(body)
        if body and not body.endswith(_END):
            raise ArtifactInvalid("shapes: expected rows with an end")
        return [_PAIRS.sub(_unescaped, row) for row in body.split(_END)[:-1]]

    def _dictionary(self, count: int) -> zstandard.ZstdCompressionDict:
        table = self._table
        last = int(table.bounds[count])
        text = table.text[max(0, last - _DICTIONARY_BYTES) : last].tobytes()
        return zstandard.ZstdCompressionDict(text, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _unescaped(pair: re.Match[bytes]) -> bytes:
    return _END if pair[0] == _ESCAPED_END else pair[0]


def _sized_rows(body: bytes) -> list[bytes]:
    """Return rows of the first format: their number, their sizes, and their bytes."""
    count = int.from_bytes(body[:4], "little")
    if 4 + 4 * count > len(body):
        raise ArtifactInvalid(f"shapes: expected {count} rows")
    sizes = np.frombuffer(body, "<u4", count, 4).astype(np.int64)
    ends = 4 + 4 * count + np.cumsum(sizes)
    if count and int(ends[-1]) != len(body):
        raise ArtifactInvalid("shapes: expected rows that fill the frame")
    spans = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
    return [body[first:last] for first, last in spans]


def _with_room(table: Table, rows: int, size_bytes: int) -> Table:
    """Return the table, or a larger copy, with room for more."""
    count = int(table.rows[0])
    used = int(table.bounds[count])
    if count + rows < table.hashes.size and used + size_bytes <= table.text.size:
        return table
    larger = new_table(2 * (count + rows), 2 * (used + size_bytes))
    if count:
        _extend(larger, table.text[:used], table.bounds[: count + 1])
    return larger


_PARTS = re.compile(rb"\x01|\x02.{%d}|\x03.|[^\x01-\x03]" % STAMP_BYTES, re.DOTALL)
_STAMP = b"<time>"
_VALUE = b"<*>"
_VALUES = re.compile(rb"-?<\*>(?:[.:,/_-]?<\*>)+")


def _text(row: bytes) -> bytes:
    shown = []
    for part in _PARTS.findall(row):
        first = part[0]
        shown.append(_VALUE if first == SLOT else _STAMP if first == STAMP else part[-1:])
    return b"".join(shown)


def masked(row: bytes) -> bytes:
    """Return the text of a shape: `<*>` for values, joined by their marks, `<time>` for times."""
    return _VALUES.sub(_VALUE, _text(row))
