"""A linear map of vectors, trained with one objective at a time."""

import numpy as np
import pytest
import torch

from studies.tasks import frozen
from studies.tasks.frozen import Vectors
from studies.tasks.pairs import mapped
from verso_training.heads import scoring

DIM = 8


def some(count: int, *, seed: int) -> Vectors:
    """Pairs whose likeness is that of two places out of eight; the others are noise."""
    draw = torch.Generator().manual_seed(seed)
    u, v = (torch.randn((count, DIM), generator=draw) for _ in range(2))
    angle = torch.rand(count, generator=draw) * torch.pi / 2
    u[:, 0], u[:, 1] = 1.0, 0.0
    v[:, 0], v[:, 1] = angle.cos(), angle.sin()
    return Vectors(u, v, angle.cos())


def spearman(model: mapped.Mapped, rows: Vectors) -> float:
    return 100 * scoring.spearman(model.scores(rows), np.asarray(rows.scores))


@pytest.mark.parametrize("name", mapped.Mapped(DIM).losses())
def test_no_objective_makes_the_held_out_pairs_worse(name: str) -> None:
    """And each has gradients: what it is of is the map."""
    shown, held = some(600, seed=1), some(200, seed=2)
    model = mapped.Mapped(DIM)
    before = spearman(model, held)
    model.losses()[name](model.map(shown.u), model.map(shown.v), shown.scores).backward()  # type: ignore[no-untyped-call]
    assert model.map.weight.grad is not None
    assert float(model.map.weight.grad.abs().sum()) > 0
    assert spearman(mapped.fitted(name, shown, held=held, seed=0), held) >= before


def test_the_objective_on_scores_finds_the_places_that_count() -> None:
    shown, held = some(4000, seed=1), some(400, seed=2)
    found = mapped.fitted("cosine, squared distance to the score", shown, held=held, seed=0)
    assert spearman(found, held) > spearman(mapped.Mapped(DIM), held) + 2


def test_a_batch_of_which_none_are_alike_takes_the_two_that_are_most() -> None:
    rows = some(6, seed=3)
    scores = torch.tensor([0.1, 0.5, 0.2, 0.6, 0.0, 0.3])
    u, v = mapped._alike(rows.u, rows.v, scores)
    assert torch.equal(u, rows.u[[1, 3]])
    assert torch.equal(v, rows.v[[1, 3]])
    with_more = frozen.tenth_out(rows)[0]
    assert len(with_more.scores) == 6
