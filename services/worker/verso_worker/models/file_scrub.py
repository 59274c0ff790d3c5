"""Hash the files of artifacts and heads again, slowly, for as long as the worker runs.

Artifacts are data: a record's text is in its vector, its patch and the decoder's files together. A
worker verifies every file when it loads it, and then perhaps never again, so a bit that rots on the
disk would show at the next start, when it may be the last copy. One thread therefore goes through
all folders with a manifest, hashes their files at :data:`PACE_BYTES_S`, and compares:

- **sound**: the file is what its manifest says.
- **mended**: it was not, but another folder has the very same file; a sound copy took its place.
- **corrupt**: it was not, and no other is there, or it lies where a worker does not write. It stays
  as it is: what runs was made of sound bytes and goes on, but the next start would be refused.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from verso_core import files, heads, manifest
from verso_core.errors import ArtifactInvalid
from verso_core.manifest import File

PACE_BYTES_S = 4 << 20
"""Bytes read in a second: 1 % of a core, and nothing that a disk notices."""

_PART = 1 << 20
_log = logging.getLogger(__name__)


class Counts(Protocol):
    """Where files are counted."""

    def file_read(self, status: str) -> None:
        """Count a file: sound, mended or corrupt."""

    def files_corrupt(self, count: int) -> None:
        """Show how many files are corrupt now."""


class FileScrub:
    """Goes through folders of artifacts and heads again and again.

    Args:
        own: folders in which corrupt files are mended.
        foreign: folders that are only read.
        counts: where files are counted.
        every_s: from one pass's begin to the next one's, seconds; 0 for none.
        pace: bytes read in a second.
    """

    def __init__(
        self,
        own: Sequence[Path],
        foreign: Sequence[Path],
        *,
        counts: Counts,
        every_s: float,
        pace: float = PACE_BYTES_S,
    ) -> None:
        self._own = own
        self._foreign = foreign
        self._counts = counts
        self._every_s = every_s
        self._pace = pace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)

    def start(self) -> None:
        """Begin the first pass."""
        if self._every_s:
            self._thread.start()

    def stop(self) -> None:
        """Read no further."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> list[Path]:
        """Do one pass; give the files that are corrupt."""
        corrupt: list[Path] = []
        seen: dict[str, list[Path]] = {}
        listed = [*self._listed(self._own), *self._listed(self._foreign)]
        for folder, listing in listed:
            for name, file in listing.items():
                seen.setdefault(file.sha256, []).append(folder / name)
        for folder, listing in listed:
            if not listing:
                corrupt.append(folder)
                self._counts.file_read("corrupt")
            for name, file in listing.items():
                status = self._judge(folder / name, file, others=seen[file.sha256])
                if self._over.is_set():
                    return corrupt
                self._counts.file_read(status)
                if status == "corrupt":
                    corrupt.append(folder / name)
        self._counts.files_corrupt(len(corrupt))
        return corrupt

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
            except OSError as error:  # a folder that went while it was read
                _log.warning("the files were not all read: %s", error.strerror)
            self._over.wait(self._every_s)

    def _listed(self, roots: Sequence[Path]) -> Iterator[tuple[Path, Mapping[str, File]]]:
        """Find folders and what they list; nothing where the manifest itself is damaged."""
        for root in roots:
            for name, read in (
                (manifest.MANIFEST_NAME, manifest.read),
                (heads.HEAD_NAME, heads.read),
            ):
                for path in sorted(root.rglob(name)):
                    if any(part.startswith(".") for part in path.relative_to(root).parts):
                        continue  # being made or being thrown away
                    try:
                        yield path.parent, read(path.parent).files
                    except ArtifactInvalid as error:
                        _log.error("%s is corrupt: %s", path, error.detail)
                        yield path.parent, {}

    def _judge(self, path: Path, file: File, *, others: Sequence[Path]) -> str:
        if self._hash(path) == file.sha256:
            return "sound"
        if not path.exists() and not path.parent.exists():
            return "sound"  # the whole folder has gone meanwhile
        if any(path.is_relative_to(root) for root in self._own):
            for other in others:
                if other != path and self._mend(path, other, file):
                    _log.error("%s was corrupt and is mended", path)
                    return "mended"
        _log.error("%s is corrupt", path)
        return "corrupt"

    def _hash(self, path: Path) -> str:
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while not self._over.is_set() and (part := file.read(_PART)):
                    digest.update(part)
                    self._over.wait(len(part) / self._pace)
        except OSError:
            return ""
        return digest.hexdigest()

    def _mend(self, path: Path, other: Path, file: File) -> bool:
        """Put another folder's copy in a file's place, if that one is sound."""
        try:
            data = other.read_bytes()
        except OSError:
            return False
        if hashlib.sha256(data).hexdigest() != file.sha256:
            return False
        files.replace(path, data)
        return True
