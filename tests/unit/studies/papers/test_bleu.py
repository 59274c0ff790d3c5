"""BLEU of the worked examples of its sources."""

import numpy as np
import pytest

from studies.papers.bleu import bleu, right_words, with_ends, words


def test_bleu_is_that_of_the_paper() -> None:
    """By hand: 7 of 8 words, 4 of 7 pairs, 2 of 6 triples, 1 of 5 fours; nine words were wanted."""
    guess = ["the", "disk", "sda", "of", "the", "host", "is", "full"]
    wanted = ["the", "disk", "sdb", "of", "the", "host", "is", "now", "full"]
    precisions = 7 / 8 * 4 / 7 * 2 / 6 * 1 / 5
    expected = 100 * np.exp(1 - 9 / 8) * precisions**0.25
    assert bleu([guess], [wanted]) == pytest.approx(expected)
    assert bleu([wanted], [wanted]) == pytest.approx(100)
    assert bleu([["full"]], [wanted]) == 0.0


def test_words_count_as_often_as_they_are_wanted() -> None:
    guess, wanted = words(b"the cat the cat on the mat"), words(b"the cat is on the mat")
    assert right_words([guess], [wanted]) == pytest.approx(100 * 5 / 6)


def test_both_figures_have_intervals_over_the_texts() -> None:
    wanted = [["the", "disk", "is", "full"]] * 20
    guesses = [["the", "disk", "is", "full"]] * 10 + [["the", "host", "has", "none"]] * 10
    found = with_ends(guesses, wanted)
    assert found["right"] == right_words(guesses, wanted) == 62.5
    assert found["bleu"] == bleu(guesses, wanted)
    for key in ("right", "bleu"):
        assert found[f"{key}/low"] < found[key] < found[f"{key}/high"]
