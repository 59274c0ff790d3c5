"""Recipes of heads, from a TOML file or a request.

An unknown key is an error, as in the recipes of decoders. A recipe has one table of settings for
the task it names: ``[classify]``, ``[answer]`` or ``[score]``; the others keep their defaults.

Nothing here loads torch: a recipe that cannot be followed is refused before the seconds that takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, with_config

from verso_core.heads import READS, Portion, Reads, Task, TextUnit
from verso_training.config import STRICT, RecipeInvalid, checked
from verso_training.heads.rows import Row

_FEWEST_TOKENS = 24
"""Of a window: special tokens, a short question, and room for its context."""

# The settings of the tasks are apart although some are alike: each task has its own defaults.


class SpanLayers(StrEnum):
    """The output layers of a reader, named as in Preite 2020, section 6.1."""

    VANILLA = "vanilla"
    """One linear layer (figure 6.1)."""
    TANH_2 = "2l-tanh"
    """768 to 384 to 2 with Tanh (figure 6.2)."""
    GELU_2 = "2l-gelu"
    """768 to 256 to 2 with GELU (figure 6.3)."""
    RELU_2_SKIP = "2l-relu-skip"
    """768 to 768 with ReLU, plus the input, to 2 (figure 6.4)."""
    RELU_4 = "4l-relu"
    """768 to 1024 to 768 to 200 to 2 with ReLU (figure 6.5)."""
    GELU_4_SKIP = "4l-gelu-skip"
    """768 to 1024 to 768, plus the input, to 384 to 2 with GELU (figure 6.6, listing 6.4)."""


class ClassWeights(StrEnum):
    """The weight of a label's rows in the loss, by their number."""

    NONE = "none"
    SQRT = "sqrt"
    """1 / sqrt(n): rare labels count more, but not as much as common ones together."""
    BALANCED = "balanced"
    """1 / n: every label counts alike."""


class Folds(StrEnum):
    """What a fold of rows is held out from, where a classifier of documents is calibrated."""

    OTHERS = "others"
    """All other folds: projects, hosts."""
    EARLIER = "earlier"
    """The folds before it, in the order of their names: months, releases."""


