"""Two versions agree where a caller would not see a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verso_core.errors import RecordCorrupt
from verso_core.jobs import Failed, Kind, Result
from verso_core.jobs.heads.answer import Answered
from verso_core.jobs.heads.classify import Classified
from verso_core.jobs.heads.score import PairScore
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.reconstruct import StoredText
from verso_core.jobs.search import Hits
from verso_worker.models.agreement import agreement

FAILED = Failed.of(RecordCorrupt("it is"))


def classified(*labels: str) -> Result[Any]:
    heads = [
        {
            "head": "kinds",
            "version": "v",
            "label": None,
            "abstained": True,
            "scores": [{"label": label, "score": 0.9}],
        }
        for label in labels
    ]
    return Result([Classified.model_validate({"heads": [one]}) for one in heads])


def answered(start: int, end: int, *, context: int = 0, given: bool = True) -> Result[Any]:
    place = {"start_byte": start, "end_byte": end}
    part = {**place, "score": 1.0, "null_score": 0.0, "evidence": place, "context": context}
    found = {
        "head": "qa",
        "version": "v",
        "answered": given,
        "null_threshold": 0.0,
        "contexts": 2,
        "answers": [part],
    }
    return Result([Answered.model_validate(found)])


def scored(*scores: float) -> Result[Any]:
    return Result([PairScore(head="pairs", version="v", score=score) for score in scores])


def found(*ids: str) -> Result[Any]:
    hits = [{"id": f"{one}#0", "document": one, "chunk": 0, "score": 0.5} for one in ids]
    return Result([Hits.model_validate({"hits": hits})])


def embedded(*values: float) -> Result[Any]:
    return Result([Embedded(vector=np.array(values, "<f4").tobytes())])


@pytest.mark.parametrize(
    ("kind", "canary", "stable", "expected"),
    [
        (Kind.CLASSIFY, classified("a", "b", "c"), classified("a", "c", "c"), (2, 1)),
        (Kind.ANSWER, answered(3, 9), answered(5, 12), (1, 0)),
        (Kind.ANSWER, answered(3, 9), answered(9, 12), (0, 1)),
        (Kind.ANSWER, answered(3, 9), answered(3, 9, context=1), (0, 1)),
        (Kind.ANSWER, answered(3, 9, given=False), answered(5, 6, given=False), (1, 0)),
        (Kind.ANSWER, answered(3, 9), answered(3, 9, given=False), (0, 1)),
        (Kind.SCORE, scored(0.1, 0.9, 0.5), scored(3.0, 9.0, 8.0), (2, 0)),
        (Kind.SCORE, scored(0.1, 0.9, 0.5), scored(9.0, 3.0, 1.0), (1, 1)),
        (Kind.SCORE, scored(0.1), scored(9.0), (0, 0)),
        (Kind.SEARCH, found("a", "b"), found("a", "c"), (1, 0)),
        (Kind.SEARCH, found("a"), found(), (0, 1)),
        (Kind.SEARCH, found(), found(), (1, 0)),
        (Kind.EMBED, embedded(0.6, 0.8), embedded(0.6001, 0.8), (1, 0)),
        (Kind.EMBED, embedded(0.6, 0.8), embedded(0.8, 0.6), (0, 1)),
        (
            Kind.RECONSTRUCT,
            Result([StoredText(id="a", text="one"), FAILED]),
            Result([StoredText(id="a", text="two"), FAILED]),
            (0, 1),
        ),
        (Kind.STATS, found("a"), found("b"), (0, 0)),
    ],
)
def test_what_a_caller_would_notice_is_a_difference(
    kind: Kind, canary: Result[Any], stable: Result[Any], expected: tuple[int, int]
) -> None:
    assert agreement(kind, canary, stable, head="kinds") == expected
    assert agreement(kind, canary, canary, head="kinds").differed == 0


def test_a_new_label_is_no_difference() -> None:
    """A canary that was trained with one more label is meant to give it."""
    canary, stable = classified("new", "a"), classified("a", "b")
    assert agreement(Kind.CLASSIFY, canary, stable, head="kinds", labels={"a", "b"}) == (0, 1)


def test_the_labels_of_another_head_are_left_to_it() -> None:
    assert agreement(Kind.CLASSIFY, classified("a"), classified("b"), head="other") == (0, 0)
