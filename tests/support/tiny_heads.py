"""Build small heads for tests, one of each kind, on the tiny artifact's encoder.

    python -m tests.support.tiny_heads MODELS ARTIFACT

    kinds         classify, reads vectors: which template made a line
    endings       classify, reads documents: which template made the last line of a text
    kinds-tokens  the same by an adapter on the encoder, reading tokens
    qa            answer, reads token pairs: the fault that a line tells of
    pairs         score, reads token pairs: whether two lines were made by one template
    alike         score, reads vector pairs: the cosine

Seconds to make, no downloads; real graphs, trained enough to be right on made-up lines and of no
interest beyond.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tests.support import tiny_artifact
from torch import Tensor, nn

from studies.documents import classifier, stored
from studies.quality.vector_pair import PairPooling, VectorPair
from verso_core.heads import Calibration, Reads, Task
from verso_core.registry import Channel, assign
from verso_training.heads import backbone, shipping, vector_classifier
from verso_training.heads.backbone import Backbone
from verso_training.heads.context import TrainingContext
from verso_training.heads.modules import (
    CrossEncoder,
    SequenceClassifier,
    SpanHead,
    SpanReader,
    span_loss,
)
from verso_training.heads.recipe import (
    AnswerConfig,
    ClassifyConfig,
    HeadRecipe,
    ScoreConfig,
    SpanLayers,
)
from verso_training.heads.rows import Row
from verso_training.heads.shipping import Provenance, Trained

LABELS = ("request", "connection", "retry", "failed-test", "frame", "prose", "question", "prose")
"""The label of each of the templates of made-up lines, in their order."""

NONE_LABEL = "prose"
_ENDINGS = {"request": "gateway", "retry": "worker", "connection": "gateway", "frame": "worker"}
"""Labels of endings, and the sources that they are given."""
_MAX_TOKENS = 96
_STRIDE = 24
_BATCH = 24
_TOKENS = ClassifyConfig(rank=4, alpha=8.0, max_tokens=_MAX_TOKENS)
_ANSWER = AnswerConfig(
    layers=SpanLayers.VANILLA, rank=8, alpha=16.0, max_tokens=_MAX_TOKENS, stride=_STRIDE
)
_SCORE = ScoreConfig(rank=8, alpha=16.0, max_tokens=_MAX_TOKENS)
_PROVENANCE = Provenance(
    data=("made-up lines",),
    licence="Apache-2.0",
    command="python -m tests.support.tiny_heads",
)


def build(models: Path, *, artifact: Path, steps: int = 300, seed: int = 3) -> None:
    """Train and publish the heads into ``models/heads`` and name them in its registry."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    lines = [_labelled(rng) for _ in range(1500)]
    out = models / "heads"
    base = backbone.load(artifact)
    made = [
        _kinds(lines, artifact=artifact, out=out),
        endings(rng, artifact=artifact, out=out),
        *(
            shipping.publish(trained, artifact=artifact, out_dir=out)
            for trained in (
                _tokens(backbone.load(artifact), lines, steps=steps, rng=rng),
                _reader(backbone.load(artifact), lines, steps=2 * steps, rng=rng),
                _pairs(backbone.load(artifact), lines, steps=2 * steps, rng=rng),
                _cosine(base, dim=384),
            )
        ),
    ]
    for folder in made:
        assign(models, Channel.STABLE, folder.name, head=folder.parent.name)


def _labelled(rng: random.Random) -> tuple[str, str]:
    number = rng.randrange(len(LABELS))
    return tiny_artifact.line(rng, template=number), LABELS[number]


def _kinds(lines: Sequence[tuple[str, str]], *, artifact: Path, out: Path) -> Path:
    recipe = HeadRecipe(
        name="kinds", none_label=NONE_LABEL, classify=ClassifyConfig(l2=(1e-4,), iterations=100)
    )
    report = vector_classifier.train_head(
        recipe,
        [Row(label, text) for text, label in lines],
        TrainingContext(artifact, out, _PROVENANCE),
    )
    return report.folder