@with_config(STRICT)
@dataclass(frozen=True)
class ClassifyConfig:
    """A classifier on vectors (fitted at once) or on tokens (an adapter, trained by steps).

    Attributes:
        hidden: Width of a hidden layer; 0 for one linear layer. Of documents none is tried as
            well. Vectors and documents only.
        l2: Penalties tried; validation decides. Vectors only.
        iterations: Of L-BFGS, for each penalty. Vectors only.
        patience: Rounds of ten iterations (vectors) or epochs (tokens) without a better
            validation loss.
        epochs: Over the rows. Tokens only.
        minutes: Of processor time at most. Tokens only.
        max_tokens: Of a text; a longer one is read by its beginning. Tokens only.
        decoder: Whether the decoder's signals of a text (self-generation, bits) are among the
            signals of confidence. Rows of a collection are then the beginnings of its texts, and
            every classified text costs a run of the decoder.
        buckets: Columns of the layer on terms, best a prime; 0 for none. Documents only.
        max_chunks: Most chunks of a document that are read. Documents only.
        folds: Of a source of labels whose rows have folds. It is calibrated on folds held out, and
            then trained on its validation rows too. Documents only.
        chunk: Which chunks of stored documents it is trained on and, where a request does not say,
            reads. Rows of a collection only: a text that comes as a row has one vector.
    """

    hidden: int = 0
    l2: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    iterations: int = 200
    patience: int = 3
    class_weights: ClassWeights = ClassWeights.SQRT
    epochs: int = 6
    minutes: float = 30.0
    rate: float = 8e-4
    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.1
    tokens_per_step: int = 2048
    max_tokens: int = 128
    checkpoint_minutes: float = 1.0
    decoder: bool = False
    chunk: Portion | None = None
    buckets: int = 0
    max_chunks: int = 16
    folds: Mapping[str, Folds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_steps(self)
        if self.buckets < 0 or self.max_chunks < 2:
            raise RecipeInvalid("classify: expected buckets >= 0 and max_chunks >= 2")
        if self.decoder and self.chunk is not None:
            raise RecipeInvalid("expected classify.decoder or classify.chunk, got both")


@with_config(STRICT)
@dataclass(frozen=True)
class AnswerConfig:
    """A reader; see ``verso_training.heads.reader``.

    Attributes:
        layers: Of the head that ships.
        beside: Heads trained on the same adapter for comparison only.
        start: Name of a head to start from, in the service; its layers, rank and alpha apply.
        epochs: Over the questions, at most.
        minutes: Of processor time.
        stride: Tokens that two windows share.
        made_up: Questions without an answer that are made of questions with one, by giving them
            another paragraph; a share of those with one.
        patience: Epochs without a better validation loss that end the training; 0: train to the end
            and keep the last weights.
    """

    layers: SpanLayers = SpanLayers.GELU_4_SKIP
    beside: tuple[SpanLayers, ...] = ()
    start: str = ""
    epochs: float = 3.0
    minutes: float = 55.0
    rate: float = 8e-4
    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.1
    tokens_per_step: int = 3072
    max_tokens: int = 256
    stride: int = 96
    made_up: float = 0.3
    checkpoint_minutes: float = 1.0
    patience: int = 2

    def __post_init__(self) -> None:
        _check_steps(self)
        if self.stride < 1 or not 0 <= self.made_up <= 1:
            raise RecipeInvalid("answer: expected stride >= 1 and made_up in [0, 1]")


def _check_steps(config: ClassifyConfig | AnswerConfig | ScoreConfig) -> None:
    """Refuse settings that no training by steps can use."""
    for name in ("epochs", "minutes", "rate", "rank", "alpha"):
        if not 0 < getattr(config, name) < math.inf:
            raise RecipeInvalid(f"{name}: expected a number > 0, got {getattr(config, name)}")
    if config.patience < 0:
        raise RecipeInvalid(f"patience: expected a number >= 0, got {config.patience}")
    if not 0 <= config.dropout < 1:
        raise RecipeInvalid(f"dropout: expected a number in [0, 1), got {config.dropout}")
    if not config.tokens_per_step >= config.max_tokens >= _FEWEST_TOKENS:
        raise RecipeInvalid(
            f"expected tokens_per_step >= max_tokens >= {_FEWEST_TOKENS}, got "
            f"{config.tokens_per_step} and {config.max_tokens}"
        )


@with_config(STRICT)
@dataclass(frozen=True)
class ScoreConfig:
    """A scorer of pairs read together.

    Attributes:
        start: Name of a head to start from, in the service.
        patience: As in :class:`AnswerConfig`.
        text_unit: What of a text rerank has the head read. One that is trained on groups reads
            passages.
    """

    start: str = ""
    epochs: int = 4
    minutes: float = 20.0
    rate: float = 8e-4
    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.1
    tokens_per_step: int = 2048
    max_tokens: int = 128
    checkpoint_minutes: float = 1.0
    patience: int = 2
    text_unit: TextUnit | None = None

    def __post_init__(self) -> None:
        _check_steps(self)


@with_config(STRICT)
@dataclass(frozen=True)
class HeadRecipe:
    """One complete training of a head.

    Attributes:
        name: Of the head and its folder.
        none_label: A label that means "out of scope".
        validation_share: Of rows without a split: for choices and calibration.
        test_share: Of rows without a split: for the reported figures.
    """

    name: str
    task: Task = Task.CLASSIFY
    reads: Reads = Reads.VECTOR
    none_label: str | None = None
    validation_share: float = 0.15
    test_share: float = 0.15
    seed: int = 0
    threads: int = 1
    data: dict[str, Any] = field(default_factory=dict)
    """For the command line: which of the public data sets to read."""
    classify: ClassifyConfig = ClassifyConfig()
    answer: AnswerConfig = AnswerConfig()
    score: ScoreConfig = ScoreConfig()

    def __post_init__(self) -> None:
        if self.reads not in READS[self.task]:
            known = ", ".join(READS[self.task])
            raise RecipeInvalid(f"expected a head for {self.task} to read {known}")
        if not 0 < self.validation_share < 0.5 or not 0 < self.test_share < 0.5:
            raise RecipeInvalid("expected validation_share and test_share in (0, 0.5)")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the tables of other tasks; ``parse`` reads it back."""
        values: dict[str, Any] = TypeAdapter(HeadRecipe).dump_python(self, mode="json")
        others = {str(task) for task in Task} - {str(self.task)}
        return {key: value for key, value in values.items() if key not in others}


def parse(values: Mapping[str, Any]) -> HeadRecipe:
    """Build a recipe from plain values.

    Raises:
        RecipeInvalid: an unknown key, or an invalid value.
    """
    return checked(HeadRecipe, values, strict=False)


def check_chunk(recipe: HeadRecipe, examples: Iterable[Row]) -> None:
    """Refuse a recipe that names a chunk for rows that are texts.

    Raises:
        RecipeInvalid: a row has no vector.
    """
    if recipe.classify.chunk is not None and any(row.vector is None for row in examples):
        raise RecipeInvalid("classify.chunk: expected rows of a collection, whose chunks are known")
