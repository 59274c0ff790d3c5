"""Questions made of sentences by rules: a name or number is asked for.

Cloze questions (Lewis, Denoyer and Riedel 2019, "Unsupervised question answering by cloze
translation", their rule-based translation): a name, year or number of a sentence is the answer; the
clause that it stands in, with an asking word at its front and words dropped at random, is the
question. Words are dropped because a question that repeats a sentence is found by its words alone.

Template questions: a sentence "X is a Y" asks what X is.

No rule knows whether its question makes sense; :mod:`studies.answers.round_trip` keeps those that a
reader, trained without any, understands.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from studies.answers.passages import Passage, sentences
from verso_training.heads.questions import Question

_YEAR = re.compile(r"\b(?:(?:in|since|from|until|by|of) )?((?:1[0-9]|20)\d\d)\b(?!\s*[.,]?\d)")
_COUNT = re.compile(r"(?<![\w.$-])(\d[\d,]*(?:\.\d+)?) (?=([a-z]{3,}s)\b)")
_NAME = re.compile(r"(?<=[a-z,] )([A-Z][\w'-]+(?: (?:of |the |de |von )?[A-Z][\w'-]+)*)")
_CODE = re.compile(r"(?<![\w/])(--[a-z][\w-]+|[a-z]+_[a-z_]+|[A-Z][a-z]+[A-Z]\w+)(?![\w/])")
_CLAUSE = re.compile(r"[,;:()]\s| -- ?|--")
_DEFINED = re.compile(
    r"^(?:The |An? )?([A-Z][\w./-]+(?: [A-Z][\w./-]+){0,3}) (is|are|was|were) "
    r"((?:an?|the) [\w' -]{8,80}?)(?= (?:that|which|who|for|in|and|to|with|when)\b|[.;:,(]|$)"
)
_POINTING = re.compile(
    r"a|all|an|and|at|but|each|every|for|he|her|here|his|how|if|in|it|its|my|no|now|of|on|one|or|our"
    r"|she|so|some|such|that|the|their|then|there|these|they|this|those|to|we|what|when|where|which"
    r"|who|why|with|you",
    re.IGNORECASE,
)
"""First words of a sentence of which no name begins."""
_MARKUP = re.compile(r"[*|_#<>=`\[\]{}\"()]")
_FEWEST_WORDS, _MOST_WORDS = 4, 20
_DROPPED = 0.1
"""Share of a question's words that are left out."""


@dataclass(frozen=True)
class _Asked:
    start: int
    end: int
    word: str


def cloze(read: Iterable[Passage], *, seed: int = 0) -> Iterator[Question]:
    """Yield cloze questions, at most one of a sentence."""
    for number, passage in enumerate(read):
        rng = random.Random(f"{seed}:{passage.document}:{number}")
        for first, last in sentences(passage.text):
            sentence = passage.text[first:last]
            could = list(_answers(sentence))
            if not could:
                continue
            chosen = rng.choice(could)
            question = _question(sentence, chosen, rng)
            if question is not None:
                answer = sentence[chosen.start : chosen.end]
                yield Question(
                    f"cloze:{passage.document}:{number}:{first}", question, passage.text,
                    (answer,), passage.document,
                )  # fmt: skip


def _answers(sentence: str) -> Iterator[_Asked]:
    for found in _YEAR.finditer(sentence):
        yield _Asked(*found.span(1), "when")
    for found in _COUNT.finditer(sentence):
        yield _Asked(*found.span(1), "how many")
    for found in _NAME.finditer(sentence):
        yield _Asked(*found.span(1), "who" if " of " not in found[1] else "what")
    for found in _CODE.finditer(sentence):
        yield _Asked(*found.span(1), "what")


def _question(sentence: str, asked: _Asked, rng: random.Random) -> str | None:
    """Return the clause around an answer as a question; None if it is too short or long."""
    ends = [found.end() for found in _CLAUSE.finditer(sentence, 0, asked.start)]
    first = ends[-1] if ends else 0
    after = _CLAUSE.search(sentence, asked.end)
    last = after.start() if after else len(sentence)
    before = sentence[first : asked.start].split()
    behind = sentence[asked.end : last].rstrip(".!? ").split()
    if asked.word == "when" and before and before[-1] in {"in", "since", "from", "by", "of"}:
        before.pop()
    if not _FEWEST_WORDS <= len(before) + len(behind) <= _MOST_WORDS:
        return None
    # the noun that is counted follows the asking word
    counted = 1 if asked.word == "how many" else 0
    words = [*behind[:counted], *before, *behind[counted:]]
    if asked.word in {"who", "what"} and before and before[-1].lower() in {"the", "a", "an"}:
        words.pop(len(before) - 1)
    held = [word for word in words if rng.random() >= _DROPPED] or words
    question = " ".join(held)
    if _MARKUP.search(question):
        return None
    return f"{asked.word[0].upper()}{asked.word[1:]} {question}?"


def definitions(read: Iterable[Passage]) -> Iterator[Question]:
    """Yield the question what X is of each sentence "X is a Y"."""
    for number, passage in enumerate(read):
        for first, last in sentences(passage.text):
            found = _DEFINED.match(passage.text[first:last])
            if found is None or _POINTING.fullmatch(found[1].split()[0]):
                continue
            yield Question(
                f"template:{passage.document}:{number}:{first}", f"What {found[2]} {found[1]}?",
                passage.text, (found[3],), passage.document,
            )  # fmt: skip


def drawn(made: Sequence[Question], count: int, *, seed: int = 0) -> list[Question]:
    """Return some questions at random, in their order."""
    at = random.Random(seed).sample(range(len(made)), min(count, len(made)))
    return [made[number] for number in sorted(at)]
