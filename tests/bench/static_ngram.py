"""The plain rival of the n-gram codec: one static order of context with escapes, a table look-up
and an interval of integers for each byte.

1. Count which byte follows the last `order` bytes of the fitted texts, and which follows each
   shorter context whenever the longer one had to escape (update exclusion, Moffat 1990). Contexts
   seen less than `least` times are dropped.
2. The symbols of a context share 2^14 by their counts less a discount each; the discounts are the
   escape to the context one byte shorter (absolute discounting, Ney et al. 1994).
3. Compile all contexts into an automaton: every symbol's entry names its interval and the state
   that comes after it, so that coding a byte is no hashing but a search among the state's symbols,
   the likeliest first. A state and its symbols lie in one piece of memory.
4. A range coder without carries (Subbotin 1999) codes the intervals; its payload ends, like the
   product's, on the fewest bytes that still decode.

The text's end is a symbol of its own. Everything is integers. Nothing adapts within a record: that
is what makes it fast, and what it costs is the point of the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Int, kernel
from verso_core.errors import PatchCorrupt

MAX_ORDER = 5
_END = 256
_SYMBOLS = 257
_SYMBOL_BITS = 9
_SCALE_LOG2 = 14
_SCALE = 1 << _SCALE_LOG2
_UNIFORM = _SCALE // _SYMBOLS
_TOP_SHIFT, _WIDTH = 40, 48
_TOP, _ALL = 1 << _TOP_SHIFT, (1 << _WIDTH) - 1
_BOTTOM = 1 << 20
_PLACE_BITS = 24
_NO_STATE = -1

Keys = NDArray[np.uint64]
Tally = NDArray[np.int64]
Cells = NDArray[np.int64]


class Counts(NamedTuple):
    """What follows the contexts of one length, sorted by context and symbol.

    keys: Shape: (pairs,), uint64, context << _SYMBOL_BITS | symbol
    raw: Shape: (pairs,), int64, how often
    """

    keys: Keys
    raw: Tally


@dataclass(frozen=True)
class StaticNgram:
    """A compiled automaton.

    cells: Shape: (states + entries,), int64. A state is named by the place of its first cell, which
        holds the state of the shorter context plus 1 (0: none), the number of symbols, and where
        the escape's interval begins; a cell for each symbol follows: the state after it, the
        symbol, size and begin of its interval
    states: how many there are
    start: the state before a text's first byte
    """

    order: int
    least: int
    cells: Cells
    states: int
    start: int

    @property
    def size_bytes(self) -> int:
        """Bytes of memory."""
        return self.cells.nbytes

    def encode(self, text: bytes) -> bytes:
        """Return the payload of a text."""
        out = np.empty(2 * (self.order + 2) * (len(text) + 1) + 8, np.uint8)
        data = np.frombuffer(text, np.uint8)
        return out[: _write(self.cells, self.start, data, out)].tobytes()

    def decode(self, payload: bytes, *, limit_bytes: int = 1 << 22) -> bytes:
        """Return the text of a payload; PatchCorrupt beyond the limit."""
        data = np.frombuffer(payload, np.uint8)
        capacity = min(limit_bytes, 64 + 16 * len(payload))
        while True:
            text = np.empty(capacity, np.uint8)
            length = _read(self.cells, self.start, data, text)
            if length >= 0:
                return text[:length].tobytes()
            if capacity >= limit_bytes:
                raise PatchCorrupt(f"static n-gram: expected at most {limit_bytes} bytes")
            capacity = min(limit_bytes, 16 * capacity)


def count(texts: Sequence[bytes]) -> list[Counts]:
    """Count what follows every context of 0 to MAX_ORDER bytes; before a text stand zeros."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    data = np.frombuffer(b"\0".join(texts) + b"\0", np.uint8)
    ends = np.cumsum(sizes) - 1
    place = np.arange(data.size, dtype=np.int32) - np.repeat(ends + 1 - sizes, sizes).astype("i4")
    keys = data.astype(np.uint64)
    keys[ends] = _END
    for back in range(1, MAX_ORDER + 1):
        before = np.zeros(data.size, np.uint64)
        before[back:] = data[:-back]
        before[place < back] = 0
        keys |= before << np.uint64(_SYMBOL_BITS + 8 * (back - 1))
    keys.sort()
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    found = [Counts(keys[first], np.diff(first, append=keys.size))]
    for order in range(MAX_ORDER - 1, -1, -1):
        found.append(Counts(*_gathered(_shortened(found[-1].keys, order), found[-1].raw)))
    return found[::-1]


