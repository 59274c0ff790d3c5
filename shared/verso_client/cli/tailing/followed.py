"""One file that is followed, by its open descriptor: a rename does not end it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from verso_client.cli.tailing import identity
from verso_client.cli.tailing.joining import RECORD_BYTES, Joining
from verso_client.cli.tailing.notes import Mark

PART_BYTES = 512 * 1024
"""Bytes that are sent at once; fewer wait for others."""
_IDLE_S = 60.0
_LINE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a tail waits for what, seconds.

    Attributes:
        wait_s: a line for others, and a record for its next line.
        quiet_s: a file that was rotated away, after its last growth, for more.
        scan_s: from one look at the patterns to the next.
        poll_s: from one look at the files to the next.
    """

    wait_s: float = 1.0
    quiet_s: float = 5.0
    scan_s: float = 1.0
    poll_s: float = 0.2


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of a file, where they begin and end in it, and a check of what ends there."""

    begin: int
    end: int
    data: bytes
    check: str


class Followed:
    """A file and how far it was accepted.

    Args:
        mark: how far.
        joining: joins lines to records; None where each line is one.
        pace: how long it waits.
    """

    def __init__(self, mark: Mark, joining: Joining | None, pace: Pace) -> None:
        self.mark = mark
        self._pace = pace
        self._joining = joining
        self._descriptor: int | None = None
        self._size = 0
        self._since: float | None = None
        self._grown = time.monotonic()
        self.gone: float | None = None
        """When its name led elsewhere for the first time; None while it does not."""

    def __del__(self) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether the file is read."""
        return self._descriptor is not None

    @property
    def descriptor(self) -> int:
        """Return the open file."""
        assert self._descriptor is not None
        return self._descriptor

    def open(self, path: str) -> bool:
        """Open the file where it lies; return whether it is this file that lies there."""
        self.close()
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            return False
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != self.mark.key:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        self._size = -1
        self.mark.at = path
        return True

    def close(self) -> None:
        """Close the file; its mark stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def truncated(self) -> bool:
        """Whether the bytes that were accepted are not the file's beginning any more."""
        size = os.fstat(self.descriptor).st_size
        if size < self.mark.offset:
            return True
        if size == self._size:
            return False
        self._size, self._grown = size, time.monotonic()
        if self.mark.head and identity.head(self.descriptor) != self.mark.head:
            return True
        return identity.check(self.descriptor, self.mark.offset) != self.mark.check

    def begin_again(self) -> None:
        """Go on at the beginning of a file that was truncated: it is another one from now on."""
        mark = self.mark
        mark.generation += 1
        mark.offset, mark.head, mark.check, mark.source = 0, "", "", ""
        mark.path, mark.copy = absolute(mark.at), False
        self.gone = self._since = None

    def seek(self, offset: int) -> bool:
        """Go on from an offset; return whether the file is so long."""
        if offset > os.fstat(self.descriptor).st_size:
            return False
        self.mark.offset = offset
        self.mark.check = identity.check(self.descriptor, offset)
        return True

    def accept(self, part: Part) -> None:
        """Note that a part was accepted."""
        self.mark.offset, self.mark.check = part.end, part.check
        self._since = None

    def is_finished(self) -> bool:
        """Whether no more will come: the file was rotated away and has not grown for a while."""
        return self.gone is not None and (
            time.monotonic() - max(self.gone, self._grown) >= self._pace.quiet_s
        )

    def is_idle(self) -> bool:
        """Whether all of the file was accepted, and it has not grown for a minute."""
        size = os.fstat(self.descriptor).st_size
        return size == self.mark.offset and time.monotonic() - self._grown >= _IDLE_S

    def named(self, host: str) -> str:
        """Return what the platform knows the file by, which stays as it is from then on."""
        mark = self.mark
        if not mark.source:
            mark.head = identity.head(self.descriptor)
            name = identity.identity(os.fstat(self.descriptor), self.descriptor)
            mark.source = f"{host}:{name}"
            if mark.generation:
                mark.source += f":{mark.generation}"
        return mark.source

    def next_part(self) -> Part | None:
        """Return lines that are due to be sent; None where none are."""
        now, offset = time.monotonic(), self.mark.offset
        size = os.fstat(self.descriptor).st_size
        left = size - offset
        if left <= 0:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        finished = self.is_finished()
        if left < PART_BYTES and now - self._since < self._pace.wait_s and not finished:
            return None
        data = self._whole_lines(offset, finished=finished)
        if self._joining is not None and data:
            silent = size == self._size and now - self._grown >= self._pace.wait_s
            quiet = finished or silent
            if not (quiet and len(data) == left):
                data = data[: self._joining.last_begin(data)] or self._too_long(data, left)
            data = self._joining.first(data)
        if not data:
            return None
        end = offset + len(data)
        return Part(offset, end, data, identity.check(self.descriptor, end))

    def _whole_lines(self, offset: int, *, finished: bool) -> bytes:
        """Return bytes up to a line end; of a finished file also a last line without one."""
        most = PART_BYTES if self._joining is None else RECORD_BYTES
        while True:
            data = os.pread(self.descriptor, most, offset)
            end = data.rfind(b"\n") + 1
            if end:
                return data if finished and len(data) < most else data[:end]
            if len(data) < most:
                return data if finished else b""
            if most >= _LINE_BYTES:
                return data  # a line without end: it is cut
            most *= 2

    def _too_long(self, data: bytes, left: int) -> bytes:
        """Return lines of a record that does not end, if they are as many as are sent at once.

        They may be few if the line behind them is longer than a record.
        """
        return data if len(data) >= RECORD_BYTES // 2 or left >= RECORD_BYTES else b""


def mark_of(path: str) -> Mark | None:
    """Return the mark of a file that is new; None where no regular file lies."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return Mark(absolute(path), path, status.st_dev, status.st_ino)


def absolute(path: str) -> str:
    """Return a path from the root, links not followed."""
    return str(Path.cwd() / path)
