"""A file in SQuAD's layout is read strictly: what does not fit is named by its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core import questions
from verso_core.errors import DuplicateId, TrainingDataInvalid, VersoError
from verso_core.questions import Asked, Paragraph

CONTEXT = "The disk sda1 is full. Nothing was lost."


def qa(number: int, **change: Any) -> dict[str, Any]:
    answers = [{"text": "sda1", "answer_start": 9}, {"text": "disk sda1", "answer_start": 4}]
    row = {"id": f"q{number}", "question": f"Which disk, case {number}?", "answers": answers}
    return {**row, "is_impossible": False, **change}


def document(*rows: dict[str, Any], **change: Any) -> dict[str, Any]:
    paragraph = {"context": CONTEXT, "qas": list(rows)}
    return {"version": "v2.0", "data": [{"title": "disks", "paragraphs": [paragraph], **change}]}


def test_a_file_as_it_is_published_is_read() -> None:
    plain = {key: value for key, value in qa(2).items() if key != "is_impossible"}
    none = qa(3, answers=[], is_impossible=True, plausible_answers=[{"text": "x"}])
    assert questions.read(document(qa(1), plain, none, split="test")) == [
        Paragraph(
            "disks",
            CONTEXT,
            (
                Asked("q1", "Which disk, case 1?", ("sda1", "disk sda1")),
                Asked("q2", "Which disk, case 2?", ("sda1", "disk sda1")),
                Asked("q3", "Which disk, case 3?", ()),
            ),
            "test",
        )
    ]


def test_articles_without_a_title_are_documents_of_their_own() -> None:
    two = document(qa(1))["data"] + document(qa(2))["data"]
    for article in two:
        del article["title"]
    assert [p.title for p in questions.read({"data": two})] == ["article 0", "article 1"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"answers": [{"text": "sdb9", "answer_start": 9}]}, TrainingDataInvalid, "not in the"),
        ({"answers": [{"text": "sda1", "answer_start": 8}]}, TrainingDataInvalid, "stands at 9"),
        ({"answers": [{"text": "sda1", "answer_start": -31}]}, TrainingDataInvalid, "at 9"),
        ({"answers": [{"text": "sda1"}]}, TrainingDataInvalid, "'answer_start', got None"),
        ({"answers": [{"text": "", "answer_start": 0}]}, TrainingDataInvalid, "not empty"),
        ({"answers": ["sda1"]}, TrainingDataInvalid, "expected an object, got str"),
        ({"answers": None}, TrainingDataInvalid, "array as 'answers', got nothing"),
        ({"is_impossible": True}, TrainingDataInvalid, "no answers where"),
        ({"is_impossible": "no"}, TrainingDataInvalid, "got str"),
        ({"question": " "}, TrainingDataInvalid, "not empty as 'question'"),
        ({"question": "\ud800"}, TrainingDataInvalid, "surrogate"),
        ({"id": 7}, TrainingDataInvalid, "string as 'id', got int"),
        ({"id": "q0"}, DuplicateId, "'q0' again"),
    ],
)
def test_a_question_that_does_not_fit_is_named(
    change: dict[str, Any], error: type[VersoError], message: str
) -> None:
    with pytest.raises(error, match=f"article 0, paragraph 0, question 1: .*{message}"):
        questions.read(document(qa(0), qa(1, **change)))


def test_an_id_stands_once_in_all_articles() -> None:
    articles = document(qa(1))["data"]
    with pytest.raises(DuplicateId, match="article 1, paragraph 0, question 0"):
        questions.read({"data": articles + copy.deepcopy(articles)})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the file: expected an object, got list"),
        ({"rows": []}, "the file: expected an array as 'data', got nothing"),
        ({"data": [3]}, "article 0: expected an object"),
        ({"data": [{"title": "a"}]}, "article 0: expected an array as 'paragraphs'"),
        ({"data": [{"title": 3, "paragraphs": []}]}, "string as 'title', got int"),
        ({"data": [{"paragraphs": [], "split": "dev"}]}, "expected a split"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "string as 'context', got nothing"),
        ({"data": [{"paragraphs": [{"context": " \n", "qas": []}]}]}, "not empty as 'context'"),
        ({"data": [{"paragraphs": [{"context": "a"}]}]}, "paragraph 0: expected an array as 'qas'"),
    ],
)
def test_another_layout_is_refused(value: object, message: str) -> None:
    with pytest.raises(TrainingDataInvalid, match=message):
        questions.read(value)


_PARAGRAPHS = st.lists(
    st.builds(
        Paragraph,
        st.text(),
        st.text(),
        st.lists(
            st.builds(Asked, st.text(), st.text(), st.lists(st.text()).map(tuple)), max_size=3
        ).map(tuple),
        st.sampled_from([None, "train", "test"]),
    ),
    max_size=4,
)


@given(_PARAGRAPHS)
def test_paragraphs_read_back_as_they_were(paragraphs: list[Paragraph]) -> None:
    assert questions.unpack(questions.pack(paragraphs)) == paragraphs


def paragraphs(count: int, *, answers: tuple[str, ...] = ("sda1",)) -> list[Paragraph]:
    return [
        Paragraph("t", f"{CONTEXT} {n % 4}", (Asked(str(n), f"which, {n}", answers),))
        for n in range(count)
    ]


def test_questions_that_nothing_can_be_learnt_from_are_refused() -> None:
    questions.check(paragraphs(12))
    with pytest.raises(TrainingDataInvalid, match="12 questions or more on 3 contexts"):
        questions.check(paragraphs(11))
    with pytest.raises(TrainingDataInvalid, match="with an answer, got none"):
        questions.check(paragraphs(12, answers=()))


def test_questions_with_and_without_an_answer_are_refused_when_they_are_many() -> None:
    questions.check([*paragraphs(20), *paragraphs(5, answers=())])  # 5 of 25
    with pytest.raises(TrainingDataInvalid, match="got 6 of 26"):
        questions.check([*paragraphs(20), *paragraphs(6, answers=())])
