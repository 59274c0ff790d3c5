"""How a value that is no candidate is spelled out.

Its kind is coded, and then the difference to the last value, or its digits or bytes, each in the
contexts of those before it, of the column and of the value that is expected. After three or four of
them a value with the same beginning is one more candidate. Digits whose beginning was never seen
are coded evenly: nothing is known about them. By the first rules a beginning is known in its column
or place, and never grows behind its first digit; by the second it is known of any value of its kind
and length, and grows by one digit each time that it occurs.
"""

import numpy as np

from verso_codecs.coder import Bytes, Int, inlined
from verso_codecs.logs.differences import code_near, is_near, near_base
from verso_codecs.logs.long_values import code_long
from verso_codecs.logs.memory import (
    FAULT,
    OUTCOMES,
    RULES,
    RULES_2,
    TEXT_END,
    Memory,
    copy_value,
    equals,
    link,
    magnitude,
)
from verso_codecs.logs.model import (
    DECODE,
    FOR_BYTE,
    FOR_COMPLETED,
    FOR_DIGIT,
    FOR_KIND,
    FOR_LENGTH,
    FOR_MINUS,
    FOR_NIBBLE,
    MODE,
    Model,
    code_evenly,
    code_symbol,
    is_known,
    set_contexts,
)
from verso_codecs.logs.parsing import (
    LONG,
    NUMBER,
    UUID,
    UUID_BYTES,
    WORD,
    Slots,
    bytes_hash,
    mix,
    number_hash,
)
from verso_codecs.logs.stamps import power_of_ten

_NEAR, _KIND_BITS = 6, 3  # coded like a kind of value
_LENGTH_BITS, _WIDTH_BITS = 8, 5
_MAX_NUMBER = (1 << 63) - 1


@inlined
def _symbol_at(text: Bytes, at: Int, kind: Int) -> Int:
    """Return the digit, nibble or byte at a place of a value's bytes."""
    byte = np.int64(text[at])
    if kind == WORD:
        return byte
    return byte - 48 if byte < 58 else byte - 87


@inlined
def _byte_of(kind: Int, symbol: Int) -> Int:
    """Return the byte of a digit, nibble or byte of a value."""
    if kind == WORD:
        return symbol
    return symbol + 48 if symbol < 10 else symbol + 87


@inlined
def _skip_dash(kind: Int, offset: Int) -> Int:
    """Return the offset, or the next where a UUID has a dash."""
    dash = offset == 8 or offset == 13 or offset == 18 or offset == 23
    return offset + 1 if kind == UUID and dash else offset


@inlined
def _expected(memory: Memory, last: Int, kind: Int, offset: Int, width: Int) -> Int:
    """Return the last value's symbol at the same offset plus 1, or 0."""
    if np.int64(memory.kinds[last]) != kind or last == 0:
        return np.int64(0)
    if kind == NUMBER:
        if memory.widths[last] != width:
            return np.int64(0)
        digit: Int = magnitude(memory.numbers[last]) // power_of_ten(width - 1 - offset) % 10
        return digit + 1
    if offset >= memory.widths[last]:
        return np.int64(0)
    return 1 + _symbol_at(memory.text, memory.offsets[last] + offset, kind)


@inlined
def _completed(
    model: Model,
    memory: Memory,
    source: Bytes,
    kind: Int,
    width: Int,
    column: Int,
    place: Int,
    prefix: Int,
    slots: Slots,
    slot: Int,
) -> Int:
    """Code whether the value is the last one that began alike; return that one, or 0."""
    pick = np.int64(memory.links[link(prefix, np.int64(9))])
    if pick == 0 or np.int64(memory.kinds[pick]) != kind or memory.widths[pick] != width:
        return np.int64(0)
    set_contexts(
        model,
        mix(column, np.int64(201)),
        mix(place, np.int64(202)),
        mix(np.int64(kind) + 16 * width, np.int64(203)),
        mix(memory.hashes[pick], np.int64(204)),
        mix(column, np.int64(kind) + 16 * width),
        np.int64(205),
    )
    whole: Int = np.int64(0)
    if model.state[MODE] != DECODE and equals(memory, pick, slots, source, slot):
        whole = np.int64(1)
    if code_symbol(model, np.int64(FOR_COMPLETED), column, whole, np.int64(1)):
        return pick
    return np.int64(0)


