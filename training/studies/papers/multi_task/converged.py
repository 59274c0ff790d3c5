"""One encoder a task, trained until validation rows gain no more. (Multi-task minBERT, table 1,
first row.)

The fine-tuning of ``studies.tasks.strategies`` with more epochs, whose rate falls to zero at the
end of the last: SST-5, Quora and STS-B, pairs read together. After each epoch validation rows and
reported rows are read; the epoch is the best on the validation rows. These are Quora's validation
pairs, and every tenth training row of the others, which is not trained on. The paper trains ten
epochs, and so does the study in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from studies.papers.kept import Figures, Kept, Parts, table, with_interval
from studies.quality.classification import Bench
from studies.tasks import sets, steps, strategies
from studies.tasks.steps import Task
from studies.tasks.strategies import Strategy
from verso_training.heads import backbone
from verso_training.heads.backbone import Backbone
from verso_training.heads.rows import RowSplit

STUDY = "converged"
EPOCHS = {"sentiment": 6, "duplicates": 4, "similarity": 6}
_FULL_EPOCHS = 10
_TENTH = 10
_REPORTED = {
    "sentiment": ("SST-5", "sentiment_dev"),
    "duplicates": ("Quora", "duplicates_test"),
    "similarity": ("STS-B", "similarity_dev"),
}
"""What the table calls a task, and its array of reported rows."""
_ENDS = ("low", "high")


def run(bench: Bench) -> Parts:
    """Train and measure every task."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {name: kept.of(name, partial(_trained, bench, name)) for name in EPOCHS}


def _trained(bench: Bench, name: str) -> Figures:
    base = backbone.load(bench.artifact)
    bert = strategies.encoder_of(base, Strategy.FULL)
    task, held = parted(bench, base, strategies.task_of(bench, base, bert, name=name, seed=0))
    epochs = bench.length(EPOCHS[name], full=_FULL_EPOCHS)
    order = steps.one_task(replace(task, epochs=epochs))
    array = _REPORTED[name][1]
    figure = strategies.REPORTED[array]
    found: dict[str, float] = {"epochs": epochs}

    def read(epoch: int) -> None:
        arrays = strategies.measured(bench, base, task)
        ends = strategies.intervals(arrays)
        found[f"{epoch}/reported"] = strategies.figures(arrays)[figure]
        found.update({f"{epoch}/reported/{end}": ends[f"{figure}/{end}"] for end in _ENDS})
        validation = strategies.told(task.module, held, name=array)
        found[f"{epoch}/validation"] = strategies.figures(validation)[figure]

    watched = {epoch * len(order) // epochs: partial(read, epoch) for epoch in range(1, epochs + 1)}
    title = f"{STUDY}, {name}"
    spent = steps.train(order, rates=steps.FULL, seed=0, title=title, watched=watched)
    best = max(range(1, epochs + 1), key=lambda epoch: found[f"{epoch}/validation"])
    return {**found, "best": best, "minutes": spent.cpu_s / 60}


def parted(bench: Bench, base: Backbone, task: Task) -> tuple[Task, Sequence[Any]]:
    """Return a task and its validation rows, none of which it is trained on."""
    if task.name == "duplicates":
        pairs = sets.duplicates(bench.data)[RowSplit.VALIDATION]
        return task, strategies.read_together(base, pairs)
    rows = list(task.examples)
    held = rows[_TENTH - 1 :: _TENTH]
    del rows[_TENTH - 1 :: _TENTH]
    return replace(task, examples=rows), held


def page(found: Parts) -> str:
    """Return a row for each epoch."""
    rows = []
    for name, figures in found.items():
        for epoch in range(1, round(figures["epochs"]) + 1):
            chosen = " (chosen)" if epoch == figures["best"] else ""
            validation = f"{figures[f'{epoch}/validation']:.1f}"
            reported = with_interval(figures, f"{epoch}/reported")
            rows.append([f"{_REPORTED[name][0]}, {epoch}{chosen}", validation, reported])
        rows.append([f"{_REPORTED[name][0]}, minutes", "", f"{figures['minutes']:.1f}"])
    return table(["task, epoch", "validation", "reported"], rows)
