from studies.benches.codecs.bench_guess import loops
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
