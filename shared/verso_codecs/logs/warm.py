"""Compile all kernels at a time of the caller's choosing."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from verso_codecs.logs import blocks, filters, lines, times
from verso_codecs.logs.parsing import parse, split
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait while another process compiles; what it has compiled is then loaded."""
    path = Path(tempfile.gettempdir()) / f"verso-log-kernels-{os.getuid()}.lock"
    try:
        held = path.open("a")
    except OSError:  # compiled twice is compiled too
        yield
        return
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def warm() -> None:
    """Compile or load every kernel; a minute the first time, then under a second."""
    with _one_at_a_time():
        _call_all()


def _call_all() -> None:
    shapes = Shapes()
    parsed = parse(split(b"2024-01-01 00:00:00 user u123 from 10.0.0.7\n"), shapes)
    shapes.extend(parsed.new_rows)
    shapes.find(parsed.new_rows[0])
    parsed.number([0])
    tables = Tables.builtin()
    block = blocks.encode(parsed, shapes, tables, first=0, count=1)
    found = blocks.decode(block, shapes, tables)
    filters.contains(filters.build(parsed, first=0, count=1), b"u123")
    form = times.find_format(found)
    if form is not None:
        times.read(found, form, now_ns=0)
    lines.find(found, b"u123")
    lines.take(found, np.zeros(1, np.int64))
