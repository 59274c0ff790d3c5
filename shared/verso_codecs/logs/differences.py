"""How a number is coded as its difference to the last of its column, or of its place."""

import numpy as np

from verso_codecs.coder import Int, inlined
from verso_codecs.logs.memory import (
    FAULT,
    MAX_NEAR,
    Memory,
    bits_of,
    digits_of,
    keep_number,
    magnitude,
)
from verso_codecs.logs.model import (
    FOR_BUCKET,
    FOR_MANTISSA,
    FOR_MOVED,
    FOR_PADDED,
    FOR_SIGN,
    Model,
    code_evenly,
    code_symbol,
    set_contexts,
    turn_contexts,
)
from verso_codecs.logs.parsing import NUMBER, mix

_BUCKET_BITS, _MANTISSA_BITS = 6, 3


@inlined
def code_difference(
    model: Model, column: Int, place: Int, bucket: Int, mark: Int, difference: Int
) -> Int:
    """Code a difference; return it. bucket: bits of the last one; mark: what else is known"""
    set_contexts(
        model,
        mix(column, np.int64(101)),
        mix(place, np.int64(102)),
        mix(column, bucket + 128),
        mix(place, bucket + 256),
        mix(column, mark + 1024),
        mix(place, mark + 1024),
    )
    moved: Int = np.int64(difference != 0)
    moved = code_symbol(model, np.int64(FOR_MOVED), column, moved, np.int64(1))
    if not moved:
        return np.int64(0)
    turn_contexts(model, np.int64(1))
    size = magnitude(difference)
    bits = code_symbol(model, np.int64(FOR_BUCKET), column, bits_of(size), np.int64(_BUCKET_BITS))
    turn_contexts(model, bits)
    minus = code_symbol(model, np.int64(FOR_SIGN), column, np.int64(difference < 0), np.int64(1))
    turn_contexts(model, minus)
    low = max(bits - 1 - _MANTISSA_BITS, 0)
    count = max(bits - 1, 0) - low
    top = code_symbol(
        model, np.int64(FOR_MANTISSA), column, (size >> low) & ((1 << count) - 1), np.int64(count)
    )
    value = (np.int64(1) << count) | top
    while low > 0:
        part = min(low, 30)
        low -= part
        rest = code_evenly(model, (size >> low) & ((1 << part) - 1), np.int64(1) << part)
        value = (value << part) | rest
    if bits == 0:
        value = np.int64(0)
    return -value if minus else value


@inlined
def near_base(memory: Memory, last: Int) -> Int:
    """Return the number from which a difference may be coded: the column's last, or the place's."""
    if memory.kinds[last] == NUMBER and last > 0 and magnitude(memory.numbers[last]) < MAX_NEAR:
        return last
    pick: Int = memory.picks[6]
    if pick > 0 and memory.kinds[pick] == NUMBER and magnitude(memory.numbers[pick]) < MAX_NEAR:
        return pick
    return np.int64(0)


@inlined
def is_near(memory: Memory, base: Int, number: Int, width: Int) -> bool:
    """Whether a number is worth coding as a difference; only those that decode may be."""
    if base == 0 or magnitude(number) >= MAX_NEAR:
        return False
    natural = digits_of(number)
    padded = natural < memory.widths[base] and width == memory.widths[base]
    if width != natural and not padded:
        return False
    return bool(3 * bits_of(magnitude(number - memory.numbers[base])) + 12 <= 10 * natural)


@inlined
def code_near(
    model: Model,
    memory: Memory,
    column: Int,
    place: Int,
    last: Int,
    base: Int,
    number: Int,
    width: Int,
    at: Int,
) -> None:
    """Code a number as its difference to the one at `base` and keep it at `at`."""
    if base == 0:
        memory.state[FAULT] = 1
        return
    mark = memory.marks[last] & 63
    difference = number - memory.numbers[base]
    value = code_difference(model, column, place, memory.buckets[last], mark, difference)
    if magnitude(value) >= MAX_NEAR:
        memory.state[FAULT] = 1
        return
    number = memory.numbers[base] + value
    natural = digits_of(number)
    memory.buckets[at] = bits_of(magnitude(value))
    if natural < memory.widths[base]:
        padded: Int = np.int64(width > natural)
        set_contexts(
            model,
            mix(column, np.int64(501)),
            mix(place, np.int64(502)),
            np.int64(503),
            np.int64(504),
            np.int64(505),
            mix(memory.widths[base], np.int64(506)),
        )
        if code_symbol(model, np.int64(FOR_PADDED), column, padded, np.int64(1)):
            natural = memory.widths[base]
    keep_number(memory, at, number, natural)
