"""Fitted numbers and texts of the mixture codec as bytes; of the counts nothing is kept.

Format 2, which is written; integers are little endian:

    offset  size  field
    0       1     2
    1       4     how far the clock of dates is ahead of UTC, seconds, signed
    5       4     number of texts
    9       8     units: what all stretches and all weights are multiples of
    17      20    sizes of the parts
    37            the parts:

1. the lengths of the texts;
2. the texts one after the other, a raw LZMA2 stream;
3. the stretches and those of the end, less what they are likely to be: those of the general tables,
   or those of the context before, which agree wherever a state was never seen;
4. the weights, less those that every fit starts from: most are never moved;
5. the weights of the end.

All but the texts are tables of integers (`integer_tables`), 3 and 4 in units. So any numbers come
back, and rounded ones take less.

Format 1, which earlier versions wrote, is read: the lengths, the texts, and the 16-bit and the
32-bit numbers byte plane by byte plane, each a Zstandard frame.
"""

import itertools
import lzma
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from verso_codecs import integer_tables, mixture_fit
from verso_codecs.history import END_COUNT
from verso_codecs.mixture_model import (
    FIRST_CONTEXT,
    FIRST_MATCH,
    INPUT_COUNT,
    SELECTOR_COUNT,
    Mixing,
)
from verso_codecs.ngram_model import WEIGHT_ONE, Model
from verso_core.errors import ArtifactInvalid

FORMAT = 2
"""What is written; 1 is read too."""

MAX_TEXTS_BYTES = 1 << 28
MAX_TEXTS = 1 << 22

_HEAD = struct.Struct("<BiI2I5I")
_HEAD_1 = struct.Struct("<BiIIII")  # format, clock shift, number of texts, sizes of three parts
_DAY_S = 86400
_LZMA2: list[dict[str, Any]] = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 22}
]
_GROUPS = [FIRST_CONTEXT, FIRST_MATCH, INPUT_COUNT]
"""Rows of stretches at which others begin: the contexts', the matches', the end's."""

_BLOCK = 256  # rows of weights that one selector chooses from
_STRETCHES, _WEIGHTS = (INPUT_COUNT + END_COUNT, 256), (SELECTOR_COUNT * 256, INPUT_COUNT + 1)
Table = integer_tables.Table


class Parts(NamedTuple):
    """What tables are made of again.

    texts: the history, in its order
    clock_shift_s: how far the clock of dates is ahead of UTC
    mixing: the fitted numbers
    """

    texts: tuple[bytes, ...]
    clock_shift_s: int
    mixing: Mixing


