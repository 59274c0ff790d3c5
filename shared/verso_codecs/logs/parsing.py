"""Lines into shapes and values, for a whole payload at once.

A run of letters and digits that contains a digit is a value, and so are

1. timestamps (`stamps`);
2. UUIDs, and addresses of six and more groups of hexadecimal digits with colons;
3. names of hosts: with a digit and two dots before letters, or with a dot and a port behind it;
4. a word after `=`.

Of `jk2` and `10ms` only the digits are a value, of `0x1f` what follows `0x`; a minus before a
number is part of it where no letter or digit is before. All other bytes are the shape's (`shapes`),
so that `parse` can be undone for every byte string.
"""

# Compiled with what it imports: 8611a0a3145a73aa

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, Int, State, inlined, kernel
from verso_codecs.logs.shapes import (
    ESCAPE,
    SLOT,
    STAMP,
    Shapes,
    Table,
    add_row,
    find_row,
    hash_row,
    new_table,
)
from verso_codecs.logs.stamps import (
    FORM,
    FRACTION,
    LENGTH,
    STAMP_BYTES,
    STAMP_SIZE,
    VALUE,
    match_stamp,
)

NUMBER, HEX, UUID, WORD, LONG, TIME = range(6)
"""Kinds of values: decimal digits, hexadecimal digits in lower case, a UUID in lower case, other
bytes, more than MAX_WORD_BYTES of them, a timestamp."""

MAX_WORD_BYTES = 255
UUID_BYTES = 36

MAX_LINE_BYTES = 1 << 26

_DIGIT, _HEX_LOWER, _HEX_UPPER, _LETTER, _JOINT = 1, 2, 4, 8, 16  # classes of bytes
_ALNUM = _DIGIT | _HEX_LOWER | _HEX_UPPER | _LETTER
_LETTERS = _ALNUM - _DIGIT
_MAX_DIGITS = 19
_MAX_NUMBER = (1 << 63) - 1
_MINUS, _DOT, _COLON, _EQUALS, _NEWLINE = 45, 46, 58, 61, 10
_LEAST_GROUPS, _GROUP_DIGITS = 6, 4


def _byte_classes() -> NDArray[np.uint8]:
    classes = np.zeros(256, np.uint8)
    classes[list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] = _LETTER
    classes[list(b"0123456789")] = _DIGIT
    classes[list(b"abcdef")] = _HEX_LOWER
    classes[list(b"ABCDEF")] = _HEX_UPPER
    classes[list(b".-_")] = _JOINT
    return classes


_CLASSES = _byte_classes()


class Lines(NamedTuple):
    """Lines within a payload.

    data: uint8, the payload
    begins, ends: Shape: (lines,), int64, in order; what lies between two lines is none's
    """

    data: Bytes
    begins: State
    ends: State

    def line(self, number: int) -> bytes:
        """Return the bytes of a line."""
        return self.data[self.begins[number] : self.ends[number]].tobytes()


class Slots(NamedTuple):
    """Values in the slots of lines, in order.

    kinds: uint8
    numbers: int64, of NUMBER and TIME
    widths: int64, digits of a NUMBER, digits of the fraction of a TIME, else bytes
    begins: int64, in the payload
    hashes: int64, of 32 bits; equal for equal values
    """

    kinds: Bytes
    numbers: State
    widths: State
    begins: State
    hashes: State


class Parsed:
    """Lines with their shapes and values.

    Attributes:
        lines: what was parsed.
        new_rows: the shapes that were not in the table, in the order of their first lines.
        shapes: Shape: (lines,), int32, numbers; -1 - k stands for `new_rows[k]` until `number`
        slot_bounds: Shape: (lines + 1,), int64, where each line's values begin in `slots`
        slots: the values
    """

    def __init__(
        self,
        lines: Lines,
        new_rows: list[bytes],
        shapes: NDArray[np.int32],
        slot_bounds: State,
        slots: Slots,
    ) -> None:
        self.lines = lines
        self.new_rows = new_rows
        self.shapes = shapes
        self.slot_bounds = slot_bounds
        self.slots = slots

    @property
    def count(self) -> int:
        """The number of lines."""
        return self.shapes.size

    def number(self, numbers: Sequence[int]) -> None:
        """Replace new shapes by their numbers, `numbers[k]` for `new_rows[k]`."""
        if len(numbers) != len(self.new_rows):
            raise ValueError(f"expected {len(self.new_rows)} numbers, got {len(numbers)}")
        new = self.shapes < 0
        given = np.asarray([*numbers, 0], np.int32)
        self.shapes[new] = given[-1 - self.shapes[new]]


