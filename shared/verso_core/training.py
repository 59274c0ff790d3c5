"""Training on the wire: what a train job asks for, and the rows it may bring.

A train job is one slice with one item. Its params are a :class:`TrainRequest` without rows; rows
that came with the request are the item's blob, as :func:`pack_rows` writes them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from verso_core.errors import TrainingDataInvalid
from verso_core.jobs import Name, Wire
from verso_core.registry import SHARE

MAX_ROWS_BYTES = 64 * 1024 * 1024
MAX_CONTRADICTED = 0.2
"""Share of the texts that may stand there with several labels."""
MAX_COLLECTION_ROWS = 50_000
Label = Annotated[str, Field(min_length=1, max_length=256)]


class LabelledText(Wire):
    """One labelled row."""

    text: str = Field(min_length=1)
    label: Label
    split: Literal["train", "validation", "test"] | None = Field(
        default=None, description="by default chosen by the text's hash"
    )


class TrainSource(Wire):
    """What a head is trained on: rows, or the records of a collection that carry a label."""

    rows: list[LabelledText] | None = None
    collection: Name | None = None
    label_key: str | None = Field(
        default=None, description="metadata key whose values are the labels", examples=["failure"]
    )
    limit: int = Field(default=MAX_COLLECTION_ROWS, ge=1, le=MAX_COLLECTION_ROWS)

    @model_validator(mode="after")
    def _one_source(self) -> TrainSource:
        if (self.rows is None) == (self.collection is None):
            raise ValueError("expected exactly one of rows and collection")
        if (self.collection is None) != (self.label_key is None):
            raise ValueError("expected collection and label_key together")
        return self


class TrainRequest(Wire):
    """Body of ``POST /v1/train``."""

    head: Name
    task: Literal["classify"] = "classify"
    source: TrainSource
    recipe: dict[str, Any] = Field(
        default_factory=dict,
        description="settings of the training, as in a recipe's file",
        examples=[{"classify": {"class_weights": "balanced", "patience": 3}}],
    )
    share: float = Field(
        default=SHARE, ge=0, le=1, description="share of the jobs that try the new version"
    )
    new_labels: bool = Field(
        default=False, description="the labels may differ from those of the stable version"
    )
    licence: str = Field(default="unknown", max_length=256, description="of the data")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A row that passed the checks."""

    text: str
    label: str
    split: str | None = None


def check_rows(rows: Sequence[Labelled]) -> None:
    """Refuse rows that no head can be trained on.

    Raises:
        TrainingDataInvalid: fewer than two labels, or too many texts with several labels.
    """
    counts = Counter(row.label for row in rows)
    if len(counts) < 2:
        found = ", ".join(repr(label) for label in counts) or "none"
        raise TrainingDataInvalid(f"expected rows of at least two labels, got {found}")
    labels: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        labels[row.text].add(row.label)
    several = sum(1 for found in labels.values() if len(found) > 1)
    if several > MAX_CONTRADICTED * len(labels):
        raise TrainingDataInvalid(
            f"expected at most {MAX_CONTRADICTED:.0%} of the texts to have several labels, "
            f"got {several} of {len(labels)}"
        )


def pack_rows(rows: Iterable[Labelled]) -> bytes:
    """Write rows as JSON lines: [text, label, split]."""
    return b"".join(
        json.dumps([row.text, row.label, row.split]).encode("ascii") + b"\n" for row in rows
    )


def unpack_rows(data: bytes) -> list[Labelled]:
    """Read what :func:`pack_rows` wrote."""
    return [Labelled(*json.loads(line)) for line in data.splitlines()]
