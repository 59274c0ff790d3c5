"""Streams of log lines and of texts are told apart, however many lines a request has."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from verso_codecs.logs.parsing import parse, split
from verso_codecs.logs.shapes import Shapes
from verso_worker.records.segments import BLOCK_LINES
from verso_worker.rules.logs.writing.texts import (
    JUDGED_LINES,
    MOST_SHAPES,
    MOST_STATEMENTS,
    Judge,
)

_LETTERS = "etaoinshrdlu"


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
    rows = sentences(JUDGED_LINES + 200)
    assert judged(Judge(), rows, Shapes()).all()
    judge, shapes = Judge(), Shapes()
    small = [judged(judge, rows[n : n + 100], shapes) for n in range(0, len(rows), 100)]
    assert [one.all() for one in small] == [False] * (JUDGED_LINES // 100) + [True, True, True]


def test_a_system_that_boots_or_writes_many_statements_is_no_text() -> None:
    assert not judged(Judge(), sentences(1000), Shapes()).any()
    mac = [*sentences(JUDGED_LINES * 46 // 100), *["the same"] * JUDGED_LINES][:JUDGED_LINES]
    assert not judged(Judge(), mac, Shapes()).any()


def test_a_stream_of_texts_may_become_one_of_lines_again() -> None:
    for lines in build_lines(4000), ["a known line"] * 4000:
        judge, shapes = Judge(), Shapes()
        assert judged(judge, sentences(4000), shapes).all()
        assert judged(judge, [*sentences(2500, seed=2), *["known"] * 1500], shapes)[:2000].all()
        assert not judged(judge, lines, shapes)[-1000:].any()
        assert judged(judge, sentences(8000, seed=3), shapes)[-1000:].all()


def test_texts_end_with_known_lines_though_many_new_ones_stood_before() -> None:
    judge, shapes = Judge(), Shapes()
    assert judged(judge, sentences(JUDGED_LINES), shapes).all()
    shapes.extend(parse(split(b"known\n"), shapes).new_rows)
    for rows in sentences(1000, seed=2), *[["known"] * 100] * 11:
        judged(judge, rows, shapes)
    assert not judged(judge, sentences(100, seed=3), shapes).any()


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


@pytest.mark.parametrize("request_lines", [100, 1500, 8000])
def test_sentences_in_a_frame_are_no_text_and_those_with_quotes_are(request_lines: int) -> None:
    rows = sentences(8000)
    framed = [f'{{"host":"web-{n}","msg":"{row} {row}","level":6}}' for n, row in enumerate(rows)]
    quoted = [f'{row} "{row}" {row[::-1]}' for row in rows]
    for given, are_texts in (framed, False), (quoted, True):
        judge, shapes = Judge(), Shapes()
        parts = [
            judged(judge, given[n : n + request_lines], shapes)
            for n in range(0, len(given), request_lines)
        ]
        assert np.concatenate(parts)[-4000:].mean() == float(are_texts)


def test_sentences_in_a_frame_are_text_where_a_worker_has_many_shapes_already() -> None:
    shapes = Shapes(_names(MOST_SHAPES))
    framed = [f'{{"msg":"{row} {row}"}}' for row in sentences(2 * JUDGED_LINES)]
    assert judged(Judge(), framed, shapes).all()
    assert not judged(Judge(), build_lines(4000), shapes).any()


def _names(count: int) -> list[bytes]:
    letters = [one.encode() for one in "abcdefghijklmnopqrstuvwxyz"]
    pairs = [a + b for a in letters for b in letters]
    return [a + b for a in pairs for b in pairs][:count]
