"""Kinds of questions that a reader can be trained on beside SQuAD's, made once and kept.

Made-up questions are filtered by the reader that ships, which was trained on none of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from studies.answers import cloze, selqa, tables
from studies.answers.near import near
from studies.answers.passages import passages
from studies.answers.round_trip import Read, kept
from studies.quality import shipped, squad
from studies.quality.squad import Part
from verso_training.heads import questions
from verso_training.heads.questions import Question
from verso_training.heads.reader import Encode

_DOCUMENTS = 60
"""Of each file of prose: about four thousand passages."""
_MADE = 2400
"""Cloze questions that are read, before the filter; of tables half as many."""
_QAMR = 6000
_MINED = 2600
"""As the recipe ``qa`` has them, and as many near ones."""


@dataclass(frozen=True)
class Sources:
    """Where questions come from.

    Attributes:
        data: Folder of the public data sets.
        read: The reader that ships: the best span of each question.
        encode: Of texts to unit vectors.
    """

    data: Path
    read: Read
    encode: Encode


def base(sources: Sources) -> list[Question]:
    """Return what the shipped reader was trained on for most of its time."""
    asked = squad.read(sources.data, Part.TRAIN)
    return [*asked, *questions.mined(asked, count=_MINED)]


def near_paragraphs(sources: Sources) -> list[Question]:
    """Return SQuAD's training questions with the nearest paragraph that has no answer."""
    return near(squad.read(sources.data, Part.TRAIN), sources.encode, count=_MINED, seed=1)


def of_sentences(sources: Sources) -> list[Question]:
    """Return some of QAMR's questions."""
    every = [*shipped.qamr(sources.data, "dev"), *shipped.qamr(sources.data, "test")]
    return cloze.drawn(every, _QAMR)


def cloze_and_templates(sources: Sources) -> list[Question]:
    """Return questions of prose, documentation and tables that the reader understands, and half as
    many with a near text without the answer."""
    read = passages(sources.data, documents=_DOCUMENTS)
    made = cloze.drawn(list(cloze.cloze(read)), _MADE) + list(cloze.definitions(read))
    of_tables = cloze.drawn(tables.questions(sources.data), _MADE // 2)
    told, found = kept(made, sources.read), kept(of_tables, sources.read)
    return [
        *told,
        *questions.mined(told, count=len(told) // 2),
        *found,
        *tables.elsewhere(found, count=len(found) // 2),
    ]


def of_sections(sources: Sources) -> list[Question]:
    """Return SelQA's questions of its test part."""
    return selqa.questions(sources.data, sources.read)


KINDS: Mapping[str, Callable[[Sources], list[Question]]] = {
    "near": near_paragraphs,
    "qamr": of_sentences,
    "made": cloze_and_templates,
    "selqa": of_sections,
}


def held(kind: str, sources: Sources, folder: Path) -> list[Question]:
    """Return the questions of a kind, from a file if an earlier run has made them."""
    path = folder / f"{kind}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, KINDS[kind](sources))
    return [
        Question(**{**row, "answers": tuple(row["answers"])})
        for row in json.loads(path.read_text(encoding="utf-8"))
    ]


def _write(path: Path, rows: Sequence[Question]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    draft.replace(path)
