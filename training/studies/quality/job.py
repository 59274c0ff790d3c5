"""The inputs of every head that ships: folders, recipe, command and digest of the data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verso_core.heads import Head
from verso_training import config
from verso_training.heads import recipe as recipes
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.vectors import OnProgress, ShouldStop


@dataclass(frozen=True)
class Job:
    """Where to read, work and write.

    Attributes:
        data: Folder of the public data sets.
        artifact: Whose encoder the head reads.
        out_dir: ``models/heads``.
        work: For vectors and checkpoints; a later run goes on from there.
        weights: Folder of a head whose weights are kept. Of one that answers, what is chosen on
            validation rows is made again; of one that reads documents and was calibrated without
            folds, the limits of its sources. The figures of all are measured again.
        taught: Folder of a reader that a study has trained, which is measured and written as it is.
    """

    data: Path
    artifact: Path
    out_dir: Path
    work: Path
    on_progress: OnProgress
    should_stop: ShouldStop = lambda: False
    weights: Path | None = None
    taught: Path | None = None


def load_recipe(name_or_path: str) -> HeadRecipe:
    """Read a head's recipe by name (``intents``, ``log-failures``, ...) or from a TOML file.

    Raises:
        RecipeInvalid: no such recipe, or an invalid one.
    """
    return recipes.parse(config.read(name_or_path, config.RECIPES / "heads"))


def command(recipe: HeadRecipe, *, weights: str = "") -> str:
    """The command that makes the head of a recipe, with the weights of another version or not."""
    kept = f" --weights {weights}" if weights else ""
    return f"python -m studies head --recipe {recipe.name}{kept}"


def kept_note(start: Head) -> str:
    """Return the sentence of a card on weights that another version has too."""
    return (
        f"No weight was trained for this version: they are those of {start.version}, of "
        f"{start.created:%Y-%m-%d}, made by `{start.lineage.command}`."
    )


def digest(examples: Sequence[object]) -> str:
    """SHA-256 over the examples, each a dataclass of texts and numbers, in their order."""
    total = hashlib.sha256()
    for example in examples:
        total.update(repr(example).encode("utf-8", "surrogatepass") + b"\0")
    return total.hexdigest()
