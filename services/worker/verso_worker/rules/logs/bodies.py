"""The bodies of log records, whose lines have a time in front and perhaps attributes at the end.

What is stored and verified is the line (:mod:`verso_core.jobs.logs.records`); what is read,
searched for bytes and shown is the body.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import lines as line_codec
from verso_codecs.logs.parsing import Lines
from verso_core.jobs.logs.records import TIME_BYTES, LineRecord, TimeFrom, read_line
from verso_worker.records import line_arrays

TIME_PATTERN = "%Y-%m-%dT%H:%M:%S"
"""Of the time in front of the line of a record; :mod:`verso_codecs.logs.times` reads the rest."""
_END = b"\0\1"
_LINE_FEED = b"\0 "


class Bodies(NamedTuple):
    """The bodies of records, each followed by a line end; a body may have line feeds of its own.

    ``ends`` is what stands behind each body in its line: whose its time is, and its attributes.
    Shape: (lines,), of bytes.
    """

    lines: Lines
    ends: NDArray[np.object_]


def bodies(lines: Lines) -> Bodies:
    """Return the bodies of records' lines."""
    if (lines.data == 0).any():
        records = [_read(row) for row in line_arrays.rows(lines)]
        ends = np.array([_end_of(one) for one in records], np.object_)
        return Bodies(line_arrays.of_rows([one.text for one in records]), ends)
    behind = Lines(lines.data, np.minimum(lines.begins + TIME_BYTES, lines.ends), lines.ends)
    sizes = behind.ends - behind.begins + 1
    places = np.cumsum(sizes) - sizes
    data = line_codec.take(behind, np.arange(len(sizes)))
    found = Lines(np.frombuffer(bytearray(data), np.uint8), places, places + sizes - 1)
    return Bodies(found, no_ends(len(sizes)))


def no_ends(count: int) -> NDArray[np.object_]:
    """Return the ends of lines that are no records, or of records that have none."""
    return np.full(count, b"", np.object_)


def shown(end: bytes) -> str:
    """Return what the end of a record says, as members of a JSON object behind others."""
    if not end:
        return ""
    source = TimeFrom.of(end[:1])
    time_from = "" if source is TimeFrom.SENDER else f',"time_from":"{source}"'
    return f'{time_from},"attributes":{end[1:].decode()}' if len(end) > 1 else time_from


def statement_text(message: bytes) -> bytes:
    """Return what templates are mined from: a message without the attributes behind it."""
    return message.partition(_END)[0].replace(_LINE_FEED, b" ")


def _read(row: bytes) -> LineRecord:
    return read_line(row) if row else LineRecord(b"")  # empty: of a document that was deleted


def _end_of(record: LineRecord) -> bytes:
    if record.attributes or record.time_from is not TimeFrom.SENDER:
        return record.time_from.letter + record.attributes
    return b""
