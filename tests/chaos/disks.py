"""Two ways to lose what a power cut takes: all that was written and not yet synced.

`SyncedFiles` is hard on code that forgets a sync: what is not synced is gone, however long ago
it was written. `LoopFile` is a real file system, with names, renames and a journal of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH: what was not committed is lost
_IMAGE_BYTES = 768 << 20


class SyncedFiles:
    """Files that become what they were at their last sync.

    A library under every process (``synced.c``) copies each file whenever it is synced. What was
    appended since is lost, but for a piece of random length; a file that was never synced is empty.
    Half of the files that lose something keep their length, and zeros take the place of what is
    lost: a file system may write a length before the bytes.
    Names are as they were at the cut, as after a journal's commit.
    """

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self._copies = folder / "copies"
        self._library = folder / "synced.so"
        self.settings = {
            "LD_PRELOAD": str(self._library),
            "SYNCED_ROOT": str(self.data),
            "SYNCED_COPIES": str(self._copies),
        }

    @staticmethod
    def lacks() -> str | None:
        """Return what it needs and this machine does not have."""
        return "expected a C compiler" if shutil.which("cc") is None else None

    def __enter__(self) -> Self:
        self._copies.mkdir()
        source = Path(__file__).with_name("synced.c")
        flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
        _run("cc", *flags, "-o", self._library, source, "-ldl")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the files to the folder's owner."""

    def lose(self, dice: random.Random) -> int:
        """Lose what was not synced, with nobody running; returns how many files lost something."""
        lost = 0
        for path in _files(self.data):
            # By inode: on tmpfs none is used twice.
            copy = self._copies / str(path.stat().st_ino)
            synced = copy.read_bytes() if copy.exists() else b""
            now = path.read_bytes()
            if now == synced:
                continue
            lost += 1
            if now.startswith(synced):  # appended to: some of it may have reached the disk
                synced += now[len(synced) :][: dice.randrange(len(now) - len(synced) + 1)]
                if dice.random() < 0.5:
                    synced = synced.ljust(len(now), b"\0")
            path.write_bytes(synced)
        return lost


class LoopFile:
    """An ext4 file system in a file, shut down without a word and mounted again from a copy.

    The shutdown drops everything that the journal has not committed and lets no later write
    through. The copy then holds what the device had been given, and mounting it replays the
    journal as the next start of a machine would.
    """

    def __init__(self, folder: Path) -> None:
        self.settings: dict[str, str] = {}
        self._image = folder / "disk.img"
        self._mount = folder / "disk"
        self.data = self._mount / "data"

    @staticmethod
    def lacks() -> str | None:
        """Return what it needs and this machine does not have."""
        needed = [name for name in ("mount", "umount", "mkfs.ext4") if not shutil.which(name)]
        if needed:
            return f"expected {' and '.join(needed)}"
        if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
            return "expected root and loop devices"
        return None

    def __enter__(self) -> Self:
        self._mount.mkdir()
        with self._image.open("wb") as image:
            image.truncate(_IMAGE_BYTES)
        _run("mkfs.ext4", "-q", self._image)
        _run("mount", "-o", "loop", self._image, self._mount)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the file system away."""
        _run("umount", self._mount)

    def lose(self, dice: random.Random) -> int:
        """Lose what was not committed, with nobody running; returns how many files lost
        something.
        """
        before = self._digests()
        root = os.open(self._mount, os.O_RDONLY)
        try:
            fcntl.ioctl(root, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(root)
        copy = self._image.with_suffix(".copy")
        _run("cp", "--sparse=always", self._image, copy)
        _run("umount", self._mount)
        copy.replace(self._image)
        _run("mount", "-o", "loop", self._image, self._mount)
        after = self._digests()
        return sum(before.get(path) != after.get(path) for path in before.keys() | after.keys())

    def _digests(self) -> dict[Path, bytes]:
        return {path: hashlib.sha256(path.read_bytes()).digest() for path in _files(self.data)}


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _run(*argv: str | Path) -> None:
    subprocess.run(argv, check=True)