def fit(counts: Sequence[Counts], *, order: int, least: int, discount: float) -> StaticNgram:
    """Compile the contexts of up to `order` bytes that were seen `least` times or more."""
    coded: list[tuple[Keys, Tally]] = []
    above = counts[order].raw
    for length in range(order, -1, -1):
        keys, raw = counts[length]
        kept = _totals(keys, raw) >= (least if length else 0)
        coded.append((keys[kept], above[kept]))
        if length:  # of a known context only the first of each symbol comes to the shorter one
            passed = np.where(kept, 1, above)
            _, above = _gathered(_shortened(keys, length - 1), passed)
    cells, states, start = _compile(coded[::-1], discount=discount)
    return StaticNgram(order, least, cells, states, start)


def _compile(coded: Sequence[tuple[Keys, Tally]], *, discount: float) -> tuple[Cells, int, int]:
    """Return the cells, the number of states, and the one before a text's first byte."""
    contexts = [np.unique(keys >> np.uint64(_SYMBOL_BITS)) for keys, _ in coded]
    numbers = [
        np.bincount(np.searchsorted(known, keys >> np.uint64(_SYMBOL_BITS)))
        for known, (keys, _) in zip(contexts, coded, strict=True)
    ]
    ends = np.cumsum(np.concatenate([number + 1 for number in numbers]))
    bounds = np.cumsum([found.size for found in contexts])[:-1]
    places = np.split(np.concatenate(([0], ends[:-1])), bounds)
    cells = np.zeros(int(ends[-1]), np.int64)
    if cells.size >= 1 << _PLACE_BITS:
        raise ValueError(f"expected fewer than 2^{_PLACE_BITS} cells, got {cells.size}")
    for order, (keys, tally) in enumerate(coded):
        own = np.repeat(np.arange(contexts[order].size), numbers[order])
        sizes = _shares(own, tally, discount)
        ranked = np.lexsort((-sizes, own))
        keys, sizes = keys[ranked], sizes[ranked]
        first = np.cumsum(numbers[order]) - numbers[order]
        sums = np.cumsum(sizes)
        begins = sums - sizes - (sums[first] - sizes[first])[own]
        follows = _next_states(keys, order, contexts, places)
        symbols = (keys & np.uint64((1 << _SYMBOL_BITS) - 1)).astype(np.int64)
        packed = (follows << _SYMBOL_BITS | symbols) << (_SCALE_LOG2 + 1) | sizes
        cells[places[order][own] + 1 + np.arange(own.size) - first[own]] = (
            packed << _SCALE_LOG2 | begins
        )
        links = np.zeros(contexts[order].size, np.int64)
        if order:
            shorter = contexts[order] & np.uint64((1 << 8 * (order - 1)) - 1)
            links = places[order - 1][np.searchsorted(contexts[order - 1], shorter)] + 1
        last = first + numbers[order] - 1
        escapes = begins[last] + sizes[last]
        cells[places[order]] = (links << _SYMBOL_BITS | numbers[order]) << _SCALE_LOG2 | escapes
    start = max(order for order, found in enumerate(contexts) if found[0] == 0)
    return cells, int(ends.size), int(places[start][0])


def _shares(own: NDArray[np.int64], tally: Tally, discount: float) -> Tally:
    """Divide the scale among each context's symbols and its escape, at least 1 to each."""
    total, number = np.bincount(own, tally), np.bincount(own)
    share = (tally - discount) / total[own]
    return 1 + (share * (_SCALE - 1 - number[own])).astype(np.int64)


