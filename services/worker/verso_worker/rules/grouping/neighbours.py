"""A graph of near vectors, made of the vector store's answers.

For more vectors than can be compared in pairs.

1. Equal vectors, of which logs are full, are one node, with their number as its weight.
2. The store is asked for the points nearest to each node, a batch at a time, and left alone for a
   while after each batch, so that searches are not delayed.
3. A node is joined to all nodes among those points, and they to it. Distances are computed here
   from the vectors; the store's distances are not used.

A list of neighbours ends at some distance (``reach``); neighbours that are further away may be
missing in the graph. A method that groups by the graph must say what it does then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from verso_worker.records.space import Space, Stored, Vector
from verso_worker.rules.ports.outcome import OnProgress
from verso_worker.rules.ports.stores import Ask

NEAREST = 32
"""Points that the store is asked for beside a node's own copies; more if a density needs more."""

REST = 0.5
"""Rest after each batch, as a share of the time that the batch took."""

TINY = 1e-9
"""Least distance of two nodes: a sparse matrix takes 0 for no edge."""

_BATCH = 64
_HEAP = 10_000  # most copies of one vector that a request includes besides its neighbours


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Distinct vectors of records.

    Args:
        stored: Shape: (nodes, dim).
        unit: the same, widened, of length 1. Shape: (nodes, dim).
        node_of: the node of each record. Shape: (records,).
        weight: records of each node. Shape: (nodes,).
    """

    stored: Stored
    unit: Vector
    node_of: NDArray[np.int64]
    weight: NDArray[np.int64]

    @classmethod
    def of(cls, space: Space, stored: Stored) -> Nodes:
        """Return the distinct ones of stored vectors. Shape: (records, dim)."""
        rows, node_of, weight = np.unique(stored, axis=0, return_inverse=True, return_counts=True)
        return cls(rows, unit_of(space.widen(rows)), node_of.reshape(-1), weight)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Which nodes are near one another.

    Args:
        nodes: what is joined.
        edges: cosine distances, symmetric, no edge from a node to itself. Shape: (nodes, nodes).
        reach: how far each node's list of neighbours goes, infinite where it holds every record;
            a cosine distance. Shape: (nodes,).
    """

    nodes: Nodes
    edges: csr_array
    reach: NDArray[np.float64]


def unit_of(vectors: Vector) -> Vector:
    """Bring vectors to length 1. Shape: (records, dim), in and out."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def graph_of(nodes: Nodes, ask: Ask, *, nearest: int, on_progress: OnProgress) -> Graph:
    """Ask for the neighbours of every node and join them.

    Args:
        nodes: at least one.
        ask: the vector store.
        nearest: points asked for beside a node's own copies.
        on_progress: receives the progress after each batch.

    Raises:
        Cancelled: by ``on_progress``.
    """
    count = len(nodes.weight)
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
    reach = np.full(count, np.inf)
    # Heaps of one size are asked for together: they need equally many points.
    order = np.argsort(nodes.weight, kind="stable")
    for start in range(0, count, _BATCH):
        on_progress("neighbours", start, count)
        batch = order[start : start + _BATCH]
        own = min(int(nodes.weight[batch].max()), _HEAP)
        began = time.monotonic()
        lists = ask(nodes.stored[batch], nearest + own)
        spent_s = time.monotonic() - began
        for node, records in zip(batch.tolist(), lists, strict=True):
            known = np.asarray(records, np.int64)
            others = np.unique(nodes.node_of[known[known >= 0]])
            others = others[others != node]
            far = _distances(nodes.unit, node, others)
            if len(records) >= nearest + own:
                reach[node] = far.max(initial=0.0)
            found.append((np.full(len(others), node), others, far))
        time.sleep(REST * spent_s)
    on_progress("neighbours", count, count)
    rows, columns, far = (np.concatenate(part) for part in zip(*found, strict=True))
    # Twice the same edge would be added up: keep one of each, whichever side it was seen from.
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    _, first = np.unique(low * count + high, return_index=True)
    return Graph(nodes, symmetric(low[first], high[first], far[first], count=count), reach)


def symmetric(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    far: NDArray[np.float64],
    *,
    count: int,
) -> csr_array:
    """Return the matrix of edges, each named once, in both directions. Shape: (count, count)."""
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    return csr_array((np.concatenate([far, far]), both), shape=(count, count))


def _distances(unit: Vector, node: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return cosine distances. From differences, for 1 - a.b of near vectors is mostly rounding."""
    apart = (unit[others] - unit[node]).astype(np.float64)
    return np.asarray(np.maximum((apart**2).sum(axis=1) / 2, TINY))
