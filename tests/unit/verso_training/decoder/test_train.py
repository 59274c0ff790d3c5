"""The schedule of the learning rate."""

import pytest

from verso_training.config import TrainConfig
from verso_training.decoder.train import budget_share, rate_share

CONFIG = TrainConfig(warmup_steps=10, decay_fraction=0.4)


def test_the_rate_rises_is_flat_and_falls_with_the_clock() -> None:
    assert rate_share(CONFIG, 0.0, 0) == pytest.approx(0.1)
    assert rate_share(CONFIG, 0.3, 100) == pytest.approx(1.0)
    assert rate_share(CONFIG, 0.6, 100) == pytest.approx(1.0)
    assert rate_share(CONFIG, 0.8, 100) == pytest.approx(0.505)
    assert rate_share(CONFIG, 1.0, 100) == pytest.approx(0.01)


def test_a_late_step_does_not_turn_the_rate_negative() -> None:
    assert rate_share(CONFIG, 1.7, 100) == pytest.approx(0.01)


def test_a_budget_is_spent_by_time_or_by_steps_whichever_is_first() -> None:
    config = TrainConfig(minutes=2.0, max_steps=100)
    assert budget_share(config, 30.0, 10) == pytest.approx(0.25)
    assert budget_share(config, 30.0, 60) == pytest.approx(0.6)
    assert budget_share(config, 0.0, 100) >= 1.0
