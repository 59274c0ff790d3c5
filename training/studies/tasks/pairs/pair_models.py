"""Models of a pair on STS-B, from two vectors to both texts in one window.

Multi-task minBERT compares a siamese cosine, pooled vectors and cross-attention. The cosine, the
layers on two stored vectors and the adapters come from other studies; here the heads that need
token states are trained on those of the encoder as it is. Their recipe is fixed: nothing is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import BertModel

from studies.quality import pairsets
from studies.quality.classification import Bench
from studies.tasks import frozen, steps, strategies
from studies.tasks.objectives import OneWayAttention
from studies.tasks.pages.paragraphs import wrapped
from studies.tasks.pairs import siamese
from studies.tasks.pairs.siamese import Apart
from studies.tasks.result import StudyResult
from studies.tasks.steps import Task
from verso_training import device, encoder
from verso_training.heads import backbone, scoring
from verso_training.heads.modules import CrossEncoder

STUDY = "pair-models"
EPOCHS = 4
_PARTS = ("dev", "test")
_PAIRS_PER_BATCH = 64


class OneWay(nn.Module):
    """One-way cross-attention over the token states of an encoder that may be frozen."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert
        self.head = OneWayAttention(int(bert.config.hidden_size))

    def forward(self, a: Sequence[list[int]], b: Sequence[list[int]]) -> Tensor:
        """Logits of pairs of token ids. Shape: (B,)."""
        padded = [device.beside(self, encoder.padded(texts)) for texts in (a, b)]
        states = [
            self.bert(input_ids=ids, attention_mask=mask).last_hidden_state for ids, mask in padded
        ]
        logits: Tensor = self.head(*states, mask_a=padded[0][1], mask_b=padded[1][1])
        return logits


def losses(module: OneWay) -> Callable[[Sequence[Apart]], Mapping[str, Tensor]]:
    """The loss of a batch: cross-entropy with soft targets, as ``pairs.losses``."""

    def of(batch: Sequence[Apart]) -> Mapping[str, Tensor]:
        logits = module([pair.a for pair in batch], [pair.b for pair in batch])
        (score,) = device.beside(module, [torch.tensor([pair.score for pair in batch])])
        return {"score": F.binary_cross_entropy_with_logits(logits.float(), score)}

    return of


@torch.inference_mode()
def scores(module: OneWay, rows: Sequence[Apart]) -> NDArray[np.float32]:
    """Logits in the order of the pairs. Shape: (N,)."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
    found = np.zeros(len(rows), np.float32)
    for start in range(0, len(order), _PAIRS_PER_BATCH):
        part = order[start : start + _PAIRS_PER_BATCH]
        found[part] = module([rows[i].a for i in part], [rows[i].b for i in part]).numpy()
    return found


def run(bench: Bench) -> StudyResult:
    """Train both heads on the frozen encoder; Spearman's correlation on dev and test."""
    base = backbone.load(bench.artifact)
    rows = {part: pairsets.stsb(bench.data, part) for part in ("train", *_PARTS)}
    apart = {part: siamese.tokenised(of, base.tokenizer) for part, of in rows.items()}
    joint = {
        part: scoring.tokenised(of, base.tokenizer, max_tokens=strategies.MAX_TOKENS)
        for part, of in rows.items()
    }
    torch.manual_seed(0)
    one_way, together = OneWay(base.bert), CrossEncoder(base.bert)
    tasks = (
        Task("one_way", one_way, apart["train"], losses(one_way), 2, EPOCHS),
        Task("together", together, joint["train"], scoring.losses(together), 2, EPOCHS),
    )
    spent = {
        task.name: steps.train(steps.one_task(task), rates=steps.LORA, seed=0, title=task.name)
        for task in tasks
    }
    figures: dict[str, float] = {}
    for part in _PARTS:
        gold = np.array([row.score for row in rows[part]])
        for name, found in (
            ("one_way", scores(one_way, apart[part])),
            ("together", scoring.scores(together, joint[part])),
        ):
            figures[f"{name}_{part}"] = 100 * scoring.spearman(found, gold)
    return StudyResult(STUDY, figures, {}, spent)


def section(found: Mapping[str, StudyResult]) -> str:
    """The table; empty where the study was not done."""
    if STUDY not in found:
        return ""
    lines = [
        "### Pair models",
        "",
        wrapped(
            "Spearman on STS-B by what a pair's score is made of, trained on its 5,749 pairs. "
            "One-way cross-attention lets each token of one text look at the other's, both "
            "encoded apart; read together, both texts stand in one window. The two heads on the "
            f"frozen encoder's token states take {EPOCHS} epochs, one seed, and nothing is chosen; "
            "the pooled layers' epoch is, on a tenth of the pairs. These two are given neither the "
            "difference nor the product of two vectors, which the pooled layers are."
        ),
        "",
        "| pair model | trained | STS-B dev | STS-B test |",
        "|---|---|---:|---:|",
    ]
    for name, trained, values in _rows(found):
        lines.append(f"| {name} | {trained} | {values[0]:.1f} | {values[1]:.1f} |")
    return "\n".join(lines)


def _rows(found: Mapping[str, StudyResult]) -> list[tuple[str, str, list[float]]]:
    rows: list[tuple[str, str, list[float]]] = []
    if "frozen-similarity" in found:
        f = found["frozen-similarity"].figures
        cosine = [f[f"similarity_{part}_cosine_spearman"] for part in _PARTS]
        pooled = [
            mean(f[f"similarity_{part}_layers_{seed}_spearman"] for seed in frozen.SEEDS)
            for part in _PARTS
        ]
        rows += [
            ("siamese cosine of stored vectors", "nothing", cosine),
            ("pooled stored vectors, mean of 3 seeds", "two layers", pooled),
        ]
    f = found[STUDY].figures
    for key, name in (("one_way", "one-way cross-attention"), ("together", "read together")):
        rows.append((f"{name}, encoder frozen", "head", [f[f"{key}_{part}"] for part in _PARTS]))
    if "lora-similarity" in found:
        f = found["lora-similarity"].figures
        values = [f[f"similarity_{part}_spearman"] for part in _PARTS]
        rows.append(("read together", "adapter and head", values))
    return rows
