"""Which lines hold some bytes, and lines put together again."""

import numpy as np
from numpy.typing import NDArray

from verso_codecs.coder import Bytes, State, kernel
from verso_codecs.logs.parsing import Lines


@kernel
def _find(lines: Lines, needle: Bytes, found: NDArray[np.bool_]) -> None:
    data, size = lines.data, needle.size
    for line in range(found.size):
        found[line] = size == 0
        for begin in range(lines.begins[line], lines.ends[line] - size + 1):
            if size == 0 or data[begin] != needle[0]:
                continue
            same = 1
            while same < size and data[begin + same] == needle[same]:
                same += 1
            if same == size:
                found[line] = True
                break


@kernel
def _take(lines: Lines, numbers: State, out: Bytes) -> None:
    at = 0
    for number in numbers:
        for index in range(lines.begins[number], lines.ends[number]):
            out[at] = lines.data[index]
            at += 1
        out[at] = 10
        at += 1


def find(lines: Lines, needle: bytes) -> NDArray[np.bool_]:
    """Return which lines hold these bytes. Shape: (lines,)"""
    found = np.zeros(lines.begins.size, np.bool_)
    _find(lines, np.frombuffer(bytearray(needle), np.uint8), found)
    return found


def take(lines: Lines, numbers: NDArray[np.int64]) -> bytes:
    """Return lines in the order given, each with a line feed.

    Raises:
        IndexError: when there is no such line.
    """
    chosen = np.asarray(numbers, np.int64)
    if chosen.size and not 0 <= int(chosen.min()) <= int(chosen.max()) < lines.begins.size:
        raise IndexError(f"expected lines below {lines.begins.size}")
    size = int((lines.ends[chosen] - lines.begins[chosen]).sum()) + chosen.size
    out = np.empty(size, np.uint8)
    _take(lines, chosen, out)
    return out.tobytes()
