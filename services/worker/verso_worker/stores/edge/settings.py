"""How a collection of the shard process was made, and what the engine is told of it.

    collection.json    format, dimension, precision and scale; written once
    edge/              the engine's own files

Format 2 is a collection that keeps terms beside its vectors; a release that knows only format 1
refuses it instead of losing them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import qdrant_edge as qdrant

from verso_core.errors import VectorsUnavailable
from verso_core.jobs import Precision
from verso_worker.records.points import TERMS
from verso_worker.records.space import Settings, Space

SETTINGS_NAME = "collection.json"
ENGINE_NAME = "edge"

_FORMAT = 1
_FORMAT_TERMS = 2


class FieldKind(StrEnum):
    """What an index over a payload field is asked for."""

    KEYWORD = "keyword"
    FLOAT = "float"


def write_settings(folder: Path, settings: Settings) -> None:
    """Write how a collection is made; the caller brings it to the disk."""
    kept = {
        "format": _FORMAT_TERMS if settings.terms else _FORMAT,
        "dim": settings.space.dim,
        "precision": settings.space.precision.value,
        "int8_scale": settings.space.int8_scale,
    }
    (folder / SETTINGS_NAME).write_text(json.dumps(kept) + "\n")


def engine_config(settings: Settings, *, index_above: int | None = None) -> qdrant.EdgeConfig:
    """Return the engine's settings for a collection.

    Args:
        settings: precision and dimension, and whether terms are kept.
        index_above: index segments of more points than this; None leaves what a folder has.
    """
    space = settings.space
    # Unit vectors under dot product, not cosine: a cosine collection normalises what it is given
    # once more and would not give the same bytes back.
    distance, datatype = qdrant.Distance.Dot, qdrant.VectorStorageDatatype.Float16
    if space.precision is Precision.INT8:
        distance, datatype = qdrant.Distance.Euclid, qdrant.VectorStorageDatatype.Uint8
    optimizers = None
    if index_above is not None:
        kib = max(1, index_above * space.size_bytes // 1024)
        optimizers = qdrant.EdgeOptimizersConfig(indexing_threshold=kib)
    return qdrant.EdgeConfig(
        vectors=qdrant.EdgeVectorParams(size=space.dim, distance=distance, datatype=datatype),
        sparse_vectors={TERMS: qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf)}
        if settings.terms
        else None,
        optimizers=optimizers,
        wal_enabled=False,
    )


def read_settings(folder: Path) -> Settings:
    """Read how a collection was made.

    Raises:
        VectorsUnavailable: the folder is not one of a collection.
    """
    try:
        settings: Mapping[str, Any] = json.loads((folder / SETTINGS_NAME).read_text())
        if settings["format"] not in (_FORMAT, _FORMAT_TERMS):
            raise VectorsUnavailable(
                f"expected collection format {_FORMAT} or {_FORMAT_TERMS} in {folder}, "
                f"got {settings['format']}"
            )
        space = Space(
            Precision(settings["precision"]), settings["dim"], float(settings["int8_scale"])
        )
        return Settings(space, terms=settings["format"] == _FORMAT_TERMS)
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise VectorsUnavailable(f"expected {SETTINGS_NAME} in {folder}, got {exc}") from exc
