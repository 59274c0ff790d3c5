"""A student of half the layers, with a teacher and without, on SST-5.

The student starts as layers 1, 3 and 5 of the encoder (every second one, Sanh et al. 2019, section
3) and is fine-tuned. With a teacher its loss is

    L = (1 - w) CE + w T^2 KL( softmax(z_teacher / T) || softmax(z / T) ),

T = 1.5 and w = 0.75; without one it is CE. The teacher is the task's adapter of the study
``lora-sentiment``, its logits those of the training sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertModel

from studies.papers.kept import ends
from studies.quality.classification import Bench
from studies.tasks import result, sets, steps, strategies
from studies.tasks.result import StudyResult
from studies.tasks.steps import Spent, Task
from verso_training import device
from verso_training.config import RecipeInvalid
from verso_training.heads import backbone, signals, token_classifier
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.signals import Interval
from verso_training.heads.token_classifier import TextTokens

TEMPERATURE, WEIGHT = 1.5, 0.75
EPOCHS = 2
SEEDS = (0, 1)
Right = NDArray[np.bool_]


@dataclass(frozen=True)
class Taught(TextTokens):
    """A text, its label, and what the teacher's logits for it are. Shape: (C,)."""

    teacher: NDArray[np.float32]


def run(bench: Bench) -> StudyResult:
    """Train students with and without the teacher.

    Raises:
        RecipeInvalid: there is no teacher yet.
    """
    teacher = result.load(bench.work / "tasks", "lora-sentiment")
    if teacher is None:
        raise RecipeInvalid("expected the study `lora-sentiment` first: its adapter is the teacher")
    logits = _taught(bench)
    figures = {"teacher": teacher.figures["sentiment"]}
    arrays: dict[str, NDArray[np.generic]] = {}
    spent: dict[str, Spent] = {}
    gold = teacher.arrays["sentiment_dev_gold"]
    told = teacher.arrays["sentiment_dev"].argmax(-1) == gold
    for name, weight in (("alone", 0.0), ("taught", WEIGHT)):
        right = []
        for seed in SEEDS:
            run_name = f"{name}_{seed}"
            found, spent[run_name] = _student(bench, logits, weight=weight, seed=seed)
            arrays |= {run_name: found}
            right.append(found.argmax(-1) == gold)
            figures[run_name] = 100 * float(right[-1].mean())
        figures |= ends(name, kept_share(right, told))
    return StudyResult("distillation", figures, arrays, spent)


def kept_share(students: Sequence[Right], teacher: Right) -> Interval:
    """Return what share of the teacher's accuracy students keep on their mean, in percent.

    Each array says of every sentence whether it was labelled right; the interval is over the
    sentences, which are drawn for students and teacher alike. Shape: (N,).
    """
    even = np.mean([*students], axis=0)

    def share(rows: NDArray[np.int64]) -> float:
        return 100 * float(even[rows].mean() / teacher[rows].mean())

    return signals.bootstrap(share, len(teacher))


def halved(bert: BertModel) -> BertModel:
    """The transformer with every second layer left out, in place."""
    bert.encoder.layer = nn.ModuleList([*bert.encoder.layer][::2])
    bert.config.num_hidden_layers = len(bert.encoder.layer)
    bert.encoder.requires_grad_(requires_grad=True)
    return bert


def losses(
    module: SequenceClassifier, *, weight: float
) -> Callable[[Sequence[Taught]], Mapping[str, Tensor]]:
    """The loss of a batch; ``weight`` is the teacher's."""
    even = torch.ones(module.out.out_features)

    def of(batch: Sequence[Taught]) -> Mapping[str, Tensor]:
        taught = torch.from_numpy(np.stack([text.teacher for text in batch]))
        ids, mask, targets, teacher, weights = device.beside(
            module, (*token_classifier.collate(batch), taught, even)
        )
        logits = module(ids, mask)[0].float()
        own = nn.functional.cross_entropy(logits, targets, weight=weights)
        from_teacher = distilled(logits, teacher, temperature=TEMPERATURE)
        return {"student": (1.0 - weight) * own + weight * from_teacher}

    return of


def _taught(bench: Bench) -> NDArray[np.float32]:
    """The teacher's logits of the training sentences. Shape: (N, C)."""
    base = backbone.load(bench.artifact)
    bert = backbone.adapt(base, rank=strategies.RANK, alpha=strategies.ALPHA)
    module = SequenceClassifier(bert, classes=sets.SENTIMENTS)
    backbone.restore(module, load_file(strategies.weights(bench, "lora-sentiment")))
    module.train(mode=False)
    return token_classifier.outputs(module, strategies.sentences(bench, base, "train"))[0]


def _student(
    bench: Bench, teacher: NDArray[np.float32], *, weight: float, seed: int
) -> tuple[NDArray[np.float32], Spent]:
    base = backbone.load(bench.artifact)
    torch.manual_seed(seed)
    module = SequenceClassifier(halved(base.bert), classes=sets.SENTIMENTS)
    texts = strategies.sentences(bench, base, "train")
    rows = [Taught(t.ids, t.target, z) for t, z in zip(texts, teacher, strict=True)]
    task = Task("student", module, rows, losses(module, weight=weight), sets.SENTIMENTS, EPOCHS)
    title = f"student {weight} {seed}"
    spent = steps.train(steps.one_task(task), rates=steps.FULL, seed=seed, title=title)
    return token_classifier.outputs(module, strategies.sentences(bench, base, "dev"))[0], spent


def distilled(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """Return the divergence of the student's softened distribution from the teacher's.

        L = T^2 KL( softmax(z_teacher / T) || softmax(z_student / T) )

    Hinton et al. 2015, section 2: T^2 keeps the gradients' size as T changes. It is added to the
    cross-entropy with a weight (Preite 2020, listing 5.1). Shape of both: (B, C) logits.
    """
    return F.kl_div(
        F.log_softmax(student / temperature, dim=-1),
        F.log_softmax(teacher / temperature, dim=-1),
        reduction="batchmean",
        log_target=True,
    ) * (temperature**2)
