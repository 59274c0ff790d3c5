"""Write files so that a power cut leaves a complete file: the new one or the one before."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path


def write(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write and sync a file; a power cut may leave a part of it.

    ``mode`` is that of a new file, less what the process's umask takes away.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write and sync a file and its name; a power cut leaves the new file or the old one.

    ``mode`` is that of the file, less what the process's umask takes away.

    Raises:
        OSError: the file could not be written; the old one is unchanged.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    try:
        write(draft, data, mode=mode)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync a file's bytes, or the names in a folder, to the disk (fsync(2))."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
