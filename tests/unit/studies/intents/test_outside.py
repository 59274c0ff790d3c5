"""Intervals of what tells scope."""

import numpy as np

from studies.intents import outside


def test_a_signal_that_parts_the_rows_has_no_error_and_one_that_does_not_is_chance() -> None:
    inside = np.arange(200) < 150
    rng = np.random.default_rng(0)
    told = outside.told(inside + 0.1 * rng.random(200).astype(np.float32), inside)
    assert (told["auroc"].low, told["auroc"].value, told["fpr95"].high) == (100.0, 100.0, 0.0)
    chance = outside.told(rng.random(200).astype(np.float32), inside)
    assert chance["auroc"].low < 50.0 < chance["auroc"].high
    assert chance["fpr95"].value > 80.0
    assert outside.section({}) == ""
