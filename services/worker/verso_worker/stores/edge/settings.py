"""The settings of a collection in the embedded store, on the disk and for the engine.

    collection.json    format, dimension, precision and scale; for format 3 also what follows
    edge/              the engine's own files
    words/             the index of terms, of format 4

Format 4 is a collection that keeps terms in an index beside the engine's files; format 2 is one of
an earlier release, which keeps them as the engine's sparse vectors. A release that does not know a
format refuses it, so that it does not lose the terms. Format 3 is a collection that never had a
point: it has no files of the engine yet, and says whether it will keep terms and which fields it
will index. The file is replaced by one of format 1 or 4 when the first points are on the disk,
before they are acknowledged. So with format 3 no acknowledged point can be missing, and with the
others the files must be there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import qdrant_edge as qdrant

from verso_core import files
from verso_core.errors import VectorsDamaged, VectorsUnavailable
from verso_core.jobs import IndexKind, Precision
from verso_worker.records.points import TERMS
from verso_worker.records.space import Settings, Space
from verso_worker.stores.edge.shard import Files

SETTINGS_NAME = "collection.json"
ENGINE_NAME = "edge"

SCHEMAS = {
    IndexKind.KEYWORD: qdrant.PayloadSchemaType.Keyword,
    # of integers as well: the engine's index of integers leaves fractions out
    IndexKind.NUMBER: qdrant.PayloadSchemaType.Float,
}
"""The engine's kinds of an index."""

TIMES = {"t": IndexKind.NUMBER}
"""The field of points that every collection indexes."""

# float16 as unit vectors under dot product: under the cosine the engine would normalise them again
# and not return the same bytes.
_DENSE_KINDS = {
    Precision.FLOAT16: (qdrant.Distance.Dot, qdrant.VectorStorageDatatype.Float16),
    Precision.INT8: (qdrant.Distance.Euclid, qdrant.VectorStorageDatatype.Uint8),
    Precision.INT4: (
        qdrant.Distance.Cosine,
        qdrant.VectorStorageDatatype.Turbo4,  # type: ignore[attr-defined]  # not in the stub
    ),
}

# The engine's own defaults, written out because it keeps what it was given last.
_LINKS = 16
_CANDIDATES = 100
_SCANNED_KIB = 10_000

_FORMAT = 1
_FORMAT_TERMS = 2
_FORMAT_EMPTY = 3
_FORMAT_WORDS = 4


@dataclass(frozen=True, slots=True)
class Description:
    """What a collection's folder says of it.

    Args:
        settings: precision and dimension, and whether terms are stored.
        planned: payload fields to index when the engine's files are made, by path; None if these
            are made.
        sparse: whether terms are the engine's sparse vectors, as in an earlier release.
    """

    settings: Settings
    planned: Mapping[str, IndexKind] | None
    sparse: bool = False


def write_description(folder: Path, described: Description) -> None:
    """Write what a collection's folder says of it, on the disk when this returns.

    Raises:
        OSError: the file could not be written.
    """
    settings, planned = described.settings, described.planned
    with_terms = _FORMAT_TERMS if described.sparse else _FORMAT_WORDS
    kept: dict[str, Any] = {
        "format": with_terms if settings.terms else _FORMAT,
        "dim": settings.space.dim,
        "precision": settings.space.precision.value,
        "int8_scale": settings.space.int8_scale,
    }
    if planned is not None:
        kept |= {"format": _FORMAT_EMPTY, "terms": settings.terms, "fields": dict(planned)}
    files.replace(folder / SETTINGS_NAME, f"{json.dumps(kept)}\n".encode("ascii"))


