"""Questions in parts: by document, merged, and made up where the file has none without answer."""

from __future__ import annotations

import pytest

from verso_core.errors import TrainingDataInvalid
from verso_core.questions import Asked, Paragraph
from verso_training.heads import questions
from verso_training.heads.questions import Parts
from verso_training.heads.rows import RowSplit, digest


def paragraphs(documents: int = 6, *, each: int = 3, split: str | None = None) -> list[Paragraph]:
    made = []
    for d in range(documents):
        for n in range(each):
            word = f"w{d}x{n}"
            asked = (Asked(f"{d}.{n}", f"What is in room {n}?", (word,)),)
            made.append(Paragraph(f"house {d}", f"In room {n} there is {word}.", asked, split))
    return made


def parts(given: list[Paragraph], *, made_up: float = 0.0) -> Parts:
    return questions.parts(given, validation_share=0.2, test_share=0.2, made_up=made_up, seed=0)


def test_no_document_is_in_two_parts() -> None:
    found = parts(paragraphs())
    assert found.whole_documents
    groups = [{row.group for row in rows} for rows in found.of.values()]
    assert all(groups)
    assert sum(map(len, groups)) == len(set().union(*groups)) == 6


def test_paragraphs_of_one_document_are_split_and_that_is_told() -> None:
    found = parts(paragraphs(1, each=20))
    assert not found.whole_documents
    contexts = [{row.context for row in rows} for rows in found.of.values()]
    assert sum(map(len, contexts)) >= len(set().union(*contexts)) == 20


def test_a_file_without_unanswerable_questions_gets_some_in_every_part() -> None:
    found = parts(paragraphs())
    for part, rows in found.of.items():
        none = [row for row in rows if not row.answers]
        assert len(none) == found.made_up[part] > 0
        for row in none:
            own = next(
                one for one in rows if one.answers and one.key == row.key.removesuffix(":mined")
            )
            assert own.answers[0] not in row.context


def test_questions_of_the_file_choose_and_measure_where_there_are_some() -> None:
    given = [
        Paragraph(p.title, p.context, (*p.questions, Asked(f"n{n}", f"Who is {n}?", ())), p.split)
        for n, p in enumerate(paragraphs())
    ]
    found = parts(given, made_up=0.5)
    assert found.made_up[RowSplit.TRAIN] > 0
    assert found.made_up[RowSplit.VALIDATION] == found.made_up[RowSplit.TEST] == 0


def test_one_question_asked_twice_has_all_answers_or_is_dropped() -> None:
    given = paragraphs()
    first = given[0]
    given += [
        Paragraph(first.title, first.context, (Asked("again", "What is in room 0?", ("room",)),)),
        Paragraph(given[1].title, given[1].context, (Asked("no", "What is in room 1?", ()),)),
    ]
    found = parts(given)
    rows = {row.key: row for part in found.of.values() for row in part}
    assert rows["0.0"].answers == ("w0x0", "room")
    assert "0.1" not in rows
    assert found.contradicted == 1


def test_given_splits_are_kept_and_each_part_needs_an_answer() -> None:
    given = [
        *paragraphs(4, split="train"),
        *(Paragraph("v", f"{p.context} ", p.questions, "validation") for p in paragraphs(1)),
    ]
    with pytest.raises(TrainingDataInvalid, match="with an answer for test, got none: 0 of 15"):
        parts(given)
    given += [Paragraph("t", f" {p.context}", p.questions, "test") for p in paragraphs(1)]
    found = parts(given)
    assert {row.group for row in found.of[RowSplit.TEST]} == {"t"}
    assert digest(found.of) != digest(parts(paragraphs()).of)
