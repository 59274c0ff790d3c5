"""Hash the files of artifacts and heads again, slowly, for as long as the worker runs.

A text can be read only with its vector, its patch and the decoder's files. A worker verifies the
files when it loads them, which it may not do again for months: damage on the disk would be noticed
at the next start, when no sound copy may be left. So one thread goes through all folders with a
manifest, hashes their files at :data:`PACE_BYTES_S`, and compares:

- **sound**: the file matches its manifest.
- **mended**: it did not match, and a sound copy from another folder has replaced it.
- **corrupt**: it does not match, and there is no sound copy, or its folder is only read. It is not
  changed. The running engine was loaded from sound bytes and continues; the next start fails.
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
"""Bytes read in a second: 1 % of a core, and a negligible load of a disk."""

_PART = 1 << 20
_log = logging.getLogger(__name__)


class Counts(Protocol):
    """Counts files, for the metrics."""

    def file_read(self, status: str) -> None:
        """Count a file: sound, mended or corrupt."""

    def files_corrupt(self, count: int) -> None:
        """Show how many files are corrupt now."""


class FileScrub:
    """Checks folders of artifacts and heads periodically.

    Args:
        own: folders in which corrupt files are replaced.
        foreign: folders that are only read.
        counts: counts the files.
        every_s: seconds from the start of one pass to the next; 0 disables the scrub.
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
        """Start the first pass."""
        if self._every_s:
            self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_pass(self) -> list[Path]:
        """Do one pass and return the corrupt files."""
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
                status = self._state(folder / name, file, others=seen[file.sha256])
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
                self.run_pass()
            except OSError as error:  # a folder that was removed while it was read
                _log.warning("file scrub incomplete: %s", error.strerror)
            self._over.wait(self._every_s)

    def _listed(self, roots: Sequence[Path]) -> Iterator[tuple[Path, Mapping[str, File]]]:
        """Yield folders and the files they list; no files if the manifest itself is damaged."""
        for root in roots:
            for name, read in (
                (manifest.MANIFEST_NAME, manifest.read),
                (heads.HEAD_NAME, heads.read),
            ):
                for path in sorted(root.rglob(name)):
                    if any(part.startswith(".") for part in path.relative_to(root).parts):
                        continue  # being written or removed
                    try:
                        yield path.parent, read(path.parent).files
                    except ArtifactInvalid as error:
                        _log.error("%s is corrupt: %s", path, error.detail)
                        yield path.parent, {}

    def _state(self, path: Path, file: File, *, others: Sequence[Path]) -> str:
        if self._hash(path) == file.sha256:
            return "sound"
        if not path.exists() and not path.parent.exists():
            return "sound"  # the whole folder was removed meanwhile
        if any(path.is_relative_to(root) for root in self._own):
            for other in others:
                if other != path and self._replace(path, other, file):
                    _log.error("%s was corrupt and has been replaced by a sound copy", path)
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

    def _replace(self, path: Path, other: Path, file: File) -> bool:
        """Replace a file by another folder's copy; return False if the copy is not sound."""
        try:
            data = other.read_bytes()
        except OSError:
            return False
        if hashlib.sha256(data).hexdigest() != file.sha256:
            return False
        files.replace(path, data)
        return True
