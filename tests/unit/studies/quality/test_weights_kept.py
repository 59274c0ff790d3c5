from pathlib import Path

import pytest

from studies.quality import shipped
from studies.quality.job import Job, command, load_recipe
from verso_training.config import RecipeInvalid


def test_a_recipe_that_trains_nothing_takes_no_weights(tmp_path: Path) -> None:
    job = Job(
        data=tmp_path,
        artifact=tmp_path,
        out_dir=tmp_path,
        work=tmp_path,
        on_progress=lambda _: None,
        weights=tmp_path,
    )
    with pytest.raises(RecipeInvalid, match="nothing is trained"):
        shipped.train(load_recipe("alike"), job)


def test_the_command_of_a_card_names_the_weights_that_were_kept() -> None:
    recipe = load_recipe("qa")
    assert command(recipe) == "python -m studies head --recipe qa"
    assert command(recipe, weights="c3061a") == f"{command(recipe)} --weights c3061a"
