"""Lines joined to records: a line that a pattern is found in begins one."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from verso_client.cli.line_times import LineTimes
from verso_core.errors import RequestInvalid
from verso_core.texts import MAX_TEXT_BYTES

RECORD_BYTES = MAX_TEXT_BYTES - 4096
"""Longest record; a longer one is cut, at a line end where there is one."""


class Joining:
    """Joins the lines of one stream.

    Args:
        pattern: a regular expression of Python, searched for in each line's bytes.
        times: format of the times in first lines; None to look for none.

    Raises:
        RequestInvalid: the pattern is none.
    """

    def __init__(self, pattern: str, *, times: str | None = "auto") -> None:
        try:
            self._first = re.compile(pattern.encode())
        except re.error as exc:
            raise RequestInvalid(f"expected a regular expression, got {pattern!a}: {exc}") from exc
        self._times = times

    def begins(self, line: bytes) -> bool:
        """Whether a line begins a record."""
        return self._first.search(line) is not None

    def last_begin(self, data: bytes) -> int:
        """Return where the last record of whole lines begins; 0 if that is the first."""
        found = place = 0
        for line in _lines(data):
            if place and self.begins(line):
                found = place
            place += len(line)
        return found

    def records(self, data: bytes) -> Iterator[bytes]:
        """Yield the records of whole lines, each without its last line feed."""
        begin = place = 0
        for line in _lines(data):
            if place > begin and (self.begins(line) or place + len(line) - begin > RECORD_BYTES):
                yield from _cut(data[begin:place])
                begin = place
            place += len(line)
        if place > begin:
            yield from _cut(data[begin:place])

    def rows(self, data: bytes, *, until: datetime | None = None) -> bytes:
        """Return the records of whole lines as NDJSON.

        Args:
            data: the lines.
            until: when they end, for times without a year; now by default.
        """
        times = None
        if self._times is not None:
            times = LineTimes(self._times, until=lambda: datetime.now(UTC))
        return b"\n".join(_row(record, times) for record in self.records(data))


def _lines(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        end = data.find(b"\n", place) + 1 or len(data)
        yield data[place:end]
        place = end


def _cut(record: bytes) -> Iterator[bytes]:
    text = record.removesuffix(b"\n")
    for begin in range(0, max(1, len(text)), RECORD_BYTES):
        yield text[begin : begin + RECORD_BYTES]


def _row(record: bytes, times: LineTimes | None) -> bytes:
    row: dict[str, str | int] = {}
    try:
        row["text"] = record.decode()
    except UnicodeDecodeError:
        row["text_base64"] = base64.b64encode(record).decode("ascii")
    time_s = None if times is None else times.of(record)
    if time_s is not None and time_s >= 0:
        row["time"] = round(time_s * 1_000_000) * 1000
    return json.dumps(row, separators=(",", ":")).encode("ascii")
