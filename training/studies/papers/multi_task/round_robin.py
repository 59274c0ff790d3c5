"""SQuAD beside the three tasks of multi-task minBERT. (Its tables 1 and 2.)

- *three tasks*: one fine-tuned encoder, tasks drawn by annealed sampling;
- *four tasks*: the same with SQuAD 2.0;
- *SQuAD alone*: a fine-tuned encoder of its own.

Every task has a quarter of the training rows and the epochs of ``studies.tasks.strategies``, SQuAD
a quarter of its questions and one epoch; in full all rows, and the epochs of the strategies in
full. The reader is the paper's: one linear layer on the tokens'
states, an answer wherever it scores higher than none; *tuned* has the threshold chosen on every
second question of the dev articles. Every second question of the eval articles is reported. Nothing
else is chosen.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import BertModel

from studies.papers.kept import Figures, Kept, Parts, ends, table, with_interval
from studies.papers.question_answering.students import TunedReader
from studies.quality import squad
from studies.quality.classification import Bench
from studies.quality.squad import Part
from studies.tasks import result, steps, strategies
from studies.tasks.result import StudyResult
from studies.tasks.steps import Task
from studies.tasks.strategies import Strategy
from verso_training.heads import backbone, questions, reader
from verso_training.heads.backbone import Backbone
from verso_training.heads.reader import Marks
from verso_training.heads.recipe import AnswerConfig, SpanLayers

STUDY = "round-robin"
SHARE = 0.25
_EVERY = 2
_QUESTIONS = "questions"
_CONFIG = AnswerConfig(layers=SpanLayers.VANILLA)
_TOKENS_OF_A_CONTEXT = 200
"""A guess of where an answer begins costs about their logarithm."""
ARMS: Mapping[str, tuple[str, ...]] = {
    "three tasks": tuple(strategies.EPOCHS),
    "four tasks": (*strategies.EPOCHS, _QUESTIONS),
    "SQuAD alone": (_QUESTIONS,),
}


def run(bench: Bench) -> Parts:
    """Train and measure the arms."""
    folder = bench.work / "papers" / STUDY
    found = {}
    for name, tasks in ARMS.items():
        one = result.load(folder, name)
        if one is None:
            one = _trained(bench, name, tasks)
            one.save(folder)
        found[name] = one
    gap = partial(_difference, found["four tasks"], found["three tasks"])
    figures: Parts = {name: one.figures for name, one in found.items()}
    return {**figures, "difference": Kept(folder).of("difference", gap)}


def _difference(one: StudyResult, other: StudyResult) -> Figures:
    gap = strategies.difference(one.arrays, other.arrays)
    return {"value": gap.value, "low": gap.low, "high": gap.high}


def _trained(bench: Bench, name: str, names: Sequence[str]) -> StudyResult:
    base = backbone.load(bench.artifact)
    bert = strategies.encoder_of(base, Strategy.ROUND_ROBIN)
    questioned = reads(bert)
    tasks = [
        asked(bench, base, questioned)
        if task == _QUESTIONS
        else part_of(strategies.task_of(bench, base, bert, name=task, seed=0), _share(bench))
        for task in names
    ]
    spent = steps.train(
        steps.round_robin(tasks, seed=0), rates=steps.FULL, seed=0, title=f"{STUDY}, {name}"
    )
    arrays: dict[str, NDArray[np.generic]] = {}
    figures: dict[str, float] = {}
    for task in tasks:
        if task.name == _QUESTIONS:
            figures |= _answered(bench, base, questioned)
        else:
            arrays |= strategies.measured(bench, base, task)
    figures |= strategies.figures(arrays) | strategies.intervals(arrays)
    return StudyResult(name, figures, arrays, {name: spent})


def _share(bench: Bench) -> float:
    return bench.length(SHARE, full=1.0)


def part_of(task: Task, share: float) -> Task:
    """Return a task with a share of its examples, the same for every arm."""
    count = round(share * len(task.examples))
    return replace(task, examples=random.Random(0).sample(list(task.examples), count))


def reads(bert: BertModel) -> TunedReader:
    """Return the reader of SQuAD on an encoder."""
    torch.manual_seed(0)
    return TunedReader(bert, _CONFIG, layers=[SpanLayers.VANILLA])


def asked(bench: Bench, base: Backbone, module: TunedReader) -> Task:
    """Return the task of SQuAD's training articles."""
    rows = squad.read(bench.data, Part.TRAIN)
    cut = questions.windows(
        random.Random(0).sample(rows, round(_share(bench) * len(rows))),
        base.tokenizer,
        max_tokens=_CONFIG.max_tokens,
        stride=_CONFIG.stride,
        all_windows=False,
    )
    return Task(_QUESTIONS, module, list(cut), module.losses, _TOKENS_OF_A_CONTEXT, 1)


def _answered(bench: Bench, base: Backbone, module: TunedReader) -> dict[str, float]:
    logits = reader.logits_of(module.only(SpanLayers.VANILLA))
    dev, test = (squad.read(bench.data, part)[::_EVERY] for part in (Part.DEV, Part.EVAL))
    chosen, final = (
        reader.answers(rows, base.tokenizer, logits=logits, config=_CONFIG) for rows in (dev, test)
    )
    threshold = reader.best_threshold(dev, chosen)

    def marks(least: float) -> Marks:
        return reader.marks(test, final, null_threshold=least)

    plain, tuned = marks(0.0), marks(threshold)
    found: dict[str, float] = {}
    for name, one in {
        "exact": plain.exact,
        "f1": plain.f1,
        "answerable_f1": plain.answerable_f1,
        "exact, tuned": tuned.exact,
        "f1, tuned": tuned.f1,
    }.items():
        found |= ends(name, one)
    return found


def page(found: Parts) -> str:
    """Return the table."""
    rows = []
    for name, figures in found.items():
        if name != "difference":
            cells = (with_interval(figures, key) if key in figures else "" for key in _COLUMNS)
            rows.append([name, *cells])
    gap = found["difference"]
    told = table(["trained on", *_COLUMNS.values()], rows)
    return (
        f"{told}\n\nMean with SQuAD against the mean without: {gap['value']:+.1f} "
        f"[{gap['low']:+.1f}, {gap['high']:+.1f}]"
    )


_COLUMNS = {
    "sentiment": "SST-5",
    "duplicates": "Quora",
    "similarity_dev": "STS-B",
    "mean": "mean",
    "exact": "SQuAD: EM",
    "f1": "F1",
    "answerable_f1": "answerable, F1",
    "exact, tuned": "EM, tuned",
    "f1, tuned": "F1, tuned",
}
