"""Time and memory of an epoch of multi-task minBERT's strategies. (Its table 1, last column.)

Each strategy trains in a process of its own, a few steps of every task, pairs read together. Time
is of the processor: the mean of a step, times the steps that one epoch of all training rows takes.
Memory is the most that the process was resident with, over what it had before the first step, so it
holds gradients, optimiser and states; *to keep* are the weights of all three tasks.

    python -m studies.papers.multi_task.spent DATA ARTIFACT STRATEGY
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path

import torch
from transformers import BertModel

from studies.papers.kept import Figures, Kept, Parts, table
from studies.papers.multi_task import pair_strategies, round_robin
from studies.quality.classification import Bench
from studies.tasks import steps, strategies
from studies.tasks.steps import Task
from studies.tasks.strategies import Strategy
from verso_training.heads import backbone
from verso_training.heads.backbone import Backbone

STUDY = "spent"
_STEPS = 12
_BYTES = 4
"""Of a weight."""


class Way(StrEnum):
    """A row of the table."""

    FULL = "fine-tuned, one encoder a task"
    ROUND_ROBIN = "fine-tuned, one encoder for all, tasks in any order"
    LORA = "adapters of rank 16, one encoder"
    QUESTIONS = "fine-tuned, one encoder for all, with SQuAD"
    COSINE = "siamese, cosine, one encoder a task"
    POOLED = "siamese, pooled vectors, one encoder a task"
    CROSS = "cross-attention, one encoder a task"
    OUTER = "outer layers alone"


_COMPARED = {
    Way.COSINE: pair_strategies.Strategy.COSINE,
    Way.POOLED: pair_strategies.Strategy.POOLED,
    Way.CROSS: pair_strategies.Strategy.CROSS,
}
_ALONE = frozenset({Way.FULL, *_COMPARED})
"""Ways that keep an encoder for each task."""


def run(bench: Bench) -> Parts:
    """Measure every way in a process of its own."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {str(way): kept.of(way.name.lower(), partial(_apart, bench, way)) for way in Way}


def _apart(bench: Bench, way: Way) -> Figures:
    command = [sys.executable, "-m", "studies.papers.multi_task.spent"]
    command += [str(bench.data), str(bench.artifact), way.name]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def measured(bench: Bench, way: Way, *, count: int = _STEPS) -> Figures:
    """Train ``count`` steps of every task; return minutes an epoch and megabytes."""
    torch.set_num_threads(1)
    base = backbone.load(bench.artifact)
    bert = _encoder(base, way)
    figures = {"minutes": 0.0, "steps": 0.0, "trained": 0.0, "to keep": 0.0}
    before = _most_mb()
    rates = steps.LORA if way is Way.LORA else steps.FULL
    for whole in _tasks(replace(bench, full=True), base, bert, way):
        order = steps.one_task(replace(whole, epochs=1))
        spent = steps.train(order[:count], rates=rates, seed=0, title=whole.name)
        figures["steps"] += len(order)
        figures["minutes"] += spent.cpu_s / spent.steps * len(order) / 60
        own = [weight for weight in whole.module.parameters() if weight.requires_grad]
        figures["trained"] = max(figures["trained"], float(sum(map(torch.numel, own))))
        figures["to keep"] += _BYTES * _kept(whole.module, bert, way) / 1e6
    shared = 0 if way in _ALONE else sum(map(torch.numel, _encoder_weights(base)))
    figures["to keep"] += _BYTES * shared / 1e6
    figures["memory"] = _most_mb() - before
    return figures


def _tasks(bench: Bench, base: Backbone, bert: BertModel, way: Way) -> Iterator[Task]:
    """Yield the tasks of a way with all their training rows."""
    if way not in _COMPARED:
        for name in strategies.EPOCHS:
            yield strategies.task_of(bench, base, bert, name=name, seed=0)
        if way is Way.QUESTIONS:
            yield round_robin.asked(bench, base, round_robin.reads(bert))
        return
    yield strategies.task_of(bench, base, bert, name="sentiment", seed=0)
    for about in (pair_strategies.duplicates(bench), pair_strategies.similarity(bench)):
        yield pair_strategies.prepared(base, _COMPARED[way], about)[0]


def _encoder(base: Backbone, way: Way) -> BertModel:
    if way is Way.OUTER:
        return base.bert
    return strategies.encoder_of(base, Strategy.LORA if way is Way.LORA else Strategy.FULL)


def _encoder_weights(base: Backbone) -> list[torch.Tensor]:
    """Return all weights of an encoder, an adapter's not among them."""
    held = base.bert.state_dict(keep_vars=True) | dict(base.bert.named_buffers())
    return [weight for name, weight in held.items() if ".lora_" not in name]


def _kept(module: torch.nn.Module, bert: BertModel, way: Way) -> int:
    """Return how many weights a task has to itself."""
    of_encoder = {id(weight) for weight in bert.parameters()}
    heads = sum(w.numel() for w in module.parameters() if id(w) not in of_encoder)
    if way in _ALONE:
        return heads + sum(map(torch.numel, bert.parameters()))
    if way is Way.LORA:
        return heads + sum(w.numel() for w in bert.parameters() if w.requires_grad)
    return heads


def _most_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def page(found: Parts) -> str:
    """Return the table."""
    columns = ["strategy", "minutes an epoch", "steps", "weights that learn", "memory, MB"]
    columns += ["to keep, MB"]
    rows = [
        [
            name,
            f"{f['minutes']:.1f}",
            f"{f['steps']:,.0f}",
            f"{f['trained'] / 1e6:.1f} M",
            f"{f['memory']:.0f}",
            f"{f['to keep']:.1f}",
        ]
        for name, f in found.items()
    ]
    return table(columns, rows)


if __name__ == "__main__":
    data, artifact, name = sys.argv[1:]
    bench = Bench(data=Path(data), artifact=Path(artifact), work=Path())
    print(json.dumps(measured(bench, Way[name])))  # noqa: T201 - its output
