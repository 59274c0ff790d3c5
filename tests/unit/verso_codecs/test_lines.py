"""The line table finds what was put in, and its packed form gives it back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from verso_codecs import lines
from verso_core.errors import ArtifactInvalid

WIDTH = 8


def a_table(seed: int, *, filled: float) -> NDArray[np.uint8]:
    """A table as counting leaves it: nothing is known below an unknown node."""
    rng = np.random.default_rng(seed)
    table = np.zeros(((1 << WIDTH) + 1, lines.LINE_BYTES), np.uint8)
    for row in table[:-1]:
        if rng.random() >= filled:
            continue
        row[0] = rng.integers(1, 256)
        row[1] = rng.integers(1, 256)
        for child in range(2, lines.LINE_BYTES):
            parent = row[child // 2]
            row[child] = rng.choice([0, parent, rng.integers(1, 256)]) if parent else 0
    return table


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), filled=st.sampled_from([0.0, 0.001, 0.3, 1.0]))
def test_a_packed_table_comes_back(seed: int, filled: float) -> None:
    table = a_table(seed, filled=filled)
    np.testing.assert_array_equal(lines.unpack(lines.pack(table[:-1]), 1 << WIDTH), table)


@pytest.mark.parametrize("name", lines.MEMBERS)
def test_streams_that_do_not_fit_one_another_are_refused(name: str) -> None:
    members = lines.pack(a_table(1, filled=0.5)[:-1])
    other = lines.pack(a_table(2, filled=0.9)[:-1])
    with pytest.raises(ArtifactInvalid):
        lines.unpack({**members, name: other[name]}, 1 << WIDTH)
    with pytest.raises(ArtifactInvalid):
        lines.unpack({**members, name: members[name][:-1]}, 1 << WIDTH)


def test_a_table_too_small_for_its_lines_is_refused() -> None:
    with pytest.raises(ArtifactInvalid):
        lines.unpack(lines.pack(a_table(1, filled=0.5)[:-1]), 1 << (WIDTH - 1))


def test_a_line_is_found_by_its_key_and_gives_way_to_a_stronger_one() -> None:
    table = np.zeros(((1 << WIDTH) + 1, lines.LINE_BYTES), np.uint8)
    strengths = np.zeros(1 << WIDTH, np.float32)
    home = 77 << (32 - WIDTH)
    for check in range(1, 5):
        row = lines.claim_row(table, strengths, home + check, WIDTH, float(check))
        table[row, 0], strengths[row] = check, check
    assert {lines.find_line(table, home + check, WIDTH) for check in range(1, 5)} == {
        76,
        77,
        78,
        79,
    }
    assert lines.find_line(table, home + 9, WIDTH) == 1 << WIDTH
    assert lines.claim_row(table, strengths, home + 9, WIDTH, 0.5) == -1
    weakest = lines.find_line(table, home + 1, WIDTH)
    assert lines.claim_row(table, strengths, home + 9, WIDTH, 1.5) == weakest
