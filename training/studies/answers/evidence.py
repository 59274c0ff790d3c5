"""What is known of a question once a reader has read its text: features of an answer.

The features are grouped by what they cost at read time:

    margin      the score of the best span minus that of "no answer", as served
    reader      other numbers of the same pass: normalised probabilities, the second span, lengths
    words       the words of question, sentence and span: no model is run
    vectors     cosines of the question's vector with those of the sentences and of the text;
                the head ``alike`` is the same cosine
    pairs       the head ``pairs`` on the question and every sentence, and on the sentence and the
                question whose asking words are replaced by the span
    again       the reader once more: on the span's sentence alone, and on the text without it
    states      the reader's states: [CLS], the mean over the span, the mean over the question

A verifier learns from these (:mod:`studies.answers.verifier`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verso_core import manifest
from verso_core.texts import SENTENCE_END
from verso_training.artifact.graphs import EncoderGraph
from verso_training.encoder import batches
from verso_training.heads import backbone, graph, questions, reader, scoring
from verso_training.heads.backbone import Backbone
from verso_training.heads.modules import NEGATIVE, CrossEncoder, SpanReader
from verso_training.heads.questions import Question, Window
from verso_training.heads.recipe import AnswerConfig
from verso_training.heads.scoring import Pair

Floats = NDArray[np.float32]
_TOKENS = 4096
"""Of a batch."""
_LONGEST = 30
_MOST_SENTENCES = 16
_NEAR = 60
"""Characters to each side of a span that are its neighbourhood."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Questions with the features of their best span.

    Attributes:
        values: Shape: (N, F), by the columns of :data:`COLUMNS`.
        states: Shape: (N, 3 * W), float16.
        words: Word F1 of the best span against people's answers; 0 where there is none.
        has: Whether the question has an answer.
        articles: Of each question.
        texts: Number of the text that each question is asked about.
    """

    values: Floats
    states: NDArray[np.float16]
    words: Floats
    has: NDArray[np.bool_]
    articles: NDArray[np.str_]
    texts: NDArray[np.int64]

    def of(self, rows: NDArray[Any]) -> Evidence:
        """Return some rows."""
        return Evidence(*(getattr(self, one.name)[rows] for one in fields(self)))

    def columns(self, names: Iterable[str]) -> Floats:
        """Return the values of features, by their names or by those of their groups."""
        wanted = set(names)
        return self.values[:, [at for at, known in enumerate(COLUMNS) if wanted & {*known}]]


@dataclass(frozen=True)
class _Read:
    """What one pass of the reader says of one text: its best span and numbers about it."""

    start: int
    end: int
    score: float
    null: float
    second: float
    log_start: float
    log_end: float
    log_null: float
    entropy: float
    tokens: int
    windows: int
    states: NDArray[np.float16]

    @property
    def margin(self) -> float:
        """Return the margin as it is served."""
        return self.score - self.null


def reader_of(folder: Path, artifact: Path) -> tuple[Backbone, SpanReader, AnswerConfig]:
    """Return the encoder, the reader of a head's folder, and its settings."""
    base = backbone.load(artifact)
    start = graph.load(folder, space=manifest.load(artifact).manifest.space.id)
    most, stride = start.head.max_tokens, start.head.stride
    assert most is not None
    assert stride is not None
    config = replace(graph.shaped(AnswerConfig(), start), max_tokens=most, stride=stride)
    module = reader.Reader(base, config).only(config.layers)
    start.restore(module)
    return base, module.eval(), config


