"""The copies of artifacts in a worker's data folder, by their ids."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
from pathlib import Path

from verso_core import files
from verso_core.errors import ArtifactInvalid, DiskFull, EngineUnavailable
from verso_core.manifest import (
    CODEC_FILES,
    MANIFEST_NAME,
    OPTIONAL_CODEC_FILES,
    Artifact,
    load,
    read,
)

_log = logging.getLogger(__name__)


class ArtifactCopies:
    """Keeps artifacts, so that old records stay readable.

    Args:
        folder: holds the copies.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder

    def add(self, artifact: Artifact) -> Artifact:
        """Copy an artifact into the data folder, whole or not at all, and return the copy.

        An existing copy is used, unless it is damaged: then it is replaced.
        """
        kept = self.root / artifact.id
        draft = self.root / f".{artifact.id}.{socket.gethostname()}.{os.getpid()}"
        if kept.is_dir():
            try:
                return load(kept)
            except ArtifactInvalid as error:
                _log.error("damaged copy of an artifact is replaced: %s", error.detail)
            shutil.rmtree(draft, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):  # another worker has moved it
                kept.rename(draft)
        shutil.rmtree(draft, ignore_errors=True)
        try:
            _copy(artifact, draft)
        except OSError as exc:
            shutil.rmtree(draft, ignore_errors=True)
            raise DiskFull(f"{self.root}: an artifact cannot be written: {exc.strerror}") from exc
        try:
            draft.rename(kept)
        except OSError:
            # Another worker on the same folder was first; its copy has the same hashes.
            shutil.rmtree(draft)
        files.sync(self.root)
        return load(kept)

    def folder(self, codec: str) -> Path:
        """Return the folder of the artifact with a codec id.

        Raises:
            EngineUnavailable: no artifact with this codec is kept here.
        """
        for path in self.root.glob(f"*/{MANIFEST_NAME}"):
            if path.parent.name.startswith("."):  # being written or removed, maybe in part
                continue
            try:
                found = read(path.parent)
            except ArtifactInvalid as error:  # the file scrub reports it
                _log.error("%s skipped: %s", path, error.detail)
                continue
            if found.codec.id == codec:
                return path.parent
        raise EngineUnavailable(f"no artifact with codec {codec} is kept here")

    def codec_bytes(self, codec: str) -> int:
        """Return the size of the files that a codec decodes with; 0 where they are not kept."""
        try:
            listed = read(self.folder(codec)).files
        except (ArtifactInvalid, EngineUnavailable):
            return 0
        names = (*CODEC_FILES, *OPTIONAL_CODEC_FILES)
        return sum(listed[name].size_bytes for name in names if name in listed)


def _copy(artifact: Artifact, folder: Path) -> None:
    folder.mkdir(parents=True)
    manifest = (artifact.folder / MANIFEST_NAME).read_bytes()
    for name, data in {**artifact.data, MANIFEST_NAME: manifest}.items():
        files.write(folder / name, data)
    files.sync(folder)