@inlined
def mix(first: Int, second: Int) -> Int:
    """Hash two 32-bit numbers to 32 bits. All products fit 63 bits."""
    value = first * 0x1E3779B1 + (second + 1) * 0x25EBCA6B
    value ^= value >> 29
    return (((value & 0xFFFFFFFF) * 0x2C1B3C6D) >> 20) & 0xFFFFFFFF


@inlined
def number_hash(number: Int, width: Int) -> Int:
    """Hash a NUMBER or TIME; 0 is no hash."""
    value = mix(mix(number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF), np.int64(width))
    return value | 1


@inlined
def bytes_hash(data: Bytes, begin: Int, length: Int) -> Int:
    """Hash the bytes of a value; 0 is no hash."""
    value: Int = np.int64(length)
    for index in range(length):
        value = ((value ^ np.int64(data[begin + index])) * 0x2000193) & 0xFFFFFFFF
    return mix(value, np.int64(7)) | 1


@inlined
def _is_hex(data: Bytes, begin: Int, end: Int) -> bool:
    for index in range(begin, end):  # noqa: SIM110 (kernels have no generators)
        if not _CLASSES[data[index]] & (_DIGIT | _HEX_LOWER):
            return False
    return True


@inlined
def _is_uuid(data: Bytes, begin: Int, end: Int) -> bool:
    """Whether a UUID stands at `begin`, in lower case and with dashes."""
    if begin + UUID_BYTES > end:
        return False
    for index in range(UUID_BYTES):
        byte = data[begin + index]
        if index == 8 or index == 13 or index == 18 or index == 23:
            if byte != _MINUS:
                return False
        elif not _CLASSES[byte] & (_DIGIT | _HEX_LOWER):
            return False
    return begin + UUID_BYTES == end or not _CLASSES[data[begin + UUID_BYTES]] & _ALNUM


@inlined
def _digits_value(data: Bytes, begin: Int, end: Int) -> Int:
    """Return the number that digits write, or -1 where they are too many."""
    if end - begin > _MAX_DIGITS:
        return np.int64(-1)
    value: Int = np.int64(0)
    for index in range(begin, end):
        digit = np.int64(data[index]) - 48
        if value > (_MAX_NUMBER - digit) // 10:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@inlined
def _add_bytes(slots: Slots, at: Int, data: Bytes, begin: Int, end: Int, kind: Int) -> None:
    slots.kinds[at] = kind if end - begin <= MAX_WORD_BYTES else LONG
    slots.numbers[at] = 0
    slots.widths[at] = end - begin
    slots.begins[at] = begin
    slots.hashes[at] = bytes_hash(data, begin, np.int64(end - begin))


@inlined
def _add_digits(slots: Slots, at: Int, data: Bytes, begin: Int, end: Int, minus: bool) -> None:
    """Add a value of digits; `minus` is before `begin`."""
    value = _digits_value(data, begin, end)
    if value < 0:
        _add_bytes(slots, at, data, begin, end, np.int64(HEX))
        return
    slots.kinds[at] = NUMBER
    slots.numbers[at] = -value if minus else value
    slots.widths[at] = end - begin
    slots.begins[at] = begin
    slots.hashes[at] = number_hash(slots.numbers[at], np.int64(end - begin))


@inlined
def _takes_minus(data: Bytes, line: Int, begin: Int, end: Int) -> bool:
    """Whether a minus before these digits is their sign."""
    if begin == line or data[begin - 1] != _MINUS or data[begin] == 48 or end - begin > 18:
        return False
    if begin - 1 == line:
        return True
    before = np.int64(data[begin - 2])
    return not _CLASSES[before] & _ALNUM and before != _MINUS and before != _DOT


@inlined
def _group_end(data: Bytes, begin: Int, end: Int) -> Int:
    """Return where groups of hexadecimal digits with colons end.

    Where they are too few, or something else follows: minus 1 minus how far that was looked at. Of
    groups that begin before that the same is so.
    """
    at: Int = begin
    groups = 0
    while True:
        first = at
        while at < end and _CLASSES[data[at]] & (_DIGIT | _HEX_LOWER | _HEX_UPPER):
            at += 1
        if at == first or at - first > _GROUP_DIGITS:
            return -1 - at
        groups += 1
        if at < end and data[at] == _COLON and at + 1 < end and _CLASSES[data[at + 1]] & _ALNUM:
            at += 1
            continue
        if at < end and _CLASSES[data[at]] & _ALNUM:
            return -1 - at
        return at if groups >= _LEAST_GROUPS else -1 - at


