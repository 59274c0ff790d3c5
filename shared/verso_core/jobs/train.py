"""Train: the request of a train job, and the examples that may come with it or from a collection.

A train job is one slice with one item. Its params are a :class:`TrainRequest` without examples;
the examples of the request are the item's blob, as :func:`pack_rows`, :func:`pack_pairs`,
:func:`pack_groups` or :func:`verso_core.questions.pack` writes them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence, Sized
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from verso_core.errors import TrainingDataInvalid
from verso_core.heads import Portion, Task
from verso_core.jobs.models import (
    Item,
    ItemResult,
    Name,
    OpenModel,
    Params,
    StrictModel,
    given,
    needs,
    one_of,
)
from verso_core.registry import SHARE, Channel

MAX_ROWS_BYTES = 64 * 1024 * 1024
MAX_CONTRADICTED = 0.2
"""Largest share of texts that may occur with several labels."""
MAX_COLLECTION_ROWS = 50_000
FEWEST_PAIRS = 12
FEWEST_GROUPS = 12
MAX_PASSAGES = 64
"""Most passages of a group that answer, and most that do not."""

SPLITS = ("train", "validation", "test")
Label = Annotated[str, Field(min_length=1, max_length=256)]
Passage = Annotated[str, Field(min_length=1)]


class LabelledText(StrictModel):
    """One labelled row."""

    text: str = Field(min_length=1)
    label: Label
    split: Literal["train", "validation", "test"] | None = Field(
        default=None, description="by default chosen by the text's hash"
    )


class ScoredTexts(StrictModel):
    """Two texts and how well they match."""

    text_1: str = Field(min_length=1)
    text_2: str = Field(min_length=1)
    score: float = Field(ge=0, le=1)
    split: Literal["train", "validation", "test"] | None = Field(
        default=None, description="by default chosen by the hash of the first text"
    )


class GroupedTexts(StrictModel):
    """A question, passages that answer it, and passages that do not."""

    question: str = Field(min_length=1)
    right: list[Passage] = Field(min_length=1, max_length=MAX_PASSAGES)
    wrong: list[Passage] = Field(min_length=1, max_length=MAX_PASSAGES)
    split: Literal["train", "validation", "test"] | None = Field(
        default=None, description="by default chosen by the hash of the question"
    )


def _needs_source(task: Task, *sources: str) -> dict[str, Any]:
    """Return the JSON Schema rule that a task is trained on one of these sources."""
    of_task: dict[str, Any] = {"properties": {"task": {"const": task.value}}}
    if task is not Task.CLASSIFY:  # the default
        of_task["required"] = ["task"]
    return {
        "if": of_task,
        "then": {"properties": {"source": {"anyOf": [given(name) for name in sources]}}},
    }


class TrainSource(StrictModel):
    """What a head is trained on: examples, or the records of a collection that carry a label."""

    model_config = ConfigDict(
        json_schema_extra=one_of("rows", "squad", "pairs", "groups", "collection")
        | {"allOf": [needs("collection", "label_key"), needs("label_key", "collection")]}
    )

    rows: list[LabelledText] | None = Field(default=None, description="for a head that classifies")
    squad: dict[str, Any] | None = Field(
        default=None, description="for a head that answers: the content of a file as SQuAD 2.0 is"
    )
    pairs: list[ScoredTexts] | None = Field(
        default=None, description="for a head that scores pairs"
    )
    groups: list[GroupedTexts] | None = Field(
        default=None, description="for a head that scores passages, which learns to rank them"
    )
    collection: Name | None = None
    label_key: str | None = Field(
        default=None, description="metadata key whose values are the labels", examples=["failure"]
    )
    limit: int = Field(default=MAX_COLLECTION_ROWS, ge=1, le=MAX_COLLECTION_ROWS)

    @model_validator(mode="after")
    def _one_source(self) -> TrainSource:
        given = [self.rows, self.squad, self.pairs, self.groups, self.collection]
        if sum(one is not None for one in given) != 1:
            raise ValueError("expected exactly one of rows, squad, pairs, groups and collection")
        if (self.collection is None) != (self.label_key is None):
            raise ValueError("expected collection and label_key together")
        return self

    @property
    def task(self) -> Task:
        """The task of a head that is trained on this."""
        if self.squad is not None:
            return Task.ANSWER
        scores = self.pairs is not None or self.groups is not None
        return Task.SCORE if scores else Task.CLASSIFY


class TrainRequest(StrictModel):
    """Body of ``POST /v1/train``."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _needs_source(Task.CLASSIFY, "rows", "collection"),
                _needs_source(Task.ANSWER, "squad"),
                _needs_source(Task.SCORE, "pairs", "groups"),
            ]
        }
    )

    head: Name
    task: Task = Task.CLASSIFY
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

    @model_validator(mode="after")
    def _task_of_source(self) -> TrainRequest:
        if self.task is not self.source.task:
            raise ValueError(
                "expected rows or a collection for classify, squad for answer, pairs or groups "
                "for score"
            )
        return self

    def params(self, created: datetime | None = None) -> TrainParams:
        """Return the params of the request's slice: all but the examples.

        ``created``: when the collection that is trained on was made.
        """
        fields = {name: getattr(self, name) for name in TrainParams.model_fields}
        own = ("collection", "label_key", "limit")
        source = {name: getattr(self.source, name) for name in own}
        if created is not None:
            source["created"] = created
        return TrainParams(**fields | {"source": CollectionSource(**source)})


