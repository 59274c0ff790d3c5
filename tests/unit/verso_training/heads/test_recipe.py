"""Recipes of heads: unknown keys and misfits are errors."""

import pytest

from verso_core.heads import Reads, Task
from verso_training.config import RecipeInvalid
from verso_training.heads import recipe


def test_a_recipe_reads_back_from_its_own_values() -> None:
    made = recipe.parse({"name": "x", "classify": {"hidden": 64, "l2": [0.1]}})
    assert recipe.parse(made.to_dict()) == made
    assert "answer" not in made.to_dict()


@pytest.mark.parametrize(
    "values",
    [
        {"name": "x", "classify": {"hiden": 64}},
        {"name": "x", "classify": {"chunk": "middle"}},
        {"name": "x", "task": "sing"},
        {"name": "x", "task": "answer", "reads": "vector"},
        {"name": "x", "test_share": 0.9},
        {"name": "x", "answer": {"minutes": 0}},
        {"name": "x", "answer": {"made_up": 2}},
        {"name": "x", "answer": {"max_tokens": 8}},
        {"name": "x", "score": {"tokens_per_step": 100}},
        {"name": "x", "score": {"dropout": 1}},
        {},
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(RecipeInvalid):
        recipe.parse(values)


def test_tasks_and_reads_are_parsed() -> None:
    made = recipe.parse({"name": "qa", "task": "answer", "reads": "token_pair"})
    assert (made.task, made.reads) == (Task.ANSWER, Reads.TOKEN_PAIR)
