"""Score pairs of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from verso_core.jobs.heads.models import MAX_PAIRS, HeadResult, TextSpan
from verso_core.jobs.models import (
    WINDOW_COST,
    Item,
    ItemResult,
    Name,
    OpenModel,
    Params,
    StrictModel,
    given,
    needs,
)
from verso_core.texts import MAX_SENTENCES


class ScoreRequest(StrictModel):
    """Body of ``POST /v1/score``: pairs, or the common shape of two texts or lists of texts."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [given("pairs"), {"anyOf": [given("text_1"), given("text_2")]}],
            "allOf": [needs("text_1", "text_2"), needs("text_2", "text_1")],
        }
    )

    head: Name = Field(
        default="similarity",
        description="a head, or a task: similarity and duplicate (how alike two texts are, either "
        "way round), relevance (whether the second answers the first)",
    )
    pairs: list[tuple[str, str]] | None = Field(default=None, min_length=1, max_length=MAX_PAIRS)
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    model: str | None = Field(default=None, description="taken and ignored: clients send it")

    @model_validator(mode="after")
    def _one_shape(self) -> ScoreRequest:
        common = self.text_1 is not None and self.text_2 is not None
        if (self.pairs is not None) == common or (self.text_1 is None) != (self.text_2 is None):
            raise ValueError("expected either pairs, or text_1 and text_2")
        first, second = _listed(self.text_1), _listed(self.text_2)
        if common and (not second or len(first) not in (1, len(second))):
            raise ValueError(
                f"expected one text_1 or as many as of text_2, got {len(first)} and {len(second)}"
            )
        if len(second) > MAX_PAIRS:
            raise ValueError(f"expected at most {MAX_PAIRS} pairs, got {len(second)}")
        return self

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Return the pairs of either shape."""
        if self.pairs is not None:
            return list(self.pairs)
        first, second = _listed(self.text_1), _listed(self.text_2)
        return list(zip(first * len(second) if len(first) == 1 else first, second, strict=True))


class ScoreParams(Params):
    """Which head scores; with ``sentences`` a second text counts by its best part."""

    head: str
    sentences: bool = False

    def cost(self, item: Item) -> int:
        """Return the cost of a pair: one window, or one for each sentence."""
        size = super().cost(item)
        return min(size, MAX_SENTENCES * WINDOW_COST if self.sentences else WINDOW_COST)


@dataclass(frozen=True, slots=True)
class ScoreItem(Item):
    """A pair of texts, concatenated; ``split``: bytes of the first."""

    BLOB: ClassVar = "texts"

    split: int
    texts: bytes

    @classmethod
    def of(cls, first: bytes, second: bytes) -> ScoreItem:
        """Join two texts."""
        return cls(len(first), first + second)

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """Return the two texts."""
        return self.texts[: self.split], self.texts[self.split :]


class PairScore(HeadResult, ItemResult):
    """The score of one pair: larger if the two match better."""

    score: float
    evidence: TextSpan | None = Field(
        default=None, description="with sentences: the part of the second text that counted"
    )
    tokens: int | None = Field(
        default=None, description="with sentences: of both texts, as far as they were read"
    )


class PairView(OpenModel):
    """The score of one pair."""

    index: int
    object: str = "score"
    score: float


class ScoreResponse(OpenModel):
    """Answer of ``POST /v1/score``."""

    job_id: str
    object: str = "list"
    model: str
    data: tuple[PairView, ...]
    timings_ms: dict[str, float]


def _listed(texts: str | list[str] | None) -> list[str]:
    if texts is None:
        return []
    return [texts] if isinstance(texts, str) else list(texts)