@inlined
def _name_end(data: Bytes, begin: Int, end: Int, after_equals: bool) -> Int:
    """Return where a host's name or a word after `=` ends, or -1 if this is neither."""
    at: Int = begin
    dots: Int = np.int64(0)
    classes: Int = np.int64(0)
    while at < end and _CLASSES[data[at]] & (_ALNUM | _JOINT):
        classes |= np.int64(_CLASSES[data[at]])
        if data[at] == _DOT and at + 1 < end and _CLASSES[data[at + 1]] & _LETTERS:
            dots += 1
        at += 1
    port = at + 1 < end and data[at] == _COLON and bool(_CLASSES[data[at + 1]] & _DIGIT)
    while at > begin and _CLASSES[data[at - 1]] & _JOINT:
        at -= 1
    if classes & _DIGIT:
        return at if dots >= 2 else np.int64(-1)
    if after_equals or (dots >= 1 and port):
        return at
    return np.int64(-1)


@inlined
def _run_of(data: Bytes, begin: Int, end: Int, wanted: Int) -> Int:
    at: Int = begin
    while at < end and _CLASSES[data[at]] & wanted:
        at += 1
    return at


@inlined
def _split_run(data: Bytes, begin: Int, end: Int, classes: Int) -> tuple[Int, Int]:
    """Return which part of a run of letters and digits is the value."""
    if _CLASSES[data[begin]] & _DIGIT:
        if data[begin] == 48 and end - begin > 2 and (data[begin + 1] | 32) == 120:
            return begin + 2, end
        first = _run_of(data, begin, end, np.int64(_DIGIT))
        if _run_of(data, first, end, np.int64(_LETTERS)) == end and classes & _LETTER:
            return begin, first
        return begin, end
    first = _run_of(data, begin, end, np.int64(_LETTERS))
    if _run_of(data, first, end, np.int64(_DIGIT)) < end:
        return begin, end
    if end - begin >= 4 and not classes & _LETTER:
        one_case = not (classes & _HEX_LOWER and classes & _HEX_UPPER)
        if one_case:
            return begin, end
    return first, end


@inlined
def _add_stamp(row: Bytes, length: Int, slots: Slots, at: Int, begin: Int, found: State) -> None:
    """Write the form of a matched time behind a shape, and the time as the value `at`."""
    row[length] = STAMP
    for index in range(STAMP_BYTES - 1):
        row[length + 1 + index] = found[FORM + index]
    row[length + STAMP_BYTES] = 48 + found[FRACTION]
    slots.kinds[at] = TIME
    slots.numbers[at] = found[VALUE]
    slots.widths[at] = found[FRACTION]
    slots.begins[at] = begin
    slots.hashes[at] = number_hash(found[VALUE], np.int64(found[FRACTION]))


@inlined
def _parse_line(  # noqa: C901 (one pass over the bytes, every case in turn)
    data: Bytes, line: Int, end: Int, row: Bytes, slots: Slots, first: Int, found: State
) -> tuple[Int, Int]:
    """Write a line's shape into `row` and its values into `slots` from `first`.

    Returns: the length of the shape and where the next line's values begin
    """
    length: Int = np.int64(0)
    at: Int = np.int64(first)
    position: Int = np.int64(line)
    named: Int = np.int64(line)  # up to here it is known that no name begins
    grouped: Int = np.int64(line)  # and up to here that no groups of digits do
    while position < end:
        byte = np.int64(data[position])
        if not _CLASSES[byte] & _ALNUM:
            if byte in (SLOT, STAMP, ESCAPE):
                row[length] = ESCAPE
                length += 1
            row[length] = byte
            length += 1
            position += 1
            continue
        begin: Int = position
        classes: Int = np.int64(0)
        while position < end and _CLASSES[data[position]] & _ALNUM:
            classes |= np.int64(_CLASSES[data[position]])
            position += 1
        size = position - begin
        starts_time = size == 3 or ((size == 2 or size == 4 or size == 6) and classes == _DIGIT)
        if starts_time and match_stamp(data, begin, end, begin == line, found):
            _add_stamp(row, length, slots, at, begin, found)
            length += 1 + STAMP_BYTES
            at += 1
            position = begin + found[LENGTH]
            continue
        value_begin: Int = begin
        value_end: Int = np.int64(-1)
        after = np.int64(data[position]) if position < end else np.int64(0)
        kind: Int = np.int64(WORD)
        if begin >= grouped and size <= _GROUP_DIGITS and after == _COLON and not classes & _LETTER:
            value_end = _group_end(data, begin, end)
            grouped = max(grouped, -1 - value_end)
        if value_end < 0 and size == 8 and after == _MINUS and _is_uuid(data, begin, end):
            value_end = begin + UUID_BYTES
            kind = np.int64(UUID)
        after_equals = begin > line and np.int64(data[begin - 1]) == _EQUALS
        if value_end < 0 and begin >= named and (after_equals or _CLASSES[after] & _JOINT):
            value_end = _name_end(data, begin, end, bool(after_equals))
            named = _run_of(data, begin, end, np.int64(_ALNUM | _JOINT))
        if value_end < 0 and not classes & _DIGIT:
            for index in range(begin, position):
                row[length] = data[index]
                length += 1
            continue
        digits_only = False
        if value_end < 0:
            value_begin, value_end = begin, position
            if classes != _DIGIT:
                value_begin, value_end = _split_run(data, begin, position, classes)
            digits_only = _run_of(data, value_begin, value_end, np.int64(_DIGIT)) == value_end
            if not digits_only and _is_hex(data, value_begin, value_end):
                kind = np.int64(HEX)
        for index in range(begin, value_begin):
            row[length] = data[index]
            length += 1
        if digits_only:
            minus = value_begin == begin and _takes_minus(data, line, begin, value_end)
            _add_digits(slots, at, data, value_begin, value_end, minus)
            if minus:
                length -= 1
        else:
            _add_bytes(slots, at, data, value_begin, value_end, kind)
        row[length] = SLOT
        length += 1
        at += 1
        position = value_end
    return length, at


