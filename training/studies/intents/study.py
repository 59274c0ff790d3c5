"""Intents by adapters beside heads on stored vectors: CLINC150 and BANKING77.

Each has probabilities and signals of scope (``scope``). A study holds the outputs of one adapter,
by seed, share of the training rows and depth; the first of a set holds the heads on vectors too.
Their mean is in ``means``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from studies.intents import means, scope
from studies.intents.scope import Floats, Given
from studies.quality import sets
from studies.quality.classification import Bench
from studies.quality.sets import LabelledSet
from studies.tasks import distillation, steps
from studies.tasks.adapters import SEEDS, SHARES, Adapter
from studies.tasks.result import StudyResult
from studies.tasks.steps import Spent, Task
from verso_training.heads import backbone, token_classifier, vectors
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.rows import RowSplit
from verso_training.heads.token_classifier import TextTokens
from verso_training.heads.vectors import Part

_EPOCHS = {"intent_clinc150": 3, "intent_banking77": 4}
_FULL_EPOCHS = 6
_HIDDEN = {"intent_clinc150": (0,), "intent_banking77": (0, 256)}
"""Widths tried. On CLINC150's validation rows 256 do no better (95.97 against 96.03)."""
SETS = {"intent_clinc150": sets.clinc, "intent_banking77": sets.banking}


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


def from_vectors(bench: Bench, name: str) -> StudyResult:
    """Train the head on stored vectors alone, by seed, and once on each share of the rows."""
    group = SETS[name](bench.data)
    labels = Labels.of(group)
    figures: dict[str, float] = {}
    arrays = _known(labels)
    for seed in SEEDS:
        given = _vector_head(bench, group, labels, seed=seed)
        figures |= _accuracies(given, labels, f"vector_{seed}")
        arrays |= _told(given, labels, f"vector_{seed}")
    for share in SHARES:
        given = _vector_head(bench, group, labels, seed=SEEDS[0], share=share)
        figures |= _accuracies(given, labels, f"vector_rows_{share:.0%}".removesuffix("%"))
    return StudyResult(f"frozen-{name}", figures, arrays)


def run(bench: Bench, name: str) -> StudyResult:
    """Train both classifiers on a set and measure them, together too."""
    group = SETS[name](bench.data)
    labels = Labels.of(group)
    adapted, spent = _adapter(bench, group, labels, one=Adapter(name))
    heads = {f"vector_{seed}": _vector_head(bench, group, labels, seed=seed) for seed in SEEDS}
    both = {
        split: scope.log_softmax(logits) + scope.log_softmax(heads["vector_0"].logits[split])
        for split, logits in adapted.logits.items()
    }
    figures = _accuracies(Given(both, {}), labels, "both")
    arrays = _known(labels)
    for reader, given in {"adapter": adapted, **heads}.items():
        figures |= _accuracies(given, labels, reader)
        arrays |= _told(given, labels, reader)
    if labels.outside is not None:
        figures |= means.scope_figures({name: StudyResult(name, {}, arrays)})
    return StudyResult(name, figures, arrays, {"adapter": spent})


def alone(bench: Bench, one: Adapter) -> StudyResult:
    """Train and measure one adapter."""
    group = SETS[one.name](bench.data)
    labels = Labels.of(group)
    given, spent = _adapter(bench, group, labels, one=one)
    arrays = _known(labels) | _told(given, labels, "adapter")
    return StudyResult(one.study, _accuracies(given, labels, "adapter"), arrays, {"adapter": spent})


def _accuracies(given: Given, labels: Labels, reader: str) -> dict[str, float]:
    parts = {"accuracy": RowSplit.TEST, "validation": RowSplit.VALIDATION}
    return {
        f"{name}_{reader}": accuracy(given.logits[split], labels, split)
        for name, split in parts.items()
    }


def _known(labels: Labels) -> dict[str, NDArray[np.generic]]:
    """Return the facts of the rows that are not trained on."""
    arrays: dict[str, NDArray[np.generic]] = {"labels": np.array(labels.names)}
    for split in scope.MEASURED:
        arrays |= {f"gold_{split}": labels.targets[split], f"inside_{split}": labels.inside(split)}
    return arrays


def _told(given: Given, labels: Labels, reader: str) -> dict[str, NDArray[np.generic]]:
    """Return a reader's probabilities and signals of scope for the rows that are not trained on."""
    arrays: dict[str, NDArray[np.generic]] = {
        f"{reader}_{split}": scope.log_softmax(given.logits[split]) for split in scope.MEASURED
    }
    if labels.outside is not None:
        told = scope.measured(
            given, labels.targets[RowSplit.TRAIN], classes=len(labels.names), outside=labels.outside
        )
        arrays |= {f"{reader}:{key}": values for key, values in told.items()}
    return arrays


def _adapter(
    bench: Bench, group: LabelledSet, labels: Labels, *, one: Adapter
) -> tuple[Given, Spent]:
    base = backbone.load(bench.artifact)
    if one.half:
        distillation.halved(base.bert).requires_grad_(requires_grad=False)
    torch.manual_seed(one.seed)
    module = SequenceClassifier(
        backbone.adapt(base, rank=16, alpha=32.0), classes=len(labels.names)
    )
    rows = _tokenised(base, group, labels)
    train = rows[RowSplit.TRAIN]
    shuffled = random.Random(0).sample(train, round(one.share * len(train)))
    shown = train if one.share == 1.0 else shuffled
    losses = token_classifier.losses(module, torch.ones(len(labels.names)))
    epochs = bench.length(_EPOCHS[group.name], full=_FULL_EPOCHS)
    task = Task(group.name, module, shown, losses, len(labels.names), epochs, tokens_per_step=768)
    spent = steps.train(steps.one_task(task), rates=steps.LORA, seed=one.seed, title=one.study)
    # Features of training rows are what the signals of scope are fitted on.
    read = [s for s in RowSplit if s is not RowSplit.TRAIN or labels.outside is not None]
    found = {split: token_classifier.outputs(module, rows[split]) for split in read}
    return (
        Given({s: f[0] for s, f in found.items()}, {s: f[1] for s, f in found.items()}),
        spent,
    )


def _tokenised(
    base: Backbone, group: LabelledSet, labels: Labels
) -> dict[RowSplit, list[TextTokens]]:
    return {
        split: token_classifier.tokenised(
            [
                (str(row.text), int(target))
                for row, target in zip(group.of(split), labels.targets[split], strict=True)
            ],
            base.tokenizer,
            max_tokens=128,
        )
        for split in RowSplit
    }


def _vector_head(
    bench: Bench, group: LabelledSet, labels: Labels, *, seed: int, share: float = 1.0
) -> Given:
    """The head on stored vectors, its layers chosen on validation rows."""
    part = {s: Part(bench.stored(group, s), labels.targets[s]) for s in RowSplit}
    train = part[RowSplit.TRAIN]
    count = len(train.targets)
    shown = np.array(random.Random(0).sample(range(count), round(share * count)))
    tried = []
    for hidden in _HIDDEN[group.name]:
        config = replace(
            ClassifyConfig(), l2=(1e-4, 1e-3), class_weights=ClassWeights.NONE, hidden=hidden
        )
        model = vectors.fit(
            config,
            train=train if share == 1.0 else Part(train.vectors[shown], train.targets[shown]),
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
