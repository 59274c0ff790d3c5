"""Large results of slices, each a file in a folder that worker, gateway and keeper share.

The ledger keeps results in memory until their job expires. A result above a bound is therefore
written to a file, and the ledger holds a reference of 41 bytes instead:

    offset  size  field
    0       1     0x57 (a frame starts with 0x56)
    1       8     size of the frame, bytes, little endian
    9       32    blake2b-256 of the frame

    FOLDER/{ab}/{job}/{number}.{hash}      ab: the first two digits of the job's id

1. The worker writes and syncs the file, and only then commits the reference.
2. The gateway checks size and hash of what it reads.
3. The keeper removes the files of expired jobs, including those of attempts that never committed.

A reference holds no path, so a forged result cannot name a file outside the folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from verso_core import files
from verso_core.errors import DiskFull, ResultLost, ResultsUnavailable

SHARDS: Final = tuple(f"{n:02x}" for n in range(256))
"""Names of the parts of the folder, which the keeper sweeps in turn."""

_REFERENCE = struct.Struct("<BQ32s")
_MAGIC = 0x57
_JOB = re.compile(r"[0-9a-f]{32}(?:_[a-z0-9_]{1,190})?(?:-[a-z][a-z0-9]{0,15})?")
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ASKED_AT_ONCE = 512


def is_reference(held: bytes) -> bool:
    """Whether the ledger holds a reference to a file instead of a result."""
    return held[:1] == bytes([_MAGIC])


class ResultFiles:
    """The folder of large results; any number of processes and threads may use it.

    Args:
        folder: of the files; None to keep every result in the ledger.
        inline_bytes: the largest result that stays in the ledger.
        floor_bytes: disk space that a file must leave free.
    """

    def __init__(
        self, folder: Path | None, *, inline_bytes: int = 1 << 16, floor_bytes: int = 0
    ) -> None:
        self._folder = folder
        self._inline_bytes = inline_bytes
        self._floor_bytes = floor_bytes

    def keep(self, job_id: str, number: int, frame: bytes) -> bytes:
        """Return what the ledger is to hold: the frame of a result, or a reference to its file.

        The file is on disk when this returns.

        Raises:
            DiskFull: there is no room for the file, which was not written.
            ResultsUnavailable: the folder cannot be written.
        """
        if self._folder is None or len(frame) <= self._inline_bytes or not _JOB.fullmatch(job_id):
            return frame
        digest = _digest(frame)
        path = _path(self._folder, job_id, number, digest)
        try:
            self._write(path, frame)
        except OSError as exc:
            if exc.errno in _NO_ROOM:
                raise DiskFull(f"no room for a result of {len(frame)} bytes") from exc
            raise ResultsUnavailable(
                f"the folder of results cannot be written: {exc.strerror}"
            ) from exc
        return _REFERENCE.pack(_MAGIC, len(frame), digest)

    def read(self, job_id: str, number: int, held: bytes) -> bytes:
        """Return the frame of a result from what the ledger holds: the frame or a reference.

        Raises:
            ResultLost: the file is missing, or is not what was written.
            ResultsUnavailable: the folder cannot be read.
        """
        if not is_reference(held):
            return held
        try:
            _, size, digest = _REFERENCE.unpack(held)
        except struct.error:
            raise ResultLost(f"expected a reference of {_REFERENCE.size} bytes") from None
        if self._folder is None:
            raise ResultsUnavailable("expected VERSO_RESULTS to name the folder of large results")
        what = f"the result of slice {number} of job {job_id}"
        try:
            frame = _path(self._folder, job_id, number, digest).read_bytes()
        except FileNotFoundError:
            if not self._folder.is_dir():
                raise ResultsUnavailable("the folder of results is not there") from None
            raise ResultLost(f"{what} is gone") from None
        except OSError as exc:
            raise ResultsUnavailable(f"{what} cannot be read: {exc.strerror}") from exc
        if len(frame) != size or _digest(frame) != digest:
            raise ResultLost(f"{what} is damaged")
        return frame

    def sweep(self, shard: str, known: Callable[[Sequence[str]], set[str]]) -> int:
        """Remove the files of expired jobs from one part of the folder.

        Args:
            shard: one of :data:`SHARDS`.
            known: returns those of some jobs that the ledger still has.

        Returns:
            The number of jobs whose files were removed.

        Raises:
            VersoError: ``known`` raised it; nothing more is removed then.
            ResultsUnavailable: the folder cannot be read or written.
        """
        if self._folder is None:
            return 0
        removed = 0
        part = self._folder / shard
        try:
            jobs = [path.name for path in part.iterdir() if _JOB.fullmatch(path.name)]
            for start in range(0, len(jobs), _ASKED_AT_ONCE):
                page = jobs[start : start + _ASKED_AT_ONCE]
                for job in set(page) - known(page):
                    shutil.rmtree(part / job)
                    removed += 1
        except FileNotFoundError:  # no such part yet, or another keeper was faster
            return removed
        except OSError as exc:
            raise ResultsUnavailable(
                f"the folder of results cannot be swept: {exc.strerror}"
            ) from exc
        return removed

    def _write(self, path: Path, frame: bytes) -> None:
        """Write a file that is complete or missing after a power cut."""
        folder = path.parent
        for made in (folder.parent.parent, folder.parent, folder):
            if not made.is_dir():
                made.mkdir(mode=0o700, parents=True, exist_ok=True)
                files.sync(made.parent)
        if shutil.disk_usage(folder).free - len(frame) < self._floor_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        files.replace(path, frame)


def _path(folder: Path, job_id: str, number: int, digest: bytes) -> Path:
    return folder / job_id[:2] / job_id / f"{number}.{digest[:8].hex()}"


def _digest(frame: bytes) -> bytes:
    return hashlib.blake2b(frame, digest_size=32).digest()
