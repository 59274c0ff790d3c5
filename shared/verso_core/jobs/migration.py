"""Where the migration of a collection to another artifact stands."""

from __future__ import annotations

from enum import StrEnum

from verso_core.jobs import Wire

FAILED_LISTED = 64
"""Most unreadable documents that a migration names."""


class Stage(StrEnum):
    """What a migration does now."""

    RECODE = "recode"
    """Code every document again where it lies: the space stays."""
    COPY = "copy"
    """Fill the new collection, pass after pass, until almost nothing is new."""
    SEAL = "seal"
    """The last pass, while commits into the old one are refused."""
    DONE = "done"
    BLOCKED = "blocked"
    """Some documents cannot be read; nothing was switched."""


class Migration(Wire):
    """Where the migration of a collection stands. Times are Unix seconds.

    ``source`` and ``target`` are own names, the same for a recode. ``codec`` is the artifact's
    codec that documents move to. ``number`` counts passes from 1, ``bucket`` is what comes next,
    ``moved`` and ``failed`` are this pass's, ``copied`` and ``removed`` all passes'.
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
        """Whether documents are coded again where they lie."""
        return self.source == self.target
