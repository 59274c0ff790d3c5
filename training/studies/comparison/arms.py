"""The arms of the comparison: one recipe, and the settings in which each arm differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verso_training.config import Recipe, parse


@dataclass(frozen=True)
class Arm:
    """One decoder of the comparison.

    name: as it stands in the table and as its folder is called
    changes: recipe sections with the keys that differ from the recipe all start from
    """

    name: str
    changes: Mapping[str, Mapping[str, Any]]

    def recipe(self, start: Recipe) -> Recipe:
        """The arm's own recipe."""
        values = start.to_dict()
        sections = {name: {**values[name], **keys} for name, keys in self.changes.items()}
        return parse({**values, **sections, "name": self.name})


def _vocabulary(size: int) -> dict[str, dict[str, int]]:
    return {"tokenizer": {"vocab": size}, "model": {"vocab": size}}


ARMS = (
    Arm("start", {}),
    Arm("start, other seed", {"train": {"seed": 21}}),
    Arm("1 layer", {"model": {"layers": 1}}),
    Arm("4 layers", {"model": {"layers": 4}}),
    Arm("6 layers", {"model": {"layers": 6}}),
    Arm("vocabulary 4,096", _vocabulary(4096)),
    Arm("vocabulary 16,384", _vocabulary(16384)),
    Arm("cross-attention", {"model": {"conditioning": "cross"}}),
    Arm("vectors as float16", {"train": {"vector_precision": "float16"}}),
    Arm("vectors as int8", {"train": {"vector_precision": "int8"}}),
    Arm("vectors of 1 bit", {"train": {"vector_precision": "bit"}}),
    Arm("no noise", {"train": {"vector_noise": 0.0}}),
    Arm("noise 0.1", {"train": {"vector_noise": 0.1}}),
    Arm("no vector dropout", {"train": {"vector_dropout": 0.0}}),
)
"""The second one shows how far two runs differ that differ in nothing but their seed."""
