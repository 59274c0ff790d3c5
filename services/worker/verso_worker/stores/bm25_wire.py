"""Terms of many points as two blobs, on their way between the worker and the shard process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verso_core.errors import VectorInvalid
from verso_worker.records.points import Terms


def pack_terms(terms: Sequence[Terms]) -> tuple[list[int], list[bytes]]:
    """Return how many terms each point has, and all ids (u32) and weights (f32), little endian."""
    ids = np.array([one for point in terms for one in point.ids], "<u4")
    weights = np.array([one for point in terms for one in point.weights], "<f4")
    return [len(point.ids) for point in terms], [ids.tobytes(), weights.tobytes()]


def unpack_terms(sizes: Sequence[int], blobs: Sequence[bytes]) -> list[Terms]:
    """Undo :func:`pack_terms`.

    Raises:
        VectorInvalid: the blobs are not of the sizes given.
    """
    total = sum(sizes)
    if [len(blob) for blob in blobs] != [4 * total, 4 * total]:
        raise VectorInvalid(f"expected {total} terms, got {[len(blob) // 4 for blob in blobs]}")
    ids = np.frombuffer(blobs[0], "<u4").tolist()
    weights = np.frombuffer(blobs[1], "<f4").tolist()
    found, at = [], 0
    for size in sizes:
        found.append(Terms(tuple(ids[at : at + size]), tuple(weights[at : at + size])))
        at += size
    return found
