"""Groups of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from verso_worker.records.space import Vector
from verso_worker.rules.grouping.by_pairs import ALONE, Labels, by_density, by_stability, central


def heaps(*sizes: int, spread: float = 0.01, seed: int = 0) -> Vector:
    """Make unit vectors in heaps around directions at right angles."""
    rng = np.random.default_rng(seed)
    rows = [
        np.eye(8)[heap] + spread * rng.normal(size=8)
        for heap, size in enumerate(sizes)
        for _ in range(size)
    ]
    made = np.array(rows)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)


def parts(labels: Labels) -> set[frozenset[int]]:
    named = set(labels.tolist()) - {ALONE}
    return {frozenset(np.flatnonzero(labels == one).tolist()) for one in named}


def test_heaps_are_groups_and_a_vector_far_away_is_alone() -> None:
    vectors = heaps(5, 4, 1)
    expected = {frozenset(range(5)), frozenset(range(5, 9))}
    assert parts(by_density(vectors, eps=0.1, min_samples=2)) == expected
    assert parts(by_stability(vectors, min_size=3, min_samples=2)) == expected
    assert by_density(vectors, eps=0.1, min_samples=2)[9] == ALONE


def test_eps_is_a_cosine_distance() -> None:
    angle = np.arccos(0.9)
    pair = np.array([[1, 0], [np.cos(angle), np.sin(angle)]], np.float32)
    assert len(parts(by_density(pair, eps=0.101, min_samples=2))) == 1
    assert len(parts(by_density(pair, eps=0.099, min_samples=2))) == 0


def test_equal_vectors_count_each() -> None:
    vectors = np.repeat(heaps(1, 1, spread=0), [3, 1], axis=0)
    assert by_density(vectors, eps=0.01, min_samples=3).tolist() == [0, 0, 0, ALONE]


def test_the_order_of_the_vectors_changes_no_group() -> None:
    vectors = heaps(6, 5, 1, 7)
    order = np.random.default_rng(1).permutation(len(vectors))
    back = np.argsort(order)
    first = by_density(vectors, eps=0.1, min_samples=2)
    again = by_density(vectors[order], eps=0.1, min_samples=2)[back]
    assert parts(first) == parts(again)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_vectors_are_in_no_group(count: int) -> None:
    vectors = heaps(count)[:count] if count else np.empty((0, 8), np.float32)
    assert by_density(vectors, eps=0.1, min_samples=2).tolist() == [ALONE] * count
    assert by_stability(vectors, min_size=2, min_samples=2).tolist() == [ALONE] * count


def test_the_most_central_vector_comes_first() -> None:
    angles = np.array([0.0, 0.3, 0.5, 1.2])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert central(vectors, count=2) == [2, 1]
