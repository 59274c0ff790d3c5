"""Rounding, widening and the store's values of vectors."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from verso_core.errors import VectorInvalid
from verso_core.jobs import Precision
from verso_worker.records.space import Space, Stored, Vector, read_unit

ROOT = Path(__file__).parents[4]
DIM = 16
SPACES = [
    Space(Precision.FLOAT16, DIM, 0.0),
    Space(Precision.INT8, DIM, 487.3),
    Space(Precision.INT4, DIM, 0.0),
]
VECTORS = hnp.arrays(np.float32, (3, DIM), elements=st.floats(-1, 1, width=32))
UNITS = st.integers(0, 1 << 32).map(lambda seed: units(seed, dim=384))
CODES = hnp.arrays(np.int8, (3, DIM), elements=st.integers(-127, 127))
HALVES = hnp.arrays(np.float16, (3, DIM), elements=st.floats(-2, 2, width=16))

every = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.precision.value)


def units(seed: int, *, dim: int, count: int = 3) -> Vector:
    """Return vectors of random directions. Shape: (count, dim)."""
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def same(left: Stored, right: Stored) -> bool:
    """Compare bytes, so that -0.0 is not 0.0."""
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


@every
@given(vectors=VECTORS)
def test_rounding_is_a_fixed_point(space: Space, vectors: Vector) -> None:
    try:
        stored = space.round(vectors)
    except VectorInvalid:
        assert space.precision is Precision.INT4  # which has no place for every direction
        return
    assert same(space.round(space.widen(stored)), stored)
    assert same(space.check(stored), stored)


@given(vectors=UNITS, error=st.floats(-1e-4, 1e-4))
def test_int4_codes_outlive_the_errors_of_another_processor(vectors: Vector, error: float) -> None:
    space = Space(Precision.INT4, 384, 0.0)
    stored = space.round(vectors)
    noise = error * units(1, dim=384)
    for scale in (1.0, 0.97, 1.03):
        read = (space.values(stored) + noise) * np.float32(scale)
        assert same(space.from_values(read.tolist()), stored)
        assert same(space.round(read.astype(np.float32)), stored)


@given(vectors=UNITS)
def test_int4_vectors_are_close_to_what_was_rounded(vectors: Vector) -> None:
    space = Space(Precision.INT4, 384, 0.0)
    stored = space.round(vectors)
    assert stored.shape == (3, 192)
    cosines = (space.widen(stored) * vectors).sum(axis=1)
    assert cosines.min() > 0.99
    assert np.abs(space.cosines(vectors[0], stored) - space.widen(stored) @ vectors[0]).max() < 1e-6


def test_int4_brings_vectors_apart_by_as_much_as_is_told() -> None:
    """What a threshold of two texts' distance is corrected by where their vectors are stored."""
    space = Space(Precision.INT4, 384, 0.0)
    first, noise = units(1, dim=384, count=400), units(2, dim=384, count=400)
    second = first + 0.4 * noise
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    apart = 1 - (first * second).sum(axis=1)
    kept = [space.widen(space.round(rows)) for rows in (first, second)]
    between = 1 - (kept[0] * kept[1]).sum(axis=1)
    told = np.array([space.stored_distance(float(one)) for one in apart])
    assert abs(float((between - told).mean())) < 1e-3
    assert float((between - apart).mean()) > 5e-3
    assert Space(Precision.INT8, 384, 300.0).stored_distance(0.2) == 0.2


def test_int4_vectors_are_the_same_numbers_everywhere() -> None:
    space = Space(Precision.INT4, 384, 0.0)
    wide = space.widen(space.round(units(7, dim=384, count=64)))
    digest = hashlib.blake2b(wide.tobytes(), digest_size=8).hexdigest()
    assert digest == "1e52db25742e8a15"


