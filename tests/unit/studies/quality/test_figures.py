"""Figures of the report: rankings, probabilities of other label sets, the words baseline."""

import numpy as np
import pytest

from studies.quality import baselines, selection
from studies.quality.baselines import Probabilities
from studies.quality.pairsets import Ranking


def test_a_ranking_is_as_good_as_its_first_right_candidate() -> None:
    rankings = [
        Ranking("q", ("a", "b", "c"), frozenset({1})),
        Ranking("q", ("a", "b", "c"), frozenset({0, 2})),
    ]
    scores = [np.array([0.9, 0.8, 0.1], np.float32), np.array([0.1, 0.2, 0.3], np.float32)]
    mrr, first = selection.ranked(scores, rankings)
    assert mrr == pytest.approx(100 * (1 / 2 + 1) / 2)
    assert first == 50.0


def test_probabilities_follow_the_labels() -> None:
    given = Probabilities(np.array([[0.2, 0.8]], np.float32), ("b", "a"))
    assert given.aligned(("a", "b", "new"))[0] == pytest.approx([0.8, 0.2, 0.0])


def test_words_tell_what_words_can_tell() -> None:
    texts = ["disk full", "disk is full", "timed out", "it timed out"] * 5
    labels = ["disk", "disk", "time", "time"] * 5
    (found,) = baselines.tfidf(texts, labels, others=[["the disk", "has timed out"]])
    assert [found.labels[i] for i in found.values.argmax(-1)] == ["disk", "time"]
