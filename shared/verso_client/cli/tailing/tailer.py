"""Follows the files that patterns name, and has what they say accepted.

1. Every second the patterns are looked up. A file is known by device and inode, so one that was
   renamed goes on under its new name, and what lies at the old name is another file.
2. A file that is shorter than what was accepted of it, or begins otherwise, was truncated: it
   begins again. If it was copied before, what the copy has beyond is read from there.
3. A part of a file goes to the platform with its begin and end. If the platform has accepted
   another part before, it says where to go on.
"""

from __future__ import annotations

import glob
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from verso_client.cli.tailing import identity
from verso_client.cli.tailing.followed import Followed, Pace, Part, mark_of
from verso_client.cli.tailing.joining import Joining
from verso_client.cli.tailing.notes import Mark, Notes
from verso_client.operations.lines import SourceLines
from verso_core.errors import VersoError

_AGAIN_S = 1.0
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".Z", ".lz4")
Key = tuple[int, int]
Send = Callable[[SourceLines, Mapping[str, str]], int]
"""Has lines with labels accepted; returns how far their source is accepted then."""


class Tailer:
    """Follows files until it is stopped.

    Args:
        patterns: names of files, which may have ``*``, ``?``, ``[abc]`` and ``**``.
        send: has lines accepted.
        notes: where marks are kept.
        host: what stands for this host in labels and in the names of sources.
        labels: of all lines, besides ``host`` and ``source``.
        joining: joins lines to records; None where each line is one.
        from_end: whether files that are there at the first start are followed from their end.
        say: tells the operator something, once.
        pace: how long it waits for what.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        send: Send,
        notes: Notes,
        *,
        host: str,
        labels: Mapping[str, str],
        joining: Joining | None = None,
        from_end: bool = False,
        say: Callable[[str], None],
        pace: Pace | None = None,
    ) -> None:
        self._patterns = patterns
        self._send = send
        self._notes = notes
        self._host = host
        self._labels = dict(labels)
        self._joining = joining
        self._say = say
        self._pace = pace or Pace()
        self._files: dict[Key, Followed] = {}
        self._undecided: dict[Key, float] = {}
        self._scanned = 0.0
        self._dirty = False
        self.stopped = threading.Event()
        self._from_end = from_end and notes.are_new
        self._restore(notes.read())

    def run(self) -> None:
        """Follow until stopped.

        Raises:
            VersoError: the platform refuses what is sent.
            OSError: the notes cannot be written.
        """
        try:
            while not self.stopped.is_set():
                if not self.step():
                    self.stopped.wait(self._pace.poll_s)
        finally:
            self._save()

    def step(self) -> bool:
        """Look at the files once, and send one part of each that has one; return whether any had.

        Raises:
            VersoError, OSError: as :meth:`run` does.
        """
        if time.monotonic() - self._scanned >= self._pace.scan_s:
            self._scan()
            if self._from_end:  # noted at once: another start is not the first one
                self._from_end, self._dirty = False, True
        sent = self._round()
        self._save()
        return sent

    def _round(self) -> bool:
        sent = False
        for followed in list(self._files.values()):
            if self.stopped.is_set():
                break
            if not followed.is_open:
                continue
            if followed.truncated():
                self._begin_again(followed)
            part = followed.next_part()
            if part is not None:
                sent = True
                self._accept(followed, part)
            elif followed.is_finished():
                self._finish(followed)
            elif followed.is_idle():
                followed.close()
        return sent

    def _accept(self, followed: Followed, part: Part) -> None:
        """Have a part accepted, however long it takes, and note how far the file is accepted."""
        named = followed.mark.source
        lines = self._lines(followed, part)
        if named != followed.mark.source and followed.mark.generation:
            self._dirty = True
            self._save()  # before anything is sent: else a crash would count it again
        source = identity.label(followed.mark.path)
        labels = {"host": self._host, "source": source, **self._labels}
        waits = False
        while not self.stopped.is_set():
            try:
                position = self._send(lines, labels)
            except VersoError as error:
                if not error.retryable:
                    raise
                if not waits:
                    self._say(f"waiting: {error.code}: {error.detail}")
                waits = True
                self.stopped.wait(_AGAIN_S)
                continue
            if position == part.end:
                followed.accept(part)
            elif not followed.seek(position):
                self._begin_again(followed)
            self._dirty = True
            return

    def _lines(self, followed: Followed, part: Part) -> SourceLines:
        source = followed.named(self._host)
        if self._joining is None:
            return SourceLines(source, part.begin, part.end, part.data)
        return SourceLines(
            source, part.begin, part.end, self._joining.rows(part.data), records=True
        )

    def _begin_again(self, followed: Followed) -> None:
        """Begin again with a truncated file; go on with its copy, if there is one."""
        copy = self._copy_of(followed)
        followed.begin_again()
        if copy is not None:
            self._files[copy.mark.key] = copy
            self._undecided.pop(copy.mark.key, None)
        self._dirty = True
        self._save()

    def _copy_of(self, followed: Followed) -> Followed | None:
        """Return what is left of a truncated file in a copy of it; None without one."""
        mark = followed.mark
        if not mark.head:
            return None
        for path in _siblings(mark.at):
            found = mark_of(path)
            if found is None or found.key == mark.key or _is_packed(path):
                continue
            known = self._files.get(found.key)
            if known is not None and (known.mark.offset or known.mark.copy):
                continue
            copy = Followed(
                Mark(
                    mark.path, path, found.device, found.inode, mark.source, mark.generation,
                    mark.offset, mark.head, mark.check, copy=True,
                ),
                self._joining,
                self._pace,
            )  # fmt: skip
            if copy.open(path) and _goes_on(copy):
                copy.gone = time.monotonic()
                return copy
        return None

    def _finish(self, followed: Followed) -> None:
        """Read a file no further; its mark stays as long as it lies somewhere."""
        removed = os.fstat(followed.descriptor).st_nlink == 0
        followed.close()
        if removed:
            del self._files[followed.mark.key]
        self._dirty = True

    def _scan(self) -> None:
        """Look the patterns up: open what is new, and see what was renamed or removed."""
        self._scanned = time.monotonic()
        found: dict[Key, tuple[str, int]] = {}
        for path in self._paths():
            status = _status(path)
            if status is not None and stat.S_ISREG(status.st_mode) and not _is_packed(path):
                found.setdefault((status.st_dev, status.st_ino), (path, status.st_size))
        for followed in list(self._files.values()):
            if followed.is_open and followed.truncated():
                self._begin_again(followed)  # first, as a new file may be its copy
        for key, (path, size) in found.items():
            if key in self._files:
                self._seen(self._files[key], path, size)
            else:
                self._begin(key, path)
        for key in [key for key in self._files if key not in found]:
            self._missed(self._files[key])

    def _paths(self) -> Iterator[str]:
        for pattern in self._patterns:
            found = glob.glob(pattern, recursive=True)  # noqa: PTH207 - also from the root
            yield from sorted(found)

    def _seen(self, followed: Followed, path: str, size: int) -> None:
        """Note where a known file lies, and open it if it has grown since it was closed."""
        mark = followed.mark
        mark.at = path
        if not mark.copy:
            followed.gone = None
        if not followed.is_open and size != mark.offset:
            followed.open(path)

    def _begin(self, key: Key, path: str) -> None:
        """Follow a new file, unless it may be a copy that is being made of a known one."""
        mark = mark_of(path)
        if mark is None or mark.key != key:
            return
        followed = Followed(mark, self._joining, self._pace)
        if not followed.open(path):
            return
        if self._may_be_copy(followed):
            since = self._undecided.setdefault(key, time.monotonic())
            if time.monotonic() - since < self._pace.quiet_s:
                return
        self._undecided.pop(key, None)
        if self._from_end:
            self._skip(followed)
        self._files[key] = followed

    def _may_be_copy(self, followed: Followed) -> bool:
        """Whether a file has the beginning of one that is followed, and a name from it."""
        path = Path(followed.mark.at)
        head = identity.head(followed.descriptor)
        size = os.fstat(followed.descriptor).st_size
        for one in self._files.values():
            at = Path(one.mark.at)
            if not one.is_open or at.parent != path.parent or not head:
                continue
            if path.name.startswith(at.name) and identity.head(one.descriptor) == head:
                common = min(size, os.fstat(one.descriptor).st_size)
                if identity.check(followed.descriptor, common) == identity.check(
                    one.descriptor, common
                ):
                    return True
        return False

    def _skip(self, followed: Followed) -> None:
        """Go to the last line end of a file."""
        size = os.fstat(followed.descriptor).st_size
        begin = max(0, size - identity.FIRST_LINE_BYTES * 64)
        data = os.pread(followed.descriptor, size - begin, begin)
        followed.named(self._host)
        followed.seek(begin + data.rfind(b"\n") + 1)

    def _missed(self, followed: Followed) -> None:
        """Note that a file's name leads to it no more, and read what it gains all the same.

        One that is nowhere is forgotten, and so is one whose inode another file has got.
        """
        mark, first = followed.mark, followed.gone is None
        if first:
            followed.gone = time.monotonic()
        elif followed.is_open:
            return
        path = _found(mark)
        self._dirty |= first or path != mark.at
        if path is not None:
            mark.at = path
        if followed.is_open:
            return
        status = None if path is None else _status(path)
        if path is None or status is None:
            del self._files[mark.key]
        elif status.st_size > mark.offset and followed.open(path) and followed.truncated():
            followed.close()
            del self._files[mark.key]
            self._dirty = True

    def _restore(self, marks: Sequence[Mark]) -> None:
        """Go on with the files of the notes, wherever they lie now.

        One that no pattern names may have got the inode of one that was removed.
        """
        named = {(one.st_dev, one.st_ino) for one in map(_status, self._paths()) if one}
        for mark in marks:
            path = _found(mark)
            if path is None:
                continue
            followed = Followed(mark, self._joining, self._pace)
            if not followed.open(path) or (mark.key not in named and followed.truncated()):
                continue
            if mark.copy:
                followed.gone = time.monotonic()
            self._files[mark.key] = followed

    def _save(self) -> None:
        if self._dirty:
            self._notes.write(one.mark for one in self._files.values())
            self._dirty = False


def _goes_on(copy: Followed) -> bool:
    """Whether a file has what its mark says was accepted, so that it goes on there."""
    mark = copy.mark
    size = os.fstat(copy.descriptor).st_size
    return (
        size >= mark.offset
        and identity.head(copy.descriptor) == mark.head
        and identity.check(copy.descriptor, mark.offset) == mark.check
    )


def _found(mark: Mark) -> str | None:
    """Return where a file lies: where it lay, or under another name in that folder.

    A file of which nothing was accepted is known by its inode alone, so its name has to begin with
    the one that it had.
    """
    if _is_at(mark, mark.at):
        return mark.at
    others = _siblings(mark.at, named=not mark.offset)
    return next((path for path in others if _is_at(mark, path)), None)


def _is_at(mark: Mark, path: str) -> bool:
    """Whether a file lies at a path."""
    status = _status(path)
    return status is not None and (status.st_dev, status.st_ino) == mark.key


def _status(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None


def _siblings(path: str, *, named: bool = True) -> list[str]:
    """Return the files in a file's folder, the newest first.

    Args:
        path: the file.
        named: only those whose names begin with its name, as those of rotated files do.
    """
    real = Path(os.path.realpath(path))
    try:
        names = [str(one) for one in real.parent.iterdir()]
    except OSError:
        return []
    found = [
        (status.st_mtime, one)
        for one in names
        if (not named or one.startswith(str(real))) and (status := _status(one)) is not None
    ]
    return [one for _, one in sorted(found, reverse=True)]


def _is_packed(path: str) -> bool:
    return path.endswith(_PACKED)
