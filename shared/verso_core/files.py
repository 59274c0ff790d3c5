"""Write files so that a power cut leaves a complete file; copy files with their holes.

A vector store's files are sparse: those of an empty collection are about 70 MB long.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

_PART_BYTES = 1 << 20
_SECTOR_BYTES = 512  # what stat(2) counts blocks in


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


def copy(source: Path | str, target: Path | str) -> None:
    """Copy a file with its permissions and times; what is a hole stays a hole.

    Where the file system knows no holes, the whole file is data (lseek(2), SEEK_DATA).

    Raises:
        OSError: the file could not be copied; a part of it may lie at ``target``.
    """
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        os.ftruncate(writer.fileno(), size)
        for start, end in _data(reader.fileno(), size):
            at = start
            while at < end:
                part = os.pread(reader.fileno(), min(_PART_BYTES, end - at), at)
                if not part:  # it became shorter meanwhile
                    break
                at += os.pwrite(writer.fileno(), part, at)
    shutil.copystat(source, target)


def copy_tree(
    source: Path,
    target: Path,
    *,
    merge: bool = False,
    ignore: Callable[[str, list[str]], set[str]] | None = None,
) -> None:
    """Copy a folder, each file as :func:`copy` does.

    Args:
        source: the folder.
        target: the folder to create.
        merge: whether ``target`` may exist; its files are replaced by those of the same name.
        ignore: names to leave out, as ``shutil.copytree`` takes it.

    Raises:
        OSError: a file could not be copied, or ``target`` exists.
    """
    shutil.copytree(source, target, copy_function=copy, dirs_exist_ok=merge, ignore=ignore)


def used_bytes(folder: Path) -> int:
    """Return what the files of a folder take on the disk, bytes: holes are not counted.

    What is removed meanwhile, a file or a folder, is not counted either.
    """
    used = 0
    for parent, folders, names in os.walk(folder):  # unlike rglob it passes over a lost folder
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                used += _SECTOR_BYTES * Path(parent, name).lstat().st_blocks
    return used


def _data(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where a file's data begin and end, bytes, without its holes."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end
