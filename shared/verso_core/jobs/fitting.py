"""Codecs that collections fit to their own texts: generations of tables, and the job that fits.

A **generation** is a set of tables fitted to a collection's texts at one time. Its id names the
artifact that it extends and the hash of its bytes: ``codec.hash``. It has an artifact slot of its
own in the collection, so a record names its generation as it names its artifact.

    fitted -> canary (writes a share of the slices) -> serving (writes all) -> retired -> deleted
                 \\-> withdrawn, where one of its records does not read back
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeGuard

from pydantic import Field

from verso_core.jobs.models import Item, ItemResult, OpenModel, Params, StrictModel
from verso_core.registry import Channel, channel_of

CANARY_SHARE = 0.25
"""Share of the slices that a new generation writes until enough of its records are verified."""

PROVED = 64
"""Verified records after which a generation writes all slices."""


class GenerationStage(StrEnum):
    """What a generation is used for."""

    CANARY = "canary"
    """It writes a share of the slices."""
    SERVING = "serving"
    """It writes all slices."""
    RETIRED = "retired"
    """It is only read: a later one took its place."""
    WITHDRAWN = "withdrawn"
    """It is only read: one of its records did not read back."""


class Generation(StrictModel):
    """Tables fitted to a collection's texts at one time. Times are Unix seconds.

    ``bytes`` is the size of the tables, ``level`` the patch bytes a chunk that held-out texts took
    of them, ``ended`` when it stopped to write.
    """

    id: str
    stage: GenerationStage
    bytes: int
    level: float
    fitted: float
    ended: float | None = None


class Fitting(StrictModel):
    """What a collection has fitted.

    ``number`` counts fits, also those that gained nothing. ``chunks`` is how many chunks the
    collection had when the last one began, and ``gained`` whether that made a generation.
    """

    number: int = 0
    chunks: int = 0
    gained: bool = False
    generations: tuple[Generation, ...] = ()

    def find(self, stage: GenerationStage) -> Generation | None:
        """Return the newest generation in a stage."""
        return next((one for one in reversed(self.generations) if one.stage is stage), None)

    def writes(self, codec: str, *, seq: int) -> str | None:
        """Return the id of the generation that writes a slice, None for the artifact itself.

        Args:
            codec: codec id of the artifact that writes.
            seq: sequence number of the slice.
        """
        canary = self.find(GenerationStage.CANARY)
        if channel_of(str(seq), CANARY_SHARE) is Channel.CANARY and _extends(canary, codec):
            return canary.id
        serving = self.find(GenerationStage.SERVING)
        return serving.id if _extends(serving, codec) else None

    def staged(self, generation: str, stage: GenerationStage, *, now: float) -> Fitting:
        """Return this with a generation in another stage.

        One that serves retires the one that served; a generation that has ended stays ended.
        """

        def moved(one: Generation) -> Generation:
            if one.ended is not None:
                return one
            if one.id != generation:
                if stage is GenerationStage.SERVING and one.stage is stage:
                    return one.model_copy(update={"stage": GenerationStage.RETIRED, "ended": now})
                return one
            ends = stage in (GenerationStage.RETIRED, GenerationStage.WITHDRAWN)
            return one.model_copy(update={"stage": stage, "ended": now if ends else None})

        return self.model_copy(update={"generations": tuple(map(moved, self.generations))})


def _extends(generation: Generation | None, codec: str) -> TypeGuard[Generation]:
    return generation is not None and artifact_of(generation.id) == codec


def artifact_of(name: str) -> str:
    """Return the codec id of the artifact that an artifact slot names, maybe by a generation."""
    return name.partition(".")[0]


class FitParams(Params):
    """The collection whose codec is fitted, and how many fits it had when this was requested.

    Without a number a caller requests the fit, and whether the collection is due does not count.
    """

    collection: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class FitItem(Item):
    """``chunks``: how many the collection has, 0 to count them. ``force``: keep any tables."""

    chunks: int = 0
    force: bool = False


class Fitted(ItemResult):
    """The result of a fit."""

    collection: str
    generation: str | None = Field(
        default=None, description="id of the tables; null if their gain does not pay for them"
    )
    chunks: int = Field(default=0, description="newest chunks that were read")
    held_out: int = Field(default=0, description="of them, to measure by")
    before: float = Field(default=0.0, description="bytes a held-out chunk takes")
    after: float = Field(default=0.0, description="bytes it takes with the tables")
    bytes: int = Field(default=0, description="of the tables")
    seconds: float = Field(default=0.0, description="of a processor")

    @property
    def gained(self) -> bool:
        """Whether it made a generation."""
        return self.generation is not None


class GenerationState(OpenModel):
    """A generation of fitted tables, as statistics show it."""

    id: str
    stage: str = Field(description="canary, serving, retired or withdrawn")
    bytes: int = Field(description="of its tables")
    level: float = Field(description="patch bytes a chunk that held-out texts took")
    records: int = Field(default=0, description="records that name it")
    fitted: float = Field(description="Unix seconds")

    @classmethod
    def of(cls, generation: Generation, *, records: int) -> GenerationState:
        """Describe a generation that so many records name."""
        shown: dict[str, Any] = generation.model_dump(mode="json", exclude={"ended"})
        return cls(**shown, records=records)
