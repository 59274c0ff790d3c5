"""Questions with their contexts, cut into windows of tokens for a reader.

A window is ``[CLS] question [SEP] context [SEP]``. A context that does not fit is read in several
windows that overlap by ``stride`` tokens (Devlin et al. 2019, their SQuAD code). Offsets of tokens
index the characters of the original context, so an answer is always a slice of it.

Training data are split paragraphs with their questions and made-up ones:

1. a question that occurs twice for one text has the answers of both; one with an answer and
   without one is dropped;
2. documents (titles) without a split get one by their hash, so that no document is both trained on
   and measured on; with fewer than three documents the paragraphs are split instead;
3. some questions without an answer are made from those with one. A share of them is trained on;
   the other splits get them only if the file has no question without an answer, because the null
   threshold could not be chosen otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from verso_core import questions
from verso_core.errors import ArtifactInvalid, QuestionTooLong, TrainingDataInvalid
from verso_core.questions import Paragraph
from verso_training.heads.rows import RowSplit, portions

ROOM_TOKENS = 16
"""Context tokens that every window must have room for, in training and serving."""
_OTHERS = 200
"""Paragraphs searched for a made-up question, for one without neighbours."""


@dataclass(frozen=True)
class Question:
    """One question on one context; no answers means that the context holds none."""

    key: str
    question: str
    context: str
    answers: tuple[str, ...]
    group: str = ""


@dataclass(frozen=True)
class Window:
    """One window of tokens.

    Attributes:
        question: Index of the question.
        ids: Token ids with [CLS] and [SEP].
        context_from: Index of the context's first token.
        offsets: Character range of each context token in the context.
        starts: Right positions of the start; [0] if the window holds no answer.
        ends: Right positions of the end.
    """

    question: int
    ids: list[int]
    context_from: int
    offsets: list[tuple[int, int]]
    starts: list[int]
    ends: list[int]


def mined(questions: Sequence[Question], *, count: int, seed: int = 0) -> list[Question]:
    """Make unanswerable questions of answerable ones with another paragraph of the same article.

    The paragraph shares the most words with the question among those without its answers, which
    is what a search would return by mistake. If an article is one paragraph, some paragraphs of
    other articles are searched.
    """
    rng, among = random.Random(seed), random.Random(seed)
    contexts: dict[str, dict[str, set[str]]] = {}
    for row in questions:
        contexts.setdefault(row.group, {})[row.context] = _words(row.context)
    every = [(context, words) for held in contexts.values() for context, words in held.items()]
    pool = [row for row in questions if row.answers and row.group]
    made = []
    for row in rng.sample(pool, min(count, len(pool))):
        words = _words(row.question)
        near = list(contexts[row.group].items())
        if len(near) == 1:
            near = among.sample(every, min(_OTHERS, len(every)))
        others = [
            (len(words & held), context)
            for context, held in near
            if not any(answer.lower() in context.lower() for answer in row.answers)
        ]
        if others:
            _, context = max(others)
            made.append(Question(f"{row.key}:mined", row.question, context, (), row.group))
    return made


def _words(text: str) -> set[str]:
    return {word.strip(".,?;:()\"'").lower() for word in text.split() if len(word) > 3}


def windows(
    questions: Iterable[Question],
    tokenizer: Tokenizer,
    *,
    max_tokens: int,
    stride: int,
    all_windows: bool,
) -> Iterator[Window]:
    """Yield the windows of each question.

    Args:
        questions: Indexed by ``Window.question``.
        tokenizer: Without truncation.
        max_tokens: Of a window.
        stride: Tokens that neighbouring windows share.
        all_windows: False for training: of a long context only one window, one that holds an
            answer if any does; none if the answer begins or ends inside a token.

    Raises:
        QuestionTooLong: a question leaves no room for its context.
    """
    cls, sep = (special(tokenizer, name) for name in ("[CLS]", "[SEP]"))
    for index, row in enumerate(questions):
        asked = tokenizer.encode(row.question, add_special_tokens=False).ids
        if len(asked) > (most := max_tokens - 3 - ROOM_TOKENS):
            raise QuestionTooLong(
                f"question {row.key!a}: expected <= {most} tokens, got {len(asked)}"
            )
        context = tokenizer.encode(row.context, add_special_tokens=False)
        spans = _answer_spans(row, context.offsets)
        room = max_tokens - len(asked) - 3
        made = []
        first = 0
        while True:
            last = min(first + room, len(context.ids))
            inside = [(a, b) for a, b in spans if first <= a and b < last]
            shift = len(asked) + 2 - first
            made.append(
                Window(
                    index,
                    [cls, *asked, sep, *context.ids[first:last], sep],
                    len(asked) + 2,
                    context.offsets[first:last],
                    sorted({a + shift for a, _ in inside}) or [0],
                    sorted({b + shift for _, b in inside}) or [0],
                )
            )
            if last == len(context.ids):
                break
            first = last - min(stride, room // 2)  # a long question leaves little room
        if all_windows:
            yield from made
        else:
            holding = [window for window in made if window.starts != [0]]
            if holding or not row.answers:
                yield (holding or made)[0]


def special(tokenizer: Tokenizer, name: str) -> int:
    """Return the id of a token such as [CLS]."""
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ArtifactInvalid(f"encoder_tokenizer.json: expected a token {name}")
    return number


def _answer_spans(row: Question, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first and last token of every occurrence of every answer that falls on token
    borders."""
    starts = {a: i for i, (a, _) in enumerate(offsets)}
    ends = {b: i for i, (_, b) in enumerate(offsets)}
    spans = set()
    for answer in row.answers:
        at = row.context.find(answer) if answer else -1
        while at >= 0:
            if at in starts and at + len(answer) in ends:
                spans.add((starts[at], ends[at + len(answer)]))
            at = row.context.find(answer, at + 1)
    return sorted(spans)


