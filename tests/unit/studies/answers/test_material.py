"""Questions made of texts: what is asked, what answers, and which are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.answers import cloze, passages, round_trip, selqa, tables
from studies.answers.near import near
from studies.answers.passages import Passage
from studies.quality.pairsets import Ranking
from verso_training.heads.questions import Question
from verso_training.heads.reader import Answer

_SECTION = """Chad - Geography
Location: Central Africa, south of Libya
Area:
total area: 1.284 million sq km
land area: 1,259,200 sq km
Climate: tropical in south, desert in north
Note: none"""


def _cloze(sentence: str) -> list[Question]:
    return list(cloze.cloze([Passage("book", sentence)]))


@pytest.mark.parametrize(
    ("sentence", "word", "answer"),
    [
        ("The old castle on the hill was built in 1362 by monks.", "When", "1362"),
        ("In all the army lost 300 soldiers at the river crossing.", "How many", "300"),
        ("The letter was brought to the king by Henry Ashton at dawn.", "Who", "Henry Ashton"),
        ("A worker starts again when max_retries is set in the file.", "What", "max_retries"),
    ],
)
def test_a_sentence_asks_for_its_name_or_number(sentence: str, word: str, answer: str) -> None:
    [asked] = _cloze(sentence)
    assert asked.question.startswith(f"{word} ")
    assert asked.question.endswith("?")
    assert answer not in asked.question
    assert asked.answers == (answer,)
    assert answer in asked.context


def test_a_sentence_without_a_name_or_of_few_words_asks_nothing() -> None:
    assert _cloze("the rain did not stop for the rest of that long day.") == []
    assert _cloze("It was 1362.") == []


def test_what_a_sentence_defines_is_asked_for() -> None:
    text = "Velero is a tool to back up clusters. This is the end of the page. It is a good day."
    [asked] = cloze.definitions([Passage("doc", text)])
    assert (asked.question, asked.answers) == (
        "What is Velero?",
        ("a tool to back up clusters",),
    )


@given(st.text(alphabet="ab .!?\n", max_size=3000))
def test_passages_are_slices_of_whole_sentences(text: str) -> None:
    found = list(passages.cut(text))
    assert all(one in text and len(one) <= 700 for one in found)
    ends = {end for _, end in passages.sentences(text)}
    for one in found:
        assert any(text.startswith(one, end - len(one)) for end in ends)


def test_a_line_of_a_table_is_asked_for_by_its_group() -> None:
    found = {row.question: row for row in tables.of_section(_SECTION)}
    assert found["What is the total area of Chad?"].answers == ("1.284 million sq km",)
    assert "What is the location of Chad?" in found
    assert not any("note" in question for question in found)
    assert all(row.answers[0] in row.context for row in found.values())
    assert list(tables.of_section("A title without a country\nkey: value")) == []


def test_the_section_of_another_country_has_no_answer() -> None:
    rows = [
        row
        for text in (_SECTION, _SECTION.replace("Chad", "Niger").replace("1.284", "1.267"))
        for row in tables.of_section(text)
    ]
    found = tables.elsewhere(rows, count=4)
    assert len(found) == 4
    for row in found:
        assert row.answers == ()
        assert ("of Chad" in row.question) == ("Niger" in row.context)


def _reader(said: dict[str, tuple[str, int]]) -> round_trip.Read:
    """Return a reader that knows a span and its place by the question."""

    def read(asked: Sequence[Question]) -> list[Answer]:
        found = [said[row.question] for row in asked]
        return [Answer(text, 1.0, 0.0, (at, at + len(text))) for text, at in found]

    return read


def test_a_question_is_kept_if_the_reader_finds_the_same_span() -> None:
    made = [
        Question(key, key, "the Cat sat on a mat", answers)
        for key, answers in (("who?", ("Cat",)), ("where?", ("mat",)))
    ]
    read = _reader({"who?": ("the cat", 0), "where?": ("Cat", 4)})
    assert [row.key for row in round_trip.kept(made, read)] == ["who?"]


def test_a_span_counts_where_people_marked_its_sentence() -> None:
    text = "It rained. The dam broke in May. People left."
    asked = [Question(key, key, text, ()) for key in ("when?", "who?")]
    read = _reader({"when?": ("in May", text.index("in May")), "who?": ("People", 33)})
    [found] = round_trip.spans_within(asked, [[(11, 32)], [(11, 32)]], read)
    assert (found.key, found.answers) == ("when?", ("in May",))


def test_of_a_section_the_neighbours_of_the_marked_sentence_are_read() -> None:
    row = Ranking("q", tuple("x" * 300 for _ in range(9)), frozenset({4}))
    assert selqa.around(row) == [3, 4]
    assert selqa.around(Ranking("q", ("a", "b", "c"), frozenset({0, 2}))) == [0, 1, 2]


def test_a_near_paragraph_is_the_nearest_that_holds_no_answer() -> None:
    texts = ["about cats and Tom", "cats, and Tom again", "cats alone", "engines"]
    asked = [Question("1", "who is the cat?", texts[0], ("Tom",), "a")]
    asked += [Question(text, "q", text, (), "b") for text in texts[1:]]
    places = {"who is the cat?": 0.0, **dict(zip(texts, (0.1, 0.2, 0.3, 1.5), strict=True))}

    def encode(given: Sequence[str]) -> np.ndarray:
        angles = [places[text] for text in given]
        return np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)

    [found] = near(asked, encode, count=5)
    assert (found.context, found.answers) == ("cats alone", ())
    assert near([asked[1]], encode, count=5) == []
