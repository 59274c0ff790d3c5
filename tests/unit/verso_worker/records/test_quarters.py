"""Vectors in 4 bits a dimension stay near what they were."""

from __future__ import annotations

import numpy as np

from verso_worker.records import quarters


def test_a_packed_vector_points_almost_where_it_pointed() -> None:
    drawn = np.random.default_rng(7)
    rows = drawn.normal(size=(50, 384)).astype(np.float32)
    rows[:10, :4] *= 12  # some numbers are much larger than the others
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    packed = quarters.pack(rows)
    assert {len(row) for row in packed} == {quarters.size_bytes(384)} == {193}
    again = quarters.unpack(packed, 384)
    assert np.allclose(np.linalg.norm(again, axis=1), 1, atol=1e-5)
    cosines = (rows * again).sum(axis=1)
    assert cosines[10:].min() > 0.99
    assert cosines.min() > 0.9
