"""What a collection is made of on a Qdrant server, and how it is told from there."""

from __future__ import annotations

from typing import Any

from qdrant_client import models

from verso_core.jobs import Precision
from verso_worker.records.points import TERMS
from verso_worker.records.space import Settings, Space

_KINDS = {
    Precision.FLOAT16: (models.Distance.DOT, models.Datatype.FLOAT16),
    Precision.INT8: (models.Distance.EUCLID, models.Datatype.UINT8),
}


def dense_of(settings: Settings) -> models.VectorParams:
    """Say how vectors are kept."""
    distance, datatype = _KINDS[settings.space.precision]
    return models.VectorParams(
        size=settings.space.dim, distance=distance, datatype=datatype, on_disk=True
    )


def sparse_of(settings: Settings) -> dict[str, models.SparseVectorParams] | None:
    """Say how terms are kept; None where they are not."""
    if not settings.terms:
        return None
    return {TERMS: models.SparseVectorParams(modifier=models.Modifier.IDF)}


def told(settings: Settings) -> dict[str, Any]:
    """Return what the server keeps beside a collection for whoever opens it."""
    space = settings.space
    return {
        "precision": space.precision.value,
        "int8_scale": space.int8_scale,
        "terms": settings.terms,
    }


def settings_of(config: models.CollectionConfig) -> Settings | None:
    """Read the settings of a collection that Verso made; None of another."""
    vectors, kept = config.params.vectors, config.metadata
    if not isinstance(vectors, models.VectorParams) or not kept:
        return None
    space = Space(Precision(kept["precision"]), vectors.size, float(kept["int8_scale"]))
    return Settings(space, terms=bool(kept.get("terms", False)))
