"""Rows survive the wire; what no head can be trained on is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from verso_core.errors import TrainingDataInvalid
from verso_core.heads import Task
from verso_core.jobs.train import (
    Grouped,
    Labelled,
    Scored,
    TrainRequest,
    check_groups,
    check_pairs,
    check_rows,
    holds_groups,
    pack_groups,
    pack_pairs,
    pack_rows,
    unpack_groups,
    unpack_pairs,
    unpack_rows,
)

_ROWS = st.lists(
    st.builds(Labelled, st.text(), st.text(), st.sampled_from([None, "train", "test"]))
)


@given(_ROWS)
def test_rows_read_back_as_they_were(rows: list[Labelled]) -> None:
    assert unpack_rows(pack_rows(rows)) == rows


@given(st.lists(st.builds(Scored, st.text(), st.text(), st.floats(0, 1))))
def test_pairs_read_back_as_they_were(pairs: list[Scored]) -> None:
    assert unpack_pairs(pack_pairs(pairs)) == pairs


@given(
    st.lists(
        st.builds(
            Grouped,
            st.text(),
            st.lists(st.text()).map(tuple),
            st.lists(st.text()).map(tuple),
            st.sampled_from([None, "test"]),
        ),
        min_size=1,
    )
)
def test_groups_read_back_as_they_were_and_are_told_from_pairs(groups: list[Grouped]) -> None:
    packed = pack_groups(groups)
    assert holds_groups(packed)
    assert unpack_groups(packed) == groups
    assert not holds_groups(pack_pairs([Scored("a", "b", 1.0)]))


def test_groups_are_enough_and_no_passage_is_right_and_wrong() -> None:
    made = [Grouped(f"question {n}", ("right",), ("wrong",)) for n in range(12)]
    check_groups(made)
    with pytest.raises(TrainingDataInvalid, match="expected 12 groups or more"):
        check_groups(made[:11])
    with pytest.raises(TrainingDataInvalid, match="expected 12 groups or more of 3 questions"):
        check_groups([Grouped("one", ("right",), ("wrong",))] * 12)
    both = Grouped("question 3", ("another",), ("right",))
    with pytest.raises(TrainingDataInvalid, match="group 12: expected each passage"):
        check_groups([*made, both])


def some_pairs(count: int = 20) -> list[Scored]:
    return [Scored(f"text {n}", f"other {n}", n % 2) for n in range(count)]


def test_pairs_that_nothing_can_be_learnt_from_are_refused() -> None:
    check_pairs(some_pairs())
    with pytest.raises(TrainingDataInvalid, match="12 pairs or more"):
        check_pairs(some_pairs(11))
    with pytest.raises(TrainingDataInvalid, match=r"of 1$"):
        check_pairs([Scored("one", f"{n}", n % 2) for n in range(20)])
    with pytest.raises(TrainingDataInvalid, match=r"different scores, got 0.5"):
        check_pairs([Scored(f"{n}", "b", 0.5) for n in range(20)])
    again = [Scored(pair.text_1, pair.text_2, 0.5) for pair in some_pairs(5)]
    with pytest.raises(TrainingDataInvalid, match="got 5 of 20"):
        check_pairs([*some_pairs(), *again])


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
        {"squad": {}, "rows": []},
        {"pairs": [], "collection": "logs", "label_key": "kind"},
    ],
)
def test_a_source_is_rows_or_a_collection_with_its_key(source: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TrainRequest.model_validate({"head": "mood", "source": source})


@pytest.mark.parametrize(
    ("task", "source"),
    [(Task.CLASSIFY, {"squad": {}}), (Task.ANSWER, {"pairs": []}), (Task.SCORE, {"rows": []})],
)
def test_examples_must_be_of_the_task(task: Task, source: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="squad for answer"):
        TrainRequest.model_validate({"head": "mood", "task": task, "source": source})
