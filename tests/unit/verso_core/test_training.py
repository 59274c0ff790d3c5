"""Rows survive the wire; what no head can be trained on is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from verso_core.errors import TrainingDataInvalid
from verso_core.training import Labelled, TrainRequest, check_rows, pack_rows, unpack_rows

_ROWS = st.lists(
    st.builds(Labelled, st.text(), st.text(), st.sampled_from([None, "train", "test"]))
)


@given(_ROWS)
def test_rows_read_back_as_they_were(rows: list[Labelled]) -> None:
    assert unpack_rows(pack_rows(rows)) == rows


@pytest.mark.parametrize("labels", [[], ["x"], ["x", "x"]])
def test_fewer_than_two_labels_are_refused(labels: list[str]) -> None:
    rows = [Labelled(f"text {n}", label) for n, label in enumerate(labels)]
    with pytest.raises(TrainingDataInvalid, match="at least two labels"):
        check_rows(rows)


def test_texts_with_several_labels_are_refused_when_they_are_many() -> None:
    rows = [Labelled(f"text {n}", label) for n in range(20) for label in ("x", "y")[: 1 + (n < 4)]]
    check_rows(rows)  # 4 of 20
    rows.append(Labelled("text 4", "y"))
    with pytest.raises(TrainingDataInvalid, match="got 5 of 20"):
        check_rows(rows)


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"rows": [], "collection": "logs", "label_key": "kind"},
        {"collection": "logs"},
        {"label_key": "kind", "rows": []},
        {"collection": "Logs!", "label_key": "kind"},
    ],
)
def test_a_source_is_rows_or_a_collection_with_its_key(source: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TrainRequest.model_validate({"head": "mood", "source": source})
