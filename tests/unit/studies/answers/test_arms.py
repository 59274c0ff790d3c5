"""Readers are compared on articles that nothing of them was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from studies.answers import arms
from studies.answers.intervals import Marked, compared
from verso_training.heads.questions import Question, Window
from verso_training.heads.reader import Answer, Logits


def _asked(count: int = 400) -> list[Question]:
    """Return questions of four articles, half of them with an answer."""
    return [
        Question(
            str(at), "who?", f"text {at // 4} of Tom", ("Tom",) if at % 2 else (), f"a {at % 4}"
        )
        for at in range(count)
    ]


def _read(asked: list[Question], *, told: float, seed: int = 0) -> arms.Read:
    """Return answers whose margin tells more or less whether there is one."""
    rng = np.random.default_rng(seed)
    margins = rng.normal(size=len(asked)) + [told * bool(row.answers) for row in asked]
    answers = [Answer("Tom", float(margin), 0.0, (10, 13)) for margin in margins]
    return arms.Read(answers, rng.normal(size=len(asked)).astype(np.float32))


def test_a_reader_that_tells_more_gains_and_the_first_gains_nothing() -> None:
    asked = _asked()
    found = [arms.held_out(asked, _read(asked, told=told)) for told in (0.5, 3.0)]
    first, second = compared(found)
    assert first.gain["F1"].low == first.gain["F1"].high == 0.0
    assert second.gain["F1"].low > 0
    assert second.gain["AUROC"].low > 0
    assert second.of["right among it"].value > 85.0
    assert second.of["F1 over no answer"].value == pytest.approx(second.of["F1"].value - 50.0)


def test_a_threshold_is_that_of_the_other_articles() -> None:
    """One article's margins are lifted: by its own threshold none of it would be given."""
    asked = _asked()
    read = _read(asked, told=3.0)
    lifted = [
        Answer(one.text, one.score + 100.0 * (row.group == "a 0"), one.null, one.place)
        for row, one in zip(asked, read.answers, strict=True)
    ]
    _, given = arms.held_out(asked, arms.Read(lifted, read.cosines))
    assert all(own for row, own in zip(asked, given, strict=True) if row.group == "a 0")


def test_what_was_read_is_kept(tmp_path: Path) -> None:
    read = _read(_asked(8), told=1.0)
    read.write(tmp_path / "read.json")
    again = arms.Read.load(tmp_path / "read.json")
    assert again.answers == read.answers
    assert np.array_equal(again.cosines, read.cosines)


def test_means_of_weights_and_of_logits() -> None:
    weights = [{"a": torch.tensor([1.0, 3.0])}, {"a": torch.tensor([3.0, 5.0])}]
    assert arms.mean_weights(weights)["a"].tolist() == [2.0, 4.0]

    def say(value: float) -> Logits:
        def run(batch: Sequence[Window]) -> tuple[arms.Floats, arms.Floats]:
            said = np.full((len(batch), 2), value, np.float32)
            return said, said

        return run

    window = Window(0, [1], 0, [], [0], [0])
    start, end = arms.mean_logits([say(1.0), say(4.0)])([window])
    assert start.tolist() == end.tolist() == [[2.5, 2.5]]


def test_the_surest_share_is_counted_by_questions() -> None:
    asked = _asked(100)
    answers = [Answer("Tom" if at >= 72 else "Eve", float(at), 0.0) for at in range(100)]
    marked = Marked.of(asked, answers)
    [one] = compared([(marked, np.zeros(100, np.bool_))])
    assert one.of["right among 28%"].value == 50.0
    assert one.of["given"].value == 0.0
    assert np.isnan(one.of["right among it"].value)
