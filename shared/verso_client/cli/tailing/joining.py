"""Lines joined to records: a line that a pattern is found in begins one."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice

from verso_client.cli.line_times import LineTimes
from verso_core.errors import RequestInvalid
from verso_core.texts import MAX_TEXT_BYTES

RECORD_BYTES = MAX_TEXT_BYTES - 4096
"""Longest record; a longer one is cut, at a line end where there is one."""
REQUEST_RECORDS = 100_000
"""Most records of a request; a gateway takes twice as many by default."""


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
        return max(self._begins(data), default=0)

    def first(self, data: bytes) -> bytes:
        """Return the first of whole lines, those of as many records as a request may have."""
        if data.count(b"\n") < REQUEST_RECORDS:
            return data
        end = next(islice(self._begins(data), REQUEST_RECORDS - 1, None), None)
        return data[:end]

    def records(self, data: bytes) -> Iterator[bytes]:
        """Yield the records of whole lines, each without its last line feed."""
        begin = 0
        for end in self._begins(data):
            yield from _cut(data[begin:end])
            begin = end
        if begin < len(data):
            yield from _cut(data[begin:])

    def _begins(self, data: bytes) -> Iterator[int]:
        """Yield where records but the first begin, also one that a record's length cuts off."""
        begin = place = 0
        for line in _lines(data):
            if place > begin and (self.begins(line) or place + len(line) - begin > RECORD_BYTES):
                yield place
                begin = place
            place += len(line)

    def joined(self, lines: Iterable[bytes | None]) -> Iterator[bytes | None]:
        """Yield lines joined to records, as they come; None, what came is to be sent, stays.

        A record waits for its next line, and ends where none came from one None to the next.
        """
        parts: list[bytes] = []
        size = 0
        waited = False
        for line in lines:
            if line is None:
                ends, waited = waited, True
            else:
                ends, waited = self.begins(line) or size + len(line) > RECORD_BYTES, False
            if parts and ends:
                yield b"".join(parts)
                parts, size = [], 0
            if line is None:
                yield None
            else:
                parts.append(line)
                size += len(line)
        if parts:
            yield b"".join(parts)

    def bodies(self, parts: Iterable[bytes | None]) -> Iterator[bytes]:
        """Yield NDJSON of the records of lines that come in parts; a record may be in several.

        None among the parts, a pause, ends a record.
        """
        rest = b""
        for part in parts:
            data = rest + (part or b"")
            end = len(data) if part is None else self.last_begin(data)
            rest = data[end:]
            yield from self._requests(data[:end])
        yield from self._requests(rest)

    def _requests(self, data: bytes) -> Iterator[bytes]:
        while data:
            part = self.first(data)
            yield self.rows(part)
            data = data[len(part) :]

    def rows(self, data: bytes) -> bytes:
        """Return the records of whole lines as NDJSON, with the times of their first lines."""
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