@inlined
def _set_symbol_contexts(
    model: Model,
    kind: Int,
    width: Int,
    offset: Int,
    column: Int,
    place: Int,
    prefix: Int,
    recent: Int,
    ahead: Int,
) -> None:
    """Set the contexts of the symbol at an offset.

    prefix: hash of the symbols before it; recent: the last three bytes; ahead: what is expected
    """
    set_contexts(
        model,
        mix(column, prefix),
        mix(place, prefix),
        mix(mix(column, ahead), offset),
        mix(place, offset + 64 * width),
        mix(recent & 0xFFFF, np.int64(kind) + 16 * ahead),
        mix(
            recent & 0xFFFFFF if kind == WORD else width - offset,
            column if kind != WORD else np.int64(3),
        ),
    )


@inlined
def _symbols_of(kind: Int) -> Int:
    """Return how many symbols values of a kind are spelled with."""
    if kind == WORD:
        return np.int64(256)
    return np.int64(10 if kind == NUMBER else 16)


@inlined
def _code_known(model: Model, kind: Int, column: Int, offset: Int, symbol: Int, fixed: bool) -> Int:
    """Code a symbol in the contexts set; return it. fixed: the digit of a UUID's version or form"""
    if fixed:
        model.contexts[0] = mix(column, offset)
        model.contexts[1] = mix(np.int64(kind), offset)
    purpose: Int = np.int64(FOR_NIBBLE)
    if kind in (NUMBER, WORD):
        purpose = np.int64(FOR_DIGIT if kind == NUMBER else FOR_BYTE)
    return code_symbol(model, purpose, column, symbol, np.int64(8 if kind == WORD else 4))


@inlined
def _is_beginning_known(model: Model, anywhere: bool) -> bool:
    """Whether a symbol of digits was ever coded in the contexts set that have all before it."""
    return bool(
        is_known(model, np.int64(0), np.int64(1))
        or is_known(model, np.int64(1), np.int64(1))
        or (anywhere and is_known(model, np.int64(5), np.int64(1)))
    )


@inlined
def _code_bytes(
    model: Model,
    memory: Memory,
    source: Bytes,
    begin: Int,
    width: Int,
    kind: Int,
    column: Int,
    place: Int,
    last: Int,
    slots: Slots,
    slot: Int,
) -> Int:
    """Code the digits or bytes of a value into the memory's text at its end.

    begin: of the digits or bytes in `source`, when encoding

    Returns: the value of the memory that it turned out to be, or 0
    """
    text, end = memory.text, memory.state[TEXT_END]
    count = _symbols_of(kind)
    checked: Int = np.int64(3 if kind in (NUMBER, WORD) else 4)
    prefix: Int = mix(np.int64(kind), width)
    same: Int = np.int64(1)
    evenly = False
    grows = memory.state[RULES] >= RULES_2
    offset: Int = np.int64(0)
    recent: Int = np.int64(0)
    while offset < width:
        if offset == checked and width > checked + 1:
            pick = _completed(
                model, memory, source, kind, width, column, place, prefix, slots, slot
            )
            if pick > 0:
                return pick
        ahead = _expected(memory, last, kind, offset, width) if same else np.int64(0)
        _set_symbol_contexts(model, kind, width, offset, column, place, prefix, recent, ahead)
        if grows:
            model.contexts[5 if kind != WORD else 3] = mix(prefix, np.int64(11))
        known = count == 256 or _is_beginning_known(model, grows)
        evenly = evenly or not (known or grows or offset == 0)
        symbol: Int = np.int64(0)
        if model.state[MODE] != DECODE:
            symbol = _symbol_at(source, begin + offset, kind)
        fixed = kind == UUID and (offset == 14 or offset == 19)
        if evenly and not fixed:
            symbol = code_evenly(model, symbol, count)
        else:
            symbol = _code_known(model, kind, column, offset, symbol, fixed)
            if symbol >= count:
                memory.state[FAULT] = 1
                return np.int64(0)
        evenly = evenly or (not known and grows)
        same = np.int64(ahead == symbol + 1) if same else np.int64(0)
        byte = _byte_of(kind, symbol)
        text[end + offset] = byte
        prefix = mix(prefix, symbol)
        recent = ((recent << 8) | byte) & 0xFFFFFF
        offset += 1
        if offset == checked:
            memory.keys[7] = prefix
        if _skip_dash(kind, offset) != offset:
            text[end + offset] = 45
            offset += 1
    return np.int64(0)


