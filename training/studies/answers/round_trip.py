"""Which made-up questions are kept: those whose answer a reader trained without them finds.

Alberti et al. 2019, "Synthetic QA corpora generation with roundtrip consistency". The reader's best
span counts, whether or not it would give it: by its margin it would keep what it knows already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from verso_training.heads.questions import Question
from verso_training.heads.reader import Answer, normalised

Read = Callable[[Sequence[Question]], Sequence[Answer]]
"""The best span of each question."""


def kept(made: Sequence[Question], read: Read) -> list[Question]:
    """Return the questions whose answer is the reader's best span."""
    return [
        row
        for row, found in zip(made, read(made), strict=True)
        if normalised(found.text) in {normalised(answer) for answer in row.answers}
    ]


def spans_within(
    asked: Sequence[Question],
    marked: Sequence[Sequence[tuple[int, int]]],
    read: Read,
    *,
    words: int = 10,
) -> list[Question]:
    """Return questions whose answer is the reader's best span, where people marked its sentence.

    Args:
        asked: Questions; their answers are not looked at.
        marked: Characters [start, end) of the sentences that answer each.
        read: A reader that was not trained on them.
        words: Of a span, at most.
    """
    found = []
    for row, places, answer in zip(asked, marked, read(asked), strict=True):
        first, last = answer.place
        inside = any(start <= first and last <= end for start, end in places)
        if inside and answer.text and len(answer.text.split()) <= words:
            found.append(replace(row, answers=(answer.text,)))
    return found
