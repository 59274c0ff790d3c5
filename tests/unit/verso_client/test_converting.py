"""Questions in tables and notes become what heads are trained from."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from verso_client.cli.app import app
from verso_client.cli.converting import _table, converted, located, read
from verso_core import questions
from verso_core.errors import TrainingDataInvalid

NOTES = """# storage manual
A disk is taken out of service
when three writes in a row have failed.

Q: When is a disk taken out of service?
A: Three writes in a  row have failed

Q: Who takes it out?
A:
The ledger waits for it.
Q: What waits?
A: The ledger
a: ledger
# other
It rains.
q: Does it rain?
"""
WORD = st.text("abcdeß é,\n\"'", min_size=1, max_size=12).filter(lambda text: bool(text.strip()))


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_notes_have_documents_paragraphs_and_questions(tmp_path: Path) -> None:
    made = converted(read(written(tmp_path / "notes.md", NOTES)))
    assert not made.missing
    first, second, third = questions.read(made.document)
    assert [first.title, second.title, third.title] == ["storage manual"] * 2 + ["other"]
    assert first.context.endswith("have failed.")
    assert [one.answers for one in first.questions] == [("three writes in a row have failed",), ()]
    assert [one.answers for one in second.questions] == [("The ledger", "ledger")]
    assert [one.answers for one in third.questions] == [()]


@given(
    st.lists(
        st.tuples(WORD, WORD, WORD, st.booleans()), min_size=1, max_size=6, unique_by=lambda r: r[1]
    )
)
def test_a_table_says_what_was_written_into_it(rows: list[tuple[str, str, str, bool]]) -> None:
    rows = [(a, q.strip(), b.strip(), answered) for a, q, b, answered in rows]
    out = io.StringIO(newline="")
    table = csv.writer(out)
    table.writerow(["title", "context", "question", "answer"])
    for number, (around, question, answer, answered) in enumerate(rows):
        context = f"{around}{answer}{around}"
        table.writerow([f"t{number}", context, question, answer if answered else ""])
    made = converted(_table(out.getvalue(), Path("table.csv")))
    found = questions.read(made.document)
    assert [one.context for one in found] == [f"{a}{b}{a}" for a, _, b, _ in rows]
    assert [one.questions[0].question for one in found] == [row[1] for row in rows]
    assert [one.questions[0].answers for one in found] == [
        (b,) if yes else () for _, _, b, yes in rows
    ]


def test_rows_of_one_question_are_its_answers(tmp_path: Path) -> None:
    text = "context,question,answer,split\nA b c,what?,A,train\nA b c,what?,b c,train\n"
    made = converted(read(written(tmp_path / "table.csv", text)))
    [paragraph] = questions.read(made.document)
    assert paragraph.split == "train"
    assert [one.answers for one in paragraph.questions] == [("A", "b c")]


@pytest.mark.parametrize(
    ("answer", "span"),
    [("b c", (2, 5)), ("B  C", (2, 5)), ("c d", None), ("A b", (0, 3)), (".", None)],
)
def test_an_answer_is_found_but_for_white_space_and_case(
    answer: str, span: tuple[int, int] | None
) -> None:
    assert located(answer, "A b c") == span


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("table.csv", "context,question\na,b\n", "line|column 'answer'"),
        ("table.csv", "context,question,answer\n ,b,\n", "line 2: expected text and question"),
        ("notes.txt", "Q: why?\n", "line 1: expected a text before the question"),
        ("notes.txt", "a text\nA: why?\n", "line 2: expected a question before A:"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(TrainingDataInvalid, match=said):
        list(read(written(tmp_path / name, text)))


def test_an_answer_that_is_nowhere_is_refused_or_left_out(tmp_path: Path) -> None:
    text = "context,question,answer\nA b c,what?,nowhere\nA b c,where?,b\n"
    table, out = str(written(tmp_path / "table.csv", text)), str(tmp_path / "out.json")
    refused = CliRunner().invoke(app, ["convert", table, "--out", out])
    assert refused.exit_code == 1
    assert "table.csv, line 2: expected the answer 'nowhere' in its text" in refused.stderr
    made = CliRunner().invoke(app, ["convert", table, "--out", out, "--skip"])
    assert made.exit_code == 0
    assert "1 questions on 1 texts" in made.stdout
    [paragraph] = questions.read(json.loads(Path(out).read_text(encoding="utf-8")))
    assert [one.question for one in paragraph.questions] == ["where?"]