def pack(parts: Parts, general: Model) -> bytes:
    """Return tables as bytes; :func:`unpack` reads them.

    general: of the n-gram tables that they were fitted with
    """
    texts, shift, mixing = parts
    stretches = np.concatenate([mixing.stretches, mixing.end_stretches]).astype(np.int64)
    moved = mixing.weights.astype(np.int64) - first_weights()
    units = [max(1, int(np.gcd.reduce(table, axis=None))) for table in (stretches, moved)]
    tables = [
        np.array([[len(text) for text in texts]], np.int64),
        _surprises(stretches // units[0], general, unit=units[0]),
        moved.reshape(_WEIGHTS) // units[1],
        mixing.end_weights.astype(np.int64)[None],
    ]
    packed = [integer_tables.encode(table, block=_BLOCK) for table in tables]
    packed.insert(1, lzma.compress(b"".join(texts), lzma.FORMAT_RAW, filters=_LZMA2))
    head = _HEAD.pack(FORMAT, shift, len(texts), *units, *map(len, packed))
    return b"".join([head, *packed])


def unpack(data: bytes, general: Model) -> Parts:
    """Read what :func:`pack` wrote, or an earlier version.

    general: of the n-gram tables that they were fitted with

    Raises:
        ArtifactInvalid: the bytes are damaged, or of a later version.
    """
    readers = {1: lambda: _unpacked_1(data), FORMAT: lambda: _unpacked(data, general)}
    version = data[0] if data else 0
    if version not in readers:
        raise ArtifactInvalid(f"mixture tables: expected format 1 or {FORMAT}, got {version}")
    try:
        parts = readers[version]()
    except (struct.error, lzma.LZMAError, zstandard.ZstdError, ValueError) as exc:
        raise ArtifactInvalid(f"mixture tables: {exc}") from exc
    if abs(parts.clock_shift_s) > _DAY_S:
        raise ArtifactInvalid("mixture tables: expected a clock within a day of UTC")
    return parts


def first_weights() -> NDArray[np.int32]:
    """Return the weights that every fit starts from. Shape: of :class:`Mixing`."""
    first = np.zeros((SELECTOR_COUNT, 256, INPUT_COUNT + 1), np.int32)
    first[0, :, :INPUT_COUNT] = round(mixture_fit.FIRST_WEIGHT * WEIGHT_ONE)
    return first


def _unpacked(data: bytes, general: Model) -> Parts:
    _, shift, count, *numbers = _HEAD.unpack_from(data)
    if count > MAX_TEXTS:
        raise ValueError(f"expected <= {MAX_TEXTS} texts, got {count}")
    stretch, weight, *sizes = numbers
    if 0 in (stretch, weight):
        raise ValueError("expected units of 1 and more")
    packed = _split(data, _HEAD.size, sizes)
    texts = packed.pop(1)
    shapes = [(1, count), _STRETCHES, _WEIGHTS, (1, END_COUNT + 1)]
    lengths, surprises, moved, ends = (
        integer_tables.decode(part, shape, block=_BLOCK)
        for part, shape in zip(packed, shapes, strict=True)
    )
    stretches = _narrow(_likely(surprises, general, unit=stretch), stretch, np.int16)
    weights = moved.reshape(SELECTOR_COUNT, 256, INPUT_COUNT + 1)
    mixing = Mixing(
        stretches=stretches[:INPUT_COUNT],
        weights=_narrow(weights, weight, np.int32, plus=first_weights()),
        end_stretches=stretches[INPUT_COUNT:],
        end_weights=_narrow(ends[0], 1, np.int32),
    )
    return Parts(_cut(_decompressed(texts, lengths[0]), lengths[0]), shift, mixing)


def _surprises(stretches: Table, general: Model, *, unit: int) -> Table:
    """Return stretches less what they are likely to be; all in units."""
    first, *others = np.split(stretches, _GROUPS)
    steps = [np.diff(rows, axis=0, prepend=0) for rows in others]
    return np.concatenate([first - _expected(general, unit), *steps])


def _likely(surprises: Table, general: Model, *, unit: int) -> Table:
    """Undo :func:`_surprises`."""
    first, *others = np.split(surprises, _GROUPS)
    sums = [np.cumsum(steps, axis=0) for steps in others]
    return np.concatenate([first + _expected(general, unit), *sums])


def _expected(general: Model, unit: int) -> Table:
    return (general.stretches.astype(np.int64) + unit // 2) // unit


def _narrow(
    table: Table, unit: int, dtype: type[Any], *, plus: NDArray[Any] | int = 0
) -> NDArray[Any]:
    """Return numbers of so many units in their own type."""
    limits = np.iinfo(dtype)
    most = limits.max // unit + (1 << 16)
    if table.size and max(-int(table.min()), int(table.max())) > most:
        raise ValueError(f"expected numbers of {limits.bits} bits")
    own = table * unit + plus
    if own.min() < limits.min or own.max() > limits.max:
        raise ValueError(f"expected numbers of {limits.bits} bits")
    return own.astype(dtype)


def _decompressed(packed: bytes, lengths: Table) -> bytes:
    """Decompress texts of these lengths."""
    if lengths.size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= MAX_TEXTS_BYTES:
        raise ValueError("expected lengths of texts")
    size = int(lengths.sum())
    if size > MAX_TEXTS_BYTES:
        raise ValueError(f"expected <= {MAX_TEXTS_BYTES} bytes of texts, got {size}")
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_LZMA2)
    texts = unpacker.decompress(packed, max_length=size + 1)
    if len(texts) != size or not unpacker.eof or unpacker.unused_data:
        raise ValueError("expected texts of their lengths")
    return texts


def _cut(texts: bytes, lengths: NDArray[np.integer[Any]]) -> tuple[bytes, ...]:
    ends = np.cumsum(lengths).tolist()
    return tuple(texts[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True))


def _split(data: bytes, begin: int, sizes: Sequence[int]) -> list[bytes]:
    """Return the parts of these sizes that follow one another and end with the data."""
    bounds = np.cumsum([begin, *sizes]).tolist()
    if bounds[-1] != len(data):
        raise ValueError(f"expected {bounds[-1]} bytes, got {len(data)}")
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


def _unpacked_1(data: bytes) -> Parts:
    _, shift, count, *sizes = _HEAD_1.unpack_from(data)
    last = len(data) - _HEAD_1.size - sum(sizes)
    if last < 0:
        raise ValueError(f"expected {sum(sizes)} bytes and more")
    parts = _split(data, _HEAD_1.size, [*sizes, last])
    lengths, texts, narrow, wide = map(_opened, parts)
    found = _numbers(lengths, "<u4", [(count,)])[0].astype(np.int64)
    if int(found.sum()) != len(texts):
        raise ValueError("expected texts of their lengths")
    stretches, end_stretches = _numbers(narrow, "<i2", [(INPUT_COUNT, 256), (END_COUNT, 256)])
    moved, end_weights = _numbers(
        wide, "<i4", [(SELECTOR_COUNT, 256, INPUT_COUNT + 1), (END_COUNT + 1,)]
    )
    mixing = Mixing(
        stretches=stretches.astype(np.int16),
        weights=(moved + first_weights()).astype(np.int32),
        end_stretches=end_stretches.astype(np.int16),
        end_weights=end_weights.astype(np.int32),
    )
    return Parts(_cut(texts, found), shift, mixing)


def _numbers(
    data: bytes, dtype: str, shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[np.integer[Any]]]:
    """Return numbers of these shapes that were stored byte plane by byte plane."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    planes = np.frombuffer(data, np.uint8).reshape(np.dtype(dtype).itemsize, sum(sizes))
    joined = np.ascontiguousarray(planes.T).reshape(-1).view(dtype)
    parts = np.split(joined, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _opened(data: bytes) -> bytes:
    """Decompress one frame of at most a few bytes more than the largest history takes."""
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= MAX_TEXTS_BYTES:
        raise ValueError(f"expected <= {MAX_TEXTS_BYTES} bytes of a part, got {size}")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(1, size))
