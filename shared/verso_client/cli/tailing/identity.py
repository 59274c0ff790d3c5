"""What tells files apart: from others of their host, and from themselves once truncated."""

from __future__ import annotations

import hashlib
import os

FIRST_LINE_BYTES = 1024
"""Bytes of a first line that are looked at."""
_CHECKED_BYTES = 1024


def digest(data: bytes, *, size: int = 6) -> str:
    """Return a hash, hexadecimal."""
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def identity(status: os.stat_result, descriptor: int) -> str:
    """Return what names a file: device, inode and first line, hashed."""
    return digest(b"%d:%d:" % (status.st_dev, status.st_ino) + _first_line(descriptor))


def label(path: str) -> str:
    """Return a file's path as its label ``source``: with escapes for bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def head(descriptor: int) -> str:
    """Return a hash of a file's first line; empty while that is not complete."""
    data = os.pread(descriptor, FIRST_LINE_BYTES, 0)
    line, end, _ = data.partition(b"\n")
    return digest(line) if end or len(data) == FIRST_LINE_BYTES else ""


def check(descriptor: int, offset: int) -> str:
    """Return a hash of the bytes before an offset; empty at the beginning."""
    begin = max(0, offset - _CHECKED_BYTES)
    return digest(os.pread(descriptor, offset - begin, begin)) if offset else ""


def _first_line(descriptor: int) -> bytes:
    return os.pread(descriptor, FIRST_LINE_BYTES, 0).partition(b"\n")[0]
