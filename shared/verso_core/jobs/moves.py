"""Moves of collections to another ledger."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from verso_core.jobs.models import Moment, OpenModel, StrictModel


class MoveStage(StrEnum):
    """What a move does now."""

    COPY = "copy"
    """Copy what has changed, until almost nothing has; all is served meanwhile."""
    FENCE = "fence"
    """Wait for the slices that were accepted; writes wait to be accepted."""
    SWITCHED = "switched"
    """The other ledger gets the collection."""
    CLEAN = "clean"
    """The other ledger serves it; what is left is removed once nothing reads it."""
    DONE = "done"
    CANCELLED = "cancelled"
    """The copy is removed."""


class MoveReason(StrEnum):
    """Why a move does not go on now."""

    DEAD_LETTERS = "dead_letters"
    """Dead letters of the collection have to be replayed first, or cancelled after a replay."""
    MIGRATION = "migration"
    """A migration runs, or its old side is kept."""
    COLD_STORAGE = "cold_storage"
    """Its objects of cold storage are copied for the other ledger by a worker, or could not be."""
    BEHIND = "behind"
    """It has been written to faster than it is copied for a minute."""
    BUSY = "busy"
    """What was accepted did not end in the time that writes may wait."""
    TARGET = "target"
    """The other ledger does not take it now: it is away, full, read-only, or has the name."""
    SOURCE = "source"
    """The ledger that has it is read-only, or a backup is taken of it."""


class Move(StrictModel):
    """The state of a collection's move. Times are Unix seconds.

    ``own`` and ``uid`` are those at the ledger that has it, ``target_uid`` is the one there is at
    ledger ``target``. ``holder`` is the keeper that works at it, ``number`` how many have, and
    ``held_until`` when another one may. ``left`` of ``units`` (buckets and segments) are to be
    copied, and ``least`` were at best; ``spans`` says where the ``walks``-th walk through the
    identities and positions of each span of time stands. ``progressed`` is when the move came
    nearer to its end, ``fenced`` when its newest fence began, ``paused_ms`` how long writes waited.
    ``objects`` parts of what is in cold storage are copied, by jobs of which the ``object_job``-th
    is the newest.
    """

    collection: str
    own: str
    uid: str
    buckets: int
    texts: bool
    lines: bool
    source: str
    target: str
    target_uid: str = ""
    stage: MoveStage = MoveStage.COPY
    marked: bool = False
    units: int = 0
    left: int = 0
    least: int | None = None
    spans: dict[str, int] = Field(default_factory=dict)
    walks: int = 1
    objects: int = 0
    object_job: int = 0
    copied: int = 0
    bytes_copied: int = 0
    paused_ms: int = 0
    tries: int = 0
    reason: MoveReason | None = None
    holder: str = ""
    number: int = 0
    held_until: float = 0.0
    due: float = 0.0
    fenced: float = 0.0
    progressed: float = 0.0
    started: float
    ended: float | None = None

    @property
    def running(self) -> bool:
        """Whether it has more to do."""
        return self.ended is None


class MoveRequest(StrictModel):
    """Body of ``POST /v1/collections/{name}/move``."""

    ledger: str = Field(description="name of the ledger that gets it", examples=["b"])


class MoveView(OpenModel):
    """A move of a collection to another ledger."""

    collection: str
    source: str = Field(description="ledger that had it")
    target: str = Field(description="ledger that gets it")
    stage: MoveStage = Field(
        description="copy: served as ever; fence: writes wait; switched: the target gets it; "
        "clean: the target has it, and the source still reads; done; cancelled"
    )
    part: float = Field(description="that is copied, in [0, 1]")
    bytes_copied: int
    paused_s: float = Field(description="how long writes waited, in the end")
    reason: MoveReason | None = Field(default=None, description="why it waits")
    started: Moment
    ended: Moment | None = None


class MoveList(OpenModel):
    """Moves, the newest of each collection."""

    moves: tuple[MoveView, ...]
