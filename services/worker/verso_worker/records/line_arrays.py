"""Lines as arrays: take some of them, and join them. No step is made a line.

Lines are bytes with where each begins and ends; a line end follows each line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import lines as line_codec
from verso_codecs.logs.parsing import Lines

Indices = NDArray[np.int64]


def joined(parts: Sequence[Lines]) -> Lines:
    """Return the lines of several as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        empty = np.zeros(0, np.int64)
        return Lines(np.zeros(0, np.uint8), empty, empty)
    shifts = np.cumsum([0, *(len(one.data) for one in parts[:-1])])
    return Lines(
        np.concatenate([one.data for one in parts]),
        np.concatenate([one.begins + shift for one, shift in zip(parts, shifts, strict=True)]),
        np.concatenate([one.ends + shift for one, shift in zip(parts, shifts, strict=True)]),
    )


def take(lines: Lines, indices: Indices) -> Lines:
    """Return some lines, in the order of ``indices``."""
    if not len(indices):
        return joined([])
    first, last = int(indices[0]), int(indices[-1])
    if last - first == len(indices) - 1 and (np.diff(indices) == 1).all():
        low, high = int(lines.begins[first]), int(lines.ends[last]) + 1
        part = slice(first, last + 1)
        return Lines(lines.data[low:high], lines.begins[part] - low, lines.ends[part] - low)
    sizes = lines.ends[indices] - lines.begins[indices] + 1  # with the line end
    places = np.cumsum(sizes) - sizes
    data = np.frombuffer(bytearray(line_codec.take(lines, indices)), np.uint8)
    return Lines(data, places, places + sizes - 1)


def of_rows(texts: Sequence[bytes]) -> Lines:
    """Return texts as lines, each followed by a line end."""
    sizes = np.array([len(text) + 1 for text in texts], np.int64)
    begins = np.cumsum(sizes) - sizes
    data = np.frombuffer(b"".join(text + b"\n" for text in texts), np.uint8)
    return Lines(data, begins, begins + sizes - 1)


def rows(lines: Lines) -> list[bytes]:
    """Return each line without its line end, for a few lines."""
    data = lines.data.tobytes()
    return [
        data[begin:end]
        for begin, end in zip(lines.begins.tolist(), lines.ends.tolist(), strict=True)
    ]
