"""Held-out examples end a training, and choose the weights that stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from verso_core.errors import Cancelled
from verso_training.heads import fitting

EPOCHS = 40


@dataclass(frozen=True)
class Wish:
    """An example that wants the weight to be at ``at``."""

    ids: list[int]
    at: float


TRAIN = [Wish([1] * 10, 1.0)] * 16
HELD_OUT = [Wish([1] * 10, 0.3)] * 4


class Toy(torch.nn.Module):
    """Starts at 0 and is pulled to 1; on the way it passes what held-out examples want."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.steps = 0

    def losses(self, batch: Sequence[Wish]) -> dict[str, Tensor]:
        self.steps += self.training
        wanted = torch.tensor([row.at for row in batch])
        return {"far": ((self.weight - wanted) ** 2).mean()}


def trained(folder: Path | None, *, patience: int, stop_after: int = 10**9) -> Toy:
    """A run with a checkpoint after every step."""
    module = Toy()
    budget = fitting.Budget(
        60.0, EPOCHS, rate=0.05, tokens_per_step=40, warmup_steps=1, checkpoint_minutes=-1.0,
        weight_decay=0.0, patience=patience,
    )  # fmt: skip
    run = fitting.AdapterRun(
        module, budget, main=TRAIN, held_out=HELD_OUT, losses=module.losses, folder=folder
    )
    run.train(on_progress=lambda _: None, should_stop=lambda: module.steps >= stop_after)
    return module


def test_it_ends_where_held_out_examples_gain_no_more_and_keeps_the_best() -> None:
    stopped = trained(None, patience=2)
    assert stopped.weight.item() == pytest.approx(0.3, abs=0.15)
    assert stopped.steps < EPOCHS * 4 / 2
    assert not stopped.training


def test_without_patience_held_out_examples_change_nothing() -> None:
    whole = trained(None, patience=0)
    assert whole.weight.item() > 0.8
    assert whole.steps == EPOCHS * 4


def test_one_that_was_killed_ends_at_the_same_weights(tmp_path: Path) -> None:
    once = trained(tmp_path / "once", patience=2)
    with pytest.raises(Cancelled):
        trained(tmp_path / "killed", patience=2, stop_after=once.steps - 2)
    again = trained(tmp_path / "killed", patience=2)
    assert again.steps <= 3
    assert again.weight.item() == pytest.approx(once.weight.item(), abs=1e-6)
    finished = trained(tmp_path / "once", patience=2)
    assert finished.steps == 0
    assert torch.equal(finished.weight, once.weight)
