"""Groups by the graph of neighbours, beside those of all pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from tests.unit.verso_worker.rules.grouping.test_by_pairs import heaps, parts

from verso_core.errors import Cancelled
from verso_core.jobs import Precision
from verso_worker.records.space import Space, Stored, Vector
from verso_worker.rules.grouping import by_graph, by_pairs
from verso_worker.rules.grouping.by_pairs import ALONE
from verso_worker.rules.grouping.neighbours import Graph, Nodes, graph_of, unit_of
from verso_worker.rules.ports.outcome import no_progress
from verso_worker.rules.ports.stores import Ask

NEAREST = 8


def space_of(vectors: Vector) -> Space:
    return Space(Precision.INT8, vectors.shape[1], 127.0)


def exact(space: Space, stored: Stored) -> Ask:
    """Answer as a store does that compares every pair."""
    unit = unit_of(space.widen(stored))

    def ask(rows: Stored, limit: int) -> Sequence[Sequence[int]]:
        order = np.argsort(-(unit_of(space.widen(rows)) @ unit.T), axis=1, kind="stable")
        return [[int(n) for n in row[:limit]] for row in order]

    return ask


def graph(space: Space, stored: Stored, *, nearest: int = NEAREST) -> Graph:
    nodes = Nodes.of(space, stored)
    return graph_of(nodes, exact(space, stored), nearest=nearest, on_progress=no_progress)


def crowd() -> tuple[Space, Stored]:
    """A thousand vectors: dense heaps, loose ones, many copies, strays; lists end within heaps."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(30, 24))
    rows = np.concatenate(
        [centres[n % 30] + rng.normal(scale=0.05 + 0.3 * (n % 3), size=(20, 24)) for n in range(36)]
        + [np.repeat(centres[:5] + 0.02, 40, axis=0), rng.normal(size=(80, 24))]
    )
    vectors = unit_of(rows.astype(np.float32))
    space = Space(Precision.INT8, 24, 240.0)
    return space, space.round(vectors)


@pytest.mark.parametrize(("eps", "min_samples"), [(0.02, 2), (0.05, 5), (0.1, 3), (0.25, 8)])
def test_dbscan_of_the_graph_is_that_of_all_pairs(eps: float, min_samples: int) -> None:
    """Lists of eight neighbours end within every heap, and nothing is missed."""
    space, stored = crowd()
    made = graph(space, stored)
    found = by_graph.by_density(made, eps=eps, min_samples=min_samples, on_progress=no_progress)
    wanted = by_pairs.by_density(space.widen(stored), eps=eps, min_samples=min_samples)
    assert (found == ALONE).tolist() == (wanted == ALONE).tolist()
    assert adjusted_rand_score(found, wanted) == 1.0
    assert len(parts(wanted)) > 3


@pytest.mark.parametrize(("min_size", "min_samples"), [(2, 2), (5, 5), (10, 3)])
def test_hdbscan_of_the_graph_is_nearly_that_of_all_pairs(min_size: int, min_samples: int) -> None:
    space, stored = crowd()
    made = graph(space, stored, nearest=16)
    found = by_graph.by_stability(
        made, min_size=min_size, min_samples=min_samples, on_progress=no_progress
    )
    wanted = by_pairs.by_stability(
        unit_of(space.widen(stored)), min_size=min_size, min_samples=min_samples
    )
    assert adjusted_rand_score(found, wanted) > 0.9


def test_groups_that_only_cut_lists_kept_apart_are_joined() -> None:
    """Two heaps of more copies than a list holds, within eps of one another."""
    angles = np.repeat([0.0, 0.1, 1.5], [20, 20, 1])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    space = space_of(vectors)
    stored = space.round(vectors)
    made = graph(space, stored, nearest=1)
    assert made.edges.nnz > 0
    bare = Graph(made.nodes, made.edges * 0, np.zeros(3))  # as if every list held only copies
    bare.edges.eliminate_zeros()
    labels = by_graph.by_density(bare, eps=0.1, min_samples=2, on_progress=no_progress)
    assert parts(labels) == {frozenset(range(40))}


def test_copies_count_each_and_stay_together() -> None:
    space, heap = space_of(heaps(1, 1, spread=0)), heaps(1, 1, spread=0)
    stored = space.round(np.repeat(heap, [6, 1], axis=0))
    made = graph(space, stored)
    by_density = by_graph.by_density(made, eps=0.01, min_samples=6, on_progress=no_progress)
    assert by_density.tolist() == [0] * 6 + [ALONE]
    by_stability = by_graph.by_stability(made, min_size=3, min_samples=2, on_progress=no_progress)
    assert parts(by_stability) <= {frozenset(range(6))}


def test_parts_without_an_edge_between_them_are_grouped() -> None:
    vectors = heaps(12, 11, 13)
    space = space_of(vectors)
    stored = space.round(vectors)
    made = graph(space, stored, nearest=4)
    labels = by_graph.by_stability(made, min_size=5, min_samples=2, on_progress=no_progress)
    pairs = by_pairs.by_stability(unit_of(space.widen(stored)), min_size=5, min_samples=2)
    assert parts(labels) == parts(pairs)


def test_whoever_is_told_may_end_the_work() -> None:
    space, stored = crowd()
    told: list[tuple[str, int, int]] = []

    def tell(stage: str, done: int, of: int) -> None:
        told.append((stage, done, of))
        if done:
            raise Cancelled("enough")

    nodes = Nodes.of(space, stored)
    with pytest.raises(Cancelled):
        graph_of(nodes, exact(space, stored), nearest=NEAREST, on_progress=tell)
    assert [stage for stage, _, _ in told] == ["neighbours", "neighbours"]
