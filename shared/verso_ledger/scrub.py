"""The state of the scrub: its pass over all collections, and what that pass has found.

One hash holds the state. Every change is one step that names the ``turn`` it is based on, so that
of several keepers that make the same decision exactly one changes the state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, cast

from verso_core.jobs import Collection
from verso_ledger.codec import scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts

COUNTERS: Final = ("documents", "sound", "repaired", "damaged", "bytes", "unread", "orphans")
"""What a pass counts: ``bytes`` of decoded text, ``unread`` buckets that no worker could scrub,
``orphans`` removed, and documents by their state."""
LISTED: Final = 256
"""Most damaged documents that a pass remembers by name."""


class ScrubStage(StrEnum):
    """What the scrub reads. ``recent`` comes first; a pass under way waits for it."""

    NONE = "none"
    RECENT = "recent"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Damage:
    """A document that could neither be decoded to its text nor be repaired."""

    collection: str
    document: str


@dataclass(frozen=True, slots=True)
class Recent:
    """A walk over documents written after ``since``, which goes before a pass, and its cursor.

    ``documents`` have been read so far.
    """

    since: int
    collection: str
    bucket: int
    documents: int = 0


@dataclass(frozen=True, slots=True)
class Walked:
    """How far a walk over all buckets of all collections is."""

    done: int
    total: int

    @property
    def part(self) -> float:
        """Return the part that is done, in [0, 1]."""
        return self.done / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class Scrub:
    """The scrub as the ledger knows it. Times are Unix seconds of the server's clock.

    ``number`` counts passes, 0 before the first. ``collection`` and ``bucket`` are the cursor;
    ``job_id`` is the scrub job under way. ``due`` is when the next job may be submitted, ``tries``
    how often this one has failed. ``recent`` is the walk that goes first after an unclean start,
    and ``of_recent`` whether the job belongs to it. ``asked``: another pass was requested.
    """

    turn: int
    number: int
    started: float | None
    ended: float | None
    collection: str
    bucket: int
    job_id: str | None
    tries: int
    due: float
    asked: bool
    now: float
    counts: Mapping[str, int] = field(default_factory=dict)
    damaged: tuple[Damage, ...] = ()
    recent: Recent | None = None
    of_recent: bool = False

    @property
    def running(self) -> bool:
        """Whether a pass is under way."""
        return self.started is not None and self.ended is None

    @property
    def stage(self) -> ScrubStage:
        """Return what is being read now."""
        if self.recent is not None:
            return ScrubStage.RECENT
        if self.running:
            return ScrubStage.RUNNING
        return ScrubStage.ENDED if self.number else ScrubStage.NONE

    @property
    def age_s(self) -> float | None:
        """Return the time since the newest pass began, seconds; None before the first."""
        return None if self.started is None else max(0.0, self.now - self.started)

    def progress(self, collections: Mapping[str, Collection]) -> float:
        """Return the part of all buckets that the newest pass is done with, in [0, 1]."""
        if not self.running:
            return 1.0 if self.number else 0.0
        return _walked(self.collection, self.bucket, collections).part

    def recent_walked(self, collections: Mapping[str, Collection]) -> Walked | None:
        """Return how far the walk over recent documents is; None where there is none."""
        if self.recent is None:
            return None
        return _walked(self.recent.collection, self.recent.bucket, collections)


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the scrub: ``set`` fields (None removes one), add to counters, list damage.

    ``begin`` starts a pass: the counters and the list are reset. The times ``started`` and
    ``ended`` are the server's.
    """

    begin: bool = False
    end: bool = False
    set: Mapping[str, str | int | float | None] = field(default_factory=dict)
    add: Mapping[str, int] = field(default_factory=dict)
    damaged: Sequence[Damage] = ()


class ScrubCursor:
    """Reads and moves the scrub's cursor."""

    def __init__(self, scripts: Scripts) -> None:
        self._run = scripts.run
        self._redis = scripts.client

    def state(self) -> Scrub:
        """Return the state of the scrub."""
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(key("scrub"))
            pipe.lrange(key("damaged"), 0, -1)
            pipe.time()
            rows, listed, clock = pipe.execute()
        return read(rows, listed, now=scalars.server_seconds(clock))

    def move(self, turn: int, move: Move) -> bool:
        """Move the scrub on from ``turn``; return whether this call did it."""
        done = bool(self._run("scrub_move", move_args(turn, move)))
        if done and move.begin:
            self._forget_orphans()
        return done

    def _forget_orphans(self) -> None:
        """Forget recorded orphans of collections that are gone: no pass comes to them any more."""
        with translated():
            uids = {*cast("list[bytes]", self._redis.hvals(key("uids")))}
            for point, _ in self._redis.zscan_iter(key("orphans"), count=1000):
                if point.rpartition(b":")[0] not in uids:
                    self._redis.zrem(key("orphans"), point)

    def request(self) -> None:
        """Request a pass, at once or as soon as the one under way has ended."""
        self._run("scrub_ask", [])

    def request_recent(self, since: int) -> None:
        """Request that documents written after a sequence number are read before all others."""
        self._run("scrub_recent", [since])


def read(rows: Mapping[bytes, bytes], listed: Sequence[bytes], *, now: float) -> Scrub:
    """Read the hash and the list."""
    row = {name.decode(): value.decode() for name, value in rows.items()}
    return Scrub(
        turn=int(row.get("turn", 0)),
        number=int(row.get("number", 0)),
        started=_seconds(row.get("started")),
        ended=_seconds(row.get("ended")),
        collection=row.get("collection", ""),
        bucket=int(row.get("bucket", 0)),
        job_id=row.get("job"),
        tries=int(row.get("tries", 0)),
        due=float(row.get("due", 0)),
        asked="asked" in row,
        now=now,
        counts={name: int(row.get(name, 0)) for name in COUNTERS},
        damaged=tuple(Damage(*json.loads(line)) for line in listed),
        recent=_recent(row),
        of_recent=row.get("walk") == "recent",
    )


def move_args(turn: int, move: Move) -> list[str | int | float]:
    """Write the arguments of ``scrub_move.lua``."""
    put = {name: value for name, value in move.set.items() if value is not None}
    gone = [name for name, value in move.set.items() if value is None]
    args: list[str | int | float] = [turn, int(move.begin), int(move.end), LISTED]
    for part in (put, move.add):
        args += [len(part), *(word for pair in part.items() for word in pair)]
    lines = [json.dumps([one.collection, one.document]) for one in move.damaged]
    return [*args, len(gone), *gone, len(lines), *lines]


def _recent(row: Mapping[str, str]) -> Recent | None:
    if "recent" not in row:
        return None
    return Recent(
        since=int(row["recent"]),
        collection=row.get("recent_collection", ""),
        bucket=int(row.get("recent_bucket", 0)),
        documents=int(row.get("recent_documents", 0)),
    )


def _walked(collection: str, bucket: int, collections: Mapping[str, Collection]) -> Walked:
    """Count the buckets before a cursor that goes through the collections by name."""
    total = sum(one.buckets for one in collections.values())
    done = sum(one.buckets for name, one in collections.items() if name < collection)
    if collection in collections:
        done += min(bucket, collections[collection].buckets)
    return Walked(done, total)


def _seconds(ms: str | None) -> float | None:
    return None if ms is None else int(ms) / 1000
