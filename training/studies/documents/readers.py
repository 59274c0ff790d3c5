"""Fit the layers on vectors of chunks, and mix them with those on terms."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from studies.documents.data import Batch, Part, batches
from studies.documents.model import ChunkReader
from studies.documents.selection import Watch, score
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.vectors import class_weights

_ROUND = 10
"""Iterations of L-BFGS between two evaluations of the validation rows."""
_MIX_STEPS = 60


@dataclass(frozen=True)
class ReaderSettings:
    """How a reader of chunks is fitted: what it reads, its width, its penalty, and how long."""

    whole: bool
    hidden: int
    l2: float
    rounds: int


def choose_reader(
    config: ClassifyConfig,
    train: Part,
    held_out: Part,
    *,
    classes: int,
    widths: Sequence[int],
    watch: Watch,
) -> tuple[ChunkReader, ReaderSettings]:
    """Return the reader of the chunks that the held-out rows choose, and how it was fitted."""
    held, held_y = Batch.of(held_out.documents), torch.from_numpy(held_out.targets)
    dim, fitted = held.vectors.shape[-1], _Fit.of(train, classes=classes, kind=config.class_weights)
    best: tuple[float, ChunkReader, ReaderSettings] | None = None
    for whole, hidden in itertools.product((False, True), widths):
        for l2 in sorted(config.l2, reverse=True):
            model = ChunkReader(dim=dim, classes=classes, hidden=hidden, whole=whole)

            def held_loss(model: ChunkReader = model) -> tuple[float, float]:
                logits = model(held.vectors, held.mask)
                return float(F.cross_entropy(logits, held_y)), score(
                    logits.numpy(), held_out.targets
                )

            reached, kept, rounds = _rounds(model, fitted.loss(model, l2), held_loss, config)
            watch.step(validation_score=reached)
            if best is None or reached > best[0]:
                best = reached, kept, ReaderSettings(whole, hidden, l2, rounds)
    assert best is not None
    return best[1], best[2]


def fit_reader(
    config: ClassifyConfig, train: Part, settings: ReaderSettings, *, classes: int
) -> ChunkReader:
    """Fit the reader of the chunks with these settings."""
    fitted = _Fit.of(train, classes=classes, kind=config.class_weights)
    model = ChunkReader(
        dim=fitted.batch.vectors.shape[-1],
        classes=classes,
        hidden=settings.hidden,
        whole=settings.whole,
    )
    step = _stepper(model, fitted.loss(model, settings.l2))
    for _ in range(settings.rounds):
        step()
    return model


@dataclass(frozen=True)
class _Fit:
    """Rows that a reader is fitted on, padded once."""

    batch: Batch
    targets: Tensor
    weight: Tensor

    @classmethod
    def of(cls, train: Part, *, classes: int, kind: ClassWeights) -> _Fit:
        weight = class_weights(train.targets, classes=classes, kind=kind)
        return cls(Batch.of(train.documents), torch.from_numpy(train.targets), weight)

    def loss(self, model: ChunkReader, l2: float) -> Callable[[], Tensor]:
        matrices = [p for p in model.parameters() if p.ndim == 2]

        def value() -> Tensor:
            logits = model(self.batch.vectors, self.batch.mask)
            found = F.cross_entropy(logits, self.targets, weight=self.weight)
            return found + 0.5 * l2 * torch.stack([(m**2).sum() for m in matrices]).sum()

        return value


def _stepper(model: ChunkReader, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a round of L-BFGS."""
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=_ROUND, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    return lambda: optimiser.step(closure)  # type: ignore[no-untyped-call]


def _rounds(
    model: ChunkReader,
    loss: Callable[[], Tensor],
    held_loss: Callable[[], tuple[float, float]],
    config: ClassifyConfig,
) -> tuple[float, ChunkReader, int]:
    """Run L-BFGS until the held-out loss does not fall any more; return the best round."""
    step = _stepper(model, loss)
    lowest, score, waited, kept, best = float("inf"), 0.0, 0, copy.deepcopy(model), 1
    for number in range(1, max(1, config.iterations // _ROUND) + 1):
        step()
        with torch.no_grad():
            value, reached = held_loss()
        waited += 1
        if value < lowest - 1e-5:
            lowest, score, waited, kept, best = value, reached, 0, copy.deepcopy(model), number
        if waited > config.patience:
            break
    return score, kept, best


@dataclass(frozen=True)
class Said:
    """What both readers say of a source's rows that they were not fitted on.

    Attributes:
        read: Log probabilities from the vectors of the chunks. Shape: (N, C).
        words: From the terms. Shape: (N, C).
        targets: Shape: (N,).
    """

    read: Tensor
    words: Tensor
    targets: Tensor


def mixing_weights(said: Said) -> Tensor:
    """Return the weights of both readers, by the likelihood of rows held out. Shape: (2,)."""
    log = torch.zeros(2, requires_grad=True)
    optimiser = torch.optim.LBFGS([log], lr=0.5, max_iter=_MIX_STEPS)

    def closure() -> Tensor:
        optimiser.zero_grad()
        weight = log.exp()
        # a weak prior at 1: without it a source with few rows could lose a reader for good
        loss = F.cross_entropy(weight[0] * said.read + weight[1] * said.words, said.targets)
        loss = loss + (log**2).sum() / len(said.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return log.detach().exp().clamp(0.01, 20.0)


@torch.no_grad()  # not inference mode: weights are fitted to mix what is returned
def read_logits(reader: ChunkReader, part: Part) -> Tensor:
    """Return the log probabilities of documents that have vectors. Shape: (N, C)."""
    found = [reader(b.vectors, b.mask) for b in batches(part.documents)]
    return torch.cat(found).log_softmax(-1)
