"""Readers of half the layers, with a teacher and without. (A New Teacher for DistilBERT, chapter 5,
table 6.3.)

The student is layers 1, 3 and 5 of the encoder, as DistilBERT starts (Sanh et al. 2019, section 3),
all trained; the embeddings stand. Two of the thesis' output layers are trained on it side by side,
the one linear layer and the four with GELU and skip. The teacher is the reader that ships, ``qa``,
of six layers with an adapter. For starts and ends alike

    L = (1 - w) CE + w T^2 KL( softmax(z_teacher / T) || softmax(z / T) ),

T = 1.5 and w = 0.75; alone, w = 0. Both students make the same steps in the same order: one epoch
of every fourth training question, in full three of all. ``configurations`` has the thesis' six.
Marks as in ``readers``; *gain* is that of the four layers over the one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertModel

from studies.papers.kept import Figures, Kept, Parts, table, with_interval
from studies.papers.question_answering.readers import COLUMNS, compared
from studies.quality import squad
from studies.quality.classification import Bench
from studies.quality.job import load_recipe
from studies.quality.squad import Part
from studies.tasks import steps
from studies.tasks.distillation import TEMPERATURE, WEIGHT, distilled, halved
from studies.tasks.steps import Rates, Task
from verso_core import heads, manifest
from verso_training import device
from verso_training.heads import backbone, graph, questions, reader
from verso_training.heads.modules import NEGATIVE, SpanHead, span_loss
from verso_training.heads.questions import Question, Window
from verso_training.heads.reader import Reader
from verso_training.heads.recipe import AnswerConfig, SpanLayers

STUDY = "students"
LAYERS = (SpanLayers.VANILLA, SpanLayers.GELU_4_SKIP)
_EVERY = 2
_SHOWN = 4
_FULL_EPOCHS = 3
_MINED = 2600
"""Of all training questions."""
_TOKENS_PER_STEP = 2048
RATES = Rates(1e-4, 8e-4)
Teacher = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From token ids, mask and types to logits of starts and ends. Shape: three times (B, T) to twice
(B, T)."""
_TAUGHT = {"student alone": 0.0, "student with its teacher": WEIGHT}


class TunedReader(Reader):
    """A reader whose encoder is trained itself, without an adapter.

    Args:
        bert: Its weights that ask for a gradient are trained.
        config: Of the heads.
        layers: One head for each.
    """

    def __init__(
        self, bert: BertModel, config: AnswerConfig, *, layers: Iterable[SpanLayers]
    ) -> None:
        nn.Module.__init__(self)
        self.bert = bert
        width = int(bert.config.hidden_size)
        self.heads = nn.ModuleDict(
            {name.value: SpanHead(name, width=width, dropout=config.dropout) for name in layers}
        )


def losses(
    module: Reader, teacher: Teacher, *, weight: float
) -> Callable[[Sequence[Window]], Mapping[str, Tensor]]:
    """Return the loss of every head on a batch; ``weight`` is the teacher's."""

    def of(batch: Sequence[Window]) -> Mapping[str, Tensor]:
        padded = device.batch_beside(module, reader.collate(batch))
        shown = padded.ids, padded.mask, padded.types
        taught = None
        if weight:
            with torch.no_grad():
                taught = [_known(logits, padded.allowed) for logits in teacher(*shown)]
        found = {}
        for name, outputs in module(*shown).items():
            start, end = (logits.float() for logits in outputs)
            own = span_loss(start, end, starts=padded.starts, ends=padded.ends, mask=padded.allowed)
            found[name] = (1.0 - weight) * own
            for told, asked in zip(taught or (), (start, end), strict=False):
                known = _known(asked, padded.allowed)
                found[name] = found[name] + weight / 2 * distilled(
                    known, told, temperature=TEMPERATURE
                )
        return found

    return of


def _known(logits: Tensor, allowed: Tensor) -> Tensor:
    """Return logits without those of places where no span may begin or end. Shape: (B, T)."""
    return logits.float().masked_fill(~allowed, NEGATIVE)


def teacher_of(folder: Path, artifact: Path) -> tuple[Reader, AnswerConfig, SpanLayers]:
    """Return a published reader as a module, its settings and its output layers."""
    space = manifest.load(artifact).manifest.space.id
    start = graph.load(folder, space=space)
    config = graph.shaped(AnswerConfig(), start)
    module = Reader(backbone.load(artifact), config)
    start.restore(module.only(config.layers))
    return module.eval().requires_grad_(requires_grad=False), config, config.layers


