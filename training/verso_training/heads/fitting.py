"""The loop that trains an adapter: batches of similar length, a budget of processor time.

Steps:

1. examples in batches of similar length, at most ``tokens_per_step`` with padding; optionally a
   first phase on other, cheaper examples;
2. every step: the losses of a batch are averaged; AdamW, one rate for all trained weights;
3. the rate rises over the first steps, then falls linearly to zero with the share of the work
   done: of the budget or of the epochs, whichever is further. The budget is processor time, not
   wall time: a busy machine does not shorten the training;
4. after every epoch, the loss of the held-out examples if there are any. The weights of the epoch
   where it is lowest are kept, and some epochs without a lower one end the training
   (Prechelt 1998);
5. a checkpoint every few minutes, from which a run in the same folder continues.
"""

from __future__ import annotations

import errno
import io
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from verso_core import files
from verso_core.errors import Cancelled, DiskFull
from verso_training import device
from verso_training.heads import backbone
from verso_training.heads.recipe import AnswerConfig, ClassifyConfig, ScoreConfig
from verso_training.heads.vectors import OnProgress, Progress, ShouldStop

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a write without room on the disk."""
_WEIGHTS = "adapter.safetensors"
_STATE = "state.pt"
_BEST = "best.safetensors"


class Example(Protocol):
    """Something with tokens."""

    @property
    def ids(self) -> list[int]:
        """Return the token ids."""
        ...


_E = TypeVar("_E", bound=Example)


@dataclass(frozen=True)
class Budget:
    """How long and how fast to train.

    Attributes:
        minutes: Of processor time, at most.
        epochs: Over the main examples, at most.
        warm_share: Of the minutes, for the first phase.
        patience: Epochs without a lower held-out loss that end the training; 0 never ends it
            early.
    """

    minutes: float
    epochs: float
    rate: float
    tokens_per_step: int
    warm_share: float = 0.0
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    warmup_steps: int = 40
    checkpoint_minutes: float = 5.0
    seed: int = 0
    patience: int = 0

    @classmethod
    def of(cls, settings: ClassifyConfig | AnswerConfig | ScoreConfig, *, seed: int) -> Self:
        """Return the budget of a head's settings."""
        return cls(
            settings.minutes,
            settings.epochs,
            settings.rate,
            settings.tokens_per_step,
            checkpoint_minutes=settings.checkpoint_minutes,
            seed=seed,
            patience=settings.patience,
        )


@dataclass
class _Position:
    """The progress of a run; ``waited`` counts epochs without a lower held-out loss."""

    step: int = 0
    spent_s: float = 0.0
    warm: tuple[int, int] = (0, 0)
    main: tuple[int, int] = (0, 0)
    lowest: float = math.inf
    waited: int = 0
    judged: int = 0


