"""Recipes: everything a run depends on, read from one TOML file into frozen dataclasses.

A recipe has five tables (``data``, ``tokenizer``, ``model``, ``train``, ``publish``). A key that no
dataclass knows is an error, so a misspelt setting cannot be silently ignored. The resolved recipe
is written into the run folder before the first step; a run can be repeated from its folder alone.
"""

from __future__ import annotations

import dataclasses
import json
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from verso_core.errors import VersoError

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
STRICT = ConfigDict(extra="forbid", frozen=True)

_R = TypeVar("_R")


class RecipeInvalid(VersoError):
    """Raised when a recipe has a key or a value that the dataclasses do not know."""

    code = "recipe_invalid"


class Storage(StrEnum):
    """How weights are stored in a graph."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


class Conditioning(StrEnum):
    """How the decoder sees the sentence vector."""

    MEMORY = "memory"
    """The vector becomes several key/value slots that every layer can attend to."""
    CROSS = "cross"
    """Cross-attention over the single vector, as in Vaswani et al. 2017, with one key and value.
    The past then begins with one entry of zeros, since a cache without entries is not served."""


class Precision(StrEnum):
    """Precision of the vectors that a decoder is trained on."""

    MIXED = "mixed"
    """Half of the rows as float16, half as int8: one decoder for both kinds of store."""
    FLOAT16 = "float16"
    INT8 = "int8"
    BIT = "bit"
    """One sign per dimension, for comparison only: no store of Verso keeps such vectors."""


@with_config(STRICT)
@dataclass(frozen=True)
class DataConfig:
    """Which texts are drawn, and how many bytes of each family."""

    total_bytes: int = 24_000_000
    """Bytes of training text, all families together."""
    shares: Mapping[str, float] = field(
        default_factory=lambda: {
            "techdocs": 0.35,
            "logs": 0.30,
            "books": 0.20,
            "squad": 0.10,
            "factbook": 0.05,
        }
    )
    """Share of ``total_bytes`` per family. A family with less text contributes all of it."""
    validation_chunks: int = 600
    """Most held-out chunks kept per family."""
    seed: int = 20


@with_config(STRICT)
@dataclass(frozen=True)
class TokenizerConfig:
    """Byte-level BPE."""

    vocab: int = 8192
    """Vocabulary size including bos and eos, which take the last two ids."""
    sample_bytes: int = 20_000_000


@with_config(STRICT)
@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the decoder. The defaults are the CPU recipe."""

    vocab: int = 8192
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    mlp_ratio: int = 4
    vector_dim: int = 384
    slots: int = 8
    max_tokens: int = 128
    rope_base: float = 10_000.0
    conditioning: Conditioning = Conditioning.MEMORY

    @property
    def prefix(self) -> int:
        """Entries of the past before the first token."""
        return 1 if self.conditioning is Conditioning.CROSS else self.slots

    @property
    def bos(self) -> int:
        """Id of the token that starts every record."""
        return self.vocab - 2

    @property
    def eos(self) -> int:
        """Id of the token that ends every record."""
        return self.vocab - 1


@with_config(STRICT)
@dataclass(frozen=True)
class TrainConfig:
    """Optimisation. The schedule follows the wall clock, so a run always ends on time."""

    minutes: float = 80.0
    """Wall-clock budget of the run; the learning rate reaches its end exactly then."""
    max_steps: int = 1_000_000
    device: str = "cpu"
    """PyTorch's name of it, or ``fastest``: a GPU if there is one."""
    threads: int = 2
    bfloat16: bool = True
    compile: bool = False
    """Whether the decoder is compiled, on a GPU alone."""
    tokens_per_step: int = 6144
    """Most tokens of one step, padding included."""
    matrix_rate: float = 0.02
    """Learning rate of Muon (2-D matrices inside the blocks)."""
    embedding_rate: float = 0.003
    """Learning rate of AdamW (embeddings, conditioning, gains)."""
    weight_decay: float = 0.01
    warmup_steps: int = 60
    decay_fraction: float = 0.45
    """Last part of the budget over which the rates fall linearly towards zero."""
    clip_norm: float = 1.0
    vector_dropout: float = 0.12
    """Share of rows whose vector is replaced by zeros, so that the model also works without one."""
    vector_noise: float = 0.01
    """Norm of the Gaussian noise added to the unit vector."""
    vector_precision: Precision = Precision.MIXED
    evaluate_minutes: float = 8.0
    evaluate_chunks: int = 150
    """Held-out chunks per family that an evaluation during the run looks at."""
    checkpoint_minutes: float = 5.0
    seed: int = 20


