"""Tables of small integers, coded value by value from their neighbours.

The weights of a mixture are a table of which most rows were never moved, and in the others a value
is like those beside and above it. Each is coded by the counters and the coder of log lines
(`logs.model`), which adapt to the table while it is read: nothing has to be stored of them.

A value v is coded as its folded number (0, -1, 1, -2, 2 ... as 0, 1, 2, 3, 4 ...): first the length
of that in bits, then the bits behind the leading one, of which the first four are predicted.
"""

import numpy as np
from numpy.typing import NDArray

from verso_codecs import coder
from verso_codecs.coder import Int, inlined, kernel
from verso_codecs.logs import model as models
from verso_codecs.logs.model import (
    Model,
    close_output,
    code_evenly,
    code_symbol,
    set_contexts,
    turn_contexts,
)
from verso_codecs.logs.parsing import mix
from verso_core.errors import ArtifactInvalid

Table = NDArray[np.int64]
"""Shape: (rows, columns)."""

_ROW, _LENGTH, _MANTISSA = range(3)  # purposes
_LENGTH_BITS = 6
_MODELLED_BITS = 4
_MOST_LENGTH = 39
_MOST = 1 << 38


@inlined
def _code_number(model: Model, column: Int, number: Int) -> Int:
    """Code a number of 0..2^39 - 1 in the contexts set: its length in bits, then its bits."""
    length: Int = np.int64(0)
    while number >> length:
        length += 1
    length = code_symbol(model, np.int64(_LENGTH), column, length, np.int64(_LENGTH_BITS))
    if length > _MOST_LENGTH:  # damaged data may say more
        length = np.int64(_MOST_LENGTH)
    if length < 2:
        return length
    turn_contexts(model, length)
    rest = max(length - 1 - _MODELLED_BITS, 0)
    top = length - 1 - rest
    high: Int = (number >> rest) & ((np.int64(1) << top) - 1)
    high = code_symbol(model, np.int64(_MANTISSA), length, high, top)
    low = code_evenly(model, number & ((np.int64(1) << rest) - 1), np.int64(1) << rest)
    return (((np.int64(1) << top) | high) << rest) | low


@kernel
def _code(model: Model, table: Table, block: int) -> Int:
    """Code a table, or decode it when `model.state[MODE]` says so.

    Of two neighbours that a value has at its left and above, those of rows of zeros do not count:
    above is the row before that has any other value, within a block of rows.

    Returns:
        The payload's length, or -1 where `model.data` was too short; of a decoded table 0.
    """
    rows, columns = table.shape
    decodes = model.state[models.MODE] == models.DECODE
    none = np.zeros(columns, np.int64)
    above, higher = none, none
    before: Int = np.int64(0)
    for row in range(rows):
        at = row // block
        if row % block == 0:
            above, higher = none, none
        own = table[row]
        some: Int = np.int64(0)
        if not decodes:
            for column in range(columns):
                if own[column] != 0:
                    some = np.int64(1)
        place = mix(np.int64(1), np.int64(at))
        set_contexts(
            model,
            mix(np.int64(2), before & 1),
            mix(np.int64(3), before & 7),
            mix(place, before & 3),
            mix(place, before & 15),
            mix(np.int64(4), before & 255),
            place,
        )
        some = code_symbol(model, np.int64(_ROW), np.int64(at), some, np.int64(1))
        before = (before * 2 + some) & 255
        if not some:
            if decodes:
                own[:] = 0
            continue
        left: Int = np.int64(0)
        farther: Int = np.int64(0)
        for column in range(columns):
            value = own[column]
            folded = 2 * value if value >= 0 else -2 * value - 1
            up, over = above[column], higher[column]
            near = min(abs(left) + abs(up), 15) * 16 + min(abs(farther) + abs(over), 15)
            set_contexts(
                model,
                mix(mix(np.int64(10), left & 0xFFFFFFFF), up & 0xFFFFFFFF),
                mix(np.int64(11), near),
                mix(mix(np.int64(12), np.int64(column)), up & 0xFFFFFFFF),
                mix(mix(np.int64(13), left & 0xFFFFFFFF), farther & 0xFFFFFFFF),
                mix(mix(np.int64(14), up & 0xFFFFFFFF), over & 0xFFFFFFFF),
                mix(mix(np.int64(15), np.int64(column)), np.int64(at)),
            )
            folded = _code_number(model, np.int64(column), folded)
            if decodes:
                own[column] = folded >> 1 if folded & 1 == 0 else -((folded + 1) >> 1)
            farther = left
            left = own[column]
        higher = above
        above = own
    if decodes:
        return np.int64(0)
    return close_output(model.state, model.data)


def encode(table: Table, *, block: int) -> bytes:
    """Return a table's payload; the table's shape is not in it. block: rows that belong together

    Raises:
        ValueError: a value is out of range.
    """
    if table.size and not -_MOST <= int(table.min()) <= int(table.max()) < _MOST:
        raise ValueError("expected values of 38 bits")
    own = np.ascontiguousarray(table, np.int64)
    capacity = table.size + 64
    while True:
        model = models.new_model()._replace(data=np.zeros(capacity, np.uint8))
        models.open_output(model.state)
        length = int(_code(model, own, block))
        if length >= 0:
            return model.data[:length].tobytes()
        capacity *= 4


def decode(payload: bytes, shape: tuple[int, int], *, block: int) -> Table:
    """Return the table of a payload.

    A damaged payload may decode to another table: what holds it has a checksum.

    Raises:
        ArtifactInvalid: bytes follow the payload's end.
    """
    model = models.new_model()._replace(data=np.frombuffer(bytearray(payload or b"\0"), np.uint8))
    coder.open_payload(model.state, model.data, 0, len(payload))
    model.state[models.MODE] = models.DECODE
    table = np.zeros(shape, np.int64)
    _code(model, table, block)
    if coder.unread(model.state):
        raise ArtifactInvalid("a table of integers: bytes after its end")
    return table