def _next_states(
    keys: Keys, order: int, contexts: Sequence[Keys], places: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the state after each symbol: the longest known context that ends with it."""
    symbols = keys & np.uint64((1 << _SYMBOL_BITS) - 1)
    longer = (keys >> np.uint64(_SYMBOL_BITS)) << np.uint64(8) | (symbols & np.uint64(255))
    found = np.full(keys.size, places[0][0], np.int64)
    unknown = symbols != _END
    for length in range(min(order + 1, len(contexts) - 1), 0, -1):
        wanted = longer[unknown] & np.uint64((1 << 8 * length) - 1)
        place = np.minimum(np.searchsorted(contexts[length], wanted), contexts[length].size - 1)
        hit = contexts[length][place] == wanted
        rows = np.flatnonzero(unknown)[hit]
        found[rows] = places[length][place[hit]]
        unknown[rows] = False
    return found


def _shortened(keys: Keys, order: int) -> Keys:
    return keys & np.uint64((1 << (8 * order + _SYMBOL_BITS)) - 1)


def _gathered(keys: Keys, tally: Tally) -> tuple[Keys, Tally]:
    ranked = np.argsort(keys)
    keys, tally = keys[ranked], tally[ranked]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[first], np.add.reduceat(tally, first)


def _totals(keys: Keys, raw: Tally) -> Tally:
    """Return for every pair how often its context was seen."""
    context = keys >> np.uint64(_SYMBOL_BITS)
    first = np.flatnonzero(np.concatenate(([True], context[1:] != context[:-1])))
    return np.repeat(np.add.reduceat(raw, first), np.diff(first, append=keys.size))


@kernel
def _write(cells: Cells, start: int, data: NDArray[np.uint8], out: NDArray[np.uint8]) -> Int:
    """Write the payload; return its length. `out` must hold the worst case."""
    length = 0
    low: Int = 0
    size: Int = _ALL
    state: Int = start
    for place in range(data.size + 1):
        symbol = np.int64(data[place]) if place < data.size else _END
        coded = False
        while not coded:
            begin, share = symbol * _UNIFORM, _UNIFORM
            if state == _NO_STATE:
                state, coded = 0, True
            else:
                head = cells[state]
                begin = head & (_SCALE - 1)
                share = _SCALE - begin
                last = state + ((head >> _SCALE_LOG2) & 511)
                at = state + 1
                while at <= last and (cells[at] >> (2 * _SCALE_LOG2 + 1)) & 511 != symbol:
                    at += 1
                state = (head >> (_SCALE_LOG2 + _SYMBOL_BITS)) - 1
                if at <= last:
                    cell = cells[at]
                    begin = cell & (_SCALE - 1)
                    share = (cell >> _SCALE_LOG2) & (2 * _SCALE - 1)
                    state = cell >> (2 * _SCALE_LOG2 + 1 + _SYMBOL_BITS)
                    coded = True
            unit = size >> _SCALE_LOG2
            low += unit * begin
            size = unit * share
            while (low ^ (low + size)) < _TOP or size < _BOTTOM:
                if (low ^ (low + size)) >= _TOP:
                    size = -low & (_BOTTOM - 1)
                out[length] = low >> _TOP_SHIFT
                length += 1
                low = (low << 8) & _ALL
                size <<= 8
    return _close(low, size, out, length)


@kernel
def _close(low: Int, size: Int, out: NDArray[np.uint8], length: Int) -> Int:
    """End the payload on the roundest number within the interval; return its length."""
    shift: Int = _WIDTH
    rounded: Int = 0
    while shift >= 0:
        rounded = ((low + (1 << shift) - 1) >> shift) << shift
        if rounded < low + size and rounded <= _ALL:
            break
        shift -= 8
    for byte in range(_TOP_SHIFT, shift - 1, -8):
        out[length] = (rounded >> byte) & 255
        length += 1
    while length > 0 and out[length - 1] == 0:
        length -= 1
    return length


@kernel
def _read(cells: Cells, start: int, payload: NDArray[np.uint8], text: NDArray[np.uint8]) -> Int:
    """Read a text; return its length, or -1 where it does not end within `text`."""
    taken, length = 0, 0
    low: Int = 0
    size: Int = _ALL
    code: Int = 0
    state: Int = start
    while taken < _WIDTH // 8:
        code = (code << 8) | (np.int64(payload[taken]) if taken < payload.size else 0)
        taken += 1
    while True:
        unit = size >> _SCALE_LOG2
        place = (code - low) // unit
        symbol: Int = -1
        if state == _NO_STATE:
            symbol = min(place // _UNIFORM, _END)
            begin, share, state = symbol * _UNIFORM, _UNIFORM, 0
        else:
            head = cells[state]
            begin = head & (_SCALE - 1)
            share = _SCALE - begin
            if place >= begin:
                state = (head >> (_SCALE_LOG2 + _SYMBOL_BITS)) - 1
            else:
                begin, share = 0, 0
                at = state
                while place >= begin + share:
                    at += 1
                    begin += share
                    share = (cells[at] >> _SCALE_LOG2) & (2 * _SCALE - 1)
                symbol = (cells[at] >> (2 * _SCALE_LOG2 + 1)) & 511
                state = cells[at] >> (2 * _SCALE_LOG2 + 1 + _SYMBOL_BITS)
        low += unit * begin
        size = unit * share
        while (low ^ (low + size)) < _TOP or size < _BOTTOM:
            if (low ^ (low + size)) >= _TOP:
                size = -low & (_BOTTOM - 1)
            low = (low << 8) & _ALL
            size <<= 8
            code = ((code << 8) & _ALL) | (np.int64(payload[taken]) if taken < payload.size else 0)
            taken += 1
        if symbol == _END:
            return length
        if symbol >= 0:
            if length == text.size:
                return -1
            text[length] = symbol
            length += 1