def endings(rng: random.Random, *, artifact: Path, out: Path) -> Path:
    """Train a head of documents on texts of one to three chunks; the last line has the label."""
    recipe = HeadRecipe(
        name="endings",
        reads=Reads.DOCUMENT,
        classify=ClassifyConfig(l2=(1e-4,), iterations=60, buckets=251, max_chunks=4),
    )
    texts = [_ending(rng) for _ in range(400)]
    report = classifier.train_document_head(
        recipe,
        [Row(label, text) for text, label in texts],
        TrainingContext(artifact, out, _PROVENANCE),
        read=lambda asked: stored.documents(
            asked, artifact=artifact, cache=out / ".vectors", most=4
        ),
    )
    (out / ".vectors.npy").unlink()
    return report.folder


def _ending(rng: random.Random) -> tuple[str, str]:
    """Make up a text of one to three chunks; its last line alone is of a template with a label."""
    ends = [n for n, label in enumerate(LABELS) if label in _ENDINGS]
    others = [n for n in range(len(LABELS)) if n not in ends]
    numbers = [*rng.choices(others, k=rng.choice((1, 2, 12, 24, 40))), rng.choice(ends)]
    text = "\n".join(tiny_artifact.line(rng, template=number) for number in numbers)
    return text, f"{_ENDINGS[LABELS[numbers[-1]]]}/{LABELS[numbers[-1]]}"


def _tokens(
    base: Backbone, lines: Sequence[tuple[str, str]], *, steps: int, rng: random.Random
) -> Trained:
    names = tuple(sorted(set(LABELS)))
    module = SequenceClassifier(
        backbone.adapt(base, rank=_TOKENS.rank, alpha=_TOKENS.alpha), classes=len(names)
    )

    def loss() -> Tensor:
        chosen = rng.sample(lines, _BATCH)
        ids, mask, _ = _batch([_single(base, text) for text, _ in chosen])
        wanted = torch.tensor([names.index(label) for _, label in chosen])
        return F.cross_entropy(module(ids, mask)[0], wanted)

    _fit(module, loss, steps=steps)
    return Trained(
        recipe=HeadRecipe(
            name="kinds-tokens", reads=Reads.TOKENS, none_label=NONE_LABEL, classify=_TOKENS
        ),
        module=module,
        outputs=("logits", "feature"),
        samples=[_sample(_single(base, text), types=False) for text, _ in lines[:12]],
        provenance=_PROVENANCE,
        card="Made for tests.",
        labels=names,
        calibration=Calibration(conformal={"0.05": 0.6}),
        sources=base.sources,
        max_tokens=_MAX_TOKENS,
    )


def _reader(
    base: Backbone, lines: Sequence[tuple[str, str]], *, steps: int, rng: random.Random
) -> Trained:
    module = SpanReader(
        backbone.adapt(base, rank=_ANSWER.rank, alpha=_ANSWER.alpha),
        SpanHead(_ANSWER.layers, width=base.width),
    )
    faults = tiny_artifact.WORDS["fault"]

    def loss() -> Tensor:
        rows, places = [], []
        for text, _ in rng.sample(lines, _BATCH):
            row, start, end = _window(base, "what was the fault", text, faults)
            rows.append(row)
            places.append((start, end))
        ids, mask, types = _batch(rows)
        start_logits, end_logits = module(ids, mask, types)
        starts, ends = (torch.zeros_like(ids, dtype=torch.bool) for _ in range(2))
        for number, (first, last) in enumerate(places):
            starts[number, first] = True
            ends[number, last] = True
        return span_loss(start_logits, end_logits, starts=starts, ends=ends, mask=mask.bool())

    _fit(module, loss, steps=steps)
    samples = [_window(base, "what was the fault", text, faults)[0] for text, _ in lines[:12]]
    return Trained(
        recipe=HeadRecipe(name="qa", task=Task.ANSWER, reads=Reads.TOKEN_PAIR, answer=_ANSWER),
        module=module,
        outputs=("start", "end"),
        samples=[_sample(row, types=True) for row in samples],
        provenance=_PROVENANCE,
        card="Made for tests.",
        calibration=Calibration(null_threshold=0.0),
        sources=base.sources,
        max_tokens=_MAX_TOKENS,
        stride=_ANSWER.stride,
    )