@dataclass(frozen=True)
class Models:
    """The heads that features are made with."""

    base: Backbone
    reader: SpanReader
    config: AnswerConfig
    pairs: CrossEncoder
    pair_tokens: int
    encoder: EncoderGraph

    @classmethod
    def load(cls, artifact: Path, models: Path) -> Models:
        """Load the heads ``qa`` and ``pairs`` that a models folder ships."""
        base, module, config = reader_of(_only(models / "heads" / "qa"), artifact)
        space = manifest.load(artifact).manifest.space.id
        scored = graph.load(_only(models / "heads" / "pairs"), space=space)
        shape = scored.head.lineage.recipe["score"]
        other = backbone.load(artifact)
        pairs = CrossEncoder(
            backbone.adapt(other, rank=int(shape["rank"]), alpha=float(shape["alpha"]))
        )
        scored.restore(pairs)
        assert scored.head.max_tokens is not None
        return cls(
            base, module, config, pairs.eval(), scored.head.max_tokens,
            EncoderGraph(artifact, threads=1),
        )  # fmt: skip


def _only(folder: Path) -> Path:
    (version,) = (path for path in folder.iterdir() if path.is_dir())
    return version


def kept(path: Path, asked: Sequence[Question], make: Callable[[], Evidence]) -> Evidence:
    """Return the evidence of questions, from a file if an earlier run has made it of the same."""
    mark = hashlib.sha256(repr((list(asked), COLUMNS)).encode("utf-8", "surrogatepass")).hexdigest()
    names = [one.name for one in fields(Evidence)]
    if path.exists():
        with np.load(path) as found:
            if str(found["mark"]) == mark:
                return Evidence(*(found[name] for name in names))
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new.npz")
    np.savez(draft, mark=np.array(mark), **{name: getattr(made, name) for name in names})
    draft.replace(path)
    return made


def gathered(
    asked: Sequence[Question], models: Models, *, weights: Mapping[str, float]
) -> Evidence:
    """Read every question and return the features of its best span.

    Args:
        asked: Questions with their texts.
        models: The heads.
        weights: Inverse document frequency of words; one that is not there counts most.
    """
    first = _reading(asked, models)
    cut = [_sentences(row.context) for row in asked]
    own = [_holding(sentences, one) for sentences, one in zip(cut, first, strict=True)]
    alone = _reading(
        [
            _with(row, row.context[slice(*sentences[at])])
            for row, sentences, at in zip(asked, cut, own, strict=True)
        ],
        models,
    )
    without = _reading(
        [
            _with(row, row.context[: sentences[at][0]] + row.context[sentences[at][1] :])
            for row, sentences, at in zip(asked, cut, own, strict=True)
        ],
        models,
    )
    scores = _pair_scores(asked, cut, own, first, models)
    cosines = _cosines(asked, cut, models.encoder)
    rows = []
    for at, row in enumerate(asked):
        one, sentence = first[at], own[at]
        again = alone[at]
        shift = cut[at][sentence][0]
        same = one.start < again.end + shift and again.start + shift < one.end
        rows.append(
            [
                one.margin,
                one.second, one.log_start, one.log_end, one.log_null, one.entropy,
                math.log1p(one.tokens), one.windows, one.start / max(1, len(row.context)),
                *_word_features(row, one, cut[at][sentence], weights=weights),
                *cosines[at].of(sentence),
                *scores[at],
                again.margin, without[at].margin, one.margin - without[at].margin, float(same),
            ]
        )  # fmt: skip
    values = np.nan_to_num(np.array(rows, np.float32), nan=0.0, posinf=50.0, neginf=-50.0)
    number = {text: at for at, text in enumerate(dict.fromkeys(row.context for row in asked))}
    return Evidence(
        np.clip(values, -50.0, 50.0),
        np.stack([one.states for one in first]),
        np.array(
            [
                reader.f1(row.context[one.start : one.end], row.answers) if row.answers else 0.0
                for row, one in zip(asked, first, strict=True)
            ],
            np.float32,
        ),
        np.array([bool(row.answers) for row in asked]),
        np.array([row.group for row in asked]),
        np.array([number[row.context] for row in asked]),
    )