class AdapterRun(Generic[_E]):
    """One training of a module's own weights; the shared encoder below it stays.

    It runs on the fastest device; afterwards the module is on the CPU again.
    """

    def __init__(
        self,
        module: nn.Module,
        budget: Budget,
        *,
        main: Sequence[_E],
        losses: Callable[[Sequence[_E]], Mapping[str, Tensor]],
        warm: Sequence[_E] = (),
        held_out: Sequence[_E] = (),
        folder: Path | None = None,
    ) -> None:
        """Prepare a run, from the last checkpoint in ``folder`` if there is one.

        Args:
            module: Its parameters that require a gradient are trained.
            budget: How long.
            main: Examples.
            losses: Of one batch, by name; their mean is minimised.
            warm: Examples of the first phase.
            held_out: Examples whose loss ends the training when it no longer falls.
            folder: For checkpoints; None keeps none.
        """
        self.module, self.budget, self.folder = module.to(device.fastest()), budget, folder
        self._main, self._warm, self._losses = list(main), list(warm), losses
        self._held_out = list(held_out) if budget.patience else []
        self._best: dict[str, Tensor] = {}
        self._trained = [p for p in module.parameters() if p.requires_grad]
        self._optimiser = torch.optim.AdamW(
            self._trained, lr=budget.rate, weight_decay=budget.weight_decay
        )
        self._position = _Position()
        if folder is not None and (folder / _STATE).exists():
            self._restore(folder)

    def train(self, *, on_progress: OnProgress, should_stop: ShouldStop) -> None:
        """Train until budget or epochs are spent.

        Raises:
            Cancelled: ``should_stop`` returned True between two steps.
        """
        self.module.train()
        torch.manual_seed(self.budget.seed + self._position.step)
        began_s, saved_s = time.process_time() - self._position.spent_s, self._position.spent_s
        for batch, share in self._batches():
            if should_stop():
                raise Cancelled("the training was cancelled")
            found = self._step(batch, share)
            self._position.spent_s = time.process_time() - began_s
            if self._position.step % 10 == 0:
                on_progress(Progress(min(share, 1.0), found | self._standing()))
            if self._position.spent_s - saved_s > self.budget.checkpoint_minutes * 60:
                self.save()
                saved_s = self._position.spent_s
        if self._position.judged < self._position.step:  # the budget ended it amid an epoch
            self._judge()
        self.save()
        if self._best:
            backbone.restore(self.module, self._best)
        self.module.to(device.PROCESSOR).eval()

    def _standing(self) -> dict[str, float]:
        figures = {"step": float(self._position.step)}
        if math.isfinite(self._position.lowest):
            figures["validation_loss"] = self._position.lowest
        return figures

    def save(self) -> None:
        """Write the module's own weights, the optimiser and the progress, each file atomically.

        Raises:
            DiskFull: no room for them.
        """
        if self.folder is None:
            return
        held = io.BytesIO()
        state = {
            "optimiser": self._optimiser.state_dict(),
            "place": json.dumps(asdict(self._position)),
        }
        torch.save(state, held)
        with _room():
            self.folder.mkdir(parents=True, exist_ok=True)
            # Killed between the two, a run continues with weights that are some steps ahead of
            # its progress: those steps are repeated, and nothing is lost.
            files.replace(self.folder / _WEIGHTS, save(backbone.state(self.module)))
            files.replace(self.folder / _STATE, held.getvalue())

    def _restore(self, folder: Path) -> None:
        backbone.restore(self.module, load_file(folder / _WEIGHTS))
        state = torch.load(folder / _STATE, weights_only=True, map_location="cpu")
        self._optimiser.load_state_dict(state["optimiser"])
        position = json.loads(state["place"])
        position |= {"warm": tuple(position["warm"]), "main": tuple(position["main"])}
        self._position = _Position(**position)
        if (folder / _BEST).exists():
            self._best = load_file(folder / _BEST)

    def _judge(self) -> None:
        """Measure the held-out examples, and keep the best weights."""
        if not self._held_out:
            return
        position = self._position
        loss = self._held_out_loss()
        position.judged, position.waited = position.step, position.waited + 1
        if loss < position.lowest:
            position.lowest, position.waited = loss, 0
            self._best = {name: held.clone() for name, held in backbone.state(self.module).items()}
            if self.folder is not None:
                with _room():
                    self.folder.mkdir(parents=True, exist_ok=True)
                    files.replace(self.folder / _BEST, save(self._best))

    @torch.no_grad()
    def _held_out_loss(self) -> float:
        self.module.eval()
        total = 0.0
        for chosen in _plan(self._held_out, self.budget, epoch=0):
            found = self._losses([self._held_out[i] for i in chosen])
            total += len(chosen) * float(torch.stack(list(found.values())).mean())
        self.module.train()
        return total / len(self._held_out)

    def _over(self) -> bool:
        """Whether the held-out loss no longer falls."""
        return bool(self._held_out) and self._position.waited >= self.budget.patience

    def _batches(self) -> Iterator[tuple[list[_E], float]]:
        """Yield batches with the share of the work done before each."""
        position, budget = self._position, self.budget
        while self._warm and self._spent() < budget.warm_share:
            planned = _plan(self._warm, budget, epoch=position.warm[0])
            for number in range(position.warm[1], len(planned)):
                position.warm = (position.warm[0], number + 1)
                yield [self._warm[i] for i in planned[number]], self._spent()
                if self._spent() >= budget.warm_share:
                    break
            else:
                position.warm = (position.warm[0] + 1, 0)
        while not self._over():
            planned = _plan(self._main, budget, epoch=position.main[0])
            for number in range(position.main[1], len(planned)):
                batch = [self._main[i] for i in planned[number]]
                epochs = (position.main[0] + number / len(planned)) / budget.epochs
                share = max(self._spent(), epochs)
                if share >= 1.0:
                    return
                position.main = (position.main[0], number + 1)
                yield batch, share
            position.main = (position.main[0] + 1, 0)
            self._judge()
            if position.main[0] >= budget.epochs:
                return

    def _spent(self) -> float:
        return self._position.spent_s / (self.budget.minutes * 60)

    def _step(self, batch: Sequence[_E], share: float) -> dict[str, float]:
        warm = min(1.0, (self._position.step + 1) / self.budget.warmup_steps)
        for group in self._optimiser.param_groups:
            group["lr"] = self.budget.rate * warm * (1.0 - share)
        found = self._losses(batch)
        torch.stack(list(found.values())).mean().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._trained, self.budget.clip_norm)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._position.step += 1
        return {f"loss/{name}": float(loss.detach()) for name, loss in found.items()}


def _plan(examples: Sequence[Example], budget: Budget, *, epoch: int) -> list[list[int]]:
    rng = random.Random(f"{budget.seed}:{len(examples)}:{epoch}")
    lengths = [len(example.ids) for example in examples]
    return plan(lengths, tokens=budget.tokens_per_step, rng=rng)


def plan(lengths: Sequence[int], *, tokens: int, rng: random.Random) -> list[list[int]]:
    """Return batches of similar length in random order, at most ``tokens`` each with padding.

    Lengths are blurred before they are sorted, so that batches differ between epochs: by a fifth
    and at most 24 tokens. Of sentences of 25 tokens a batch is then 8 % padding, not 40 %.
    """
    order = sorted(
        range(len(lengths)), key=lambda i: lengths[i] + rng.random() * min(24.0, 0.2 * lengths[i])
    )
    batches: list[list[int]] = [[]]
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if batches[-1] and longest * (len(batches[-1]) + 1) > tokens:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    rng.shuffle(batches)
    return batches


@contextmanager
def _room() -> Iterator[None]:
    """Raise ``DiskFull`` for a write without room on the disk."""
    try:
        yield
    except OSError as exc:
        if exc.errno in NO_ROOM:
            raise DiskFull(f"no room for a checkpoint: {exc.strerror}") from exc
        raise
