"""Templates of log lines."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

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


def test_thousands_of_different_texts_cost_no_square_of_their_number() -> None:
    """Each is compared with all before it, at once."""
    drawn = random.Random(7)
    words = [f"{a}{b}{c}" for a in "kmn" for b in "aeiou" for c in "dlrst"]
    lines = ["text: " + " ".join(drawn.choices(words, k=20)) for _ in range(6000)]
    started = time.process_time()
    assert len(set(mine(*lines))) == len(lines)
    assert time.process_time() - started < 6.0


def one_by_one(lines: Sequence[Sequence[str]], *, similar: float) -> list[int]:
    """Return the group of each line, by comparing it with one group after the other."""
    groups: list[list[str]] = []
    found = []
    for tokens in lines:
        best, agreed = -1, -1.0
        for number, group in enumerate(groups):
            if len(group) != len(tokens) or group[:1] != list(tokens[:1]):
                continue
            pairs = [(a, b) for a, b in zip(group, tokens, strict=True) if (a, b) != ("<*>",) * 2]
            share = sum(a == b for a, b in pairs) / len(pairs) if pairs else 1.0
            if share > agreed:
                best, agreed = number, share
        if agreed < similar:
            best = len(groups)
            groups.append(list(tokens))
        rows = zip(groups[best], tokens, strict=True)
        groups[best] = [a if a == b else "<*>" for a, b in rows]
        found.append(best)
    return found


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "c", "<*>"]), max_size=6).map(lambda row: ["x", *row]),
        unique_by=tuple,
        max_size=40,
    ),
    st.sampled_from([0.5, 0.6, 0.8]),
)
def test_a_line_joins_the_first_of_the_groups_that_agree_best(
    lines: list[list[str]], similar: float
) -> None:
    miner = Miner(similar=similar)
    shapes = [miner.add(" ".join(line)) for line in lines]
    assert [miner.group(shape) for shape in shapes] == one_by_one(lines, similar=similar)


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_lines_have_templates_and_equal_lines_the_same(lines: list[str]) -> None:
    found = mine(*lines, *lines)
    assert found[: len(lines)] == found[len(lines) :]
    assert mine(*lines, *lines) == found
