"""What ``verso tail`` notes on disk: how far each file was accepted, and how to know it again."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from verso_core import files
from verso_core.errors import RequestInvalid

_VERSION = 1


@dataclass(slots=True)
class Mark:
    """How far one file was accepted.

    Attributes:
        path: the name by which it was first found, the label ``source`` of its lines.
        at: where it lies now.
        device: of the file.
        inode: of the file.
        source: what the platform knows it by; empty before anything was sent.
        generation: how often it was truncated.
        offset: of the first byte that is not accepted.
        head: hash of its first line, empty while that is not complete.
        check: hash of the bytes before the offset.
        copy: whether it is what is left of a file that was copied and truncated.
    """

    path: str
    at: str
    device: int
    inode: int
    source: str = ""
    generation: int = 0
    offset: int = 0
    head: str = ""
    check: str = ""
    copy: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """Return what a file system knows the file by."""
        return self.device, self.inode


def default_path(url: str, collection: str) -> Path:
    """Return where notes are kept by default: XDG's folder of state, by platform and collection."""
    folder = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = hashlib.blake2b(f"{url}\0{collection}".encode(), digest_size=6).hexdigest()
    return Path(folder) / "verso" / f"tail-{name}.json"


class Notes:
    """The file of notes, held by one process at a time.

    Raises:
        RequestInvalid: another process follows files with it, or it is no such file.
        OSError: it cannot be read or made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(self._lock)
            raise RequestInvalid(f"another verso tail has its notes in {path}: --notes") from exc

    def close(self) -> None:
        """Release the file."""
        os.close(self._lock)

    @property
    def are_new(self) -> bool:
        """Whether there is no file yet."""
        return not self._path.exists()

    def read(self) -> list[Mark]:
        """Return the marks; none where there is no file yet."""
        if self.are_new:
            return []
        names = {one.name for one in fields(Mark)}
        try:
            value = json.loads(self._path.read_bytes())
            assert value["version"] == _VERSION
            rows = value["files"]
            return [Mark(**{k: v for k, v in row.items() if k in names}) for row in rows]
        except (ValueError, TypeError, KeyError, AssertionError) as exc:
            raise RequestInvalid(f"expected notes of verso tail in {self._path}") from exc

    def write(self, marks: Iterable[Mark]) -> None:
        """Replace the marks; a crash leaves the old ones or the new ones."""
        value = {"version": _VERSION, "files": [asdict(mark) for mark in marks]}
        files.replace(self._path, json.dumps(value, indent=1).encode(), mode=0o600)
