"""Failures of logs by a fine-tuned encoder, by stored vectors and by words, and how sure they are.
(Decodable Sentence-BERT, table 7.)

- *fine-tuned*: all layers of the encoder with the published head, mean pooling and two layers, on a
  text's first 128 tokens; so many epochs as fit two minutes of a core, in full six. The last one
  counts.
- *decodable*: the same, trained together with self-generation (``decodable``), as many epochs.
- *stored vector*: the head on int8 vectors of 256 tokens, encoder untouched, chosen on validation.
- *words*: TF-IDF and logistic regression.

A drawn tenth of the training rows trains none of them: the set of the training's own time (the
paper's EvalSet). The rest of the test rows is later than all training rows, or of other projects;
nothing is chosen on either.

Each is asked at softmax >= 0.9, the published threshold, and then with self-generation >= 0.8 in
the place of softmax; and at the same share of texts by either. Self-generation is by the shipped
decoder from the stored vector, and by its own decoder where the model has one. Intervals are
Wilson's (1927) of shares of right answers, and of a bootstrap over the rows of all others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from studies.papers import decodable
from studies.papers.kept import Figures, Kept, Parts, ends, table, with_interval
from studies.quality import baselines, sets
from studies.quality.classification import Bench, chosen
from studies.quality.sets import LabelledSet
from studies.tasks import steps
from studies.tasks.steps import Rates, Task
from verso_core.heads import SignalName
from verso_training.heads import backbone, confidence, signals, token_classifier, vectors
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.recipe import ClassWeights
from verso_training.heads.rows import RowSplit
from verso_training.heads.signals import Interval, bootstrap

STUDY = "classification"
EPOCHS = {"logs_syzkaller": 3, "logs_defects4j": 1, "logs_rinstall": 1, "logs_rcheck": 1}
_FULL_EPOCHS = 6
MAX_TOKENS = 128
SOFTMAX, SELF_GENERATION = 0.9, 0.8
PARTS = ("own", "later")
"""Rows of the training's own time, and those of later times or of other projects."""
_Z = NormalDist().inv_cdf(0.975)
_RATES = Rates(6e-5, 8e-4)
Floats = NDArray[np.float32]
Told: TypeAlias = tuple[Floats, Floats]
"""Probabilities of the classes, and the share of each text that was recovered. Shape: (N, C) and
(N,)."""


def run(bench: Bench, names: Sequence[str] = tuple(EPOCHS)) -> Parts:
    """Measure the classifiers on each set."""
    kept = Kept(bench.work / "papers" / STUDY)
    # Vectors and signals are kept by the names of sets, whose rows are drawn otherwise here.
    bench = replace(bench, work=kept.folder)
    found: dict[str, Figures] = {}
    for name, (kind, make) in itertools.product(names, _KINDS.items()):
        group = sets.logs(bench.data, name)
        part = f"{name}, {kind}"
        found[part] = kept.of(part, partial(_measured, bench, group, make))
    return found