@dataclass(frozen=True)
class Budget:
    """Time to train an existing decoder further.

    minutes: measured by ``clock``
    threads: cores it may use
    clock: returns seconds; see `Run`
    """

    minutes: float
    threads: int = 1
    clock: Callable[[], float] = time.monotonic


@with_config(STRICT)
@dataclass(frozen=True)
class PublishConfig:
    """Publication of a trained decoder: storage of weights, tables, samples."""

    encoder_storage: Storage = Storage.INT8
    decoder_storage: Storage = Storage.INT8
    table_bytes: int = 80_000_000
    """Bytes of training text counted for the n-gram tables, in the mixture of ``data.shares``."""
    ngram_width: int = 20
    """log2 of the most lines of an n-gram context: bounds the size of ngram.npz."""
    counting_width: int = 23
    dictionary_bytes: int = 112_640
    """Size of the zstd dictionary; 110 KiB is zstd's own default."""
    fit_chunks: int = 500
    """Held-out chunks per source from which the rank tables are fitted."""
    mixing_chunks: int = 3000
    """Held-out chunks per source from which the mixing of n-gram predictions is fitted."""
    report_chunks: int = 200
    """Other held-out chunks per source from which the figures come."""
    golden: int = 96
    epsilon: float = 0.004
    """Margin of a logit decision, nats. It must exceed the noise that the model card states."""
    confidence_epsilon: float = 0.004


@with_config(STRICT)
@dataclass(frozen=True)
class Recipe:
    """One complete run."""

    name: str
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    publish: PublishConfig = field(default_factory=PublishConfig)

    def __post_init__(self) -> None:
        if self.tokenizer.vocab != self.model.vocab:
            raise RecipeInvalid(
                f"expected one vocabulary, got tokenizer {self.tokenizer.vocab} "
                f"and model {self.model.vocab}"
            )
        if self.model.heads % self.model.kv_heads:
            raise RecipeInvalid(
                f"expected heads divisible by kv_heads, got {self.model.heads} "
                f"and {self.model.kv_heads}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The resolved recipe as plain JSON values; ``parse`` reads it back."""
        return dataclasses.asdict(self)


def load(name_or_path: str) -> Recipe:
    """Read a recipe by name (``tiny``, ``cpu``, ``gpu``) or from a TOML file.

    Raises:
        RecipeInvalid: no such recipe, or a key or value the dataclasses do not know.
    """
    return parse(read(name_or_path, RECIPES))


def read(name_or_path: str, folder: Path) -> dict[str, Any]:
    """Read the values of a TOML file, or of a name in ``folder``; their name is the file's.

    Raises:
        RecipeInvalid: no such file, or no TOML.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = folder / f"{name_or_path}.toml"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as exc:
        raise RecipeInvalid(f"expected a readable recipe at {path}: {exc}") from exc
    return {"name": path.stem, **values}


def parse(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from plain values.

    Raises:
        RecipeInvalid: an unknown key, or a value of the wrong type.
    """
    return checked(Recipe, values, strict=True)


def checked(kind: type[_R], values: Mapping[str, Any], *, strict: bool) -> _R:
    """Build a dataclass from plain values; ``strict`` takes no number in the form of a string.

    Raises:
        RecipeInvalid: an unknown key, or an invalid value.
    """
    adapter = TypeAdapter(kind)
    try:
        if strict:  # only in JSON does the strict mode take the value of an enum
            return adapter.validate_json(json.dumps(values, default=str), strict=True)
        return adapter.validate_python(dict(values))
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"])) or "recipe"
        raise RecipeInvalid(f"{where}: {first['msg']}") from exc
