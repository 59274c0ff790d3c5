"""Scrub: read what is stored, and report what is damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from verso_core.jobs.models import (
    ItemResult,
    Moment,
    OpenModel,
    Params,
)

OBJECT_PARTS = 256
"""Parts of a collection's objects in cold storage: by the first byte of the last part of a name."""
SCRUB_COUNTS = ("documents", "sound", "repaired", "damaged", "bytes", "orphans")
"""What a scrub counts: documents, each of which is in one of the next three counts, bytes of text,
and orphans removed."""


class ScrubParams(Params):
    """The collection whose records are read again."""

    collection: str


class Scrubbed(ItemResult):
    """What a scrub of some buckets found.

    ``buckets`` were read; each of ``documents`` is in one of the next three counts; ``bytes`` of
    text were decoded; ``orphans`` were removed; ``ids`` name damaged documents. Lines count as
    documents; the id of a damaged block is that of its first line, and what all lines of a
    collection share is named by its kind, in parentheses. ``parts`` of the objects were copied to
    another ledger: a worker of an earlier version scrubs, and copies none.
    """

    buckets: int
    documents: int = 0
    sound: int = 0
    repaired: int = 0
    damaged: int = 0
    bytes: int = 0
    orphans: int = 0
    ids: tuple[str, ...] = ()
    parts: int = 0

    @classmethod
    def of(cls, buckets: int, counts: Mapping[str, int], ids: Sequence[str] = ()) -> Scrubbed:
        """Return the result of a scrub with these counts."""
        known = {name: counts.get(name, 0) for name in SCRUB_COUNTS}
        return cls(buckets=buckets, ids=tuple(ids), **known)


class Damaged(OpenModel):
    """A stored document that can neither be decoded to its text nor be repaired."""

    collection: str
    id: str


class RecentWalk(OpenModel):
    """The walk over documents written in the hour before an unclean start; goes before a pass."""

    progress: float = Field(ge=0, le=1)
    buckets_done: int
    buckets: int
    documents: int = Field(description="read so far")


class ScrubState(OpenModel):
    """The newest pass over all stored documents.

    ``state`` is "" from a gateway of an earlier version.
    """

    number: int = Field(description="of passes so far; 0 before the first")
    state: str = Field(
        default="", description="none, recent (goes before a pass), running or ended"
    )
    running: bool = Field(description="a pass is running")
    asked: bool = Field(description="a pass is requested and has not started")
    progress: float = Field(ge=0, le=1)
    recent: RecentWalk | None = None
    started: Moment | None = None
    ended: Moment | None = None
    documents: int
    sound: int
    repaired: int
    damaged: int
    bytes: int = Field(description="of text that read back")
    unread: int = Field(description="buckets that no worker could scrub")
    orphans: int = Field(default=0, description="points removed that no record names")
    damaged_documents: tuple[Damaged, ...] = Field(default=(), description="the first 256")