@inlined
def _code_width(
    model: Model, memory: Memory, kind: Int, column: Int, place: Int, last: Int, width: Int
) -> Int:
    """Code how many digits or bytes a value has; return it."""
    if kind == UUID:
        return np.int64(UUID_BYTES)
    if kind == LONG:
        high = code_evenly(model, width >> 16, np.int64(1 << 16))
        return (high << 16) | code_evenly(model, width & 0xFFFF, np.int64(1 << 16))
    before = np.int64(memory.kinds[last]) * 256 + (memory.widths[last] & 255)
    set_contexts(
        model,
        mix(column, np.int64(kind) + 301),
        mix(place, np.int64(kind) + 301),
        mix(column, before * 8 + np.int64(kind)),
        mix(place, before * 8 + np.int64(kind)),
        mix(np.int64(kind), np.int64(302)),
        mix(before, np.int64(kind) + 303),
    )
    bits = np.int64(_WIDTH_BITS if kind == NUMBER else _LENGTH_BITS)
    return code_symbol(model, np.int64(FOR_LENGTH), column, width, bits)


@inlined
def _number_of(memory: Memory, begin: Int, width: Int) -> Int:
    """Return the number that digits in the memory's text write, or -1 if it is too large."""
    number: Int = np.int64(0)
    for index in range(width):
        digit = np.int64(memory.text[begin + index]) - 48
        if number > (_MAX_NUMBER - digit) // 10:
            return np.int64(-1)
        number = number * 10 + digit
    return number


@inlined
def _code_kind(model: Model, memory: Memory, column: Int, place: Int, last: Int, kind: Int) -> Int:
    before = np.int64(memory.kinds[last]) * 8 + (memory.marks[last] & 7)
    set_contexts(
        model,
        mix(column, before),
        mix(place, before),
        mix(column, np.int64(401)),
        mix(place, np.int64(402)),
        mix(before, np.int64(403)),
        mix(memory.state[OUTCOMES], np.int64(404)),
    )
    return code_symbol(model, np.int64(FOR_KIND), column, kind, np.int64(_KIND_BITS))


@inlined
def _code_sign(model: Model, memory: Memory, column: Int, place: Int, last: Int, minus: Int) -> Int:
    """Code whether a number has a minus; return 1 if it does."""
    set_contexts(
        model,
        mix(column, np.int64(601)),
        mix(place, np.int64(602)),
        np.int64(603),
        np.int64(604),
        mix(column, np.int64(memory.numbers[last] < 0)),
        np.int64(605),
    )
    return code_symbol(model, np.int64(FOR_MINUS), column, minus, np.int64(1))


@inlined
def _keep_spelled(memory: Memory, kind: Int, width: Int, minus: Int, at: Int) -> None:
    """Keep the value that stands behind the memory's text at `at`."""
    state, end = memory.state, memory.state[TEXT_END]
    memory.kinds[at] = kind
    memory.widths[at] = width
    memory.offsets[at] = end
    memory.numbers[at] = 0
    if kind == NUMBER:
        number = _number_of(memory, end, width)
        if number < 0:
            state[FAULT] = 1
            number = np.int64(0)
        number = -number if minus else number
        memory.numbers[at] = number
        memory.hashes[at] = number_hash(number, width)
    else:
        memory.hashes[at] = bytes_hash(memory.text, end, width)
        state[TEXT_END] = end + width
    if memory.keys[7] != 0:
        memory.links[link(memory.keys[7], np.int64(9))] = at


@inlined
def code_new(
    model: Model,
    memory: Memory,
    slots: Slots,
    source: Bytes,
    slot: Int,
    column: Int,
    place: Int,
    last: Int,
    at: Int,
) -> None:
    """Code a value that is no candidate and keep it at `at`."""
    kind: Int = np.int64(0)
    number: Int = np.int64(0)
    width: Int = np.int64(0)
    begin: Int = np.int64(0)
    base = near_base(memory, last)
    if model.state[MODE] != DECODE:
        kind, number = np.int64(slots.kinds[slot]), slots.numbers[slot]
        width, begin = slots.widths[slot], slots.begins[slot]
        if kind == NUMBER and is_near(memory, base, number, width):
            kind = np.int64(_NEAR)
    kind = _code_kind(model, memory, column, place, last, kind)
    if kind == _NEAR:
        code_near(model, memory, column, place, last, base, number, width, at)
        return
    minus: Int = np.int64(number < 0)
    if kind == NUMBER:
        minus = _code_sign(model, memory, column, place, last, minus)
    width = _code_width(model, memory, kind, column, place, last, width)
    room = memory.text.size - memory.state[TEXT_END]
    if kind > LONG or width > room or (kind == NUMBER and not 0 < width < 20):
        memory.state[FAULT] = 1
        return
    memory.keys[7] = 0
    match: Int = np.int64(0)
    if kind == LONG:
        code_long(model, memory, source, begin, width)
    else:
        match = _code_bytes(
            model, memory, source, begin, width, kind, column, place, last, slots, slot
        )
    if match > 0:
        copy_value(memory, match, at)
    else:
        _keep_spelled(memory, kind, width, minus, at)
