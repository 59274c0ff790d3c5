"""What the compared decoders differ in."""

import pytest

from studies.comparison.arms import ARMS, Arm
from verso_training import config
from verso_training.config import RecipeInvalid


def test_an_arm_differs_from_the_start_in_what_it_names_and_in_its_name() -> None:
    start = config.load("compare")
    for arm in ARMS:
        own, expected = arm.recipe(start).to_dict(), start.to_dict()
        for section, keys in arm.changes.items():
            assert all(expected[section][key] != value for key, value in keys.items())
            expected[section] |= keys
        assert own == expected | {"name": arm.name}


def test_no_two_arms_share_a_name() -> None:
    assert len({arm.name for arm in ARMS}) == len(ARMS)


def test_a_misspelt_change_is_refused() -> None:
    with pytest.raises(RecipeInvalid, match="layer"):
        Arm("deep", {"model": {"layer": 9}}).recipe(config.load("compare"))
