"""A binary arithmetic coder whose payload ends on the fewest bytes that still decode.

Carry-less binary coding after Mahoney 2005 (the coder of lpaq and PAQ): an interval [low, high]
of 32-bit integers is split in proportion to the probability of the next bit, and leading bytes
are written as soon as both ends agree on them. Only integers take part, so encoder and decoder
agree on every machine.

The ending differs from lpaq, which writes four bytes. Our decoder reads zeros past the end of
its payload, so the encoder writes:

1. nothing when low is 0, otherwise one byte: high's first byte followed by zeros lies inside
   [low, high], because the first bytes of both ends differ;
2. and then drops all trailing zero bytes, which the decoder adds again.

Patches are 2 to 60 bytes, so these three bytes matter. The price: a payload carries no end mark.
The coded data must mark its own end, and the caller must bound the output.

A probability is that of bit 1 in units of 2^-16, from 1 to 65535.

The integer loops of the codecs are compiled. Every kernel is an ordinary Python function over numpy
arrays; `kernel` compiles it with numba at its first call. The same functions run uncompiled when
`NUMBA_DISABLE_JIT=1` is set, which is the reference the compiled code is tested against. To compute
the same bits either way, kernels use only integers that fit 63 bits (numba wraps on overflow,
Python does not) and convert array elements with `np.int64()` before arithmetic: numba mixes
unsigned and signed operands into floats.

The machine code is cached beside the source, or under `~/.cache/numba` where the package folder
is read-only. A service whose home is read-only too must set `NUMBA_CACHE_DIR` to a writable
folder: numba refuses to import the module when it finds no folder for its cache.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verso_core.errors import PatchCorrupt

P = ParamSpec("P")
R = TypeVar("R")

Int = int | np.int64
"""A whole number in a kernel; np.int64(...) is how an array element becomes one."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call, cache on disk, release the interpreter lock while running.

    Kernels are inlined into one another: at every call that is not inlined, numba counts references
    of all array arguments, which doubles the time of the n-gram model.
    """
    compiled = njit(cache=True, nogil=True, forceinline=True)(function)
    return cast(Callable[P, R], compiled)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only kernels call.

    It has no entry from Python and no machine code of its own in the cache: half of a kernel's
    compilation would be for those. Arguments of one type are wanted at every call, `np.int64(0)`
    instead of `0`: a literal is another type, and every type is compiled apart.
    """
    # Numba's annotations do not list these two options.
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiled = njit(nogil=True, forceinline=True, **options)(function)
    return cast(Callable[P, R], compiled)


ONE = 1 << 16
"""The probability 1 in the coder's unit; itself not a valid probability."""

LOW, HIGH, CODE, NEXT, BEGIN, END = range(6)
"""Columns of a decoder's state."""

STATE_SIZE = 6

Bytes = NDArray[np.uint8]
State = NDArray[np.int64]

_TOP = 0xFF000000
_ALL = 0xFFFFFFFF


@kernel
def _encode(bits: Bytes, probabilities: NDArray[np.uint16], out: Bytes) -> int:
    """Write the payload into `out`; return its length, or -1 if `out` is too short."""
    low, high, length = 0, _ALL, 0
    for index in range(bits.size):
        middle = low + (((high - low) * int(probabilities[index])) >> 16)
        if bits[index]:
            high = middle
        else:
            low = middle + 1
        while (low ^ high) & _TOP == 0:
            if length == out.size:
                return -1
            out[length] = high >> 24
            length += 1
            low = (low << 8) & _ALL
            high = ((high << 8) & _ALL) | 0xFF
    if low > 0:
        if length == out.size:
            return -1
        out[length] = high >> 24
        length += 1
    while length > 0 and out[length - 1] == 0:
        length -= 1
    return length


@kernel
def open_payload(state: State, payload: Bytes, begin: int, end: int) -> None:
    """Prepare `state` to decode `payload[begin:end]`."""
    state[LOW] = 0
    state[HIGH] = _ALL
    code = 0
    for index in range(begin, begin + 4):
        code = (code << 8) | (int(payload[index]) if index < end else 0)
    state[CODE] = code
    state[NEXT] = begin + 4
    state[BEGIN] = begin
    state[END] = end