_EVEN = 1.0
"""Made-up questions per question with an answer, if the file has none without."""


@dataclass(frozen=True)
class Parts:
    """Questions by split.

    Attributes:
        of: The questions of each part, those made up last.
        whole_documents: False where paragraphs of one document are in several parts.
        made_up: How many questions were made up, by part.
        contradicted: Questions dropped because they occur with an answer and without one.
    """

    of: Mapping[RowSplit, tuple[Question, ...]]
    whole_documents: bool
    made_up: Mapping[RowSplit, int]
    contradicted: int


def parts(
    paragraphs: Sequence[Paragraph],
    *,
    validation_share: float,
    test_share: float,
    made_up: float,
    seed: int,
) -> Parts:
    """Split questions into parts.

    Args:
        paragraphs: As :func:`verso_core.questions.check` accepts them.
        validation_share: Of the questions of documents without a split.
        test_share: Likewise.
        made_up: Questions made up for training, as a share of those with an answer.

    Raises:
        TrainingDataInvalid: a part has no question with an answer.
    """
    questions.check(paragraphs)
    dropped = questions.contradicted(paragraphs)
    free = [p for p in paragraphs if p.split is None]
    whole = len({p.title for p in free}) >= len(RowSplit)
    split = _split(free, whole=whole, validation_share=validation_share, test_share=test_share)
    found: dict[RowSplit, list[Question]] = {part: [] for part in RowSplit}
    for paragraph, asked in _merged(paragraphs, dropped):
        part = split[paragraph] if paragraph.split is None else RowSplit(paragraph.split)
        found[part].append(asked)
    for part, rows in found.items():
        if not any(row.answers for row in rows):
            raise TrainingDataInvalid(
                f"expected questions with an answer for {part}, got none: {len(free)} of "
                f"{len(paragraphs)} paragraphs could be chosen from"
            )
    own = any(not row.answers for rows in found.values() for row in rows)
    count = {}
    for part, rows in found.items():
        share = made_up if part is RowSplit.TRAIN else 0.0
        has = sum(bool(row.answers) for row in rows)
        more = mined(rows, count=round((share if own else _EVEN) * has), seed=seed)
        count[part] = len(more)
        rows += more
    return Parts(
        {part: tuple(rows) for part, rows in found.items()}, whole or not free, count, len(dropped)
    )


def _split(
    free: Sequence[Paragraph], *, whole: bool, validation_share: float, test_share: float
) -> dict[Paragraph, RowSplit]:
    keys = [(p.title if whole else p.context).encode() for p in free for _ in p.questions]
    owners = [p for p in free for _ in p.questions]
    if not keys:
        return {}
    found = portions(keys, validation_share=validation_share, test_share=test_share)
    return dict(zip(owners, found, strict=True))


def _merged(
    paragraphs: Iterable[Paragraph], dropped: set[tuple[str, str]]
) -> list[tuple[Paragraph, Question]]:
    """Return every question once, with its first paragraph."""
    found: dict[tuple[str, str], tuple[Paragraph, Question]] = {}
    for paragraph in paragraphs:
        for asked in paragraph.questions:
            key = (paragraph.context, asked.question)
            if key in dropped:
                continue
            first, before = found.get(key, (paragraph, None))
            answers = asked.answers if before is None else (*before.answers, *asked.answers)
            found[key] = (
                first,
                Question(
                    asked.id if before is None else before.key,
                    asked.question,
                    paragraph.context,
                    tuple(dict.fromkeys(answers)),
                    paragraph.title,
                ),
            )
    return list(found.values())
