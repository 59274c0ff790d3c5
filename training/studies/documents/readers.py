"""Fit the layers on vectors of chunks, and mix them with those on terms."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from studies.documents.data import Batch, Part, batches
from studies.documents.model import ChunkReader, DocumentClassifier
from studies.documents.selection import Watch, score
from verso_training.heads.recipe import ClassifyConfig
from verso_training.heads.vectors import class_weights

_ROUND = 10
"""Iterations of L-BFGS between two evaluations of the validation rows."""
_MIX_STEPS = 60


def fit_reader(
    config: ClassifyConfig,
    train: Part,
    held_out: Part,
    *,
    dim: int,
    classes: int,
    widths: Sequence[int],
    watch: Watch,
) -> ChunkReader:
    """Return the reader of the chunks that the held-out rows choose."""
    weight = class_weights(train.targets, classes=classes, kind=config.class_weights)
    batch, held = Batch.of(train.documents), Batch.of(held_out.documents)
    y, held_y = torch.from_numpy(train.targets), torch.from_numpy(held_out.targets)
    best: tuple[float, ChunkReader] | None = None
    for whole, hidden in itertools.product((False, True), widths):
        for l2 in sorted(config.l2, reverse=True):
            model = ChunkReader(dim=dim, classes=classes, hidden=hidden, whole=whole)
            matrices = [p for p in model.parameters() if p.ndim == 2]

            def loss(
                model: ChunkReader = model, l2: float = l2, matrices: list[nn.Parameter] = matrices
            ) -> Tensor:
                found = F.cross_entropy(model(batch.vectors, batch.mask), y, weight=weight)
                return found + 0.5 * l2 * torch.stack([(m**2).sum() for m in matrices]).sum()

            def held_loss(model: ChunkReader = model) -> tuple[float, float]:
                logits = model(held.vectors, held.mask)
                return float(F.cross_entropy(logits, held_y)), score(
                    logits.numpy(), held_out.targets
                )

            reached, kept = _rounds(model, loss, held_loss, config)
            watch.step(validation_score=reached)
            if best is None or reached > best[0]:
                best = reached, kept
    assert best is not None
    return best[1]


def _rounds(
    model: ChunkReader,
    loss: Callable[[], Tensor],
    held_loss: Callable[[], tuple[float, float]],
    config: ClassifyConfig,
) -> tuple[float, ChunkReader]:
    """Run L-BFGS until the held-out loss does not fall any more; return the best round."""
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=_ROUND, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    lowest, score, waited, kept = float("inf"), 0.0, 0, copy.deepcopy(model)
    for _ in range(max(1, config.iterations // _ROUND)):
        optimiser.step(closure)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            value, reached = held_loss()
        waited += 1
        if value < lowest - 1e-5:
            lowest, score, waited, kept = value, reached, 0, copy.deepcopy(model)
        if waited > config.patience:
            break
    return score, kept


def mix_readers(
    model: DocumentClassifier,
    readers: Sequence[ChunkReader],
    held_out: Part,
    sources: Sequence[range],
) -> None:
    """Set the weights of both readers, by the likelihood of each source's held-out rows."""
    for number, own in enumerate(sources):
        part = held_out.of(own).encoded()
        if not len(part.targets):
            model.mix.data[:, number] = torch.tensor([0.0, 1.0])  # no reader was trained
            continue
        with torch.no_grad():
            padded = list(batches(part.documents))
            read = torch.cat([readers[number](b.vectors, b.mask) for b in padded])
            words = torch.cat([model.words(b.terms, b.weights)[number] for b in padded])
        read, words = read.log_softmax(-1), words.log_softmax(-1)
        y = torch.from_numpy(part.targets)
        log = torch.zeros(2, requires_grad=True)
        optimiser = torch.optim.LBFGS([log], lr=0.5, max_iter=_MIX_STEPS)

        def closure(
            log: Tensor = log,
            read: Tensor = read,
            words: Tensor = words,
            y: Tensor = y,
            optimiser: torch.optim.LBFGS = optimiser,
        ) -> Tensor:
            optimiser.zero_grad()
            weight = log.exp()
            # a weak prior at 1: without it a source with few rows could lose a reader for good
            loss = F.cross_entropy(weight[0] * read + weight[1] * words, y)
            loss = loss + (log**2).sum() / len(y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            model.mix[:, number] = log.detach().exp().clamp(0.01, 20.0)
