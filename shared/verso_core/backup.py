"""The folder of a backup and its manifest.

    DIR/backup.json      the manifest, written last
    DIR/ledger.rdb       the ledger's memory as of one moment
    DIR/vectors/         the vector store's collections, copied after that moment
    DIR/cold/            the objects of cold storage, copied after that moment
    DIR/artifacts/       every artifact in the data folder, by id
    DIR/models/          models that were trained or added on one machine, with their registry

This order makes the copy consistent without stopping anything: points and objects never change and,
while the backup keeps the ledger frozen, are never removed, so every one that the ledger names is
in a later copy. Points written in between are orphans in the copy, which no search shows.

:func:`seal` hashes and syncs every file and writes the manifest; :func:`check` reads every file
again. A folder without a manifest is an unfinished backup.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from verso_core import files
from verso_core.errors import BackupInvalid

MANIFEST_NAME = "backup.json"
LEDGER_NAME = "ledger.rdb"
VECTORS_NAME = "vectors"
COLD_NAME = "cold"
KEPT_NAMES = ("artifacts",)
"""Folders of a data folder that are needed to decode records."""
MODELS_NAME = "models"

FORMAT = 1
_PART = 1 << 20


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class CopiedFile(_Model):
    """One file of a backup."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class Backup(_Model):
    """The content of ``backup.json``.

    ``epoch`` is that of the ledger that was copied, ``seq`` a sequence number it had reached before
    the copy: every document acknowledged up to it is in the copy. ``collections`` has the number of
    points of each collection. ``digest`` is the SHA-256 of the rest of the manifest.
    """

    format: int
    created: datetime
    epoch: str
    seq: int
    collections: dict[str, int]
    files: dict[str, CopiedFile]
    digest: str

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size_bytes for file in self.files.values())


def seal(folder: Path, *, epoch: str, seq: int, collections: dict[str, int]) -> Backup:
    """Finish a backup: hash and sync all files in the folder, and write the manifest."""
    copied = {
        path.relative_to(folder).as_posix(): CopiedFile(
            sha256=_hash(path, sync=True), size_bytes=path.stat().st_size
        )
        for path in _files(folder)
    }
    draft = Backup(
        format=FORMAT,
        created=datetime.now(UTC),
        epoch=epoch,
        seq=seq,
        collections=collections,
        files=copied,
        digest="",
    )
    made = draft.model_copy(update={"digest": _digest(draft)})
    files.write(folder / MANIFEST_NAME, _written(made))
    for one in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        files.sync(one)
    return made


def check(folder: Path) -> Backup:
    """Verify every file of a backup and return its manifest.

    Raises:
        BackupInvalid: the backup is unfinished or of another format, or a file is missing, altered
            or not listed in the manifest.
    """
    try:
        data = (folder / MANIFEST_NAME).read_bytes()
        found = Backup.model_validate_json(data)
    except OSError as exc:
        raise BackupInvalid(f"expected {MANIFEST_NAME} in {folder}, got {exc.strerror}") from exc
    except ValidationError as exc:
        where = ".".join(map(str, exc.errors()[0]["loc"]))
        raise BackupInvalid(f"{MANIFEST_NAME} is malformed at {where or 'its root'}") from exc
    if found.format != FORMAT:
        raise BackupInvalid(f"expected backup format {FORMAT}, got {found.format}")
    if _digest(found) != found.digest or _written(found) != data:
        raise BackupInvalid(f"{MANIFEST_NAME} was altered: it does not agree with its digest")
    there = {path.relative_to(folder).as_posix() for path in _files(folder)} - {MANIFEST_NAME}
    if odd := sorted(there ^ found.files.keys()):
        what = "is missing" if odd[0] in found.files else "is not the manifest's"
        raise BackupInvalid(f"{odd[0]} {what}")
    for name, file in found.files.items():
        if _hash(folder / name) != file.sha256:
            raise BackupInvalid(f"{name} was altered: it has another hash than the manifest says")
    return found


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise BackupInvalid(f"expected plain files only, got {path.name}")
        if path.is_file():
            yield path


def _hash(path: Path, *, sync: bool = False) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(_PART):
                digest.update(part)
            if sync:
                os.fsync(file.fileno())
    except OSError as exc:
        raise BackupInvalid(f"{path.name} cannot be read: {exc.strerror}") from exc
    return digest.hexdigest()


def _written(backup: Backup) -> bytes:
    return (backup.model_dump_json(indent=1) + "\n").encode()


def _digest(backup: Backup) -> str:
    text = backup.model_dump_json(exclude={"digest"})
    return hashlib.sha256(text.encode()).hexdigest()
