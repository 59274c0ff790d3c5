"""Compile all kernels at a time of the caller's choosing.

To compile them takes some 40 seconds of a core, two thirds of it for the loop that codes
values; the machine code is then kept in the cache and loaded in under a second. As a program this
module compiles: `python -m verso_codecs.logs.warm`, and at low priority with `--nice`.
"""

import fcntl
import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np

from verso_codecs.logs import blocks, filters, lines, times
from verso_codecs.logs.parsing import parse, split
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables
from verso_core.interpreter import lower_priority

_PACKAGE = Path(__file__).parents[1]
_NICE = 10
_CONFIG: Any = numba.config  # its attributes are made from the environment


def is_compiled() -> bool:
    """Whether `warm` has compiled every kernel as it is now, for this machine."""
    return bool(_CONFIG.DISABLE_JIT) or _mark().exists()


def warm() -> None:
    """Compile or load every kernel; a minute the first time, then under a second."""
    with _one_at_a_time():
        _call_all()
        if not is_compiled():
            with suppress(OSError):  # a cache that cannot be written: compiled again next time
                _mark().touch()


def _mark() -> Path:
    """Return the file that stands in the cache once all kernels do.

    Like the cache itself it is of one state of the sources, of numba, and of the processor.
    """
    state = [numba.__version__, platform.python_version(), llvmlite.binding.get_host_cpu_name()]
    for path in sorted((*_PACKAGE.glob("*.py"), *_PACKAGE.glob("logs/*.py"))):
        about = path.stat()
        state.append(f"{path} {about.st_mtime_ns} {about.st_size}")
    digest = hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
    folder = Path(_CONFIG.CACHE_DIR or _PACKAGE / "__pycache__")
    return folder / f"log-kernels-{digest}"


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait while another process compiles the same; what it has compiled is then loaded."""
    path = Path(tempfile.gettempdir()) / f"verso-{_mark().name}-{os.getuid()}.lock"
    try:
        held = path.open("a")
    except OSError:  # compiled twice is compiled too
        yield
        return
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _call_all() -> None:
    shapes = Shapes()
    parsed = parse(split(b"2024-01-01 00:00:00 user u123 from 10.0.0.7\n"), shapes)
    shapes.extend(parsed.new_rows)
    shapes.find(parsed.new_rows[0])
    parsed.number([0])
    tables = Tables.builtin()
    block = blocks.encode(parsed, shapes, tables, first=0, count=1)
    found = blocks.decode(block, shapes, tables)
    filters.contains(filters.build(parsed, first=0, count=1, block_lines=1), b"u123")
    filters.of_hashes(np.arange(1000), np.zeros(1000, np.int64))
    form = times.find_format(found)
    if form is not None:
        times.read(found, form, now_ns=0)
    lines.find(found, b"u123")
    filters.lines_with(found, b"u123")
    lines.take(found, np.zeros(1, np.int64))


if __name__ == "__main__":
    if "--nice" in sys.argv:
        lower_priority(_NICE)
    warm()
