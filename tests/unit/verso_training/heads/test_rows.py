"""Labelled rows: what is refused, what is dropped, how they are split."""

import numpy as np
import pytest
from hypothesis import given as any_of
from hypothesis import strategies as st

from verso_core.errors import TrainingDataInvalid
from verso_training.heads import rows
from verso_training.heads.rows import Row, RowSplit


def texts(label: str, count: int) -> list[Row]:
    return [Row(label, f"{label} text number {i}") for i in range(count)]


def test_every_label_has_rows_in_every_split() -> None:
    checked = rows.check([*texts("a", 40), *texts("b", 4)], dim=384)
    for split in RowSplit:
        assert {row.label for row in checked.of(split)} == {"a", "b"}
    assert len(checked.rows) == 44


def test_the_split_depends_on_the_texts_not_on_their_order() -> None:
    given = [*texts("a", 30), *texts("b", 30)]
    one, two = rows.check(given, dim=384), rows.check(given[::-1], dim=384)
    assert {r.text: r.split for r in one.rows} == {r.text: r.split for r in two.rows}


def test_no_document_is_trained_on_and_measured_on() -> None:
    given = [
        Row(label, f"{label} {d} {i}", document=f"{label}/{d}")
        for label in ("a", "b")
        for d in range(9)
        for i in range(1 + 7 * (d == 4))
    ]
    checked = rows.check(given, dim=384)
    parts: dict[str | None, set[RowSplit | None]] = {}
    for row in checked.rows:
        parts.setdefault(row.document, set()).add(row.split)
    assert all(len(found) == 1 for found in parts.values())
    assert parts["a/4"] == {RowSplit.TRAIN}, "the largest is trained on"
    for split in RowSplit:
        assert {row.label for row in checked.of(split)} == {"a", "b"}


def test_rows_of_two_documents_are_split_as_texts() -> None:
    given = [
        Row(label, f"{label} {i}", document=f"{label}/{i % 2}")
        for label in ("a", "b")
        for i in range(20)
    ]
    checked = rows.check(given, dim=384)
    for split in RowSplit:
        assert {row.label for row in checked.of(split)} == {"a", "b"}


@any_of(
    st.lists(st.integers(0, 12), min_size=3, max_size=60).filter(lambda keys: len(set(keys)) >= 3),
    st.floats(0.01, 0.49),
    st.floats(0.01, 0.49),
)
def test_examples_of_one_key_stay_together_and_every_part_has_some(
    numbers: list[int], validation: float, test: float
) -> None:
    keys = [str(n).encode() for n in numbers]
    parts = rows.portions(keys, validation_share=validation, test_share=test)
    assert len(set(zip(keys, parts, strict=True))) == len(set(keys))
    assert set(parts) == set(RowSplit)


def test_a_given_split_is_kept() -> None:
    given = [Row(r.label, r.text, split=RowSplit.TRAIN) for r in [*texts("a", 5), *texts("b", 5)]]
    assert len(rows.check(given, dim=384).of(RowSplit.TRAIN)) == 10


def test_one_label_is_refused() -> None:
    with pytest.raises(TrainingDataInvalid, match="two or more labels"):
        rows.check(texts("a", 50), dim=384)


def test_rare_labels_are_dropped_and_named() -> None:
    checked = rows.check([*texts("a", 9), *texts("b", 9), *texts("rare", 2)], dim=384)
    assert checked.dropped_labels == ("rare",)
    assert checked.labels == ("a", "b")


def test_a_few_contradictions_are_dropped() -> None:
    given = [*texts("a", 20), *texts("b", 20), Row("b", "a text number 0")]
    checked = rows.check(given, dim=384)
    assert checked.contradicted == 1
    assert "a text number 0" not in {row.text for row in checked.rows}


def test_many_contradictions_are_refused() -> None:
    given = [Row(label, f"text {i}") for i in range(10) for label in ("a", "b")]
    with pytest.raises(TrainingDataInvalid, match="one label for each text"):
        rows.check(given, dim=384)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row("", "a text"), "expected a label"),
        (Row("a"), "a text or a vector"),
        (Row("a", "  "), "got an empty one"),
        (Row("a", vector=np.zeros(3, np.float32)), "expected a vector of 4"),
        (Row("a", vector=np.array([0, np.nan, 0, 0], np.float32)), "finite"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(row: Row, message: str) -> None:
    with pytest.raises(TrainingDataInvalid, match=f"row 2: .*{message}"):
        rows.check([Row("a", "x"), Row("b", "y"), row], dim=4)


def test_a_head_on_tokens_needs_texts() -> None:
    row = Row("a", vector=np.zeros(4, np.float32))
    with pytest.raises(TrainingDataInvalid, match="reads tokens"):
        rows.check([row], dim=4, tokens=True)


def test_the_digest_follows_labels_and_texts() -> None:
    one = rows.check([*texts("a", 9), *texts("b", 9)], dim=384).digest()
    assert one == rows.check([*texts("a", 9), *texts("b", 9)], dim=384).digest()
    assert one != rows.check([*texts("a", 9), *texts("c", 9)], dim=384).digest()
