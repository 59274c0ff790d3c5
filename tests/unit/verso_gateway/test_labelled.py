"""A row that cannot be read refuses the request and is named by its place."""

from __future__ import annotations

import pytest

from verso_core.errors import TrainingDataInvalid
from verso_core.jobs.train import Grouped, Labelled, Scored
from verso_gateway.bodies.labelled import Columns, from_csv, from_lines, group, of_json, pair

NAMES = ("text", "label")
ROW = Columns().row
PAIR = ("text_1", "text_2", "score")


def test_the_three_ways_in_give_the_same_rows() -> None:
    rows = [Labelled("a, text", "x"), Labelled("two\nlines", "y", "test")]
    assert (
        from_lines(
            b'{"text": "a, text", "label": "x"}\n\n'
            b'{"text": "two\\nlines", "label": "y", "split": "test", "more": 1}\n',
            ROW,
        )
        == rows
    )
    csv = b'\xef\xbb\xbftext,label,split\r\n"a, text",x,\r\n"two\nlines",y,test\r\n'
    assert from_csv(csv, ROW, names=NAMES) == rows
    values = [
        {"text": "a, text", "label": "x"},
        {"text": "two\nlines", "label": "y", "split": "test"},
    ]
    assert of_json(values, ROW, name="rows", keys=NAMES) == rows


def test_a_text_of_a_file_may_be_as_long_as_one_of_a_body() -> None:
    text = "a " * 100_000  # Python's own limit of a field is 131,072 characters
    [row] = from_csv(f"text,label\n{text},x\n".encode(), ROW, names=NAMES)
    assert row == Labelled(text, "x")


def test_columns_may_have_other_names_and_labels_may_be_numbers() -> None:
    columns = Columns("message", "code")
    csv = b"code,message\n7,seven\n"
    assert from_csv(csv, columns.row, names=("message", "code")) == [Labelled("seven", "7")]
    assert from_lines(b'{"message": "seven", "code": 7}', columns.row) == [Labelled("seven", "7")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"text": "a", "label": "x"}\n{"text": "b"}', "line 2: expected a string as 'label'"),
        (b'{"text": "a", "label": NaN}', "line 1: malformed JSON: NaN"),
        (b'{"text": "a", "label": 0.5}', "line 1: expected a string as 'label', got float"),
        (b'{"text": "a", "label": true}', "got bool"),
        (b'{"text": " ", "label": "x"}', "not empty as 'text'"),
        (b'{"text": "\\ud800", "label": "x"}', "not empty as 'text'"),
        (b'["a", "x"]', "line 1: expected an object, got list"),
        (b'{"text": "a", "label": "x", "split": "dev"}', "expected a split"),
        (b'{"text": "a", "label": "' + b"x" * 257 + b'"}', "<= 256 characters, got 257"),
    ],
)
def test_a_line_that_is_no_row_is_named(data: bytes, message: str) -> None:
    with pytest.raises(TrainingDataInvalid, match=message):
        from_lines(data, ROW)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"text,kind\na,x\n", "expected one column 'label'"),
        (b"text,label,label\na,x,y\n", "expected one column 'label'"),
        (b"text,label\na,x,more\n", "record 2: expected 2 fields, got 3"),
        (b"text,label\na,\n", "record 2: expected a string as 'label', got nothing"),
        (b"text,label\na,nan\n", "record 2: expected a label, got nan"),
        (b'text,label\n"a,x\n', "malformed CSV"),
        (b"text,label\n\xff,x\n", "expected UTF-8"),
    ],
)
def test_a_record_that_is_no_row_is_named(data: bytes, message: str) -> None:
    with pytest.raises(TrainingDataInvalid, match=message):
        from_csv(data, ROW, names=NAMES)


@pytest.mark.parametrize("rows", [{}, ["a"], [{"text": "a", "label": "x", "lable": "y"}]])
def test_rows_of_a_body_are_objects_of_known_keys(rows: object) -> None:
    with pytest.raises(TrainingDataInvalid):
        of_json(rows, ROW, name="rows", keys=NAMES)


def test_pairs_come_in_the_same_three_ways() -> None:
    pairs = [Scored("a", "b", 0.25), Scored("a, b", "c", 1.0, "test")]
    lines = (
        b'{"text_1": "a", "text_2": "b", "score": 0.25}\n'
        b'{"text_1": "a, b", "text_2": "c", "score": 1, "split": "test"}\n'
    )
    assert from_lines(lines, pair) == pairs
    csv = b'text_1,text_2,score,split\na,b,0.25,\n"a, b",c,1,test\n'
    assert from_csv(csv, pair, names=PAIR) == pairs


def test_groups_come_as_lines() -> None:
    line = b'{"question": "a", "right": ["b"], "wrong": ["c", "d"], "split": "test"}\n'
    assert from_lines(line, group) == [Grouped("a", ("b",), ("c", "d"), "test")]


@pytest.mark.parametrize("right", [b'"b"', b"[]", b"[1.5]", b'[""]', b"null", b'["\\ud800"]'])
def test_passages_are_texts(right: bytes) -> None:
    with pytest.raises(TrainingDataInvalid, match="line 1: expected"):
        from_lines(b'{"question": "a", "wrong": ["c"], "right": ' + right + b"}", group)


@pytest.mark.parametrize("score", [b'"high"', b"1.01", b"-0.1", b"true", b'"nan"', b"[1]", b"null"])
def test_a_score_is_a_number_between_nought_and_one(score: bytes) -> None:
    line = b'{"text_1": "a", "text_2": "b", "score": ' + score + b"}"
    with pytest.raises(TrainingDataInvalid, match=r"line 1: expected a 'score' in \[0, 1\]"):
        from_lines(line, pair)


def test_a_column_that_a_pair_needs_is_named() -> None:
    with pytest.raises(TrainingDataInvalid, match="expected one column 'score'"):
        from_csv(b"text_1,text_2,value\na,b,1\n", pair, names=PAIR)
