"""Lines of real logs as bytes, and any number of lines made from them."""

from __future__ import annotations

import itertools
import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import texts
from numpy.typing import NDArray

WHOLE = ("Linux", "Proxifier")
"""Systems of which a data folder has more than 2,000 lines."""
NEW_LINES = 10_000
"""First lines of a new system."""
_STEP_S = 1
_FIRST_DAY = np.datetime64("2025-01-01T00:00:00")
_MONTHS = b"JanFebMarAprMayJunJulAugSepOctNovDec"
_HEADER_BYTES = len("Jan 01 00:00:00")
_LEAST_DIGITS = 4  # of a run that gets other digits behind its first one


def whole(folder: Path | None) -> dict[str, bytes]:
    """Return all lines of the systems of a data folder, or those of the shipped corpus."""
    if folder is None:
        return {"shipped": b"".join(row + b"\n" for row in texts.corpus_by_kind()["corpus: line"])}
    paths = {name: folder / "logs_loghub_full" / f"{name}.log.xz" for name in WHOLE}
    return {name: lzma.decompress(path.read_bytes()) for name, path in paths.items()}


def first_lines(data: bytes, count: int) -> bytes:
    """Return the first lines of a file."""
    return b"".join(itertools.islice(data.splitlines(keepends=True), count))


def generated(base: bytes, count: int) -> Iterator[bytes]:
    """Yield ``count`` lines, in parts of as many as ``base`` has: its lines with other values.

    Each line begins with the next second after that of the line before, as syslog writes it, and
    runs of four and more digits have other digits behind the first one.
    """
    source = _Source(base)
    rng = np.random.default_rng(17)
    for first in range(0, count, source.lines):
        yield source.varied(rng, first, min(source.lines, count - first))


class _Source:
    """Lines whose times and long numbers are written again and again."""

    def __init__(self, base: bytes) -> None:
        rows = base.splitlines()
        headed = all(_has_header(row) for row in rows[:100])
        text = b"".join(
            (row if headed and _has_header(row) else b"x" * _HEADER_BYTES + b" " + row) + b"\n"
            for row in rows
        )
        self._data = np.frombuffer(bytearray(text), np.uint8)
        self._ends = np.flatnonzero(self._data == ord("\n")) + 1
        self._begins = np.append(0, self._ends[:-1])
        self._places = _long_digits(self._data, self._begins)
        self.lines = len(self._ends)

    def varied(self, rng: np.random.Generator, first: int, count: int) -> bytes:
        """Return the first lines with the times of lines ``first`` and on, and other digits."""
        data = self._data.copy()
        data[self._places] = rng.integers(48, 58, len(self._places), np.uint8)
        seconds = _FIRST_DAY + (np.arange(first, first + count) * _STEP_S).astype("timedelta64[s]")
        places = self._begins[:count, None] + np.arange(_HEADER_BYTES)
        data[places] = _headers(seconds)
        return data[: self._ends[count - 1]].tobytes()


def _has_header(row: bytes) -> bool:
    return row[:3] in {_MONTHS[at : at + 3] for at in range(0, 36, 3)} and row[15:16] == b" "


def _long_digits(data: NDArray[np.uint8], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where digits stand behind the first of a long run, but not in headers."""
    digit = (data >= 48) & (data <= 57)
    header = (begins[:, None] + np.arange(_HEADER_BYTES)).ravel()
    digit[header] = False
    edges = np.flatnonzero(np.diff(np.concatenate(([0], digit.view(np.int8), [0]))))
    runs = [
        np.arange(begin + 1, end)
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        if end - begin >= _LEAST_DIGITS
    ]
    return np.concatenate(runs) if runs else np.zeros(0, np.int64)


def _headers(seconds: NDArray[np.datetime64]) -> NDArray[np.uint8]:
    """Return times as syslog writes them. Shape: (lines, 15)."""
    months = seconds.astype("datetime64[M]")
    days = (seconds.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64) + 1
    rest = (seconds - seconds.astype("datetime64[D]")).astype(np.int64)
    found = np.full((len(seconds), _HEADER_BYTES), ord(" "), np.uint8)
    names = np.frombuffer(_MONTHS, np.uint8).reshape(12, 3)
    found[:, :3] = names[months.astype(np.int64) % 12]
    for at, value in ((4, days), (7, rest // 3600), (10, rest // 60 % 60), (13, rest % 60)):
        found[:, at], found[:, at + 1] = 48 + value // 10, 48 + value % 10
    found[:, 9] = found[:, 12] = ord(":")
    found[days < 10, 4] = ord(" ")
    return found
