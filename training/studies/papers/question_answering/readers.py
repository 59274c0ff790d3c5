"""The six output layers of the thesis at equal budget. (A New Teacher for DistilBERT, section 6.1
and table 6.1.)

All six are trained side by side on one adapter of the encoder, so that each sees the same questions
in the same order, for five processor minutes in all, in full 55; the adapter follows their mean
loss. The thesis fine-tunes an encoder for each. Trained on the questions and sentences that ``qa``
is; the null threshold is chosen on every second question of the dev articles, and every second
question of the eval articles is reported. *Gain* is F1 against the one linear layer, paired over
the questions. *SQuAD 1.1* is of the questions that have an answer, and every one of them is given
one.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from studies.papers.kept import Figures, Kept, Parts, table, with_interval
from studies.quality import shipped, squad
from studies.quality.classification import Bench
from studies.quality.job import load_recipe
from studies.quality.squad import Part
from verso_training.heads import backbone, fitting, questions, reader
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import SpanHead
from verso_training.heads.questions import Question, Window
from verso_training.heads.reader import Answer, Logits, Marks, Reader
from verso_training.heads.recipe import AnswerConfig, SpanLayers
from verso_training.heads.signals import bootstrap

STUDY = "readers"
MINUTES = 5.0
_FULL_MINUTES = 55.0
_EVERY = 2
_TIMED = 21
Floats = NDArray[np.float32]


def run(bench: Bench) -> Parts:
    """Train the six and measure them."""
    kept = Kept(bench.work / "papers" / STUDY)
    recipe = load_recipe("qa")
    minutes = bench.length(MINUTES, full=_FULL_MINUTES)
    config = dataclasses.replace(
        recipe.answer, minutes=minutes, beside=(), layers=SpanLayers.VANILLA
    )
    return {"six heads": kept.of("six", partial(_measured, bench, config, kept.folder))}


def _measured(bench: Bench, config: AnswerConfig, folder: Path) -> Figures:
    base = backbone.load(bench.artifact)
    torch.manual_seed(0)
    module = Reader(base, config, layers=SpanLayers)
    trained(module, base, config, bench=bench, folder=folder)
    dev, test = (squad.read(bench.data, part)[::_EVERY] for part in (Part.DEV, Part.EVAL))
    return compared(module, base, config, dev=dev, test=test)


def trained(
    module: Reader, base: Backbone, config: AnswerConfig, *, bench: Bench, folder: Path
) -> None:
    """Train the module, or finish what an earlier run began."""
    asked = squad.read(bench.data, Part.TRAIN)
    short = [*shipped.qamr(bench.data, "dev"), *shipped.qamr(bench.data, "test")]
    cut = partial(
        questions.windows,
        tokenizer=base.tokenizer,
        max_tokens=config.max_tokens,
        stride=config.stride,
        all_windows=False,
    )
    budget = fitting.Budget(
        config.minutes, config.epochs, config.rate, config.tokens_per_step, warm_share=0.12,
        checkpoint_minutes=1.0,
    )  # fmt: skip
    run = fitting.AdapterRun(
        module,
        budget,
        main=list(cut([*asked, *questions.mined(asked, count=2600)])),
        warm=list(cut(short)),
        losses=module.losses,
        folder=folder / "run",
    )
    run.train(on_progress=lambda _: None, should_stop=lambda: False)


class Replayed:
    """The logits of all heads of a reader, whose encoder runs once for every batch."""

    def __init__(self, module: Reader) -> None:
        self._module = module.eval()
        self._found: list[Mapping[str, tuple[Floats, Floats]]] = []

    def of(self, name: SpanLayers) -> Logits:
        """Return one head's logits, for batches that come in the same order for every head."""
        at = iter(range(1_000_000))

        @torch.inference_mode()
        def logits(batch: Sequence[Window]) -> tuple[Floats, Floats]:
            number = next(at)
            if number == len(self._found):
                padded = reader.collate(batch)
                told: Mapping[str, tuple[Tensor, Tensor]] = self._module(
                    padded.ids, padded.mask, padded.types
                )
                self._found.append({key: (s.numpy(), e.numpy()) for key, (s, e) in told.items()})
            return self._found[number][name.value]

        return logits