class Remembered:
    """A teacher that reads each window once, however many students see it and how often."""

    def __init__(self, teacher: Teacher) -> None:
        self._teacher = teacher
        self._said: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        """Return the teacher's logits, zero where a window is padded. Shape: twice (B, T)."""
        keys = [tuple(row[own.bool()].tolist()) for row, own in zip(ids, mask, strict=True)]
        if any(key not in self._said for key in keys):
            said = torch.stack(self._teacher(ids, mask, types), dim=1).float()
            self._said |= {
                key: own[:, : len(key)].clone() for key, own in zip(keys, said, strict=True)
            }
        found = torch.zeros(2, *ids.shape, device=ids.device)
        for row, key in enumerate(keys):
            found[:, row, : len(key)] = self._said[key]
        return found[0], found[1]


@dataclass(frozen=True)
class Lesson:
    """What a student is shown, by whom, and how.

    Attributes:
        weight: Of the teacher in the loss.
        epochs: Over the windows.
    """

    shown: Sequence[Window]
    teacher: Teacher
    weight: float
    epochs: int
    tokens_per_step: int
    rates: Rates

    def taught(self, bench: Bench, *, title: str) -> Figures:
        """Train a student and return its marks."""
        base, config = backbone.load(bench.artifact), _config()
        torch.manual_seed(0)
        module = TunedReader(halved(base.bert), config, layers=LAYERS)
        task = Task(
            "student",
            module,
            self.shown,
            losses(module, self.teacher, weight=self.weight),
            2,
            self.epochs,
            tokens_per_step=self.tokens_per_step,
        )
        spent = steps.train(steps.one_task(task), rates=self.rates, seed=0, title=title)
        dev, test = _asked(bench)
        figures = compared(module, base, config, dev=dev, test=test, layers=LAYERS)
        return {**figures, "steps": spent.steps, "minutes": spent.cpu_s / 60}


def shown_every(bench: Bench, every: int) -> list[Window]:
    """Return the windows of every so many training questions, and as large a share of mined
    ones."""
    asked = squad.read(bench.data, Part.TRAIN)[::every]
    config = _config()
    return list(
        questions.windows(
            [*asked, *questions.mined(asked, count=_MINED // every)],
            backbone.load(bench.artifact).tokenizer,
            max_tokens=config.max_tokens,
            stride=config.stride,
            all_windows=False,
        )
    )


def _config() -> AnswerConfig:
    return dataclasses.replace(load_recipe("qa").answer, beside=(), layers=SpanLayers.VANILLA)


def run(bench: Bench) -> Parts:
    """Measure the teacher, and train and measure both students."""
    kept = Kept(bench.work / "papers" / STUDY)
    found = {"teacher": kept.of("teacher", partial(_teacher, bench))}
    for name, weight in _TAUGHT.items():
        found[name] = kept.of(name, partial(_student, bench, weight))
    return found


def shipped(bench: Bench) -> Path:
    """Return the folder of the reader beside the artifact."""
    (folder,) = (bench.artifact.parent / "heads" / "qa").glob(f"*/{heads.HEAD_NAME}")
    return folder.parent


def shipped_teacher(bench: Bench) -> Teacher:
    """Return the reader beside the artifact, on the device where students are trained."""
    module, _, layers = teacher_of(shipped(bench), bench.artifact)
    return module.to(device.fastest()).only(layers)


def _asked(bench: Bench) -> tuple[list[Question], list[Question]]:
    dev, test = (squad.read(bench.data, part)[::_EVERY] for part in (Part.DEV, Part.EVAL))
    return dev, test


def _teacher(bench: Bench) -> Figures:
    module, config, layers = teacher_of(shipped(bench), bench.artifact)
    dev, test = _asked(bench)
    base = backbone.load(bench.artifact)
    return compared(module, base, config, dev=dev, test=test, layers=[layers])


def _student(bench: Bench, weight: float) -> Figures:
    lesson = Lesson(
        shown_every(bench, bench.length(_SHOWN, full=1)),
        shipped_teacher(bench),
        weight,
        bench.length(1, full=_FULL_EPOCHS),
        _TOKENS_PER_STEP,
        RATES,
    )
    return lesson.taught(bench, title=f"student {weight}")


def page(found: Parts) -> str:
    """Return the table."""
    columns = ["reader, output layers", "EM", "F1", "gain", "answerable, F1", "refused, %"]
    columns += ["SQuAD 1.1: EM", "F1", "steps", "minutes"]
    rows = []
    for name, figures in found.items():
        for layers in (layers for layers in LAYERS if f"{layers}/f1" in figures):
            told = {key: with_interval(figures, f"{layers}/{key}") for key in COLUMNS}
            if layers is SpanLayers.VANILLA or "steps" not in figures:
                told["gain"] = ""
            cells = [*told.values()]
            cells += [f"{figures[key]:.0f}" if key in figures else "" for key in _SPENT]
            rows.append([f"{name}, {layers}", *cells])
    return table(columns, rows)


_SPENT = ("steps", "minutes")
