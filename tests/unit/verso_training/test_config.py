"""Recipes."""

import pytest

from verso_training import config
from verso_training.config import Conditioning, RecipeInvalid, Storage


@pytest.mark.parametrize("name", ["tiny", "cpu", "gpu", "compare"])
def test_a_shipped_recipe_survives_its_resolved_form(name: str) -> None:
    recipe = config.load(name)
    assert config.parse(recipe.to_dict()) == recipe


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(RecipeInvalid, match=r"train\.minuts: "):
        config.parse({"name": "x", "train": {"minuts": 3}})


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("model", {"width": "wide"}),
        ("model", {"width": True}),
        ("model", {"conditioning": "telepathy"}),
        ("model", {"heads": 3, "kv_heads": 2}),
        ("tokenizer", {"vocab": 1000}),
        ("publish", {"decoder_storage": "int3"}),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(section: str, values: dict[str, object]) -> None:
    with pytest.raises(RecipeInvalid):
        config.parse({"name": "x", section: values})


def test_a_missing_recipe_is_a_clear_error() -> None:
    with pytest.raises(RecipeInvalid, match="readable recipe"):
        config.load("no-such-recipe")


def test_choices_become_their_enums() -> None:
    recipe = config.parse(
        {
            "name": "x",
            "model": {"conditioning": "cross"},
            "publish": {"encoder_storage": "float16"},
        }
    )
    assert recipe.model.conditioning is Conditioning.CROSS
    assert recipe.publish.encoder_storage is Storage.FLOAT16
