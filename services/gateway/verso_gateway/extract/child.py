"""Reads files for a gateway, each in a process of its own.

1. The gateway sends a file to this process on standard input (:func:`serve`).
2. This process forks. The fork bounds its memory and its processor time, drops what it need not
   have, finds the file's format, reads the text, and writes it into a pipe.
3. This process kills the fork when the time is over or too much comes out of the pipe, and answers
   on standard output with the text or an error.

Whatever a file does to a library, it does to the fork alone. Libraries are loaded before the fork
that needs them, so the next file of the format finds them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import math
import os
import resource
import select
import signal
import struct
import time
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO, NoReturn, Protocol, cast

from verso_core import DISTRIBUTION
from verso_core.errors import (
    FileTooLarge,
    FileUnreadable,
    NotInstalled,
    VersoError,
    error_body,
    from_body,
)
from verso_gateway.extract.content import Content
from verso_gateway.extract.formats import Family, Format, family_of, format_of

HEAD = struct.Struct("<IQ")
"""Before each message: length of its JSON header and of its body, bytes."""
EXTRA = f"{DISTRIBUTION}[files]"
TEXT_BYTES = 16 * 1024 * 1024
"""Most text of a file, over all pages."""
_READ_BYTES = 1 << 16
_ESCAPED = 2
"""Bytes of JSON that a byte of text may take: a line feed, a quotation mark."""
_READ, _FAILED = b"+", b"-"
_OUT_OF_MEMORY, _OTHER_FAULT = 3, 4
_OPEN_FILES = 64
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reading one file may take.

    Attributes:
        seconds: of time, and of processor time.
        memory_bytes: of address space, libraries included.
    """

    seconds: float
    memory_bytes: int


class Reader(Protocol):
    """A module of ``readers``."""

    def read(self, data: bytes, format: Format) -> Content:  # noqa: A002 - what it is
        """Return the text of a file.

        Raises:
            FileUnreadable: it, or a class below, says why there is none.
        """
        ...


def serve(source: BinaryIO, target: BinaryIO, bounds: Bounds) -> None:
    """Read the files that come on ``source`` until it ends, and answer on ``target``.

    A request's header has ``media_type`` and ``name``. The body of an answer is a
    :class:`~verso_gateway.extract.content.Content`, or its header has an ``error``.
    """
    tether()
    while head := source.read(HEAD.size):
        header_size, size = HEAD.unpack(head)
        header = json.loads(source.read(header_size))
        data = source.read(size)
        error, body = {}, b""
        try:
            body = answered(data, header["media_type"], header["name"], bounds)
        except VersoError as fault:
            error = {"error": error_body(fault)}
        del data
        answer = json.dumps(error).encode("ascii")
        target.write(HEAD.pack(len(answer), len(body)) + answer + body)
        target.flush()


def tether() -> None:
    """Let the kernel end this process when the one that started it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def answered(data: bytes, media_type: str, name: str, bounds: Bounds) -> bytes:
    """Return the content of one file, dumped.

    Raises:
        FileUnreadable: it, or a class below, says why there is none.
    """
    _load(family_of(data, media_type=media_type, name=name))
    pipe, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(pipe)
        _run(end, data, media_type, name, bounds)
    os.close(end)
    with FileIO(pipe) as answers:
        answer = _received(answers, bounds)
    if answer is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if answer is None:
        raise FileTooLarge(
            f"expected a file that is read within {bounds.seconds:g} s into <= {TEXT_BYTES} bytes "
            "of text"
        )
    if status:
        raise _ended(status, bounds)
    if answer[:1] == _FAILED:
        raise from_body(json.loads(answer[1:]))
    return answer[1:]


def _load(family: Family) -> Reader:
    """Return the reader of a family of formats.

    Raises:
        NotInstalled: its libraries are not installed.
    """
    try:
        return cast("Reader", importlib.import_module(f"verso_gateway.extract.readers.{family}"))
    except ModuleNotFoundError as exc:
        raise NotInstalled(f"expected the extra {EXTRA} at the gateway") from exc


def _run(end: int, data: bytes, media_type: str, name: str, bounds: Bounds) -> NoReturn:
    """Read one file in a process of its own, and end the process."""
    try:
        _confine(bounds)
        try:
            kind = format_of(data, media_type=media_type, name=name)
            content = _load(family_of(data, media_type=media_type, name=name)).read(data, kind)
            answer = _READ + content.dumped()
        except VersoError as fault:
            answer = _FAILED + json.dumps(error_body(fault)).encode("ascii")
        with FileIO(end, "wb") as pipe:
            pipe.write(answer)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    except BaseException:  # noqa: BLE001 - a library raises anything; its message may quote the text
        os._exit(_OTHER_FAULT)
    os._exit(0)


def _confine(bounds: Bounds) -> None:
    """Bound the process, and leave it nothing but its memory and its pipe to write to."""
    tether()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # libraries warn, and quote the text
        os.dup2(nothing, standard)
    seconds = math.ceil(bounds.seconds)
    for what, most in (
        (resource.RLIMIT_AS, bounds.memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
    ):
        resource.setrlimit(what, (most, most))


def _received(pipe: FileIO, bounds: Bounds) -> bytes | None:
    """Return what comes out of a pipe; None if it takes too long, or is too much."""
    until = time.monotonic() + bounds.seconds
    parts: list[bytes] = []
    size = 0
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready or size > _ESCAPED * TEXT_BYTES:
            return None
        part = pipe.read(_READ_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)


def _ended(status: int, bounds: Bounds) -> FileUnreadable:
    """Return why a process ended that did not say."""
    code = os.waitstatus_to_exitcode(status)
    if code in (_OUT_OF_MEMORY, -signal.SIGKILL, -signal.SIGABRT):
        most = bounds.memory_bytes
        return FileTooLarge(f"expected a file that is read in <= {most} bytes of memory")
    if code == -signal.SIGXCPU:
        return FileTooLarge(f"expected a file that is read within {bounds.seconds:g} s")
    return FileUnreadable("expected a whole file, got one that its reader fails on")
