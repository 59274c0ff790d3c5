"""Two rankings made one."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pytest

from verso_core.jobs import Precision
from verso_worker.records.fusion import DEPTH, depth, fused, joined, reranked
from verso_worker.records.points import Candidates
from verso_worker.records.space import Space

SPACE = Space(Precision.INT8, 2, 100.0)
UNIT = np.array([1, 0], np.float32)


def found(*points: tuple[int, tuple[int, int], float]) -> Candidates:
    return Candidates(
        [UUID(int=one) for one, _, _ in points],
        np.array([stored for _, stored, _ in points], np.int8).reshape(-1, 2),
        [{"d": str(one)} for one, _, _ in points],
        [score for _, _, score in points],
    )


def test_each_point_is_joined_once_and_only_scores_of_terms_are_kept() -> None:
    near = found((1, (100, 0), 0.9), (2, (60, 80), 0.5))
    said = found((2, (60, 80), 4.0), (3, (0, 100), 1.0))
    both = joined(near, said)
    assert [one.int for one in both.ids] == [2, 3, 1]
    assert both.scores == [4.0, 1.0, 0.0]
    assert both.stored.tolist() == [[60, 80], [0, 100], [100, 0]]
    assert [payload["d"] for payload in both.payloads] == ["2", "3", "1"]


def test_scores_are_joined_on_one_scale() -> None:
    both = found((1, (100, 0), 0.0), (2, (60, 80), 4.0), (3, (0, 100), 1.0))
    hits = fused(SPACE, UNIT, found=both, weights={UUID(int=1): 2.0}, limit=3)
    assert [hit.id.int for hit in hits] == [2, 1, 3]
    assert [hit.score for hit in hits] == pytest.approx([0.5 * 0.6 + 0.5, 0.75, 0.125])
    assert [hit.cosine for hit in hits] == pytest.approx([0.6, 1.0, 0.0])
    assert [hit.weight for hit in hits] == [4.0, 2.0, 1.0]
    assert fused(SPACE, UNIT, found=both, weights={}, limit=1)[0].id.int == 2


def test_candidates_that_are_all_alike_are_ordered_by_id() -> None:
    both = found((7, (100, 0), 0.0), (5, (100, 0), 0.0))
    hits = fused(SPACE, UNIT, found=both, weights={}, limit=2)
    assert [(hit.id.int, hit.score) for hit in hits] == [(5, 0.0), (7, 0.0)]


def test_nothing_found_is_no_hits() -> None:
    assert fused(SPACE, UNIT, found=joined(found(), found()), weights={}, limit=5) == []


def test_enough_candidates_are_asked_for() -> None:
    assert depth(1) == DEPTH
    assert depth(1000) >= 1000


@pytest.mark.parametrize(
    ("share", "order"), [(0.0, [0, 1, 2]), (1.0, [2, 0, 1]), (0.5, [0, 2, 1]), (0.8, [2, 0, 1])]
)
def test_hits_are_reranked_by_both_scores(share: float, order: list[int]) -> None:
    """Whatever their scales: the search's are 0.9, 0.5, 0.1, the head's 20, 0 and 30."""
    read = np.array([20, 0, 30], np.float32)
    assert reranked([0.9, 0.5, 0.1], read, share=share) == order


def test_hits_that_score_alike_stay_as_they_stood() -> None:
    assert reranked([0.4, 0.4], np.array([1, 1], np.float32), share=0.5) == [0, 1]
    assert reranked([], np.zeros(0, np.float32), share=0.5) == []
