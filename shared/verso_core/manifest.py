"""An artifact's manifest: the settings of a folder of graphs and tables, and the hash of each file.

Training and serving share an artifact and no code: all that training decides and serving must
follow is in the folder. :func:`load` verifies every hash before anything is used, so a wrong file
is a clear error at the start and never a wrong text later.

The manifest itself is checked by its ``digest``: the SHA-256 of the file with :data:`UNSEALED`
instead of the digest, so that a change of any byte is detected. This protects from damage, not from
an attacker: anyone who can write the file can seal it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from verso_core.errors import ArtifactInvalid, VersoError

MANIFEST_NAME = "manifest.json"
FORMAT = 1
SPACE_FILES = ("encoder.onnx", "encoder_tokenizer.json")
CODEC_FILES = (
    "memory.onnx",
    "decoder.onnx",
    "decoder_tokenizer.json",
    "ranks.npz",
    "ngram.npz",
    "zstd.dict",
)
OPTIONAL_CODEC_FILES = ("mixture.npz",)
"""Files of a codec that was fitted to a collection; other artifacts lack them."""

OTHER_FILES = ("golden.jsonl", "MODEL_CARD.md")
UNSEALED = "5ea1" * 16
"""The digest of a file that is not sealed yet."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Space(_Model):
    """The settings that two vectors must share to be comparable."""

    id: str
    dim: int = Field(gt=0)
    max_encoder_tokens: int = Field(gt=2)
    pooling: str
    int8_scale: float = Field(gt=0, description="int8 code = clip(round(v * scale), -127, 127)")


class Profile(_Model):
    """The numeric profile under which the codec's decisions were measured to be safe."""

    onnxruntime: str
    optimisation: str


class Codec(_Model):
    """The settings that a patch is decoded with."""

    id: str
    vocab: int = Field(gt=256)
    bos: int
    eos: int
    layers: int = Field(gt=0)
    kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    width: int = Field(gt=0)
    slots: int = Field(gt=0)
    max_tokens: int = Field(gt=1, description="longest record, tokens, the end token included")
    epsilon: float = Field(gt=0, description="margin of a logit decision, nats")
    confidence_epsilon: float = Field(gt=0, description="margin of a confidence bucket, nats")
    profile: Profile


class Tolerance(_Model):
    """How far results may differ from those of the machine that wrote the golden samples."""

    vector_cosine: float = Field(gt=0, le=1)


class File(_Model):
    """One file of the artifact."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class Manifest(_Model):
    """The content of ``manifest.json``; older ones have no ``digest``."""

    format: int
    name: str
    created: datetime
    space: Space
    codec: Codec
    tolerance: Tolerance
    digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    files: dict[str, File]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A verified artifact in memory: its manifest and the bytes whose hashes were checked.

    Graphs and tables are made from these bytes, not from the files, which may change after the
    check.
    """

    folder: Path
    manifest: Manifest
    data: Mapping[str, bytes]

    @property
    def id(self) -> str:
        """The artifact's id: that of its space and that of its codec."""
        return f"{self.manifest.space.id}-{self.manifest.codec.id}"


def load(folder: Path) -> Artifact:
    """Read an artifact and verify the hash of every file.

    Raises:
        ArtifactInvalid: a file is missing or altered, or the manifest is invalid (:func:`read`).
    """
    manifest = read(folder)
    data = {
        name: read_file(folder / name, expected=file, invalid=ArtifactInvalid)
        for name, file in manifest.files.items()
    }
    return Artifact(folder=folder, manifest=manifest, data=data)


def read(folder: Path) -> Manifest:
    """Read an artifact's manifest alone.

    Raises:
        ArtifactInvalid: it is malformed, altered, of another format, lacks a file that every
            artifact has, or its ids do not follow from its hashes.
    """
    path = folder / MANIFEST_NAME
    try:
        written = path.read_bytes()
        manifest = Manifest.model_validate_json(written)
    except OSError as exc:
        raise ArtifactInvalid(f"expected {path}, got {exc.strerror}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ArtifactInvalid(f"{MANIFEST_NAME}: {where}: {first['msg']}") from exc
    if not intact(written, manifest.digest):
        raise ArtifactInvalid(f"{MANIFEST_NAME} was altered: it does not agree with its digest")
    if manifest.format != FORMAT:
        raise ArtifactInvalid(f"expected artifact format {FORMAT}, got {manifest.format}")
    if nested := [name for name in manifest.files if Path(name).name != name]:
        raise ArtifactInvalid(f"expected plain file names, got {nested[0]!r}")
    missing = {*SPACE_FILES, *CODEC_FILES, *OTHER_FILES} - manifest.files.keys()
    if missing:
        raise ArtifactInvalid(f"{MANIFEST_NAME} does not list {', '.join(sorted(missing))}")
    for what, stated, found in (
        ("space", manifest.space.id, space_id(manifest.space, manifest.files)),
        ("codec", manifest.codec.id, codec_id(manifest.codec, manifest.files)),
    ):
        if stated != found:
            raise ArtifactInvalid(f"expected {what} id {found} by the files' hashes, got {stated}")
    return manifest


def read_file(path: Path, *, expected: File, invalid: type[VersoError]) -> bytes:
    """Read a file that a manifest lists.

    Raises:
        VersoError: of class ``invalid``; the file cannot be read, or has another hash.
    """
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise invalid(f"expected file {path.name}, got {exc.strerror}") from exc
    found = hashlib.sha256(data).hexdigest()
    if found != expected.sha256:
        raise invalid(
            f"{path.name}: expected sha256 {expected.sha256[:16]}..., got {found[:16]}... "
            f"({len(data)} of {expected.size_bytes} bytes)"
        )
    return data


def write(manifest: Manifest, folder: Path) -> None:
    """Write a sealed ``manifest.json``."""
    write_sealed(manifest, folder / MANIFEST_NAME)


def describe(path: Path) -> File:
    """Hash a file for the manifest."""
    data = path.read_bytes()
    return File(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


def seal(text: str) -> str:
    """Replace :data:`UNSEALED`, which must occur once in a text, by the digest."""
    if text.count(UNSEALED) != 1:
        raise ValueError("expected one place for a digest")
    return text.replace(UNSEALED, _digest(text.encode()))


def intact(data: bytes, digest: str | None) -> bool:
    """Whether a file is as it was sealed; True if it has no digest."""
    return digest is None or _digest(data.replace(digest.encode(), UNSEALED.encode(), 1)) == digest


def write_sealed(model: BaseModel, path: Path) -> None:
    """Write a model that has a ``digest`` as a sealed file."""
    unsealed = model.model_copy(update={"digest": UNSEALED})
    path.write_text(seal(unsealed.model_dump_json(indent=2) + "\n"), encoding="utf-8")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def space_id(space: Space, files: Mapping[str, File]) -> str:
    """Return the id of a space: the hash of its files and settings. Shape: 16 hex digits."""
    return _name(space, [files[name] for name in SPACE_FILES])


def codec_id(codec: Codec, files: Mapping[str, File]) -> str:
    """Return the id of a codec: the hash of its files and settings. Shape: 16 hex digits."""
    listed = [*CODEC_FILES, *(name for name in OPTIONAL_CODEC_FILES if name in files)]
    return _name(codec, [files[name] for name in listed])


def _name(settings: BaseModel, files: list[File]) -> str:
    known = settings.model_dump(mode="json", exclude={"id"})
    text = json.dumps([known, [file.sha256 for file in files]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