_ASKING = ("who", "when", "where", "why", "how many", "how", "which", "what")
COLUMNS: tuple[tuple[str, str], ...] = (
    ("margin", "margin"),
    *(
        ("reader", name)
        for name in (
            "second", "log_start", "log_end", "log_null", "entropy", "tokens", "windows", "place",
        )
    ),
    *(
        ("words", name)
        for name in (
            "in_sentence", "in_text", "near", "rarest_missing", "names_missing",
            "numbers_missing", "in_span", "negated", "digit", "capital", "kind", "question_words",
            *_ASKING,
        )
    ),
    *(
        ("vectors", name)
        for name in ("cosine_sentence", "cosine_text", "cosine_best", "cosine_rank")
    ),
    *(
        ("pairs", name)
        for name in ("pairs_sentence", "pairs_best", "pairs_other", "pairs_rank", "statement")
    ),
    *(("again", name) for name in ("alone", "without", "lost", "same")),
)  # fmt: skip
"""Group and name of each feature."""


@torch.inference_mode()
def _reading(asked: Sequence[Question], models: Models) -> list[_Read]:
    """Return the best span of each question in its text, which may be blank."""
    made = list(
        questions.windows(
            asked,
            models.base.tokenizer,
            max_tokens=models.config.max_tokens,
            stride=models.config.stride,
            all_windows=True,
        )
    )
    found: dict[int, list[_Read]] = {}
    for rows in batches([len(window.ids) for window in made], tokens=_TOKENS):
        batch = reader.collate([made[row] for row in rows])
        states = models.reader.bert(
            input_ids=batch.ids, attention_mask=batch.mask, token_type_ids=batch.types
        ).last_hidden_state
        start, end = models.reader.head(states)
        for at, row in enumerate(rows):
            window = made[row]
            length = len(window.ids)
            found.setdefault(window.question, []).append(
                _window(
                    window,
                    start[at, :length].numpy(),
                    end[at, :length].numpy(),
                    states[at, :length].numpy(),
                )
            )
    return [_joined(found[at]) for at in range(len(asked))]


def _window(window: Window, start: Floats, end: Floats, states: Floats) -> _Read:
    first, last = window.context_from, len(window.ids) - 1
    null = float(start[0] + end[0])
    cls, asked = states[0], states[1 : first - 1].mean(0)
    if first >= last:
        empty = np.concatenate([cls, np.zeros_like(cls), asked]).astype(np.float16)
        return _Read(0, 0, null - 50.0, null, 0.0, -50.0, -50.0, 0.0, 0.0, 0, 1, empty)
    s, e = start[first:last], end[first:last]
    apart = np.arange(len(e))[None, :] - np.arange(len(s))[:, None]
    scores = np.where((apart >= 0) & (apart < _LONGEST), s[:, None] + e[None, :], 2 * NEGATIVE)
    a, b = divmod(int(scores.argmax()), len(e))
    best = float(scores[a, b])
    clear = scores.copy()
    clear[: b + 1, a:] = 2 * NEGATIVE  # spans that touch the best one
    other = float(clear.max())
    log_s, log_e = _log_softmax(start, first, last), _log_softmax(end, first, last)
    chances = np.exp(log_s)
    return _Read(
        window.offsets[a][0],
        window.offsets[b][1],
        best,
        null,
        min(50.0, best - other),
        float(log_s[1 + a]),
        float(log_e[1 + b]),
        float(log_s[0] + log_e[0]),
        float(-(chances * log_s).sum()),
        b - a + 1,
        1,
        np.concatenate([cls, states[first + a : first + b + 1].mean(0), asked]).astype(np.float16),
    )


def _log_softmax(logits: Floats, first: int, last: int) -> Floats:
    """Return log probabilities of [CLS] and of the tokens of the text."""
    allowed = np.concatenate([logits[:1], logits[first:last]]).astype(np.float64)
    top = allowed.max()
    found: Floats = (allowed - top - math.log(np.exp(allowed - top).sum())).astype(np.float32)
    return found


def _joined(windows: Sequence[_Read]) -> _Read:
    """Return the span with the best score, the lowest null score and the number of windows."""
    best = max(windows, key=lambda one: one.score)
    return replace(best, null=min(one.null for one in windows), windows=len(windows))