def compared(
    module: Reader,
    base: Backbone,
    config: AnswerConfig,
    *,
    dev: Sequence[Question],
    test: Sequence[Question],
    layers: Iterable[SpanLayers] = SpanLayers,
) -> Figures:
    """Return the marks of every head, its gain over the first one, its size and its time."""
    replayed = [Replayed(module) for _ in (dev, test)]
    figures: dict[str, float] = {"questions": len(test)}
    plain: Floats | None = None
    for name in layers:
        chosen, final = (
            reader.answers(rows, base.tokenizer, logits=logits.of(name), config=config)
            for rows, logits in zip((dev, test), replayed, strict=True)
        )
        threshold = reader.best_threshold(dev, chosen)
        marks = reader.marks(test, final, null_threshold=threshold)
        words = _by_question(test, final, threshold)
        plain = words if plain is None else plain
        gain = bootstrap(partial(_mean_gap, words, plain), len(test))
        first = _answerable(test, final)
        head = module.heads[name.value]
        assert isinstance(head, SpanHead)
        told = {one.name: getattr(marks, one.name) for one in dataclasses.fields(marks)}
        told |= {"exact_11": first.exact, "f1_11": first.f1, "gain": gain}
        for key, interval in told.items():
            figures |= {
                f"{name}/{key}": interval.value,
                f"{name}/{key}/low": interval.low,
                f"{name}/{key}/high": interval.high,
            }
        figures |= {
            f"{name}/parameters": sum(weight.numel() for weight in head.parameters()),
            f"{name}/ms": _ms(head, width=base.width, tokens=config.max_tokens),
        }
    return figures


def _answerable(asked: Sequence[Question], answers: Sequence[Answer]) -> Marks:
    """Return the marks of SQuAD 1.1: the best span of every question that has an answer."""
    rows = [row for row, question in enumerate(asked) if question.answers]
    chosen = [asked[row] for row in rows], [answers[row] for row in rows]
    return reader.marks(*chosen, null_threshold=-np.inf)


def _by_question(asked: Sequence[Question], answers: Sequence[Answer], threshold: float) -> Floats:
    given = [one.text if one.margin > threshold else "" for one in answers]
    found = [reader.f1(text, one.answers) for text, one in zip(given, asked, strict=True)]
    return np.array(found, np.float32)


def _mean_gap(one: Floats, other: Floats, rows: NDArray[np.int64]) -> float:
    return 100 * float((one[rows] - other[rows]).mean())


@torch.inference_mode()
def _ms(head: SpanHead, *, width: int, tokens: int) -> float:
    """Return the median time of a head on one window's states."""
    states = torch.randn(1, tokens, width)
    spent = []
    for _ in range(_TIMED):
        began_s = time.perf_counter()
        head(states)
        spent.append(time.perf_counter() - began_s)
    return 1e3 * statistics.median(spent)


def page(found: Parts) -> str:
    """Return the table."""
    (figures,) = found.values()
    columns = [
        "output layers",
        "EM",
        "F1",
        "gain",
        "answerable, F1",
        "refused, %",
        "SQuAD 1.1: EM",
        "F1",
    ]
    columns += ["parameters", "ms a window"]
    rows = []
    for name in SpanLayers:
        told = {key: with_interval(figures, f"{name}/{key}") for key in COLUMNS}
        if name is SpanLayers.VANILLA:
            told["gain"] = ""
        sizes = [f"{figures[f'{name}/parameters']:,.0f}", f"{figures[f'{name}/ms']:.2f}"]
        rows.append([str(name), *told.values(), *sizes])
    return table(columns, rows)


COLUMNS = ("exact", "f1", "gain", "answerable_f1", "refused", "exact_11", "f1_11")
