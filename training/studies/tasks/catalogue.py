"""The studies by name, in the order in which they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from studies.intents import outside, study
from studies.quality.classification import Bench
from studies.tasks import (
    adapters,
    aggregation,
    curves,
    distillation,
    frozen,
    pretraining,
    result,
    strategies,
)
from studies.tasks.pairs import apart, mapped, pair_models
from studies.tasks.result import StudyResult
from studies.tasks.strategies import Alone, Strategy


def _alone(*recipes: Alone) -> dict[str, Callable[[Bench], StudyResult]]:
    return {one.study: partial(strategies.alone, one=one) for one in recipes}


STUDIES: dict[str, Callable[[Bench], StudyResult]] = {
    aggregation.STUDY: aggregation.run,
    outside.STUDY: outside.run,
    "frozen-sentiment": frozen.sentiment,
    "frozen-duplicates": frozen.duplicates,
    "frozen-similarity": frozen.similarity,
    "frozen-curves": frozen.curves,
    mapped.STUDY: mapped.run,
    "frozen-intent_clinc150": partial(study.from_vectors, name="intent_clinc150"),
    "frozen-intent_banking77": partial(study.from_vectors, name="intent_banking77"),
    **_alone(*(Alone(Strategy.LORA, name) for name in strategies.EPOCHS)),
    pair_models.STUDY: pair_models.run,
    pretraining.STUDY: pretraining.run,
    "intent_clinc150": partial(study.run, name="intent_clinc150"),
    "apart": partial(apart.run, recipe=apart.COSINE),
    "apart-ranked": partial(apart.run, recipe=apart.RANKED),
    **_alone(*(Alone(Strategy.FULL, name) for name in strategies.EPOCHS)),
    "round_robin": partial(strategies.together, strategy=Strategy.ROUND_ROBIN),
    "intent_banking77": partial(study.run, name="intent_banking77"),
    "distillation": distillation.run,
    "sequential": partial(strategies.together, strategy=Strategy.SEQUENTIAL),
    **_alone(*curves.ADAPTERS),
    **{one.study: partial(study.alone, one=one) for one in adapters.MORE},
}


def run(bench: Bench, names: Iterable[str]) -> dict[str, StudyResult]:
    """Run the studies that were not run before; their results are kept under ``bench.work``."""
    folder = bench.work / "tasks"
    for name in names:
        if result.load(folder, name) is None:
            STUDIES[name](bench).save(folder)
    return found(bench)


def found(bench: Bench) -> dict[str, StudyResult]:
    """Return the results of the studies so far."""
    loaded = {name: result.load(bench.work / "tasks", name) for name in STUDIES}
    return {name: part for name, part in loaded.items() if part is not None}