def _sentences(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence or line, at least one."""
    found, start = [], 0
    for separator in SENTENCE_END.finditer(text):
        if separator.start() > start:
            found.append((start, separator.start()))
        start = separator.end()
    if start < len(text) or not found:
        found.append((start, len(text)))
    return found


def _holding(sentences: Sequence[tuple[int, int]], one: _Read) -> int:
    """Return the number of the sentence in which a span begins."""
    return max((at for at, (start, _) in enumerate(sentences) if start <= one.start), default=0)


def _with(row: Question, context: str) -> Question:
    return Question(row.key, row.question, context or " ", (), row.group)


_WORD = re.compile(r"[A-Za-z]+|\d[\d,.]*")
_COMMON_WORDS = """
a an and are as at be been being by can could did do does for from had has have he her him his how
in into is it its many may might more most much must no not of on or she should some such than that
the their them then there these they this those to was were what when where which while who whom
whose why will with would
"""
_NEGATING_WORDS = "not no never none neither nor without cannot unable except fail failed"
_NUMBER_WORDS = """
one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred
thousand million billion half dozen
"""
_DATE_WORDS = """
january february march april may june july august september october november december monday tuesday
wednesday thursday friday saturday sunday century centuries year years
"""
_COMMON, _NEGATION, _NUMBERS, _DATES = (
    frozenset(words.split())
    for words in (_COMMON_WORDS, _NEGATING_WORDS, _NUMBER_WORDS, _DATE_WORDS)
)


def _stem(word: str) -> str:
    """Return a word without an ending that inflects it."""
    low = word.lower().strip(",.")
    for ending in ("ing", "ed", "es", "s"):
        if low.endswith(ending) and len(low) - len(ending) >= 4:
            return low[: -len(ending)]
    return low


def document_frequencies(texts: Sequence[str]) -> dict[str, float]:
    """Return the inverse document frequency of the stems of some texts: log(N / n)."""
    counts = Counter(stem for text in texts for stem in {_stem(w) for w in _WORD.findall(text)})
    return {stem: math.log(len(texts) / count) for stem, count in counts.items()}


def _word_features(
    row: Question, one: _Read, sentence: tuple[int, int], *, weights: Mapping[str, float]
) -> list[float]:
    asked = _WORD.findall(row.question)
    content = [word for word in asked if word.lower() not in _COMMON]
    stems = {_stem(word) for word in content}
    most = max(weights.values())
    weight = {stem: weights.get(stem, most) for stem in stems}
    total = sum(weight.values()) or 1.0

    def held(text: str) -> set[str]:
        return {_stem(word) for word in _WORD.findall(text)}

    within = held(row.context[slice(*sentence)])
    everywhere = held(row.context)
    near = held(row.context[max(0, one.start - _NEAR) : one.end + _NEAR])
    span = row.context[one.start : one.end]
    names = [word for word in content[1:] if word[0].isupper()]
    numbers = [word for word in asked if word[0].isdigit()]
    low = row.question.lower()
    kind = next((name for name in _ASKING if name in low), "")
    said = {word.lower() for word in _WORD.findall(row.context[slice(*sentence)])}
    wondered = {word.lower() for word in asked}
    negated = bool(said & _NEGATION) != bool(wondered & _NEGATION)
    return [
        sum(weight[s] for s in stems & within) / total,
        sum(weight[s] for s in stems & everywhere) / total,
        sum(weight[s] for s in stems & near) / total,
        max((weight[s] for s in stems - within), default=0.0),
        float(sum(_stem(word) not in within for word in names)),
        float(sum(_stem(word) not in within for word in numbers)),
        float(len(stems & held(span))),
        float(negated),
        float(any(letter.isdigit() for letter in span)),
        float(span[:1].isupper()),
        _fits(kind, span),
        float(len(asked)),
        *(float(kind == name) for name in _ASKING),
    ]


def _fits(kind: str, span: str) -> float:
    """Return whether a span is of the kind that a question asks for: 1, 0, or 0.5 for any kind."""
    words = {word.lower() for word in _WORD.findall(span)}
    digits = any(letter.isdigit() for letter in span)
    if kind == "when":
        return float(digits or bool(words & _DATES))
    if kind == "how many":
        return float(digits or bool(words & _NUMBERS))
    if kind in ("who", "where"):
        return float(any(word[0].isupper() for word in _WORD.findall(span)))
    return 0.5


@dataclass(frozen=True)
class _Cosines:
    sentences: Floats
    text: float

    def of(self, sentence: int) -> list[float]:
        """Return the cosines of one sentence, of the text and of the best sentence, and a rank."""
        own = float(self.sentences[sentence])
        return [
            own, self.text, float(self.sentences.max()), float((self.sentences > own).sum())
        ]  # fmt: skip


def _cosines(
    asked: Sequence[Question], cut: Sequence[Sequence[tuple[int, int]]], encoder: EncoderGraph
) -> list[_Cosines]:
    texts = list(
        dict.fromkeys(
            text
            for row, sentences in zip(asked, cut, strict=True)
            for text in (row.question, row.context, *(row.context[a:b] for a, b in sentences))
        )
    )
    vectors = dict(zip(texts, encoder.encode(texts), strict=True))
    found = []
    for row, sentences in zip(asked, cut, strict=True):
        question = vectors[row.question]
        own = np.stack([vectors[row.context[a:b]] for a, b in sentences]) @ question
        found.append(_Cosines(own, float(vectors[row.context] @ question)))
    return found


_ASKED = re.compile(
    r"\b(how (?:many|much|long|old|often)|in (?:what|which) \w+|(?:what|which) \w+|who|whom|when"
    r"|where|why|what|which|how)\b(?: (?:did|does|do))?",
    re.IGNORECASE,
)


def statement(question: str, span: str) -> str:
    """Return a question whose asking words are replaced by an answer."""
    said, count = _ASKED.subn(lambda _: span, question, count=1)
    return (said if count else f"{question} {span}").rstrip("? ") + "."


def _pair_scores(
    asked: Sequence[Question],
    cut: Sequence[Sequence[tuple[int, int]]],
    own: Sequence[int],
    first: Sequence[_Read],
    models: Models,
) -> list[list[float]]:
    """Return what ``pairs`` says of the span's sentence, the best, the best other, its rank and the
    statement."""
    pairs: list[Pair] = []
    places = []
    for row, sentences, at, one in zip(asked, cut, own, first, strict=True):
        near = sorted(range(len(sentences)), key=lambda other: abs(other - at))[:_MOST_SENTENCES]
        places.append(len(pairs))
        pairs += [Pair(row.question, row.context[slice(*sentences[n])], 0.0) for n in near]
        said = statement(row.question, row.context[one.start : one.end])
        pairs.append(Pair(row.context[slice(*sentences[at])], said, 0.0))
    places.append(len(pairs))
    logits = _logits(pairs, models)
    found = []
    for start, end in pairwise(places):
        ranked = logits[start : end - 1]  # the span's own sentence first
        others = float(ranked[1:].max()) if len(ranked) > 1 else -10.0
        found.append(
            [
                float(ranked[0]), float(ranked.max()), others,
                float((ranked > ranked[0]).sum()), float(logits[end - 1]),
            ]
        )  # fmt: skip
    return found


@torch.inference_mode()
def _logits(pairs: Sequence[Pair], models: Models) -> Floats:
    rows = scoring.tokenised(pairs, models.base.tokenizer, max_tokens=models.pair_tokens)
    found = np.zeros(len(rows), np.float32)
    for part in batches([len(row.ids) for row in rows], tokens=_TOKENS):
        batch = scoring.collate([rows[at] for at in part])
        found[part] = models.pairs.logit(batch.ids, batch.mask, batch.types).numpy()
    return found