def held_out(group: LabelledSet, *, seed: int = 0) -> LabelledSet:
    """Return a set whose first test rows are a drawn tenth of the training rows."""
    train = group.of(RowSplit.TRAIN)
    drawn = set(np.random.default_rng(seed).permutation(len(train))[: len(train) // 10].tolist())
    own = [replace(row, split=RowSplit.TEST) for n, row in enumerate(train) if n in drawn]
    rest = [row for n, row in enumerate(train) if n not in drawn]
    others = [row for row in group.rows if row.split is not RowSplit.TRAIN]
    return replace(group, rows=(*rest, *own, *others))


def labels_of(group: LabelledSet) -> tuple[str, ...]:
    """Return the labels of the training rows."""
    return tuple(sorted({row.label for row in group.of(RowSplit.TRAIN)}))


def targets(group: LabelledSet, split: RowSplit) -> NDArray[np.int64]:
    """Return each row's label by number; -1 for one that no training row has. Shape: (N,)."""
    number = {label: i for i, label in enumerate(labels_of(group))}
    return np.array([number.get(row.label, -1) for row in group.of(split)], np.int64)


def _texts(group: LabelledSet, split: RowSplit) -> list[str]:
    return [str(row.text) for row in group.of(split)]


def _words(bench: Bench, group: LabelledSet) -> Told:
    labels = [row.label for row in group.of(RowSplit.TRAIN)]
    texts = _texts(group, RowSplit.TRAIN)
    (found,) = baselines.tfidf(texts, labels, others=[_texts(group, RowSplit.TEST)])
    return found.aligned(labels_of(group)), _recovered(bench, group)


def _recovered(bench: Bench, group: LabelledSet) -> Floats:
    """Return what the shipped decoder recovers of each test row. Shape: (N,)."""
    return bench.decoded(group, RowSplit.TEST)[SignalName.SELF_GENERATION]


def _vectors(bench: Bench, group: LabelledSet) -> Told:
    model = chosen(bench, group)
    logits, _ = vectors.outputs(model, bench.stored(group, RowSplit.TEST))
    return signals.softmax(logits), _recovered(bench, group)


def _tuned(bench: Bench, group: LabelledSet) -> Told:
    """Fine-tune the whole encoder but its embeddings."""
    base = backbone.load(bench.artifact)
    base.bert.encoder.requires_grad_(requires_grad=True)
    torch.manual_seed(0)
    module = SequenceClassifier(base.bert, classes=len(labels_of(group)))
    shown, asked = (
        token_classifier.tokenised(_labelled(group, split), base.tokenizer, max_tokens=MAX_TOKENS)
        for split in (RowSplit.TRAIN, RowSplit.TEST)
    )
    losses = token_classifier.losses(module, _weights(group))
    epochs = _epochs(bench, group)
    task = Task(group.name, module, shown, losses, len(labels_of(group)), epochs)
    steps.train(steps.one_task(task), rates=_RATES, seed=0, title=group.name)
    return signals.softmax(token_classifier.outputs(module, asked)[0]), _recovered(bench, group)


def _decodable(bench: Bench, group: LabelledSet) -> Told:
    """Fine-tune the same together with a decoder."""
    found = decodable.trained(
        bench.artifact,
        _labelled(group, RowSplit.TRAIN),
        _labelled(group, RowSplit.TEST),
        even=_weights(group),
        epochs=_epochs(bench, group),
        most_tokens=MAX_TOKENS,
        name=group.name,
    )
    return signals.softmax(found.logits), found.recovered


def _epochs(bench: Bench, group: LabelledSet) -> int:
    return bench.length(EPOCHS[group.name], full=_FULL_EPOCHS)


def _labelled(group: LabelledSet, split: RowSplit) -> list[tuple[str, int]]:
    return list(zip(_texts(group, split), targets(group, split).tolist(), strict=True))


def _weights(group: LabelledSet) -> torch.Tensor:
    """Return the weights of the classes in a loss. Shape: (C,)."""
    return vectors.class_weights(
        targets(group, RowSplit.TRAIN), classes=len(labels_of(group)), kind=ClassWeights.SQRT
    )


_KINDS = {
    "words": _words,
    "stored vector": _vectors,
    "fine-tuned": _tuned,
    "decodable": _decodable,
}


def _measured(
    bench: Bench, group: LabelledSet, make: Callable[[Bench, LabelledSet], Told]
) -> Figures:
    asked = held_out(group)
    probabilities, recovered = make(bench, asked)
    truth = targets(asked, RowSplit.TEST)
    own = len(truth) - len(group.of(RowSplit.TEST))
    known = {row.text for row in asked.of(RowSplit.TRAIN)}
    repeated = [row.text in known for row in asked.of(RowSplit.TEST)]
    figures: dict[str, float] = {}
    for name, part in zip(PARTS, (slice(own), slice(own, None)), strict=True):
        found = told(probabilities[part], recovered[part], truth[part])
        figures |= {f"{name}/{key}": value for key, value in found.items()}
        figures[f"{name}/repeated"] = 100 * float(np.mean(repeated[part]))
    return figures


def told(probabilities: Floats, recovered: Floats, truth: NDArray[np.int64]) -> Figures:
    """Return what a classifier gets right, all rows and those of high confidence, in percent.

    Args:
        probabilities: Of the classes. Shape: (N, C).
        recovered: The share of each text. Shape: (N,).
        truth: The labels' numbers. Shape: (N,).
    """
    said, sure, count = probabilities.argmax(-1), probabilities.max(-1), len(truth)
    right = said == truth
    f1 = bootstrap(lambda at: 100 * confidence.macro_f1(said[at], truth[at]), count)
    again = bootstrap(lambda at: 100 * float(recovered[at].mean()), count)
    figures = {
        "rows": float(count),
        "accuracy": 100 * float(right.mean()),
        **ends("recovered", again),
        **ends("macro_f1", f1),
    }
    for name, values, least, other in (
        ("softmax", sure, SOFTMAX, recovered),
        ("self_generation", recovered, SELF_GENERATION, sure),
    ):
        taken = values >= least
        share = float(taken.mean())
        figures[f"{name}/share"] = 100 * share
        if taken.any():
            figures[f"{name}/right"] = 100 * float(right[taken].mean())
            figures[f"{name}/other"] = 100 * signals.accuracy_at(other, right, share)
    return figures


def page(found: Parts) -> str:
    """Return the tables: rows, what is right of all, and of those of high confidence."""
    columns = ["set, classifier", "EvalSet: accuracy", "test: accuracy", "macro-F1"]
    columns += ["EvalSet: tokens generated again, %", "test: tokens generated again, %"]
    rows = []
    for name, figures in found.items():
        cells = [_right(figures, part, "accuracy") for part in PARTS]
        keys = ("later/macro_f1", *(f"{part}/recovered" for part in PARTS))
        rows.append([name, *cells, *(with_interval(figures, key) for key in keys)])
    return "\n\n".join((_counts(found), table(columns, rows), _confident(found)))


def _counts(found: Parts) -> str:
    columns = ["set", "EvalSet: rows", "whose text trains too, %"]
    columns += ["test: rows", "whose text trains too, %"]
    sets_of = {name.partition(", ")[0]: figures for name, figures in found.items()}
    rows = []
    for name, figures in sets_of.items():
        cells = []
        for part in PARTS:
            cells += [f"{figures[f'{part}/rows']:,.0f}", f"{figures[f'{part}/repeated']:.1f}"]
        rows.append([name, *cells])
    return table(columns, rows)


def _confident(found: Parts) -> str:
    columns = ["set, classifier", "softmax ≥ 0.9: accepted, %", "right"]
    columns += ["as many by self-generation", "self-generation ≥ 0.8: accepted, %", "right"]
    columns += ["as many by softmax"]
    rows = []
    for name, figures in found.items():
        cells = []
        for signal in ("softmax", "self_generation"):
            cells += [f"{figures[f'later/{signal}/share']:.1f}"]
            cells += [_right(figures, "later", f"{signal}/{what}") for what in ("right", "other")]
        rows.append([name, *cells])
    return table(columns, rows)


def _right(figures: Figures, part: str, key: str) -> str:
    """Return a share of right answers with its interval; nothing where no row is accepted."""
    if f"{part}/{key}" not in figures:
        return ""
    accepted = figures.get(f"{part}/{key.partition('/')[0]}/share", 100.0) / 100
    found = wilson(figures[f"{part}/{key}"], accepted * figures[f"{part}/rows"])
    return with_interval(ends(key, found), key)


def wilson(share: float, count: float) -> Interval:
    """Return a share of ``count`` rows, in percent, with its 95 % interval (Wilson 1927)."""
    p, spread = share / 100, _Z**2 / count
    middle = (p + spread / 2) / (1 + spread)
    reach = math.sqrt(p * (1 - p) * spread + spread**2 / 4) / (1 + spread)
    return Interval(share, 100 * (middle - reach), 100 * (middle + reach))
