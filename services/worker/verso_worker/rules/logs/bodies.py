"""The bodies of log records, whose lines have a time in front and perhaps attributes at the end.

What is stored and verified is the line (:mod:`verso_core.jobs.log_records`); what is read, searched
for bytes and shown is the body.
"""

from __future__ import annotations

import numpy as np

from verso_codecs.logs import lines as line_codec
from verso_codecs.logs.parsing import Lines
from verso_core.jobs.log_records import TIME_BYTES, read_line
from verso_worker.records import line_arrays

TIME_PATTERN = "%Y-%m-%dT%H:%M:%S"
"""Of the time in front of the line of a record; :mod:`verso_codecs.logs.times` reads the rest."""
_END = b"\0\1"
_LINE_FEED = b"\0 "


def bodies(lines: Lines) -> Lines:
    """Return the bodies of records' lines, each followed by a line end.

    A body may have line feeds of its own.
    """
    if (lines.data == 0).any():
        return line_arrays.of_rows([_body(row) for row in line_arrays.rows(lines)])
    behind = Lines(lines.data, np.minimum(lines.begins + TIME_BYTES, lines.ends), lines.ends)
    sizes = behind.ends - behind.begins + 1
    places = np.cumsum(sizes) - sizes
    data = line_codec.take(behind, np.arange(len(sizes)))
    return Lines(np.frombuffer(bytearray(data), np.uint8), places, places + sizes - 1)


def statement_text(message: bytes) -> bytes:
    """Return what templates are mined from: a message without the attributes behind it."""
    return message.partition(_END)[0].replace(_LINE_FEED, b" ")


def _body(row: bytes) -> bytes:
    return read_line(row).text if row else row  # an empty one stands for a deleted document
