"""Groups by DBSCAN, and how far they hold one label each."""

import math

import numpy as np
import pytest

from studies.tasks import aggregation
from studies.tasks.aggregation import grouped, homogeneous


def at(*degrees: float) -> np.ndarray:
    """Vectors of any length at these angles."""
    angles = np.radians(degrees)
    return (3.0 * np.stack([np.cos(angles), np.sin(angles)], -1)).astype(np.float32)


def test_rows_within_the_cosine_of_one_another_are_a_group() -> None:
    # cos 18.2 degrees = 0.95: 0, 10 and 20 hang together, 90 and 100 do, 200 is alone.
    assert grouped(at(0, 10, 20, 90, 100, 200), cosine=0.95).tolist() == [0, 0, 0, 1, 1, -1]
    assert grouped(at(0, 30, 60), cosine=0.95).tolist() == [-1, -1, -1]
    assert grouped(at(0, 30, 60), cosine=0.78).tolist() == [0, 0, 0]


def test_homogeneity_is_what_groups_tell_of_the_labels() -> None:
    found = np.array([0, 0, 0, 0, -1, -1])
    assert homogeneous(["a"] * 4 + ["b"] * 2, found) == pytest.approx(1.0)
    # H(label) = ln 2; in the group of four two labels are even, so H(label | group) = 4/6 ln 2.
    assert homogeneous(["a", "a", "b", "b", "a", "b"], found) == pytest.approx(1 - 4 / 6)
    assert math.isclose(homogeneous(["a", "b"], np.array([0, 0])), 0.0, abs_tol=1e-9)
    assert aggregation.section({}) == ""
