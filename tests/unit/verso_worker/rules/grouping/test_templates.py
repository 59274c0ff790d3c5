"""Templates of log lines."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from verso_worker.rules.grouping.templates import Miner


def mine(*lines: str) -> list[str]:
    miner = Miner()
    shapes = [miner.add(line) for line in lines]
    templates = miner.templates()
    return [templates[shape] for shape in shapes]


def test_what_is_a_parameter_everywhere_is_masked() -> None:
    assert mine(
        "connect 10.0.0.1:80 took 1.5 ms",
        "open /var/log/syslog.1 failed",
        "id 6f1ed002-ab55-9585-9014-ebf0951522d9 at 0x7f3A",
        "got deadbeef01 from db-7.example.org:5432 on Fri Jul 07",
    ) == [
        "connect <*> took <*> ms",
        "open <*> failed",
        "id <*> at <*>",
        "got <*> from <*> on <*>",
    ]


def test_words_of_few_kinds_are_told_apart_and_of_many_are_a_parameter() -> None:
    assert mine("the VM 12 was Started now", "the VM 13 was Stopped now") == [
        "the VM <*> was Started now",
        "the VM <*> was Stopped now",
    ]
    users = ["anna", "bob", "cyrus", "dora", "emil"]
    assert set(mine(*(f"session opened for user {user} now" for user in users))) == {
        "session opened for user <*> now"
    }


def test_lines_of_many_parameters_are_not_alike_for_that() -> None:
    words = ["one two", "red green", "up down", "left right", "hot cold"]
    assert len(set(mine(*(f"at 1 2 3 4 {word}" for word in words)))) == len(words)


def test_a_list_is_one_parameter_however_long_it_is() -> None:
    assert mine("took 1 2 3 steps", "took 1 2 steps") == ["took <*> steps"] * 2


def test_lines_that_begin_otherwise_are_never_joined() -> None:
    assert len(set(mine("alpha is up and well", "beta is up and well"))) == 2


def test_an_empty_line_is_a_template_of_its_own() -> None:
    assert mine("", " ", "x") == ["", "", "x"]


def test_a_word_too_long_to_be_one_is_a_parameter_and_costs_no_square_of_its_length() -> None:
    started = time.process_time()
    for word in ("a" * 200_000, "a." * 100_000, "/-" * 100_000, "aa:" * 70_000, "[0" * 100_000):
        assert mine(f"got {word} now") == ["got <*> now"]
    assert time.process_time() - started < 2.0


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_lines_have_templates_and_equal_lines_the_same(lines: list[str]) -> None:
    found = mine(*lines, *lines)
    assert found[: len(lines)] == found[len(lines) :]
    assert mine(*lines, *lines) == found
