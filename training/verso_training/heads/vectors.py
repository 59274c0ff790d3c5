"""Fit a classifier on stored vectors: nothing is decoded, so it takes seconds.

Steps:

1. full-batch L-BFGS on the weighted cross-entropy with an L2 penalty on the matrices,

       L = sum_i w(y_i) CE(z_i, y_i) / sum_i w(y_i) + l2 sum W^2 / 2,

   ten iterations a round, for each penalty of the recipe;
2. after every round the validation loss; a penalty ends when it has not fallen for ``patience``
   rounds (early stopping), and its best round counts;
3. the penalty with the best validation accuracy wins, the larger one if two are equal.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from verso_core.errors import Cancelled
from verso_training import device
from verso_training.heads.modules import VectorClassifier
from verso_training.heads.recipe import ClassifyConfig, ClassWeights

_ROUND = 10
"""Iterations of L-BFGS between two evaluations of the validation rows."""


@dataclass(frozen=True)
class Progress:
    """The progress of a training.

    Attributes:
        share: Of the work, in [0, 1].
        metrics: Such as loss and accuracy on validation rows.
    """

    share: float
    metrics: dict[str, float]


OnProgress = Callable[[Progress], None]
ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class Part:
    """Vectors and label numbers. Shape: (N, D) float32 and (N,) int64."""

    vectors: NDArray[np.float32]
    targets: NDArray[np.int64]

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return the same as tensors."""
        return torch.from_numpy(self.vectors), torch.from_numpy(self.targets)


def class_weights(targets: NDArray[np.int64], *, classes: int, kind: ClassWeights) -> Tensor:
    """Return the weight of a row of each label; the mean over the rows is 1. Shape: (C,)."""
    count = np.bincount(targets, minlength=classes).clip(1).astype(np.float64)
    power = {ClassWeights.NONE: 0.0, ClassWeights.SQRT: 0.5, ClassWeights.BALANCED: 1.0}[kind]
    weight = count**-power
    weight *= len(targets) / (weight * np.bincount(targets, minlength=classes)).sum()
    return torch.from_numpy(weight.astype(np.float32))


def fit(
    config: ClassifyConfig,
    *,
    train: Part,
    validation: Part,
    classes: int,
    seed: int,
    on_progress: OnProgress,
    should_stop: ShouldStop,
) -> VectorClassifier:
    """Return the classifier that validation chooses.

    Raises:
        Cancelled: ``should_stop`` returned True between two rounds.
    """
    weights = class_weights(train.targets, classes=classes, kind=config.class_weights)
    best: tuple[float, VectorClassifier] | None = None
    for number, l2 in enumerate(sorted(config.l2, reverse=True)):
        torch.manual_seed(seed)
        model = VectorClassifier(dim=train.vectors.shape[1], classes=classes, hidden=config.hidden)
        rounds = _Rounds(config, number=number, on_progress=on_progress, should_stop=should_stop)
        accuracy, model = rounds.run(
            model, train=train, validation=validation, weights=weights, l2=l2
        )
        if best is None or accuracy > best[0]:
            best = accuracy, model
    assert best is not None
    return best[1].eval()


@dataclass(frozen=True)
class _Rounds:
    """Run the rounds of one penalty."""

    config: ClassifyConfig
    number: int
    on_progress: OnProgress
    should_stop: ShouldStop

    def run(
        self,
        model: VectorClassifier,
        *,
        train: Part,
        validation: Part,
        weights: Tensor,
        l2: float,
    ) -> tuple[float, VectorClassifier]:
        chosen = device.fastest()
        model = model.to(chosen)
        x, y, weights = device.beside(model, (*train.tensors(), weights))
        val_x, val_y = device.beside(model, validation.tensors())
        matrices = [p for p in model.parameters() if p.ndim == 2]
        optimiser = torch.optim.LBFGS(
            model.parameters(), max_iter=_ROUND, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x)[0], y, weight=weights)
            loss = loss + 0.5 * l2 * torch.stack([(m**2).sum() for m in matrices]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        lowest, accuracy, waited = float("inf"), 0.0, 0
        kept = copy.deepcopy(model)
        rounds = max(1, self.config.iterations // _ROUND)
        for turn in range(rounds):
            if self.should_stop():
                raise Cancelled("the training was cancelled")
            loss = float(optimiser.step(closure).detach())  # type: ignore[no-untyped-call]
            with torch.no_grad():
                logits = model(val_x)[0]
                val_loss = float(F.cross_entropy(logits, val_y))
                val_accuracy = float((logits.argmax(-1) == val_y).float().mean())
            share = (self.number + turn / rounds) / len(self.config.l2)
            figures = {"loss": loss, "validation_loss": val_loss}
            figures |= {"validation_accuracy": val_accuracy, "l2": l2}
            self.on_progress(Progress(share, figures))
            waited += 1
            if val_loss < lowest - 1e-5:
                lowest, accuracy, waited = val_loss, val_accuracy, 0
                kept = copy.deepcopy(model)
            if waited > self.config.patience:
                break
        return accuracy, kept.to(device.PROCESSOR)


@torch.inference_mode()
def outputs(
    model: VectorClassifier, vectors: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return logits and features of vectors; the vector itself is the feature where there is no
    hidden layer. Shape: (N, C) and (N, F).
    """
    logits, *feature = model(torch.from_numpy(vectors))
    return logits.numpy(), feature[0].numpy() if feature else vectors
