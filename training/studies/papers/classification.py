"""Failures of logs by a fine-tuned encoder, by stored vectors and by words, and how sure they are.
(Decodable Sentence-BERT, table 7.)

- *fine-tuned*: all layers of the encoder with the published head, mean pooling and two layers, on a
  text's first 128 tokens; so many epochs as fit two minutes of a core, in full six. The last one
  counts.
- *decodable*: the same, trained together with self-generation (``decodable``), as many epochs.
- *stored vector*: the head on int8 vectors of 256 tokens, encoder untouched, chosen on validation.
- *words*: TF-IDF and logistic regression.

Each is asked at softmax >= 0.9, the published threshold, and then with self-generation >= 0.8 in
the place of softmax; and at the same share of texts by either. Self-generation is by the shipped
decoder from the stored vector, and by its own decoder where the model has one. Test rows are later
than all training rows, or of other projects; nothing is chosen on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest

from studies.papers import decodable
from studies.papers.kept import Figures, Kept, Parts, table
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

STUDY = "classification"
EPOCHS = {"logs_syzkaller": 3, "logs_defects4j": 1, "logs_rinstall": 1, "logs_rcheck": 1}
_FULL_EPOCHS = 6
MAX_TOKENS = 128
SOFTMAX, SELF_GENERATION = 0.9, 0.8
_RATES = Rates(6e-5, 8e-4)
Floats = NDArray[np.float32]
Told: TypeAlias = tuple[Floats, Floats]
"""Probabilities of the classes, and the share of each text that was recovered. Shape: (N, C) and
(N,)."""


def run(bench: Bench, names: Sequence[str] = tuple(EPOCHS)) -> Parts:
    """Measure the classifiers on each set."""
    kept = Kept(bench.work / "papers" / STUDY)
    found: dict[str, Figures] = {}
    for name, (kind, make) in itertools.product(names, _KINDS.items()):
        group = sets.logs(bench.data, name)
        part = f"{name}, {kind}"
        found[part] = kept.of(part, partial(_measured, bench, group, make))
    return found


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
    probabilities, recovered = make(bench, group)
    truth = targets(group, RowSplit.TEST)
    said, sure = probabilities.argmax(-1), probabilities.max(-1)
    right = said == truth
    figures = {
        "rows": float(len(truth)),
        "recovered": float(recovered.mean()),
        "accuracy": 100 * float(right.mean()),
        "macro_f1": 100 * confidence.macro_f1(said, truth),
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
    """Return the table."""
    columns = ["set, classifier", "accuracy", "macro-F1"]
    columns += ["softmax ≥ 0.9: share", "right", "by self-generation, as many"]
    columns += ["self-generation ≥ 0.8: share", "right", "by softmax, as many"]
    rows = []
    for name, figures in found.items():
        cells = [_with_interval(figures), f"{figures['macro_f1']:.1f}"]
        for signal in ("softmax", "self_generation"):
            keys = (f"{signal}/{what}" for what in ("share", "right", "other"))
            cells += [f"{figures[key]:.1f}" if key in figures else "" for key in keys]
        rows.append([name, *cells])
    return table(columns, rows)


def _with_interval(figures: Figures) -> str:
    """Return the accuracy with its 95 % interval (Wilson 1927)."""
    rows, accuracy = round(figures["rows"]), figures["accuracy"]
    found = binomtest(round(rows * accuracy / 100), rows).proportion_ci(method="wilson")
    return f"{accuracy:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
