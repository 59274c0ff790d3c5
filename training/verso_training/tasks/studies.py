"""The studies by name, in the order in which they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from verso_training.quality.classification import Bench
from verso_training.tasks import apart, distillation, frozen, intents, outcome, strategies
from verso_training.tasks.outcome import Outcome
from verso_training.tasks.strategies import Strategy

STUDIES: dict[str, Callable[[Bench], Outcome]] = {
    "lora": partial(strategies.run, strategy=Strategy.LORA),
    "intent_clinc150": partial(intents.run, name="intent_clinc150"),
    "apart": apart.run,
    "full": partial(strategies.run, strategy=Strategy.FULL),
    "round_robin": partial(strategies.run, strategy=Strategy.ROUND_ROBIN),
    "intent_banking77": partial(intents.run, name="intent_banking77"),
    "distillation": distillation.run,
    "frozen": frozen.run,
    "sequential": partial(strategies.run, strategy=Strategy.SEQUENTIAL),
}


def run(bench: Bench, names: Iterable[str]) -> dict[str, Outcome]:
    """Do the studies that were not done before; what was found is kept under ``bench.work``."""
    folder = bench.work / "tasks"
    for name in names:
        if outcome.load(folder, name) is None:
            STUDIES[name](bench).save(folder)
    return found(bench)


def found(bench: Bench) -> dict[str, Outcome]:
    """What the studies found so far."""
    loaded = {name: outcome.load(bench.work / "tasks", name) for name in STUDIES}
    return {name: part for name, part in loaded.items() if part is not None}