@kernel
def _parse_lines(
    lines: Lines,
    known: Table,
    fresh: Table,
    row: Bytes,
    shapes: NDArray[np.int32],
    slot_bounds: State,
    slots: Slots,
) -> None:
    """Parse all lines; shapes not in `known` are added to `fresh`."""
    found = np.zeros(STAMP_SIZE, np.int64)
    at: Int = np.int64(0)
    for line in range(lines.begins.size):
        slot_bounds[line] = at
        length, at = _parse_line(
            lines.data, lines.begins[line], lines.ends[line], row, slots, at, found
        )
        value = hash_row(row, length)
        number = find_row(known, row, length, value)
        if number < 0:
            number = find_row(fresh, row, length, value)
            if number < 0:
                number = add_row(fresh, row, length, value, -1 - number)
            number = -1 - number
        shapes[line] = number
    slot_bounds[lines.begins.size] = at


def split(payload: bytes) -> Lines:
    """Split a payload at line feeds; a last line without one counts, an empty one does not."""
    data = np.frombuffer(bytearray(payload), np.uint8)
    ends = np.flatnonzero(data == _NEWLINE).astype(np.int64)
    if data.size and data[-1] != _NEWLINE:
        ends = np.append(ends, np.int64(data.size))
    begins = np.zeros(ends.size, np.int64)
    begins[1:] = ends[:-1] + 1
    return Lines(data, begins, ends)


def parse(lines: Lines, shapes: Shapes) -> Parsed:
    """Find the shapes and values of lines.

    lines: at most MAX_LINE_BYTES each

    Raises:
        ValueError: when lines lie outside of the payload or are too long.
    """
    count = lines.begins.size
    sizes = lines.ends - lines.begins
    longest, total = (int(sizes.max()), int(sizes.sum())) if count else (0, 0)
    if count and (
        int(sizes.min()) < 0
        or int(lines.begins.min()) < 0
        or int(lines.ends.max()) > lines.data.size
        or longest > MAX_LINE_BYTES
    ):
        raise ValueError(f"expected lines of 0 to {MAX_LINE_BYTES} bytes within the payload")
    data = lines.data if lines.data.flags.writeable else lines.data.copy()
    lines = Lines(data, lines.begins.astype(np.int64), lines.ends.astype(np.int64))
    # At most one value every other byte: a marker for a byte, or two bytes for an escaped one.
    capacity = total // 2 + count + 1
    slots = Slots(np.empty(capacity, np.uint8), *(np.empty(capacity, np.int64) for _ in range(4)))
    numbers, bounds = np.empty(count, np.int32), np.zeros(count + 1, np.int64)
    fresh = new_table(count, 2 * total + STAMP_BYTES + 1)
    row = np.empty(2 * longest + STAMP_BYTES + 1, np.uint8)
    _parse_lines(lines, shapes.table, fresh, row, numbers, bounds, slots)
    new = int(fresh.rows[0])
    text = fresh.text[: fresh.bounds[new]].tobytes()
    edges = fresh.bounds[: new + 1].tolist()
    rows = [text[begin:end] for begin, end in itertools.pairwise(edges)]
    used = int(bounds[-1])
    found = Slots(
        slots.kinds[:used],
        slots.numbers[:used],
        slots.widths[:used],
        slots.begins[:used],
        slots.hashes[:used],
    )
    return Parsed(lines, rows, numbers, bounds, found)
