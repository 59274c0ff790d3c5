"""Questions with their passage and similar wrong passages of a search by words.

Three sources, all of which a head that ships may be trained on: SQuAD's questions with their
paragraph (CC BY-SA 4.0), SelQA's with their section (Apache-2.0), and documentation of open
projects (permissive licences; that of Celery CC BY-SA 4.0), where a sentence is taken out of its
passage and asked for (the inverse cloze task: Lee, Chang & Toutanova 2019, section 4).

A wrong passage is one of the forty nearest to the question by TF-IDF that is not the right one and
holds none of its answers.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from studies.quality import pairsets, squad
from studies.quality.squad import Part
from verso_training.heads.ranking.groups import Group

DATA = ("qa_selqa", "qa_squad (training articles)", "prose/techdocs")
LICENCE = "Apache-2.0 (SelQA), CC BY-SA 4.0 (SQuAD), permissive and CC BY-SA 4.0 (documentation)"

_NEAREST = 40
_FIRST = 8
_DOCUMENTS = 900
_PASSAGE_CHARACTERS = 1000
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_ASKED = re.compile(r"[A-Z][^\n]{40,250}[.?!]")
"""What a sentence that is asked for looks like: prose, not code and no heading."""


@dataclass(frozen=True)
class Asked:
    """A question, the passage that answers it, and the answers that are found in it."""

    question: str
    passage: str
    answers: tuple[str, ...] = ()


def shippable(root: Path, *, wrong: int, each: int, seed: int) -> list[Group]:
    """The training groups of the ``relevance`` head, as many from each source."""
    rng = random.Random(seed)
    groups = []
    for asked in (
        selqa(root, "test"),
        squad_asked(root, Part.TRAIN),
        documents(root, rng),
    ):
        found = among(asked, wrong=wrong, rng=rng)
        groups += rng.sample(found, min(each, len(found)))
    return groups


def selqa(root: Path, part: str) -> list[Asked]:
    """SelQA: a question and the section of an article that answers it."""
    return [
        Asked(row.question, " ".join(row.candidates), tuple(row.candidates[i] for i in row.right))
        for row in pairsets.selqa(root, part)
    ]


def squad_asked(root: Path, part: Part) -> list[Asked]:
    """SQuAD: a question that has an answer, and its paragraph."""
    return [
        Asked(row.question, row.context, row.answers)
        for row in squad.read(root, part)
        if row.answers
    ]


def documents(root: Path, rng: random.Random) -> list[Asked]:
    """Documentation: a sentence, and the passage that it was taken out of."""
    path = root / "prose" / "techdocs.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        texts = [json.loads(line)["text"] for line in stream]
    asked = []
    for text in rng.sample(texts, min(_DOCUMENTS, len(texts))):
        for passage in _passages(text):
            sentences = [s for s in _SENTENCE.split(passage) if _ASKED.fullmatch(s)]
            if len(sentences) >= 3:
                taken = rng.choice(sentences)
                asked.append(Asked(taken, passage.replace(taken, "", 1).strip()))
    return asked


def among(asked: Sequence[Asked], *, wrong: int, rng: random.Random) -> list[Group]:
    """Groups with wrong passages drawn from the nearest ones; half of them from the first eight."""
    groups = []
    for one, near in nearest(asked):
        others = [passage for passage in near if _is_wrong(passage, one)]
        if len(others) >= wrong:
            groups.append(Group(one.question, one.passage, drawn(others, wrong=wrong, rng=rng)))
    return groups


def drawn(others: Sequence[str], *, wrong: int, rng: random.Random) -> tuple[str, ...]:
    """Draw wrong passages, nearest first given; half of them from the first eight."""
    first = rng.sample(range(min(len(others), _FIRST)), min(len(others), _FIRST, (wrong + 1) // 2))
    rest = [place for place in range(len(others)) if place not in first]
    places = [*first, *rng.sample(rest, min(len(rest), wrong - len(first)))]
    return tuple(others[place] for place in places)


def nearest(asked: Sequence[Asked]) -> Iterator[tuple[Asked, list[str]]]:
    """Each question with the passages of all that are nearest to it by TF-IDF, nearest first."""
    passages = list(dict.fromkeys(one.passage for one in asked))
    words = TfidfVectorizer(sublinear_tf=True, stop_words="english")
    weights = words.fit_transform(passages).T.tocsc()
    for start in range(0, len(asked), 256):
        part = asked[start : start + 256]
        scores = (words.transform([one.question for one in part]) @ weights).toarray()
        order = np.argsort(-scores, axis=1, kind="stable")[:, :_NEAREST]
        for one, row in zip(part, order, strict=True):
            yield one, [passages[place] for place in row]


def _is_wrong(passage: str, one: Asked) -> bool:
    held = passage.lower()
    return passage != one.passage and not any(answer.lower() in held for answer in one.answers)


def _passages(text: str) -> Iterator[str]:
    """Paragraphs joined up to about a chunk's length."""
    held = ""
    for paragraph in text.split("\n\n"):
        if held and len(held) + len(paragraph) > _PASSAGE_CHARACTERS:
            yield held
            held = ""
        held = f"{held}\n\n{paragraph}".strip()[:_PASSAGE_CHARACTERS]
    if held:
        yield held