@pytest.mark.parametrize("kernel", ["Prescott", "Nehalem", "Sandybridge", "Haswell"])
def test_int4_codes_and_numbers_are_the_same_by_other_instructions(kernel: str) -> None:
    """By other kernels of OpenBLAS, and by numpy without what it chooses by the processor."""
    chosen: list[str] = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    if kernel in ("Sandybridge", "Haswell") and not {"AVX2", "X86_V3"} & set(chosen):
        pytest.skip("this processor has no AVX2")
    environment = os.environ | {
        "OPENBLAS_CORETYPE": kernel,
        "NPY_DISABLE_CPU_FEATURES": " ".join(chosen),
    }
    space = Space(Precision.INT4, 384, 0.0)
    stored = np.concatenate([space.round(units(n, dim=384, count=64)) for n in range(4)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"from {__name__} import there; there()"],
        input=stored.tobytes(), env=environment, cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    assert done.stdout == stored.tobytes() * 2 + space.widen(stored).tobytes()


def there() -> None:
    """Write the codes that a store's numbers and rounding again give, and the widened numbers."""
    space = Space(Precision.INT4, 384, 0.0)
    stored = np.frombuffer(sys.stdin.buffer.read(), np.uint8).reshape(-1, 192)
    wide = space.widen(stored)
    read = space.from_values(space.values(stored).tolist())
    sys.stdout.buffer.write(read.tobytes() + space.round(wide).tobytes() + wide.tobytes())


@given(codes=CODES, scale=st.floats(1.0, 1e5))
def test_every_code_is_a_fixed_point_at_every_scale(codes: Stored, scale: float) -> None:
    space = Space(Precision.INT8, DIM, scale)
    assert same(space.round(space.widen(codes)), codes)


@given(codes=CODES, halves=HALVES)
def test_engine_values_give_the_stored_vector_back(codes: Stored, halves: Stored) -> None:
    for space, stored in zip(SPACES[:2], (halves, codes), strict=True):
        values = space.values(stored)
        assert values.dtype == np.float32
        assert same(space.from_values(values.tolist()), stored)


@given(codes=CODES)
def test_int8_engine_values_are_whole_numbers_of_an_unsigned_byte(codes: Stored) -> None:
    values = SPACES[1].values(codes)
    assert np.array_equal(values, values.astype(np.uint8))


@every
@given(seed=st.integers(0, 1 << 32))
def test_raw_bytes_give_the_stored_vector_back(space: Space, seed: int) -> None:
    row = space.round(units(seed, dim=DIM))[0]
    assert len(space.raw(row)) == space.size_bytes
    assert row.shape == (space.width,)
    assert same(np.frombuffer(space.raw(row), space.dtype), row)


@given(vectors=VECTORS)
def test_int8_error_is_at_most_half_a_step(vectors: Vector) -> None:
    space = Space(Precision.INT8, DIM, 127.0)
    error = np.abs(space.widen(space.round(vectors)) - vectors)
    assert error.max() <= 0.5 / 127 + 1e-6


def test_int8_cuts_off_beyond_its_range() -> None:
    vectors = np.full((1, DIM), -1.0, np.float32)
    assert SPACES[1].round(vectors).tolist() == [[-127] * DIM]


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rounding_refuses_what_is_not_finite(space: Space, bad: float) -> None:
    vectors = np.zeros((2, DIM), np.float32)
    vectors[1, 3] = bad
    with pytest.raises(VectorInvalid, match="finite"):
        space.round(vectors)


@every
def test_another_dimension_is_refused(space: Space) -> None:
    with pytest.raises(VectorInvalid, match=str(DIM)):
        space.round(np.zeros((2, DIM + 1), np.float32))
    with pytest.raises(VectorInvalid, match=str(space.width)):
        space.check(np.zeros((2, DIM + 1), space.dtype))


def test_stored_vectors_of_the_other_precision_are_refused() -> None:
    half, code, short = SPACES
    with pytest.raises(VectorInvalid, match="float16"):
        short.check(np.zeros((1, DIM // 2), np.float16))
    with pytest.raises(VectorInvalid, match="float16"):
        half.check(np.zeros((1, DIM), np.int8))
    with pytest.raises(VectorInvalid, match="int8"):
        code.check(np.zeros((1, DIM), np.float16))


def test_stored_vectors_that_rounding_never_gives_are_refused() -> None:
    half, code, short = SPACES
    with pytest.raises(VectorInvalid):
        half.check(np.full((1, DIM), np.nan, np.float16))
    with pytest.raises(VectorInvalid, match="int4"):
        short.check(np.full((1, DIM // 2), 0x77, np.uint8))
    with pytest.raises(VectorInvalid, match="-128"):
        code.check(np.full((1, DIM), -128, np.int8))


@every
def test_a_query_becomes_a_unit_vector_whatever_its_length(space: Space) -> None:
    query = np.arange(DIM, dtype=np.float32)
    for factor in (1e-30, 1.0, 1e30):
        unit = space.unit(query * np.float32(factor))
        assert abs(float(np.linalg.norm(unit)) - 1) < 1e-6


@every
@pytest.mark.parametrize("query", [[0.0] * DIM, [np.nan] * DIM, [np.inf] * DIM, [1.0] * (DIM + 1)])
def test_a_query_without_direction_is_refused(space: Space, query: list[float]) -> None:
    with pytest.raises(VectorInvalid):
        space.unit(np.array(query, np.float32))


def test_cosines_of_a_stored_vector_with_itself_are_one() -> None:
    rng = np.random.default_rng(7)
    row = rng.normal(size=(1, DIM)).astype(np.float32)
    row /= np.linalg.norm(row)
    half = SPACES[0]
    assert half.cosines(row[0], half.round(row))[0] == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("value", [0.0, 1e-30, 3e38, np.nan])
def test_a_vector_of_a_length_that_no_embedding_has_is_refused(value: float) -> None:
    with pytest.raises(VectorInvalid, match="expected"):
        read_unit(np.full(DIM, value, "<f4").tobytes(), dim=DIM)


@pytest.mark.parametrize("value", [1e-3, 1.0, 1e4])
def test_a_vector_of_any_other_length_is_scaled_to_one(value: float) -> None:
    found = read_unit(np.full(DIM, value, "<f4").tobytes(), dim=DIM)
    assert found == pytest.approx(np.full(DIM, 0.25), rel=1e-6)