@kernel
def decode_bit(state: State, payload: Bytes, probability: Int) -> int:
    """Decode one bit; past the end of the payload it reads zeros, without limit."""
    low, high, code = state[LOW], state[HIGH], state[CODE]
    middle = low + (((high - low) * probability) >> 16)
    if code <= middle:
        bit = 1
        high = middle
    else:
        bit = 0
        low = middle + 1
    if (low ^ high) & _TOP == 0:
        position, end = state[NEXT], state[END]
        while (low ^ high) & _TOP == 0:
            low = (low << 8) & _ALL
            high = ((high << 8) & _ALL) | 0xFF
            code = ((code << 8) & _ALL) | (int(payload[position]) if position < end else 0)
            position += 1
        state[NEXT] = position
    state[LOW] = low
    state[HIGH] = high
    state[CODE] = code
    return bit


@kernel
def unread(state: State) -> int:
    """Count the bytes at the payload's end that no encoder would have written.

    The encoder writes at most one byte after those both ends of the interval agreed on.
    """
    agreed = int(state[NEXT]) - 4 - int(state[BEGIN])
    return max(0, int(state[END]) - int(state[BEGIN]) - agreed - 1)


def encode(bits: Bytes, probabilities: NDArray[np.uint16]) -> bytes:
    """Return the shortest payload from which the decisions can be decoded.

    bits: Shape: (decisions,), uint8, 0 or 1
    probabilities: Shape: (decisions,), uint16, probability of bit 1 in units of 2^-16, >= 1
    """
    capacity = bits.size // 4 + 64
    while True:
        out = np.empty(capacity, np.uint8)
        length = _encode(bits, probabilities, out)
        if length >= 0:
            return out[:length].tobytes()
        capacity *= 4


def decode_text(
    read: Callable[[Bytes, State, Bytes], Int],
    payload: bytes,
    *,
    codec: str,
    first_bytes: int,
    limit_bytes: int,
) -> bytes:
    """Return the text of a payload whose length nothing states.

    Args:
        read: decodes a payload into an array; returns the text's length, or -1 if it is longer.
        payload: any bytes.
        codec: whose payload it is, for errors.
        first_bytes: length of the first array; a longer text is read again into one 16 times it.
        limit_bytes: length of the last one.

    Raises:
        PatchCorrupt: the text passes `limit_bytes`, or bytes follow the payload's end.
    """
    data = np.frombuffer(payload or b"\0", np.uint8)
    state = np.zeros(STATE_SIZE, np.int64)
    capacity = min(limit_bytes, first_bytes)
    while True:
        open_payload(state, data, 0, len(payload))
        text = np.empty(capacity, np.uint8)
        length = read(data, state, text)
        if length >= 0:
            break
        if capacity >= limit_bytes:
            raise PatchCorrupt(f"{codec}: expected at most {limit_bytes} bytes of text")
        capacity = min(limit_bytes, 16 * capacity)
    if unread(state):
        raise PatchCorrupt(f"{codec}: {unread(state)} bytes after the end of the text")
    return text[:length].tobytes()


def cost(bits: Bytes, probabilities: NDArray[np.uint16]) -> float:
    """Return the ideal code length of the decisions in bits, without rounding to bytes."""
    chance = probabilities.astype(np.float64) / ONE
    return float(-np.log2(np.where(bits != 0, chance, 1.0 - chance)).sum())


def probability(ones: Any, total: Any) -> NDArray[np.uint16]:
    """Round frequencies to coder probabilities, never to certainty.

    ones, total: any shapes that broadcast; total > 0
    """
    ratio = np.asarray(ones, np.float64) / np.asarray(total, np.float64)
    return np.clip(np.rint(ratio * ONE), 1, ONE - 1).astype(np.uint16)
