"""Group vectors by the graph of their neighbours: the methods of ``grouping``, for larger sets.

*DBSCAN* needs the neighbours within ``eps``. A list of neighbours that ends within ``eps`` may miss
some, but holds enough of them to make its node a core. So the graph can only miss that two such
nodes of different groups are neighbours; these nodes alone are compared in pairs. If the store's
answers are exact, the groups are those of all pairs.

*HDBSCAN* is made of the shortest edges that join everything (a minimum spanning tree), and those
are nearly all between near neighbours. Parts of the graph that no edge joins are joined where they
are nearest, along a tree over their means. That is an approximation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from verso_worker.records.space import Vector
from verso_worker.rules.grouping.by_pairs import ALONE, Labels
from verso_worker.rules.grouping.neighbours import TINY, Graph, symmetric
from verso_worker.rules.ports.outcome import OnProgress

_BLOCK = 1024


def by_density(graph: Graph, *, eps: float, min_samples: int, on_progress: OnProgress) -> Labels:
    """Group by DBSCAN (Ester et al. 1996) under cosine distance.

    Args:
        graph: its lists hold at least ``min_samples`` records.
        eps: largest cosine distance of two neighbours, in (0, 2].
        min_samples: neighbours that make a vector a core, itself included.
        on_progress: receives how far the work is.

    Returns:
        A group's number for each record, or ALONE. Shape: (records,).

    Raises:
        Cancelled: by ``on_progress``.
    """
    from sklearn.cluster import DBSCAN

    nodes = graph.nodes
    near = _at_most(graph.edges, eps)
    crowd = nodes.weight + (near != 0) @ nodes.weight
    cores = np.flatnonzero(crowd >= min_samples)
    _, part = connected_components(near[cores][:, cores], directed=False)
    cut = graph.reach[cores] <= eps
    missed = _missed(nodes.unit, cores[cut], part[cut], eps=eps, on_progress=on_progress)
    model = DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed")
    labels = model.fit(near + missed, sample_weight=nodes.weight).labels_
    return np.asarray(labels[nodes.node_of], np.int64)


def by_stability(
    graph: Graph, *, min_size: int, min_samples: int, on_progress: OnProgress
) -> Labels:
    """Group by HDBSCAN (Campello et al. 2013): no distance to choose, groups of any density.

    Args:
        graph: its lists hold at least ``min_samples`` records.
        min_size: smallest group.
        min_samples: neighbours that a density is measured by, the vector itself included.
        on_progress: receives how far the work is.

    Returns:
        A group's number for each record, or ALONE. Shape: (records,).

    Raises:
        Cancelled: by ``on_progress``.
    """
    from sklearn.cluster import HDBSCAN

    nodes = graph.nodes
    if len(nodes.node_of) < max(min_size, min_samples):
        return np.full(len(nodes.node_of), ALONE, np.int64)
    core = _core_distances(graph, min_samples=min_samples)
    joined = (graph.edges + _bridges(graph, on_progress=on_progress)).tocoo()
    far = np.maximum(joined.data, np.maximum(core[joined.row], core[joined.col]))
    # Each copy of a vector is joined to the first one, at the core distance of their node.
    _, first = np.unique(nodes.node_of, return_index=True)
    copies = np.setdiff1d(np.arange(len(nodes.node_of)), first)
    own = nodes.node_of[copies]
    one_way = joined.row < joined.col
    edges = symmetric(
        np.concatenate([first[joined.row[one_way]], first[own]]),
        np.concatenate([first[joined.col[one_way]], copies]),
        # As `grouping` does: |a - b| of unit vectors, for HDBSCAN's densities are of distances.
        np.sqrt(2 * np.maximum(np.concatenate([far[one_way], core[own]]), TINY)),
        count=len(nodes.node_of),
    )
    on_progress("tree", 0, 1)
    # The edges are distances of mutual reachability by now; with 1 they stay what they are.
    model = HDBSCAN(min_cluster_size=min_size, min_samples=1, metric="precomputed", copy=True)
    return np.asarray(model.fit(edges).labels_, np.int64)


def _at_most(edges: csr_array, eps: float) -> csr_array:
    all_of_them = edges.tocoo()
    near = all_of_them.data <= eps
    positions = all_of_them.row[near], all_of_them.col[near]
    return csr_array((all_of_them.data[near], positions), shape=edges.shape)


def _missed(
    unit: Vector,
    cut: NDArray[np.int64],
    part: NDArray[np.int64],
    *,
    eps: float,
    on_progress: OnProgress,
) -> csr_array:
    """Find the neighbours of different parts, one pair for each two parts.

    Args:
        unit: of all nodes. Shape: (nodes, dim).
        cut: nodes whose lists end within ``eps``. Shape: (cut,).
        part: the part that each of them is in. Shape: (cut,).
    """
    order = np.argsort(part, kind="stable")
    cut, part = cut[order], part[order]
    ends = np.searchsorted(part, part, side="right")
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    for start in range(0, len(cut), _BLOCK):
        on_progress("missed", start, len(cut))
        rest = slice(int(ends[start]), None)
        if not len(cut[rest]):
            break
        block = slice(start, start + _BLOCK)
        cosines = unit[cut[block]] @ unit[cut[rest]].T
        here, there = np.nonzero(cosines >= 1 - eps)
        apart = part[block][here] < part[rest][there]
        for a, b in zip(here[apart].tolist(), there[apart].tolist(), strict=True):
            pairs.setdefault((part[block][a], part[rest][b]), (cut[block][a], cut[rest][b]))
    found = np.array(list(pairs.values()), np.int64).reshape(-1, 2)
    # That they are neighbours is enough: their exact distance does not change the groups.
    return symmetric(found[:, 0], found[:, 1], np.full(len(found), eps), count=len(unit))


def _core_distances(graph: Graph, *, min_samples: int) -> NDArray[np.float64]:
    """Return the distance within which each node has ``min_samples`` records, its own included."""
    weight = graph.nodes.weight
    edges = graph.edges.tocoo()
    order = np.lexsort((edges.data, edges.row))
    rows, far = edges.row[order], edges.data[order]
    crowd = np.cumsum(weight[edges.col[order]])
    starts = np.searchsorted(rows, np.arange(len(weight)))
    before = np.concatenate([[0], crowd])[starts]
    enough = crowd - before[rows] + weight[rows] >= min_samples
    core = np.full(len(weight), np.nan)
    hits = np.flatnonzero(enough)[::-1]
    core[rows[hits]] = far[hits]  # the nearest of them is written last
    core[weight >= min_samples] = 0.0
    # A node with fewer records in its list: the distance at which the list ends, at least.
    farthest = graph.edges.max(axis=1).toarray().reshape(-1)
    return np.where(np.isnan(core), farthest, core)


def _bridges(graph: Graph, *, on_progress: OnProgress) -> csr_array:
    """Join the parts that no edge joins: a tree over their means, by the nearest of two parts."""
    unit = graph.nodes.unit
    parts, part = connected_components(graph.edges, directed=False)
    members = np.split(np.argsort(part, kind="stable"), np.cumsum(np.bincount(part))[:-1])
    means = np.stack([unit[own].mean(axis=0, dtype=np.float64) for own in members])
    apart = cdist(means, means, "sqeuclidean")
    tree = minimum_spanning_tree(np.maximum(apart, TINY) * ~np.eye(parts, dtype=bool)).tocoo()
    rows, columns, far = [], [], []
    for done, (a, b) in enumerate(zip(tree.row.tolist(), tree.col.tolist(), strict=True)):
        on_progress("bridges", done, parts - 1)
        one, other, cosine = _nearest(unit, members[a], members[b])
        rows.append(one)
        columns.append(other)
        far.append(max(1 - cosine, TINY))
    count = len(unit)
    return symmetric(
        np.array(rows, np.int64), np.array(columns, np.int64), np.array(far), count=count
    )


def _nearest(
    unit: Vector, some: NDArray[np.int64], others: NDArray[np.int64]
) -> tuple[int, int, float]:
    """Return the nearest pair of two parts, and its cosine."""
    best = (int(some[0]), int(others[0]), -2.0)
    for start in range(0, len(some), _BLOCK):
        block = some[start : start + _BLOCK]
        cosines = unit[block] @ unit[others].T
        a, b = np.unravel_index(int(cosines.argmax()), cosines.shape)
        if cosines[a, b] > best[2]:
            best = (int(block[a]), int(others[b]), float(cosines[a, b]))
    return best
