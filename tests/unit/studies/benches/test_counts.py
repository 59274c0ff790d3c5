import numpy as np
import pytest

from studies.benches.codecs.bench_guess import Guessed, loops
from studies.benches.grouping.bench_templates import faults


def test_a_statement_is_right_split_or_merged() -> None:
    marked = ["a", "a", "b", "b", "c", "d"]
    assert faults([1, 1, 2, 2, 3, 4], marked) == {"right": 4, "split": 0, "merged": 0}
    assert faults([1, 1, 2, 5, 3, 4], marked) == {"right": 3, "split": 1, "merged": 0}
    assert faults([1, 1, 2, 5, 5, 4], marked) == {"right": 2, "split": 0, "merged": 2}


def test_a_text_loops_where_four_words_stand_twice() -> None:
    assert loops(b"a b c d, a b c d a b c d,")
    assert loops(b"w w w w w")
    assert not loops(b"a b c d, a b c d")
    assert not loops(b"0.0.0.0.0.0.0.0")


def test_what_tells_how_good_a_guess_is_is_its_rank_among_all() -> None:
    right = np.arange(60.0)
    parts = [
        Guessed(right[:20], right[:20] ** 2, -right[:20]),
        Guessed(right[20:], right[20:] ** 2, -right[20:]),
    ]
    found = Guessed.joined(parts).figures()
    assert found["right words"].value == right.mean()
    assert found["right words and cosine"].value == pytest.approx(1.0)
    assert found["right words and log p"].high == pytest.approx(-1.0)
