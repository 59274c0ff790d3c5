"""Group vectors by how near they are to one another.

Both methods come from scikit-learn and compare every pair. Equal vectors, of which logs are full,
are given to DBSCAN once, with their number as weight.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verso_worker.records.space import Vector

ALONE = -1
"""Label of a vector that belongs to no group."""

Labels = NDArray[np.int64]


def by_density(vectors: Vector, *, eps: float, min_samples: int) -> Labels:
    """Group by DBSCAN (Ester et al. 1996) under cosine distance.

    Args:
        vectors: of unit length. Shape: (records, dim).
        eps: largest cosine distance of two neighbours, in (0, 2].
        min_samples: neighbours that make a vector a core, itself included.

    Returns:
        A group's number for each vector, or ALONE. Shape: (records,).
    """
    from sklearn.cluster import DBSCAN

    if not len(vectors):
        return np.empty(0, np.int64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distinct, row_of, count = np.unique(unit, axis=0, return_inverse=True, return_counts=True)
    # For unit vectors |a - b|^2 = 2 (1 - a.b), so the Euclidean ball is the cosine's.
    model = DBSCAN(eps=math.sqrt(2 * eps), min_samples=min_samples, algorithm="brute")
    labels = model.fit(distinct, sample_weight=count).labels_
    return np.asarray(labels[row_of.reshape(-1)], np.int64)


def by_stability(vectors: Vector, *, min_size: int, min_samples: int) -> Labels:
    """Group by HDBSCAN (Campello et al. 2013): no distance to choose, groups of any density.

    Args:
        vectors: of unit length. Shape: (records, dim).
        min_size: smallest group.
        min_samples: neighbours that a density is measured by.

    Returns:
        A group's number for each vector, or ALONE. Shape: (records,).
    """
    from sklearn.cluster import HDBSCAN

    if len(vectors) < max(min_size, min_samples):
        return np.full(len(vectors), ALONE, np.int64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    model = HDBSCAN(min_cluster_size=min_size, min_samples=min_samples, copy=True)
    return np.asarray(model.fit(unit).labels_, np.int64)


def central(vectors: Vector, *, count: int) -> list[int]:
    """Return the indices of the vectors nearest to the mean, nearest first. Shape: (records,
    dim).
    """
    near = vectors @ vectors.mean(axis=0)
    return [int(n) for n in np.argsort(-near, kind="stable")[:count]]
