"""Train and use a reader: an adapter on the encoder and span heads on its states.

Several heads may be trained side by side on one adapter, which compares them at equal cost; one of
them is shipped. A first share of the budget reads short questions on single sentences, which show
many spans for few tokens.

Answers are marked as in SQuAD 2.0 (Rajpurkar et al. 2018, evaluation script): texts are lowercased,
punctuation and articles dropped, white space joined; F1 counts words as a multiset; a question
without an answer is right if the reader gives none; the best gold answer counts.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from verso_core.heads import Relevance, Signal, SignalName
from verso_core.texts import sentence_around
from verso_training import device
from verso_training.encoder import batches, padded
from verso_training.heads import signals
from verso_training.heads.backbone import Backbone, adapt
from verso_training.heads.confidence import DELTA, fit_platt, fit_stack, thresholds
from verso_training.heads.modules import SpanHead, SpanReader, best_spans, span_loss
from verso_training.heads.questions import Question, Window, windows
from verso_training.heads.recipe import AnswerConfig, SpanLayers
from verso_training.heads.signals import Interval

RIGHT_F1 = 0.5
"""Word F1 against a right answer from which on an answer counts as right."""
PRECISION = 0.65
"""Share of right answers among those that are given about a text, at least, where it is known."""
_BINS = 10
_LEAST = -100.0
"""Margin of a context in which no span can be an answer."""
_ROUNDS, _ROUNDS_AUROC = 2000, 500
"""Of drawing the texts of questions, for intervals."""
_PARTS = 10
_FEWEST_DOCUMENTS = 5
_FEWEST_JUDGED = 100
"""Right answers, and wrong ones, that a relevance is fitted on at least: it has three numbers.
Answers that are given, at least, where a threshold is said to keep a share of right ones."""
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Unit vectors of texts. Shape: (texts, D)."""
Logits = Callable[[Sequence[Window]], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Start and end logits of windows. Shape: twice (B, T)."""


class Reader(nn.Module):
    """An adapted encoder with span heads."""

    def __init__(
        self, backbone: Backbone, config: AnswerConfig, *, layers: Iterable[SpanLayers] = ()
    ) -> None:
        super().__init__()
        self.bert = adapt(backbone, rank=config.rank, alpha=config.alpha)
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
        """Return one head with the adapter, as it is exported."""
        head = self.heads[layers.value]
        assert isinstance(head, SpanHead)
        return SpanReader(self.bert, head).eval()

    def losses(self, batch: Sequence[Window]) -> Mapping[str, Tensor]:
        """Return the span loss of every head."""
        padded = device.batch_beside(self, collate(batch))
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
    ids, mask = padded([window.ids for window in batch])
    types = torch.zeros_like(ids)
    starts, ends, allowed = (torch.zeros_like(ids, dtype=torch.bool) for _ in range(3))
    for row, window in enumerate(batch):
        length, first = len(window.ids), window.context_from
        types[row, first:length] = 1
        starts[row, window.starts] = True
        ends[row, window.ends] = True
        allowed[row, first : length - 1] = True
        allowed[row, 0] = True
    return WindowBatch(ids, mask, types, starts, ends, allowed)


def logits_of(reader: SpanReader) -> Logits:
    """Return the logits of a module, for ``answers``."""

    @torch.inference_mode()
    def run(batch: Sequence[Window]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        padded = collate(batch)
        start, end = reader(padded.ids, padded.mask, padded.types)
        return start.numpy(), end.numpy()

    return run


@dataclass(frozen=True)
class Answer:
    """The best answer to a question, and its margin over no answer.

    Attributes:
        text: A slice of the context.
        score: s_start + e_end of the best span in any window.
        null: s_0 + e_0 of the window with the lowest "no answer" score: a window without an
            answer does not refute another that has one.
        place: Its characters in the context, [start, end).
    """

    text: str
    score: float
    null: float
    place: tuple[int, int] = (0, 0)

    @property
    def margin(self) -> float:
        """Return the margin that the null threshold is compared with."""
        return self.score - self.null


def answers(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    *,
    logits: Logits,
    config: AnswerConfig,
    tokens_per_batch: int = 8192,
) -> list[Answer]:
    """Return the best answer to each question, from all windows of its context."""
    made = list(
        windows(
            questions,
            tokenizer,
            max_tokens=config.max_tokens,
            stride=config.stride,
            all_windows=True,
        )
    )
    best: dict[int, Answer] = {}
    for rows in batches([len(window.ids) for window in made], tokens=tokens_per_batch):
        batch = [made[i] for i in rows]
        for window, s, e in zip(batch, *logits(batch), strict=True):
            found = _best(window, questions[window.question].context, s, e)
            before = best.get(window.question)
            best[window.question] = found if before is None else _merged(before, found)
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
    return Answer(context[first:last], spans[0].score, null, (first, last))


def _merged(one: Answer, other: Answer) -> Answer:
    better = one if one.score >= other.score else other
    return replace(better, null=min(one.null, other.null))


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Return the normal form for comparison."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(given: str, gold: Sequence[str]) -> float:
    """Return 1.0 if the answer is a gold one; without gold ones only no answer is right."""
    return float(any(normalised(given) == normalised(one) for one in gold or ("",)))


def f1(given: str, gold: Sequence[str]) -> float:
    """Return the best word F1 against a gold answer."""
    return max(_f1(normalised(given).split(), normalised(one).split()) for one in gold or ("",))


def _f1(given: list[str], gold: list[str]) -> float:
    if not given or not gold:
        return float(given == gold)
    same = sum((Counter(given) & Counter(gold)).values())
    return 2.0 * same / (len(given) + len(gold))


@dataclass(frozen=True)
class Marks:
    """Means over questions, in percent, with 95 % intervals over their texts.

    Attributes:
        exact: Exact match.
        f1: Word F1.
        over_null: Word F1 over that of never giving an answer.
        answerable_f1: F1 over the questions that have an answer.
        refused: Share of the questions without an answer that were not answered.
        given: Share of the questions that are given an answer.
        right: Share of these that are given a right one: with a word F1 of ``RIGHT_F1`` or more.
    """

    exact: Interval
    f1: Interval
    over_null: Interval
    answerable_f1: Interval
    refused: Interval
    given: Interval
    right: Interval


def marks(
    questions: Sequence[Question], answers: Sequence[Answer], *, null_threshold: float
) -> Marks:
    """Return the marks if an answer is returned whenever its margin is above the threshold."""
    passed = np.array([a.margin > null_threshold for a in answers])
    given = [a.text if own else "" for a, own in zip(answers, passed, strict=True)]
    em = np.array([exact(g, q.answers) for g, q in zip(given, questions, strict=True)])
    words = np.array([f1(g, q.answers) for g, q in zip(given, questions, strict=True)])
    has = np.array([bool(q.answers) for q in questions])
    groups = texts(questions)
    times = signals.drawn(groups, rounds=_ROUNDS)

    def mean(values: NDArray[np.floating], of: NDArray[np.bool_] | None = None) -> Interval:
        below = np.ones(len(has)) if of is None else of.astype(np.float64)
        return signals.middle(100 * signals.ratios(values * below, below, groups, times))

    return Marks(
        exact=mean(em),
        f1=mean(words),
        over_null=mean(words - ~has),
        answerable_f1=mean(words, has),
        refused=mean(em, ~has),
        given=mean(passed.astype(np.float64)),
        right=mean(((words >= RIGHT_F1) & has).astype(np.float64), passed),
    )


def texts(questions: Sequence[Question]) -> NDArray[np.int64]:
    """Return the number of the text that each question is about. Shape: (N,)."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(row.context, len(numbers)) for row in questions], np.int64)


def sentence_cosines(
    questions: Sequence[Question], answers: Sequence[Answer], encode: Encode
) -> NDArray[np.float32]:
    """Return the cosine of each question with the sentence of its best answer. Shape: (N,)."""
    sentences = [
        row.context[slice(*sentence_around(row.context, *one.place))]
        for row, one in zip(questions, answers, strict=True)
    ]
    texts = list(dict.fromkeys([*(row.question for row in questions), *sentences]))
    if not texts:
        return np.zeros(0, np.float32)
    vectors = dict(zip(texts, encode(texts), strict=True))
    cosines = [
        vectors[row.question] @ vectors[sentence]
        for row, sentence in zip(questions, sentences, strict=True)
    ]
    return np.array(cosines, np.float32)


def fit_relevance(
    questions: Sequence[Question], answers: Sequence[Answer], cosines: NDArray[np.float32]
) -> Relevance | None:
    """Fit how much the cosine of an answer's sentence says beside the margin.

    A logistic regression of whether the answer is right, on margin and cosine; the ratio of their
    weights moves the null score. None where too few answers are right or wrong, or where the cosine
    says nothing.
    """
    margins, right = _judged(questions, answers)
    if min(right.sum(), (~right).sum()) < _FEWEST_JUDGED:
        return None
    usual = float(cosines.mean())
    values = {SignalName.MARGIN: margins, SignalName.KNN: cosines - np.float32(usual)}
    found = fit_stack(values, right, names=tuple(values)).weights
    if min(found.values()) <= 0:
        return None
    return Relevance(weight=found[SignalName.KNN] / found[SignalName.MARGIN], usual=usual)


def corrected(
    answers: Sequence[Answer], cosines: NDArray[np.float32], relevance: Relevance | None
) -> list[Answer]:
    """Return answers with the null score that a worker serves."""
    if relevance is None:
        return list(answers)
    return [
        replace(one, null=relevance.corrected(one.null, float(cosine)))
        for one, cosine in zip(answers, cosines, strict=True)
    ]


def fit_margin(questions: Sequence[Question], answers: Sequence[Answer]) -> Signal:
    """Fit what makes the probability that an answer is right out of its margin.

    It is right if its word F1 against a right answer is 0.5 or more; where there is none, never.
    """
    return fit_platt(*_judged(questions, answers))


def reliability(
    questions: Sequence[Question], answers: Sequence[Answer], fitted: Signal
) -> dict[str, float]:
    """Return a reliability diagram as metrics: of ten intervals of confidence those with answers.

    ``confidence_error`` is the expected calibration error (Guo et al. 2017, eq. 3).
    """
    margins, right = _judged(questions, answers)
    sure = 1.0 / (1.0 + np.exp(-(fitted.scale * margins.astype(np.float64) + fitted.offset)))
    number = np.minimum((sure * _BINS).astype(np.int64), _BINS - 1)
    found, error = {}, 0.0
    for n in np.unique(number):
        own, name = number == n, f"confidence_{100 * (n + 1) // _BINS}"
        confidence, accuracy = float(sure[own].mean()), float(right[own].mean())
        found[f"{name}/rows"] = float(own.sum())
        found[f"{name}/confidence"] = confidence
        found[f"{name}/accuracy"] = accuracy
        error += float(own.mean()) * abs(confidence - accuracy)
    return {"confidence_error": error, **found}


def _judged(
    questions: Sequence[Question], answers: Sequence[Answer]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the margin of each answer, and whether it is right. Shape: twice (N,)."""
    found = [(a.margin, f1(a.text, q.answers)) for q, a in zip(questions, answers, strict=True)]
    margins = np.array([max(margin, _LEAST) for margin, _ in found], np.float32)
    return margins, np.array([share >= RIGHT_F1 for _, share in found])


def answerable(questions: Sequence[Question], answers: Sequence[Answer]) -> Interval:
    """Return the AUROC of the margin: questions with an answer against those without; NaN if one
    lacks."""
    margins = np.array([answer.margin for answer in answers])
    has = np.array([bool(question.answers) for question in questions])
    groups = texts(questions)
    times = signals.drawn(groups, rounds=_ROUNDS_AUROC)
    return signals.middle(separations(margins, has, groups, times))


def separations(
    margins: NDArray[np.floating],
    has: NDArray[np.bool_],
    groups: NDArray[np.int64],
    times: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the AUROC of margins for each draw of texts; NaN without both kinds of questions.

    ``margins``, ``has`` (an answer) and ``groups`` (texts) have the shape (N,); ``times``, how
    often each text is drawn (``signals.drawn``), has (draws, texts).
    """
    found = []
    for drawn in times:
        rows = np.repeat(np.arange(len(groups)), drawn.astype(np.int64)[groups])
        own, kind = margins[rows], has[rows]
        both = 0 < kind.sum() < len(kind)
        found.append(signals.auroc(own[kind], own[~kind]) if both else math.nan)
    return np.array(found)


def corrected_by_others(
    questions: Sequence[Question], answers: Sequence[Answer], cosines: NDArray[np.float32]
) -> list[Answer] | None:
    """Return answers whose null scores are corrected as questions about other documents say.

    So what corrects an answer was not fitted on it. Of many documents ten parts are made. None
    where the others of some part are too few to say it.
    """
    part = _documents(questions) % _PARTS
    found = list(answers)
    for number in np.unique(part):
        own, rest = (np.flatnonzero(of).tolist() for of in (part == number, part != number))
        known = [questions[at] for at in rest], [answers[at] for at in rest]
        relevance = fit_relevance(*known, cosines[rest]) if rest else None
        if relevance is None:
            return None
        made = corrected([answers[at] for at in own], cosines[own], relevance)
        for at, one in zip(own, made, strict=True):
            found[at] = one
    return found


def precise_threshold(questions: Sequence[Question], answers: Sequence[Answer]) -> float | None:
    """Return the loosest threshold above which ``PRECISION`` of the given answers are right.

    It is one that the questions support with a chance of error of ``confidence.DELTA``, not the one
    that just reaches the share on them, and is never one of those that are reported. Of five or
    more documents it has to hold where documents are drawn as well: their questions are right
    together. None where too few answers are right.
    """
    margins, right = _judged(questions, answers)
    least = thresholds(margins, right, alphas=(1.0 - PRECISION,), fewest=_FEWEST_JUDGED)
    documents = _documents(questions)
    found = min(least.values(), default=None)
    if found is not None and documents.max() + 1 >= _FEWEST_DOCUMENTS:
        drawn = _drawn_threshold(margins, right, documents)
        found = None if drawn is None else max(found, drawn)
    # an answer is given above a threshold, not at it
    return None if found is None else float(np.nextafter(found, -np.inf))


def _documents(questions: Sequence[Question]) -> NDArray[np.int64]:
    """Return the number of the document that each question is about. Shape: (N,)."""
    return np.unique([row.group for row in questions], return_inverse=True)[1]


def _drawn_threshold(
    margins: NDArray[np.float32], right: NDArray[np.bool_], documents: NDArray[np.int64]
) -> float | None:
    """Return the loosest threshold that keeps ``PRECISION`` in all but ``DELTA`` of draws of
    documents, as any stricter one that is tried does."""
    order = np.argsort(-margins, kind="stable")
    times = signals.drawn(documents, rounds=_ROUNDS)
    safe = None
    for count in range(_FEWEST_JUDGED, len(order), max(1, len(order) // 100)):
        own = order[:count]
        given, kept = (
            np.bincount(documents[own], weights=of, minlength=times.shape[1])
            for of in (None, right[own])
        )
        short = times @ kept < PRECISION * (times @ given)
        if short.mean() > DELTA:
            break
        safe = float(margins[own[-1]])
    return safe


def best_threshold(questions: Sequence[Question], answers: Sequence[Answer]) -> float:
    """Return the null threshold with the best F1 on these questions (never those that are
    reported)."""
    margins = np.array([answer.margin for answer in answers])
    gain = np.array([f1(a.text, q.answers) for a, q in zip(answers, questions, strict=True)])
    null = np.array([float(not q.answers) for q in questions])
    order = np.argsort(-margins, kind="stable")
    # F1 of answering the n most confident and refusing the rest, as n grows.
    total = null.sum() + np.concatenate([[0.0], np.cumsum(gain[order] - null[order])])
    n = int(total.argmax())
    if n == 0:
        return float(margins.max())
    upper = margins[order[n - 1]]
    lower = margins[order[n]] if n < len(order) else upper - 1.0
    return float((upper + lower) / 2)
