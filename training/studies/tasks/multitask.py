"""In which order several tasks are trained on one encoder.

- one after the other (``sequential``): the last task wins where they disagree;
- round robin with annealed sampling (Stickland & Murray 2019, section 3.1): a step of task i is
  drawn with p_i ~ N_i^alpha, N_i its number of examples, and in epoch e of E

      alpha = 1 - 0.8 (e - 1) / (E - 1),

  so that large tasks lead at first and all weigh almost alike in the end;
- one adapter per task on a frozen encoder (``lora``): nothing to schedule, nothing to forget.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping


def annealed(sizes: Mapping[str, int], *, epoch: int, epochs: int) -> dict[str, float]:
    """The chance of each task in an epoch, counted from 0."""
    alpha = 1.0 - 0.8 * epoch / max(1, epochs - 1)
    weights = {name: size**alpha for name, size in sizes.items()}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def round_robin(
    sizes: Mapping[str, int], *, epochs: int, steps_per_epoch: int, seed: int = 0
) -> Iterator[str]:
    """The task of every step."""
    rng = random.Random(seed)
    for epoch in range(epochs):
        chances = annealed(sizes, epoch=epoch, epochs=epochs)
        yield from rng.choices([*chances], [*chances.values()], k=steps_per_epoch)


def sequential(steps: Mapping[str, int]) -> Iterator[str]:
    """All steps of the first task, then all of the next."""
    for name, count in steps.items():
        for _ in range(count):
            yield name
