"""Migrate a collection: into another, or to other settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from verso_core.jobs.models import (
    CodecPolicy,
    Item,
    ItemResult,
    Moment,
    OpenModel,
    Params,
    Precision,
    SearchSetting,
    StrictModel,
)

FAILED_LISTED = 64
"""Most unreadable documents that a migration names."""


class MigrateRequest(StrictModel):
    """Body of ``POST /v1/collections/{name}/migrate``; a setting that is absent stays."""

    artifact: str = Field(
        default="current",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="current, a codec id, or an artifact id",
    )
    precision: Precision | None = None
    search: SearchSetting | None = None
    codec_policy: CodecPolicy | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings that the collection will have."""
        return self.model_dump(mode="json", exclude={"artifact"}, exclude_none=True)


class MigrateParams(Params):
    """What is done with a collection's migration."""

    collection: str
    step: Literal["begin", "work", "remove"]


@dataclass(frozen=True, slots=True)
class MigrateItem(Item):
    """``begin``: artifact and settings. ``work``: buckets, and seconds after which to stop."""

    artifact: str | None = None
    settings: dict[str, str] | None = None
    first: int = -1
    count: int = 0
    spend_s: float = -1.0


class Stage(StrEnum):
    """What a migration does now."""

    RECODE = "recode"
    """Code every document again in its collection: the space stays."""
    COPY = "copy"
    """Fill the new collection, pass after pass, until almost nothing is new."""
    SEAL = "seal"
    """The last pass, while commits into the old one are refused."""
    DONE = "done"
    BLOCKED = "blocked"
    """Some documents cannot be read; nothing was switched."""


class Migration(StrictModel):
    """The state of a collection's migration. Times are Unix seconds.

    ``source`` and ``target`` are own names, the same for a recode. ``codec`` is the codec that
    documents move to. ``number`` counts passes from 1, ``bucket`` is the next one to read,
    ``moved`` and ``failed`` count this pass, ``copied`` and ``removed`` all passes.
    """

    collection: str
    source: str
    target: str
    codec: str
    stage: Stage
    buckets: int
    number: int = 1
    bucket: int = 0
    moved: int = 0
    failed: int = 0
    copied: int = 0
    removed: int = 0
    unread: tuple[str, ...] = ()
    job: str | None = None
    tries: int = 0
    due: float = 0.0
    started: float
    ended: float | None = None
    old_removed: bool = False

    @property
    def running(self) -> bool:
        """Whether it has more to do."""
        return self.stage not in (Stage.DONE, Stage.BLOCKED)

    @property
    def in_place(self) -> bool:
        """Whether documents are coded again in their collection."""
        return self.source == self.target


class MigrationResult(ItemResult):
    """The result of a migrate job.

    Of ``begin`` and ``remove`` the migration, None if it is cancelled. Of ``work``: ``buckets`` and
    ``documents`` were read, except those of ``ids``, which could not be.
    """

    migration: Migration | None = None
    buckets: int = 0
    documents: int = 0
    copied: int = 0
    removed: int = 0
    failed: int = 0
    ids: tuple[str, ...] = ()

    def frame_header(self, blobs: list[bytes]) -> dict[str, Any]:
        """Return the frame's object: the migration's own fields, or the counts."""
        if self.migration is not None:
            return self.migration.model_dump(mode="json")
        return super().frame_header(blobs) if self.buckets else {}

    def public(self, *, vectors_base64: bool = False) -> dict[str, Any]:  # noqa: ARG002
        """Return the JSON object that the API answers: as the frame's."""
        return self.frame_header([])

    @classmethod
    def from_frame(cls, header: dict[str, Any], blobs: list[bytes]) -> MigrationResult:  # noqa: ARG003
        """Read what :meth:`frame_header` wrote."""
        if "stage" in header:
            fields = {name: header[name] for name in Migration.model_fields if name in header}
            return cls(migration=Migration.model_validate(fields))
        return cls.model_validate(header)


class MigrationState(OpenModel):
    """The newest migration of a collection."""

    collection: str
    stage: str = Field(description="recode, copy, seal, done or blocked; cancelled")
    codec: str = Field(default="", description="that documents move to")
    in_place: bool = Field(
        default=False, description="the space stays, documents are coded again where they lie"
    )
    pass_number: int = 0
    progress: float = Field(default=0.0, ge=0, le=1, description="of the pass under way")
    copied: int = 0
    removed: int = 0
    unread: tuple[str, ...] = Field(
        default=(), description="documents that this pass could not read, the first 64"
    )
    old_removed: bool = False
    started: Moment | None = None
    ended: Moment | None = None

    @property
    def running(self) -> bool:
        """Whether it has more to do."""
        return self.stage in (Stage.RECODE, Stage.COPY, Stage.SEAL)


class MigrationEnded(OpenModel):
    """A migration whose old side was removed, or that was cancelled."""

    collection: str
    stage: str = Field(description="done, or cancelled")
