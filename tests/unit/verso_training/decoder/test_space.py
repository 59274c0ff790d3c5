"""Storage of vectors and its imitation in training."""

import numpy as np
import torch

from verso_training.config import Precision
from verso_training.decoder import train


def _unit(rows: int, dim: int = 64) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.nn.functional.normalize(torch.randn(rows, dim), dim=-1)


def test_int8_is_off_by_half_a_step_at_most_inside_its_range() -> None:
    vectors = _unit(500)
    scale = train.int8_scale(vectors.numpy().astype(np.float16))
    inside = vectors.abs() <= 127 / scale
    error = (train.round_int8(vectors, scale) - vectors).abs()
    assert float(error[inside].max()) <= 0.5 / scale + 1e-6
    assert float(inside.float().mean()) > 0.9998


def test_disturbed_vectors_stay_close_or_become_zero() -> None:
    vectors = _unit(4000)
    scale = train.int8_scale(vectors.numpy().astype(np.float16))
    result = train.disturb(vectors, scale=scale, noise=0.01, dropout=0.25)
    dropped = (result == 0).all(-1)
    assert 0.2 < float(dropped.float().mean()) < 0.3
    kept = torch.nn.functional.cosine_similarity(result[~dropped], vectors[~dropped])
    assert float(kept.mean()) > 0.9998
    assert float(kept.min()) > 0.99  # a row whose largest entry int8 cuts off


def test_without_noise_and_dropout_rows_are_float16_or_int8() -> None:
    vectors = _unit(200)
    scale = train.int8_scale(vectors.numpy().astype(np.float16))
    result = train.disturb(vectors, scale=scale, noise=0.0, dropout=0.0)
    fine = (result == vectors.half().float()).all(-1)
    coarse = (result == train.round_int8(vectors, scale)).all(-1)
    assert bool((fine | coarse).all())
    assert 0 < int(fine.sum()) < 200


def test_a_bit_a_dimension_keeps_the_signs_and_the_length() -> None:
    vectors = _unit(50)
    result = train.stored(vectors, Precision.BIT, scale=1.0)
    assert bool((result.sign() == vectors.sign()).all())
    torch.testing.assert_close(result.norm(dim=-1), torch.ones(50))


def test_one_precision_is_all_rows_precision() -> None:
    vectors = _unit(50)
    scale = train.int8_scale(vectors.numpy().astype(np.float16))
    for precision in (Precision.INT8, Precision.FLOAT16, Precision.BIT):
        result = train.disturb(vectors, scale=scale, noise=0.0, dropout=0.0, precision=precision)
        assert bool((result == train.stored(vectors, precision, scale=scale)).all())
