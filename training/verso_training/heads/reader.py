"""Train and use a reader: an adapter on the encoder and span heads on its states.

Several heads may be trained side by side on one adapter, which compares them at equal cost; one of
them is shipped. A first share of the budget reads short questions on single sentences, which show
many spans for few tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from verso_training.heads import lora, places
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import SpanReader
from verso_training.heads.recipe import AnswerConfig
from verso_training.heads.spans import SpanHead, SpanLayers, best_spans, span_loss
from verso_training.heads.squad import Question, Window, windows

Logits = Callable[[Sequence[Window]], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Start and end logits of windows. Shape: twice (B, T)."""


class Reader(nn.Module):
    """An adapted encoder with span heads."""

    def __init__(
        self, backbone: Backbone, config: AnswerConfig, *, layers: Iterable[SpanLayers] = ()
    ) -> None:
        super().__init__()
        self.bert = lora.adapt(backbone, rank=config.rank, alpha=config.alpha)
        self.heads = nn.ModuleDict(
            {
                name.value: SpanHead(name, width=backbone.width, dropout=config.dropout)
                for name in (tuple(layers) or (config.layers,))
            }
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Start and end logits by the name of the head. Shape: three times (B, T)."""
        states = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        return {name: head(states) for name, head in self.heads.items()}

    def only(self, layers: SpanLayers) -> SpanReader:
        """One head with the adapter, as it is exported."""
        head = self.heads[layers.value]
        assert isinstance(head, SpanHead)
        return SpanReader(self.bert, head).eval()

    def losses(self, batch: Sequence[Window]) -> Mapping[str, Tensor]:
        """The span loss of every head."""
        padded = places.batch_beside(self, collate(batch))
        outputs = self(padded.ids, padded.mask, padded.types)
        return {
            name: span_loss(s, e, starts=padded.starts, ends=padded.ends, mask=padded.allowed)
            for name, (s, e) in outputs.items()
        }


@dataclass(frozen=True)
class WindowBatch:
    """Windows padded to the longest. All of shape (B, T)."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    starts: Tensor
    ends: Tensor
    allowed: Tensor


def collate(batch: Sequence[Window]) -> WindowBatch:
    """Pad windows to the longest."""
    shape = (len(batch), max(len(window.ids) for window in batch))
    ids, mask, types = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    starts, ends, allowed = (torch.zeros(shape, dtype=torch.bool) for _ in range(3))
    for row, window in enumerate(batch):
        length, first = len(window.ids), window.context_from
        ids[row, :length] = torch.tensor(window.ids)
        mask[row, :length] = 1
        types[row, first:length] = 1
        starts[row, window.starts] = True
        ends[row, window.ends] = True
        allowed[row, first : length - 1] = True
        allowed[row, 0] = True
    return WindowBatch(ids, mask, types, starts, ends, allowed)


def logits_of(reader: SpanReader) -> Logits:
    """The logits of a module, for ``answers``."""

    @torch.inference_mode()
    def run(batch: Sequence[Window]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        padded = collate(batch)
        start, end = reader(padded.ids, padded.mask, padded.types)
        return start.numpy(), end.numpy()

    return run


@dataclass(frozen=True)
class Answer:
    """The best answer to a question, and how much better it is than none.

    Attributes:
        text: A slice of the context.
        score: s_start + e_end of the best span in any window.
        null: s_0 + e_0 of the window where "no answer" scores least: an answer in one window
            is not refuted by another window without it.
    """

    text: str
    score: float
    null: float

    @property
    def margin(self) -> float:
        """What the null threshold is compared with."""
        return self.score - self.null


def answers(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    *,
    logits: Logits,
    config: AnswerConfig,
    tokens_per_batch: int = 8192,
    progress: Callable[[int], object] = lambda _: None,
) -> list[Answer]:
    """The best answer to each question, from all windows of its context."""
    made = list(
        windows(
            questions,
            tokenizer,
            max_tokens=config.max_tokens,
            stride=config.stride,
            all_windows=True,
        )
    )
    order = sorted(range(len(made)), key=lambda i: len(made[i].ids))
    best: dict[int, Answer] = {}
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * len(made[order[stop]].ids) <= (
            tokens_per_batch
        ):
            stop += 1
        batch = [made[i] for i in order[start:stop]]
        for window, s, e in zip(batch, *logits(batch), strict=True):
            found = _best(window, questions[window.question].context, s, e)
            before = best.get(window.question)
            best[window.question] = found if before is None else _merged(before, found)
        progress(len(batch))
        start = stop
    return [best[i] for i in range(len(questions))]


def _best(
    window: Window, context: str, start: NDArray[np.float32], end: NDArray[np.float32]
) -> Answer:
    allowed = np.zeros(len(start), bool)
    allowed[window.context_from : len(window.ids) - 1] = True
    null = float(start[0] + end[0])
    spans = best_spans(start, end, allowed=allowed)
    if not spans:
        return Answer("", -1e9, null)
    first = window.offsets[spans[0].start - window.context_from][0]
    last = window.offsets[spans[0].end - window.context_from][1]
    return Answer(context[first:last], spans[0].score, null)


def _merged(one: Answer, other: Answer) -> Answer:
    better = one if one.score >= other.score else other
    return Answer(better.text, better.score, min(one.null, other.null))