class CollectionSource(OpenModel):
    """Which labelled records of a collection are trained on; None if the request has examples.

    ``created`` says which of the collections that the name has had; None where an earlier version
    has accepted the request.
    """

    collection: str | None = None
    label_key: str | None = None
    limit: int = MAX_COLLECTION_ROWS
    created: datetime | None = Field(default=None, exclude_if=lambda when: when is None)


class TrainParams(Params):
    """How a head is trained."""

    head: str
    task: Task = Task.CLASSIFY
    source: CollectionSource = CollectionSource()
    recipe: dict[str, Any] = Field(default_factory=dict)
    share: float = SHARE
    new_labels: bool = False
    licence: str = "unknown"


@dataclass(frozen=True, slots=True)
class TrainItem(Item):
    """The examples of the request, and their number."""

    BLOB: ClassVar = "examples"

    rows: int | None
    examples: bytes | None = None


class Trained(ItemResult):
    """The version that a training published, and its metrics."""

    channel: Channel
    history: tuple[dict[str, Any], ...]
    head: str
    version: str
    space: str
    labels: tuple[str, ...]
    rows: dict[str, Any]
    dropped_labels: tuple[str, ...]
    contradicted: int
    metrics: dict[str, float]
    data_sha256: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """A row that passed the checks."""

    text: str
    label: str
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """A pair that passed the checks; ``score`` in [0, 1]."""

    text_1: str
    text_2: str
    score: float
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Grouped:
    """A group that passed the checks: passages that answer a question, and others."""

    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    split: str | None = None