def engine_config(
    space: Space, *, sparse: bool = False, index_above: int | None = None, graph: bool = True
) -> qdrant.EdgeConfig:
    """Return the engine's settings for a collection.

    Args:
        space: precision and dimension.
        sparse: whether the engine keeps terms as sparse vectors.
        index_above: index segments of more points than this; None keeps the folder's setting.
        graph: whether the index is a graph; without one a segment is closed and searched whole.
    """
    distance, datatype = _DENSE_KINDS[space.precision]
    optimizers = links = None
    if index_above is not None:
        kib = max(1, index_above * space.size_bytes // 1024)
        optimizers = qdrant.EdgeOptimizersConfig(indexing_threshold=kib)
        links = qdrant.HnswIndexConfig(
            m=_LINKS if graph else 0, ef_construct=_CANDIDATES, full_scan_threshold=_SCANNED_KIB
        )
    return qdrant.EdgeConfig(
        vectors=qdrant.EdgeVectorParams(size=space.dim, distance=distance, datatype=datatype),
        sparse_vectors={TERMS: qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf)}
        if sparse
        else None,
        optimizers=optimizers,
        hnsw_config=links,
        wal_enabled=False,
    )


def read_description(folder: Path) -> Description:
    """Return what a collection's folder says of it.

    Raises:
        VectorsDamaged: the file is missing, or is not as it was written.
        VectorsUnavailable: it may not be read, or is of a later release.
    """
    try:
        kept: Mapping[str, Any] = json.loads((folder / SETTINGS_NAME).read_text())
        number = kept["format"]
        if number not in range(_FORMAT, _FORMAT_WORDS + 1):
            raise VectorsUnavailable(
                f"expected collection format {_FORMAT} to {_FORMAT_WORDS} in {folder}, got {number}"
            )
        space = Space(Precision(kept["precision"]), kept["dim"], float(kept["int8_scale"]))
        if number == _FORMAT_EMPTY:
            planned = {path: IndexKind(kind) for path, kind in kept["fields"].items()}
            return Description(Settings(space, terms=bool(kept["terms"])), planned)
        terms = number in (_FORMAT_TERMS, _FORMAT_WORDS)
        return Description(Settings(space, terms=terms), None, sparse=number == _FORMAT_TERMS)
    except PermissionError as exc:
        raise VectorsUnavailable(f"{folder / SETTINGS_NAME} may not be read") from exc
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise VectorsDamaged(f"expected {SETTINGS_NAME} in {folder}, got {exc}") from exc


def clear(folder: Path, names: Iterable[str]) -> None:
    """Remove what the making of files has left in the folder of an empty collection.

    Args:
        folder: the collection's.
        names: folders in it that hold the files of points.
    """
    for path in folder.glob(".*"):
        path.unlink()
    for name in names:
        if (folder / name).exists():
            shutil.rmtree(folder / name)


def has_graph(folder: Path) -> bool:
    """Whether a segment has a graph: a closed one without has the file, but no links."""
    indexes = folder.glob(f"{ENGINE_NAME}/segments/*/vector_index*/hnsw_config.json")
    return any(json.loads(path.read_text())["m"] > 0 for path in indexes)


def index_times(edge: Files) -> None:
    """Index times if the engine has lost that index: an order by time needs it."""
    if not TIMES.keys() <= edge.info().payload_schema.keys():
        for path, kind in TIMES.items():
            edge.update(qdrant.UpdateOperation.create_field_index(path, SCHEMAS[kind]))
        edge.flush()


def disk_parts(folder: Path, *, words: str) -> dict[str, int]:
    """Return what a collection's files take on the disk, by the names that the engine gives them.

    Args:
        folder: the collection's.
        words: name of the folder with the index of terms.
    """
    parts = dict.fromkeys(("vectors", "index", "words", "points"), 0)
    for one in folder.glob(f"{ENGINE_NAME}/segments/*/*"):
        parts[_part_of(one.name)] += files.used_bytes(one)
    parts["words"] += files.used_bytes(folder / words)
    parts["points"] += files.used_bytes(folder) - sum(parts.values())
    return parts


def _part_of(folder: str) -> str:
    """Return which part of :class:`~verso_worker.records.points.Disk` a segment's folder holds."""
    if folder.endswith(f"-{TERMS}"):
        return "words"
    if folder.startswith("vector_storage"):
        return "vectors"
    return "index" if folder.startswith("vector_index") else "points"
