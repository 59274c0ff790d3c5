"""Streams of log lines and of texts are told apart, however many lines a request has."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from verso_codecs.logs.parsing import parse, split
from verso_codecs.logs.shapes import Shapes
from verso_worker.records.segments import BLOCK_LINES
from verso_worker.rules.logs.writing.texts import JUDGED_LINES, MOST_STATEMENTS, Judge, Window

DEAR = 0.25
"""Share of their bytes that shapes of texts take packed."""
CHEAP = 0.06
_LETTERS = "etaoinshrdlu"


def window(lines: int, new: int, packed: float = DEAR) -> Window:
    return Window(lines, new, 40 * new, int(packed * 40 * new))


def sentences(count: int, *, seed: int = 1) -> list[str]:
    """Return lines of words of which no two are alike."""
    drawn = random.Random(seed)
    words = ["".join(drawn.choices(_LETTERS, k=drawn.randint(2, 9))) for _ in range(400)]
    return [" ".join(drawn.choices(words, k=8)) for _ in range(count)]


def build_lines(count: int) -> list[str]:
    """Return lines of a build, each of which names a file that none before named."""
    drawn = random.Random(2)
    parts = ["".join(drawn.choices(_LETTERS, k=6)) for _ in range(60)]
    names = [f"{first}/{second}_{third}" for first in parts for second in parts for third in "abc"]
    return [f"pack: copied dist/server/route-modules/{name}.js.map" for name in names[:count]]


def judged(
    judge: Judge, rows: list[str], shapes: Shapes, *, statements: int = 0
) -> NDArray[np.bool_]:
    """Judge lines as one request; the shapes of those that are no text are stored."""
    parsed = parse(split("".join(f"{row}\n" for row in rows).encode()), shapes)
    found = judge.texts("one", parsed, shapes, statements=statements)
    kept = dict.fromkeys(parsed.new_rows[-1 - n] for n in parsed.shapes[~found].tolist() if n < 0)
    shapes.extend(list(kept))
    return found


def test_texts_are_judged_at_once_in_a_large_request_and_together_in_small_ones() -> None:
    judge = Judge()
    assert judge.is_text("large", window(20_000, 19_500))
    small = [judge.is_text("small", window(100, 98)) for _ in range(JUDGED_LINES // 100 + 2)]
    assert small == [False] * (JUDGED_LINES // 100) + [True, True]


def test_a_system_that_boots_or_writes_many_statements_is_no_text() -> None:
    judge = Judge()
    assert not judge.is_text("boot", window(1000, 950))
    assert not judge.is_text("mac", window(JUDGED_LINES, JUDGED_LINES * 46 // 100))


def test_lines_whose_new_shapes_repeat_what_stands_before_them_are_no_text() -> None:
    judge = Judge()
    assert not judge.is_text("build", window(5000, 4900, CHEAP))
    assert judge.is_text("build", window(5000, 4900))
    assert not judge.is_text("build", window(5000, 4900, CHEAP))


def test_a_stream_of_texts_may_become_one_of_lines_again() -> None:
    judge = Judge()
    assert judge.is_text("one", window(5000, 5000))
    assert judge.is_text("one", window(5000, 2500))
    assert not judge.is_text("one", window(5000, 100))
    assert not judge.is_text("other", window(5000, 100))


@pytest.mark.parametrize("request_lines", [100, 1500, 8000])
def test_sentences_are_text_and_lines_of_a_build_are_not(request_lines: int) -> None:
    for rows, are_texts in (sentences(8000), True), (build_lines(8000), False):
        judge, shapes = Judge(), Shapes()
        parts = [
            judged(judge, rows[n : n + request_lines], shapes)
            for n in range(0, len(rows), request_lines)
        ]
        last = np.concatenate(parts)[-4000:]
        assert last.mean() == float(are_texts)


def test_blocks_of_known_shapes_stay_lines_within_texts() -> None:
    judge, shapes = Judge(), Shapes()
    known = [f"worker {n} started" for n in range(BLOCK_LINES)]
    rows = [*sentences(4 * BLOCK_LINES), *known, *sentences(19 * BLOCK_LINES, seed=3)]
    found = judged(judge, rows, shapes)
    at = 4 * BLOCK_LINES
    assert not found[at : at + BLOCK_LINES].any()
    assert found.sum() == len(rows) - BLOCK_LINES


def test_new_shapes_are_dear_where_a_worker_has_many_statements_already() -> None:
    rows = build_lines(4000)
    assert judged(Judge(), rows, Shapes(), statements=MOST_STATEMENTS).all()
    assert not judged(Judge(), rows, Shapes(), statements=MOST_STATEMENTS - 1).any()