def check_rows(rows: Sequence[Labelled]) -> None:
    """Refuse rows that a head cannot be trained on.

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
    _check_contradicted("texts to have several labels", labels.values())


def check_pairs(pairs: Sequence[Scored]) -> None:
    """Refuse pairs that a head cannot be trained on.

    Raises:
        TrainingDataInvalid: too few pairs, one score for all, or too many pairs with several.
    """
    firsts = {pair.text_1 for pair in pairs}
    if len(pairs) < FEWEST_PAIRS or len(firsts) < len(SPLITS):
        raise TrainingDataInvalid(
            f"expected {FEWEST_PAIRS} pairs or more of {len(SPLITS)} first texts or more, "
            f"got {len(pairs)} of {len(firsts)}"
        )
    scores: dict[tuple[str, str], set[float]] = defaultdict(set)
    for pair in pairs:
        scores[pair.text_1, pair.text_2].add(pair.score)
    if len(set().union(*scores.values())) < 2:
        raise TrainingDataInvalid(f"expected different scores, got {pairs[0].score} everywhere")
    _check_contradicted("pairs to have several scores", scores.values())


def check_groups(groups: Sequence[Grouped]) -> None:
    """Refuse groups that a head cannot be trained on.

    Raises:
        TrainingDataInvalid: too few groups, or a passage that is right and wrong for a question.
    """
    questions = {group.question for group in groups}
    if len(groups) < FEWEST_GROUPS or len(questions) < len(SPLITS):
        raise TrainingDataInvalid(
            f"expected {FEWEST_GROUPS} groups or more of {len(SPLITS)} questions or more, "
            f"got {len(groups)} of {len(questions)}"
        )
    right: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        right[group.question].update(group.right)
    for number, group in enumerate(groups):
        if right[group.question].intersection(group.wrong):
            raise TrainingDataInvalid(
                f"group {number}: expected each passage to be right or wrong for its question, "
                "got one that is both"
            )


def _check_contradicted(what: str, found: Collection[Sized]) -> None:
    several = sum(1 for answers in found if len(answers) > 1)
    if several > MAX_CONTRADICTED * len(found):
        raise TrainingDataInvalid(
            f"expected at most {MAX_CONTRADICTED:.0%} of the {what}, got {several} of {len(found)}"
        )


def pack_rows(rows: Iterable[Labelled]) -> bytes:
    """Write rows as JSON lines: [text, label, split]."""
    return b"".join(
        json.dumps([row.text, row.label, row.split]).encode("ascii") + b"\n" for row in rows
    )


def unpack_rows(data: bytes) -> list[Labelled]:
    """Read what :func:`pack_rows` wrote."""
    return [Labelled(*json.loads(line)) for line in data.splitlines()]


def pack_pairs(pairs: Iterable[Scored]) -> bytes:
    """Write pairs as JSON lines: [text_1, text_2, score, split]."""
    return b"".join(
        json.dumps([pair.text_1, pair.text_2, pair.score, pair.split]).encode("ascii") + b"\n"
        for pair in pairs
    )


def unpack_pairs(data: bytes) -> list[Scored]:
    """Read what :func:`pack_pairs` wrote."""
    return [Scored(*json.loads(line)) for line in data.splitlines()]


def pack_groups(groups: Iterable[Grouped]) -> bytes:
    """Write groups as JSON lines: {question, right, wrong, split}."""
    return b"".join(json.dumps(asdict(group)).encode("ascii") + b"\n" for group in groups)


def holds_groups(data: bytes) -> bool:
    """Whether examples of a head that scores are groups, which are objects, and no pairs."""
    return data.startswith(b"{")


def unpack_groups(data: bytes) -> list[Grouped]:
    """Read what :func:`pack_groups` wrote."""
    return [
        Grouped(row["question"], tuple(row["right"]), tuple(row["wrong"]), row["split"])
        for row in map(json.loads, data.splitlines())
    ]


class RowsParams(Params):
    """Which records are exported with a label; ``texts``: as texts, else as vectors."""

    collection: str
    label_key: str
    chunk: Portion | None = None
    texts: bool = False


@dataclass(frozen=True, slots=True)
class RowsItem(Item):
    """A range of buckets, and the most rows wanted of it."""

    first: int
    count: int
    most: int


class Rows(ItemResult):
    """Labelled rows of a range of buckets.

    ``data``: vectors of shape (rows, dim), float32, little endian; or, of texts, what
    :func:`verso_core.jobs.train.pack_rows` writes.
    """

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    data: SkipJsonSchema[bytes] = Field(default=b"", exclude=True, repr=False)

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object for this result, and append its rows to ``blobs``."""
        blobs.append(self.data)
        return {"ids": list(self.ids), "labels": list(self.labels), "blob": len(blobs) - 1}

    @classmethod
    def from_frame(cls, header: dict[str, Any], blobs: list[bytes]) -> Rows:
        """Read what :meth:`frame_header` wrote."""
        return cls(ids=header["ids"], labels=header["labels"], data=blobs[header["blob"]])
