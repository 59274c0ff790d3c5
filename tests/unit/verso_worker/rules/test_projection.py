"""Maps of vectors: two directions that differ most, and few colours."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from verso_worker.rules import projection


def cloud(rows: int, *, dim: int = 24, seed: int = 0) -> NDArray[np.float32]:
    """Return unit vectors around three centres. Shape: (rows, dim), float32."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(3, dim))
    found = centres[np.arange(rows) % 3] + 0.1 * random.normal(size=(rows, dim))
    unit: NDArray[np.float64] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit.astype(np.float32)


def test_a_projection_is_that_of_scikit_learn() -> None:
    vectors = cloud(300)
    drawn = projection.project(vectors)
    expected = PCA(n_components=2, svd_solver="full").fit(vectors.astype(np.float64))
    placed = expected.transform(vectors.astype(np.float64))
    ours = np.stack([drawn.x, drawn.y], axis=1)
    for axis in range(2):  # a direction has no sign
        sign = np.sign(ours[0, axis] * placed[0, axis])
        np.testing.assert_allclose(ours[:, axis], sign * placed[:, axis], atol=1e-4)
    np.testing.assert_allclose(drawn.explained, expected.explained_variance_ratio_, atol=1e-4)


def test_the_order_of_vectors_does_not_turn_the_map() -> None:
    vectors = cloud(60)
    order = np.random.default_rng(1).permutation(60)
    drawn, again = projection.project(vectors), projection.project(vectors[order])
    np.testing.assert_allclose(np.array(drawn.x)[order], again.x, atol=2e-4)
    np.testing.assert_allclose(np.array(drawn.y)[order], again.y, atol=2e-4)


@pytest.mark.parametrize("rows", [0, 1])
def test_fewer_than_two_vectors_lie_in_the_middle(rows: int) -> None:
    drawn = projection.project(cloud(3)[:rows])
    assert drawn.x == drawn.y == (0.0,) * rows
    assert drawn.explained == (0.0, 0.0)


def test_equal_vectors_have_no_variance_to_explain() -> None:
    drawn = projection.project(np.tile(cloud(1), (5, 1)))
    assert drawn.explained == (0.0, 0.0)


def test_groups_are_near_vectors_and_the_largest_comes_first() -> None:
    vectors = cloud(30)[:25]
    labels, middle = projection.groups(vectors, count=3)
    own = np.arange(25) % 3
    assert all(len(set(labels[own == one].tolist())) == 1 for one in range(3))
    assert np.bincount(labels).tolist() == sorted(np.bincount(labels).tolist(), reverse=True)
    assert [int(labels[one]) for one in middle] == [0, 1, 2]


def test_there_are_no_more_groups_than_different_vectors() -> None:
    labels, middle = projection.groups(np.tile(cloud(2), (4, 1)), count=8)
    assert len(middle) == 2
    assert set(labels.tolist()) == {0, 1}


def test_vectors_that_differ_in_their_last_bits_alone_are_grouped() -> None:
    random = np.random.default_rng(0)
    alike = cloud(3)[np.arange(40) % 3] + 1e-6 * random.normal(size=(40, 24))
    vectors = alike.astype(np.float16).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels, middle = projection.groups(vectors, count=12)
    assert sorted(set(labels.tolist())) == list(range(len(middle)))
    assert [int(labels[one]) for one in middle] == list(range(len(middle)))


def test_frequent_values_have_colours_and_rare_ones_none() -> None:
    values = [f"v{n}" for n in range(projection.SHOWN + 3) for _ in range(20 - n)] + [None]
    colour, labels = projection.ranked(values)
    assert labels == [f"v{n}" for n in range(projection.SHOWN)]
    assert colour[0] == 0
    assert colour[-1] == projection.NONE
    counts = [one.points for one in projection.counted(colour, labels)]
    assert counts == [20 - n for n in range(projection.SHOWN)]


def test_a_label_is_one_short_line() -> None:
    assert projection.shortened("a\n  b\tc") == "a b c"
    assert len(projection.shortened("word " * 100)) <= 120
