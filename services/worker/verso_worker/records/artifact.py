"""An artifact's parts, made from bytes whose hashes were checked, never from a path.

The worker process uses the tokenizers and the byte codecs, the engine process the graphs. Both open
the folder with :func:`verso_core.manifest.load` and make what they need with the functions here and
in :mod:`verso_worker.engine.loading`.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_codecs import mixture, ngram
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_codecs.ranks import RankTables
from verso_codecs.zstd import ZstdCodec
from verso_core.errors import ArtifactInvalid
from verso_core.manifest import Artifact
from verso_core.record import Codec
from verso_worker.records.chunking import Cutter
from verso_worker.records.recorder import ByteCodec

_CHUNK_BYTES = 1 << 17
"""No chunk is longer: a damaged payload must not be decoded for seconds before its end."""

GOLDEN_MIN = 64
"""Fewest golden samples an artifact must bring."""


@dataclass(frozen=True, slots=True)
class NgramCodec:
    """The artifact's byte n-gram model as a codec."""

    tables: NgramTables

    def encode(self, text: bytes) -> bytes:
        """Code any bytes."""
        return ngram.encode(text, self.tables)

    def decode(self, payload: bytes) -> bytes:
        """Return the bytes back; raises PatchCorrupt where the payload is no output of encode."""
        return ngram.decode(payload, self.tables)


@dataclass(frozen=True, slots=True)
class MixtureCodec:
    """The n-gram model and the texts of the collection that the artifact was fitted to."""

    tables: MixtureTables

    def encode(self, text: bytes) -> bytes:
        """Code any bytes."""
        return mixture.encode(text, self.tables)

    def decode(self, payload: bytes) -> bytes:
        """Return the bytes back; raises PatchCorrupt where the payload is no output of encode."""
        return mixture.decode(payload, self.tables, limit_bytes=_CHUNK_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class Golden:
    """A text with what its artifact made of it when it was published.

    vector: rounded to float16, as a store keeps it. Shape: (D,), float16
    payloads: what each codec coded, by codec
    tokens: encoder tokens, special tokens included
    """

    text: bytes
    vector: NDArray[np.float16]
    payloads: Mapping[Codec, bytes]
    tokens: int


def tokenizer(artifact: Artifact, name: str) -> Tokenizer:
    """Make one of the artifact's tokenizers, with neither truncation nor padding.

    Raises:
        ArtifactInvalid: the file is no tokenizer.
    """
    try:
        made = Tokenizer.from_buffer(artifact.data[name])
    except Exception as exc:  # the library raises a bare Exception
        raise ArtifactInvalid(f"{name}: {exc}") from exc
    made.no_truncation()
    made.no_padding()
    return made


def cutter(artifact: Artifact) -> Cutter:
    """Make what cuts texts into chunks of this artifact's windows."""
    return Cutter(
        decoder=tokenizer(artifact, "decoder_tokenizer.json"),
        encoder=tokenizer(artifact, "encoder_tokenizer.json"),
        max_decoder_tokens=artifact.manifest.codec.max_tokens,
        max_encoder_tokens=artifact.manifest.space.max_encoder_tokens,
    )


def byte_codecs(artifact: Artifact) -> dict[Codec, ByteCodec]:
    """Make the codecs that need no vector.

    Raises:
        ArtifactInvalid: a table file does not hold what its name says.
    """
    tables = ngram_tables(artifact)
    codecs: dict[Codec, ByteCodec] = {
        Codec.ZSTD: ZstdCodec(artifact.data["zstd.dict"]),
        Codec.NGRAM: NgramCodec(tables),
    }
    if "mixture.npz" in artifact.data:
        with _file(artifact.data["mixture.npz"]) as path:
            codecs[Codec.MIXTURE] = MixtureCodec(MixtureTables.load(path, tables))
    return codecs


def ngram_tables(artifact: Artifact) -> NgramTables:
    """Make the tables of the n-gram codec.

    Raises:
        ArtifactInvalid: the file does not hold what its name says.
    """
    with _file(artifact.data["ngram.npz"]) as path:
        return NgramTables.load(path)


def rank_tables(artifact: Artifact) -> RankTables:
    """Make the tables of the neural codec.

    Raises:
        ArtifactInvalid: the file holds no tables, or they are for another vocabulary.
    """
    with _file(artifact.data["ranks.npz"]) as path:
        tables = RankTables.load(path)
    if tables.vocab != artifact.manifest.codec.vocab:
        raise ArtifactInvalid(
            f"ranks.npz: expected vocab {artifact.manifest.codec.vocab}, got {tables.vocab}"
        )
    return tables


def golden_samples(artifact: Artifact) -> list[Golden]:
    """Read the golden samples.

    Raises:
        ArtifactInvalid: there are too few, or one of them is malformed.
    """
    lines = artifact.data["golden.jsonl"].splitlines()
    if len(lines) < GOLDEN_MIN:
        raise ArtifactInvalid(f"golden.jsonl: expected >= {GOLDEN_MIN} samples, got {len(lines)}")
    dim = artifact.manifest.space.dim
    return [_golden(line, number, dim=dim) for number, line in enumerate(lines, start=1)]


def _golden(line: bytes, number: int, *, dim: int) -> Golden:
    try:
        sample = json.loads(line)
        found = Golden(
            text=_decoded(sample["text_base64"]),
            vector=np.frombuffer(_decoded(sample["vector_base64"]), "<f2").astype(np.float16),
            payloads={
                Codec[name.upper()]: _decoded(payload)
                for name, payload in sample["patches"].items()
            },
            tokens=int(sample["tokens"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ArtifactInvalid(f"golden.jsonl: line {number} is no golden sample: {exc!r}") from exc
    if found.vector.shape != (dim,):
        raise ArtifactInvalid(
            f"golden.jsonl: line {number}: expected dim {dim}, got {found.vector.size}"
        )
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise ValueError(str(exc)) from exc


@contextmanager
def _file(data: bytes) -> Iterator[Path]:
    """Yield verified bytes to a loader that opens paths, in a file of this process alone.

    A file of a folder would stay there if the process is killed meanwhile.
    """
    with os.fdopen(os.memfd_create("tables"), "wb") as file:
        file.write(data)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")