def _pairs(
    base: Backbone, lines: Sequence[tuple[str, str]], *, steps: int, rng: random.Random
) -> Trained:
    module = CrossEncoder(backbone.adapt(base, rank=_SCORE.rank, alpha=_SCORE.alpha))

    def draw() -> tuple[str, str, bool]:
        (first, label), (second, other) = rng.sample(lines, 2)
        if rng.random() < 0.5:
            second, other = rng.choice([line for line in lines[:400] if line[1] == label])
        return first, second, label == other

    def loss() -> Tensor:
        drawn = [draw() for _ in range(_BATCH)]
        ids, mask, types = _batch([_pair(base, a, b) for a, b, _ in drawn])
        wanted = torch.tensor([float(same) for _, _, same in drawn])
        return F.binary_cross_entropy_with_logits(module.logit(ids, mask, types), wanted)

    _fit(module, loss, steps=steps)
    samples = [draw() for _ in range(12)]
    return Trained(
        recipe=HeadRecipe(name="pairs", task=Task.SCORE, reads=Reads.TOKEN_PAIR, score=_SCORE),
        module=module,
        outputs=("score",),
        samples=[_sample(_pair(base, a, b), types=True) for a, b, _ in samples],
        provenance=_PROVENANCE,
        card="Made for tests.",
        sources=base.sources,
        max_tokens=_MAX_TOKENS,
    )


def _cosine(base: Backbone, *, dim: int) -> Trained:
    del base
    rows = F.normalize(torch.randn(12, 2, dim), dim=-1).numpy()
    return Trained(
        recipe=HeadRecipe(name="alike", task=Task.SCORE, reads=Reads.VECTOR_PAIR),
        module=VectorPair(PairPooling.COSINE, dim=dim),
        outputs=("score",),
        samples=[{"u": u, "v": v} for u, v in rows],
        provenance=_PROVENANCE,
        card="The cosine of two vectors, clipped at 0. Made for tests.",
    )


def _fit(module: nn.Module, loss: Callable[[], Tensor], *, steps: int) -> None:
    trained = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=4e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    module.train()
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    module.eval()


Tokens = tuple[list[int], list[int]]
"""Ids and types of one row."""


def _ids(base: Backbone, text: str) -> list[int]:
    found: list[int] = base.tokenizer.encode(text, add_special_tokens=False).ids
    return found


def _marks(base: Backbone) -> tuple[int, int]:
    first, between = (base.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    assert first is not None
    assert between is not None
    return first, between


def _single(base: Backbone, text: str) -> Tokens:
    first, between = _marks(base)
    ids = [first, *_ids(base, text)[: _MAX_TOKENS - 2], between]
    return ids, [0] * len(ids)


def _pair(base: Backbone, a: str, b: str) -> Tokens:
    first, between = _marks(base)
    left = [first, *_ids(base, a)[:46], between]
    right = [*_ids(base, b)[: _MAX_TOKENS - len(left) - 1], between]
    return left + right, [0] * len(left) + [1] * len(right)


def _window(
    base: Backbone, question: str, text: str, answers: Sequence[str]
) -> tuple[Tokens, int, int]:
    """A question on a line, and the first and last token of its answer; 0 where there is none."""
    row = _pair(base, question, text)
    offsets = base.tokenizer.encode(text, add_special_tokens=False).offsets
    before = 2 + len(_ids(base, question))
    for answer in answers:
        at = text.find(answer)
        if at < 0:
            continue
        inside = [n for n, (s, e) in enumerate(offsets) if s >= at and e <= at + len(answer)]
        if inside and before + inside[-1] < len(row[0]) - 1:
            return row, before + inside[0], before + inside[-1]
    return row, 0, 0


def _batch(rows: Sequence[Tokens]) -> tuple[Tensor, Tensor, Tensor]:
    shape = (len(rows), max(len(ids) for ids, _ in rows))
    ids, mask, types = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    for row, (tokens, kinds) in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
        types[row, : len(kinds)] = torch.tensor(kinds)
    return ids, mask, types


def _sample(row: Tokens, *, types: bool) -> dict[str, NDArray[np.generic]]:
    ids, kinds = row
    sample: dict[str, NDArray[np.generic]] = {
        "input_ids": np.array(ids, np.int64),
        "attention_mask": np.ones(len(ids), np.int64),
    }
    if types:
        sample["token_type_ids"] = np.array(kinds, np.int64)
    return sample


def main() -> None:
    """Build the heads in the models folder that the command line names, with a registry."""
    models, artifact = Path(sys.argv[1]), Path(sys.argv[2])
    models.mkdir(parents=True, exist_ok=True)
    build(models, artifact=artifact)


if __name__ == "__main__":
    main()
