"""Intents by an adapter beside the head on stored vectors: CLINC150 and BANKING77.

Both give probabilities; the third classifier takes their geometric mean. Scope is told by the
energy, Mahalanobis and neighbour signals of both (``heads.signals``) and by sums of two of them,
each in units of its deviation on validation rows in scope. Which layers the vector head has, and
which of these signals counts, validation decides; test rows are looked at once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from verso_core.heads import SignalName
from verso_training.heads import backbone, lora, selective, sequences, signals, vectors
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.rows import RowSplit
from verso_training.heads.vectors import Part
from verso_training.quality import sets
from verso_training.quality.classification import Bench
from verso_training.quality.sets import LabelledSet
from verso_training.tasks import steps
from verso_training.tasks.outcome import Outcome
from verso_training.tasks.steps import Spent, Task

_EPOCHS = {"intent_clinc150": 3, "intent_banking77": 4}
SEEDS = (0, 1, 2)
SETS = {"intent_clinc150": sets.clinc, "intent_banking77": sets.banking}
_USED = (SignalName.SOFTMAX, SignalName.ENERGY, SignalName.MAHALANOBIS, SignalName.KNN)
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Given:
    """What a classifier gives for the rows of each split.

    Attributes:
        logits: Shape: (N, C).
        features: Shape: (N, F).
    """

    logits: dict[RowSplit, Floats]
    features: dict[RowSplit, Floats]


@dataclass(frozen=True)
class Labels:
    """Label numbers of each split, and the number of "out of scope" where there is one."""

    names: tuple[str, ...]
    targets: dict[RowSplit, NDArray[np.int64]]
    outside: int | None

    @classmethod
    def of(cls, group: LabelledSet) -> Labels:
        """Those of a set."""
        names = tuple(sorted({row.label for row in group.rows}))
        number = {name: i for i, name in enumerate(names)}
        targets = {
            split: np.array([number[row.label] for row in group.of(split)], np.int64)
            for split in RowSplit
        }
        return cls(names, targets, number.get(sets.OUT_OF_SCOPE))

    def inside(self, split: RowSplit) -> NDArray[np.bool_]:
        """Which rows are in scope."""
        if self.outside is None:
            return np.ones(len(self.targets[split]), bool)
        found: NDArray[np.bool_] = self.targets[split] != self.outside
        return found


def from_vectors(bench: Bench, name: str) -> Outcome:
    """Train the head on stored vectors alone, by seed."""
    group = SETS[name](bench.data)
    labels = Labels.of(group)
    figures: dict[str, float] = {}
    for seed in SEEDS:
        given = _vector_head(bench, group, labels, seed=seed)
        figures |= _vector_figures(given, labels, seed=seed)
    return Outcome(f"frozen-{name}", figures, {})


def run(bench: Bench, name: str) -> Outcome:
    """Train both classifiers on a set and measure them, together too."""
    group = SETS[name](bench.data)
    labels = Labels.of(group)
    adapted, spent = _adapter(bench, group, labels)
    heads = [_vector_head(bench, group, labels, seed=seed) for seed in SEEDS]
    given = {"adapter": adapted, "vector": heads[0]}
    both = {
        split: _log_softmax(logits) + _log_softmax(heads[0].logits[split])
        for split, logits in adapted.logits.items()
    }
    held_out, test = RowSplit.VALIDATION, RowSplit.TEST
    figures = {
        "accuracy_adapter": accuracy(adapted.logits[test], labels, test),
        "accuracy_both": accuracy(both[test], labels, test),
        "validation_adapter": accuracy(adapted.logits[held_out], labels, held_out),
        "validation_both": accuracy(both[held_out], labels, held_out),
    }
    for seed, head in zip(SEEDS, heads, strict=True):
        figures |= _vector_figures(head, labels, seed=seed)
    if labels.outside is not None:
        figures |= _scope(given, labels)
    arrays: dict[str, NDArray[np.generic]] = {
        f"{kind}_{split}": logits
        for kind, part in given.items()
        for split, logits in part.logits.items()
    }
    arrays |= {f"gold_{split}": labels.targets[split] for split in RowSplit}
    return Outcome(name, figures, arrays, {"adapter": spent})


def _vector_figures(given: Given, labels: Labels, *, seed: int) -> dict[str, float]:
    parts = {"accuracy": RowSplit.TEST, "validation": RowSplit.VALIDATION}
    return {
        f"{name}_vector_{seed}": accuracy(given.logits[split], labels, split)
        for name, split in parts.items()
    }


def _adapter(bench: Bench, group: LabelledSet, labels: Labels) -> tuple[Given, Spent]:
    base = backbone.load(bench.artifact)
    torch.manual_seed(0)
    module = SequenceClassifier(lora.adapt(base, rank=16, alpha=32.0), classes=len(labels.names))
    rows = {
        split: sequences.tokenised(
            [(str(row.text), int(target)) for row, target in
             zip(group.of(split), labels.targets[split], strict=True)],
            base.tokenizer,
            max_tokens=128,
        )
        for split in RowSplit
    }  # fmt: skip
    losses = sequences.losses(module, torch.ones(len(labels.names)))
    task = Task(
        group.name, module, rows[RowSplit.TRAIN], losses, len(labels.names), _EPOCHS[group.name],
        tokens_per_step=768,
    )  # fmt: skip
    spent = steps.train(steps.one_task(task), rates=steps.LORA, seed=0, title=group.name)
    # Features of training rows are what the signals of scope are fitted on.
    read = [s for s in RowSplit if s is not RowSplit.TRAIN or labels.outside is not None]
    found = {split: sequences.outputs(module, rows[split]) for split in read}
    return (
        Given({s: f[0] for s, f in found.items()}, {s: f[1] for s, f in found.items()}),
        spent,
    )


def _vector_head(bench: Bench, group: LabelledSet, labels: Labels, *, seed: int) -> Given:
    """The head on stored vectors, its layers chosen on validation rows."""
    part = {s: Part(bench.stored(group, s), labels.targets[s]) for s in RowSplit}
    tried = []
    for hidden in (0, 256):
        config = replace(
            ClassifyConfig(), l2=(1e-4, 1e-3), class_weights=ClassWeights.NONE, hidden=hidden
        )
        model = vectors.fit(
            config,
            train=part[RowSplit.TRAIN],
            validation=part[RowSplit.VALIDATION],
            classes=len(labels.names),
            seed=seed,
            on_progress=lambda _: None,
            should_stop=lambda: False,
        )
        found = {s: vectors.outputs(model, part[s].vectors) for s in RowSplit}
        reached = accuracy(found[RowSplit.VALIDATION][0], labels, RowSplit.VALIDATION)
        tried.append((reached, -hidden, found))
    found = max(tried, key=lambda row: row[:2])[2]
    return Given({s: f[0] for s, f in found.items()}, {s: f[1] for s, f in found.items()})


def accuracy(logits: Floats, labels: Labels, split: RowSplit) -> float:
    """Of the labels in scope, over the rows in scope, in percent."""
    logits = logits.copy()
    if labels.outside is not None:
        logits[:, labels.outside] = -np.inf
    inside = labels.inside(split)
    return 100 * float((logits.argmax(-1) == labels.targets[split])[inside].mean())


def _scope(given: dict[str, Given], labels: Labels) -> dict[str, float]:
    """AUROC and FPR95 of the signal that tells scope best on validation rows, and of all."""
    found: dict[RowSplit, dict[str, Floats]] = {RowSplit.VALIDATION: {}, RowSplit.TEST: {}}
    for kind, part in given.items():
        fitted = signals.fit(
            part.features[RowSplit.TRAIN],
            labels.targets[RowSplit.TRAIN],
            classes=len(labels.names),
        )
        for split, signals_of in found.items():
            logits = np.delete(part.logits[split], labels.outside, axis=-1)  # type: ignore[arg-type]
            measured = signals.measure(logits, part.features[split], temperature=1.0, fitted=fitted)
            signals_of |= {f"{kind}_{name}": measured[name] for name in _USED}
            signals_of[f"{kind}_label"] = -_log_softmax(part.logits[split])[:, labels.outside or 0]
    held_out, test = found[RowSplit.VALIDATION], found[RowSplit.TEST]
    seen, kept = labels.inside(RowSplit.VALIDATION), labels.inside(RowSplit.TEST)
    deviation = {name: float(values[seen].std()) for name, values in held_out.items()}
    for one, other in itertools.combinations(tuple(held_out), 2):
        for signals_of in found.values():
            signals_of[f"{one}+{other}"] = (
                signals_of[one] / deviation[one] + signals_of[other] / deviation[other]
            )
    reached = {name: _auroc(values, seen) for name, values in held_out.items()}
    chosen = max(reached, key=lambda name: reached[name])
    figures = {}
    for name, values in test.items():
        if "+" not in name or name == chosen:
            figures[f"auroc/{name}"] = _auroc(values, kept)
            figures[f"fpr95/{name}"] = 100 * selective.fpr95(values[kept], values[~kept])
    return figures | {f"chosen/{chosen}": reached[chosen]}


def _auroc(values: Floats, inside: NDArray[np.bool_]) -> float:
    return 100 * selective.auroc(values[inside], values[~inside])


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))  # type: ignore[no-any-return]
