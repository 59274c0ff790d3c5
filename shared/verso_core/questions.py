"""Questions on texts in SQuAD's layout: read strictly, and packed for a train job.

    {"data": [{"title": T, "split": S,
               "paragraphs": [{"context": C,
                               "qas": [{"id": I, "question": Q, "is_impossible": B,
                                        "answers": [{"text": A, "answer_start": N}]}]}]}]}

This is the layout of Rajpurkar et al. 2018 (SQuAD 2.0; 1.1 lacks ``is_impossible``). A question
without answers is one that the context does not answer. ``title`` names the document of a
paragraph: no document is both trained on and measured on. ``split`` is our addition and optional.
Other keys are ignored.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from verso_core.errors import DuplicateId, TrainingDataInvalid
from verso_core.jobs.train import MAX_CONTRADICTED, SPLITS

FEWEST_QUESTIONS = 12
FEWEST_CONTEXTS = 3
"""One to train on, one to choose with, one to measure on."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question on a paragraph; without answers if the paragraph does not answer it."""

    id: str
    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A text with its questions.

    Attributes:
        title: The document that it belongs to.
        split: None to choose by the title's hash.
    """

    title: str
    context: str
    questions: tuple[Asked, ...]
    split: str | None = None


def read(document: Any) -> list[Paragraph]:
    """Check the content of a file and return its paragraphs.

    Raises:
        TrainingDataInvalid: the file has another layout, an empty text, or an answer that is not in
            its context at the stated position; the detail says where.
        DuplicateId: an id occurs twice.
    """
    seen: set[str] = set()
    return [
        paragraph
        for number, article in enumerate(_list(document, "data", place="the file"))
        for paragraph in _article(article, place=f"article {number}", seen=seen)
    ]


def check(paragraphs: Sequence[Paragraph]) -> None:
    """Refuse questions that a head cannot be trained on.

    Raises:
        TrainingDataInvalid: there are too few, none has an answer, or too many occur both with and
            without an answer.
    """
    contexts = {paragraph.context for paragraph in paragraphs}
    questions = [asked for paragraph in paragraphs for asked in paragraph.questions]
    if len(contexts) < FEWEST_CONTEXTS or len(questions) < FEWEST_QUESTIONS:
        raise TrainingDataInvalid(
            f"expected {FEWEST_QUESTIONS} questions or more on {FEWEST_CONTEXTS} contexts or more, "
            f"got {len(questions)} on {len(contexts)}"
        )
    if not any(asked.answers for asked in questions):
        raise TrainingDataInvalid("expected questions with an answer, got none")
    several = len(contradicted(paragraphs))
    if several > MAX_CONTRADICTED * len(questions):
        raise TrainingDataInvalid(
            f"expected at most {MAX_CONTRADICTED:.0%} of the questions to be asked with an answer "
            f"and without one, got {several} of {len(questions)}"
        )


def contradicted(paragraphs: Iterable[Paragraph]) -> set[tuple[str, str]]:
    """Return the contexts and questions that occur both with and without an answer."""
    has: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for paragraph in paragraphs:
        for asked in paragraph.questions:
            has[paragraph.context, asked.question].add(bool(asked.answers))
    return {key for key, found in has.items() if len(found) > 1}


def pack(paragraphs: Iterable[Paragraph]) -> bytes:
    """Write paragraphs as JSON lines: [title, context, split, [[id, question, answers], ...]]."""
    lines = (
        [p.title, p.context, p.split, [[q.id, q.question, q.answers] for q in p.questions]]
        for p in paragraphs
    )
    return b"".join(json.dumps(line).encode("ascii") + b"\n" for line in lines)


def unpack(data: bytes) -> list[Paragraph]:
    """Read what :func:`pack` wrote."""
    made = []
    for line in data.splitlines():
        title, context, split, questions = json.loads(line)
        asked = tuple(Asked(id_, text, tuple(answers)) for id_, text, answers in questions)
        made.append(Paragraph(title, context, asked, split))
    return made


def _article(article: Any, *, place: str, seen: set[str]) -> Iterator[Paragraph]:
    paragraphs = _list(article, "paragraphs", place=place)
    title = _text(article, "title", place=place) if article.get("title") else place
    split = article.get("split")
    if split is not None and split not in SPLITS:
        raise TrainingDataInvalid(f"{place}: expected a split of {SPLITS}, got {split!a}")
    for number, paragraph in enumerate(paragraphs):
        where = f"{place}, paragraph {number}"
        questions = _list(paragraph, "qas", place=where)
        context = _text(paragraph, "context", place=where)
        asked = tuple(
            _question(row, context, place=f"{where}, question {n}", seen=seen)
            for n, row in enumerate(questions)
        )
        yield Paragraph(title, context, asked, split)


def _question(row: Any, context: str, *, place: str, seen: set[str]) -> Asked:
    answers = _list(row, "answers", place=place)
    name = _text(row, "id", place=place)
    if name in seen:
        raise DuplicateId(f"{place}: expected an id of its own, got {name!a} again")
    seen.add(name)
    impossible = row.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise TrainingDataInvalid(
            f"{place}: expected true or false as 'is_impossible', got {type(impossible).__name__}"
        )
    if impossible and answers:
        raise TrainingDataInvalid(f"{place}: expected no answers where 'is_impossible' is true")
    texts = [_answer(answer, context, place=place) for answer in answers]
    return Asked(name, _text(row, "question", place=place), tuple(dict.fromkeys(texts)))


def _answer(answer: Any, context: str, *, place: str) -> str:
    text = _text(answer, "text", place=place)
    start = answer.get("answer_start")
    if not isinstance(start, int) or isinstance(start, bool):
        raise TrainingDataInvalid(
            f"{place}: expected a number of characters as 'answer_start', got {start!a}"
        )
    if start < 0 or not context.startswith(text, start):
        at = context.find(text)
        there = "it is not in the context" if at < 0 else f"it stands at {at}"
        raise TrainingDataInvalid(
            f"{place}: expected the answer {text[:80]!a} in the context at {start}, but {there}"
        )
    return text


def _field(value: Any, name: str, *, kind: type[T], what: str, place: str) -> T:
    if not isinstance(value, dict):
        raise TrainingDataInvalid(f"{place}: expected an object, got {type(value).__name__}")
    found = value.get(name)
    if not isinstance(found, kind):
        got = "nothing" if found is None else type(found).__name__
        raise TrainingDataInvalid(f"{place}: expected {what} as {name!r}, got {got}")
    return found


def _list(value: Any, name: str, *, place: str) -> list[Any]:
    return _field(value, name, kind=list, what="an array", place=place)


def _text(value: Any, name: str, *, place: str) -> str:
    found = _field(value, name, kind=str, what="a string", place=place)
    try:
        found.encode()
    except UnicodeEncodeError as exc:
        raise TrainingDataInvalid(f"{place}: lone surrogate in {name!r}") from exc
    if not found.strip():
        raise TrainingDataInvalid(f"{place}: expected text that is not empty as {name!r}")
    return found
