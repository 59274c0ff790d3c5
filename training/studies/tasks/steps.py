"""Train by steps: which task's batch comes when, and one step after the other.

Products are computed in bfloat16, weights and their updates stay float32. The rate of each group
rises over the first steps, then falls linearly to zero. A task's loss is divided by ln(classes),
what a guess would cost, so that no task outweighs another by the number of its labels.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import BertModel

from studies.tasks import multitask
from verso_training import device
from verso_training.heads import fitting

_WARM_SHARE = 0.1
_WEIGHT_DECAY = 0.01
_CLIP_NORM = 1.0


@dataclass(frozen=True)
class Task:
    """What is trained, on what, and how long.

    Attributes:
        module: Its ``bert`` may be shared with other tasks.
        examples: Each with token ``ids``.
        losses: Of one batch, by name.
        classes: A guess costs ln(classes); 2 for scores in [0, 1].
        epochs: Over the examples.
    """

    name: str
    module: nn.Module
    examples: Sequence[Any]
    losses: Callable[[Sequence[Any]], Mapping[str, Tensor]]
    classes: int
    epochs: int
    tokens_per_step: int = 1024

    def batches(self, *, seed: int) -> Iterator[list[Any]]:
        """Batches of like length without end, every example once an epoch."""
        lengths = [len(example.ids) for example in self.examples]
        rng = random.Random(f"{self.name}:{seed}")
        while True:
            for plan in fitting.plan(lengths, tokens=self.tokens_per_step, rng=rng):
                yield [self.examples[i] for i in plan]

    def count(self) -> int:
        """Steps in all epochs."""
        lengths = [len(example.ids) for example in self.examples]
        planned = fitting.plan(lengths, tokens=self.tokens_per_step, rng=random.Random(self.name))
        return self.epochs * len(planned)


@dataclass(frozen=True)
class Rates:
    """Learning rates at their highest: of the encoder or its adapter, and of the layers above."""

    encoder: float
    head: float


LORA = Rates(8e-4, 8e-4)
FULL = Rates(6e-5, 8e-4)


@dataclass(frozen=True)
class Spent:
    """What a training took: processor seconds and tokens read, padding not counted."""

    cpu_s: float
    steps: int
    tokens: int


def one_task(task: Task) -> list[Task]:
    """The order of steps of a task alone."""
    return [task] * task.count()


def round_robin(tasks: Sequence[Task], *, seed: int) -> list[Task]:
    """As many steps as the tasks would take alone, drawn by annealed sampling."""
    total = sum(task.count() for task in tasks)
    epochs = max(task.epochs for task in tasks)
    by_name = {task.name: task for task in tasks}
    drawn = multitask.round_robin(
        {task.name: len(task.examples) for task in tasks},
        epochs=epochs,
        steps_per_epoch=math.ceil(total / epochs),
        seed=seed,
    )
    return [by_name[name] for name in drawn]


def train(
    order: Sequence[Task],
    *,
    rates: Rates,
    seed: int,
    title: str,
    watched: Mapping[int, Callable[[], None]] | None = None,
) -> Spent:
    """Do the steps in their order; leaves the modules on the processor, in evaluation mode.

    Args:
        order: The task of each step.
        rates: At their highest.
        seed: For batches and dropout.
        title: Of the progress bar.
        watched: What to do after how many steps, the modules as they are left in the end.
    """
    tasks = list({task.name: task for task in order}.values())
    place = device.fastest()
    _prepare(tasks, place)
    optimiser = torch.optim.AdamW(_groups(tasks, rates), weight_decay=_WEIGHT_DECAY)
    highest = [group["lr"] for group in optimiser.param_groups]
    batches = {task.name: task.batches(seed=seed) for task in tasks}
    torch.manual_seed(seed)
    began_s, tokens = time.process_time(), 0
    for number, task in enumerate(tqdm(order, desc=title, mininterval=30.0)):
        share = number / len(order)
        factor = min(1.0, (share + 1.0 / len(order)) / _WARM_SHARE) * (1.0 - share)
        for group, rate in zip(optimiser.param_groups, highest, strict=True):
            group["lr"] = rate * factor
        batch = next(batches[task.name])
        with torch.autocast(place.type, torch.bfloat16):
            found = task.losses(batch)
            loss = torch.stack([*found.values()]).mean() / math.log(task.classes)
        loss.backward()  # type: ignore[no-untyped-call]
        for group in optimiser.param_groups:
            nn.utils.clip_grad_norm_(group["params"], _CLIP_NORM)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        tokens += sum(len(example.ids) for example in batch)
        if watched and (watch := watched.get(number + 1)):
            _leave(tasks)
            watch()
            _prepare(tasks, place)
    _leave(tasks)
    return Spent(time.process_time() - began_s, len(order), tokens)


def _prepare(tasks: Iterable[Task], place: torch.device) -> None:
    """Make modules ready to be trained."""
    for task in tasks:
        task.module.to(place).train()
        _attend(task.module, "eager")


def _leave(tasks: Iterable[Task]) -> None:
    """Make modules ready to be asked, on the processor."""
    for task in tasks:
        task.module.to(device.PROCESSOR).eval()
        _attend(task.module, "sdpa")


def _groups(tasks: Sequence[Task], rates: Rates) -> list[dict[str, Any]]:
    """Trained weights in two groups, those of a shared encoder once."""
    parts: dict[bool, dict[int, nn.Parameter]] = {True: {}, False: {}}
    for task in tasks:
        for name, weight in task.module.named_parameters():
            if weight.requires_grad:
                parts[name.startswith("bert.")][id(weight)] = weight
    rated = ((parts[True], rates.encoder), (parts[False], rates.head))
    return [{"params": [*part.values()], "lr": rate} for part, rate in rated if part]


def _attend(module: nn.Module, implementation: str) -> None:
    """Attention by plain products (``eager``) or fused (``sdpa``); they agree up to rounding.

    On a CPU the backward pass of the fused one in bfloat16 takes a third of a step on short texts,
    plain products a tenth.
    """
    for part in module.modules():
        if isinstance(part, BertModel):
            part.set_attn_implementation(implementation)
