"""What the ledger takes and returns, and the numbers of its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from verso_core.errors import CollectionBusy, CollectionUnknown, ErrorBody
from verso_core.jobs import URGENCY, Collection, Kind, Queue, SliceSpec, Status
from verso_core.jobs.collections import STREAMS


@dataclass(frozen=True, slots=True)
class Policy:
    """Numbers of the ledger's steps, the same in every process on one ledger."""

    max_crashes: int = 3
    """Leases of one slice that may run out before it is a dead letter."""
    max_errors: int = 8
    """Retryable errors of one slice before it is a dead letter; counted apart from crashes."""
    max_timeouts: int = 2
    """Attempts of one slice that took too long before it fails; what was promised is kept."""
    backoff_ms: tuple[int, ...] = (0, 2_000, 8_000, 30_000)
    """Wait before the next attempt, by the number of crashes so far."""
    max_delay_ms: int = 30_000
    """Longest wait after a retryable error; the delay asked for doubles with every error."""
    set_back_ms: int = 60_000
    """A server's clock that was set back by more takes with it what waits for a time. By less it
    only makes leases longer; longer than most leases, so that it ends none that is renewed."""
    keep_s: int = 24 * 3600
    """How long slices stay after their end, seconds."""
    dead_keep_s: int = 7 * 24 * 3600
    """How long dead letters stay whose payload is not the only copy of a text, seconds."""
    gc_delay_ms: int = 2_000
    """Wait before the points of a replaced entry may go: searches that saw it must end first."""
    room_ms: int = 600_000
    """Wait before the vectors of a collection that was never made may go: its maker has failed."""
    drained: int = 32
    """Ends of slices, about, that the time for ``Retry-After`` is a mean over."""
    drain_ms: int = 1_000
    """Time that a slice is thought to take before any has ended."""
    max_wait_s: int = 30
    """Longest ``Retry-After`` of a full queue, seconds: it is a guess."""
    max_events: int = 1_000
    """Events kept for each job, about."""
    sweep_buckets: int = 256
    """Buckets of a deleted collection swept in one step."""
    count_entries: int = 500
    """Entries and buckets counted in one step."""
    turn_cost: int = 16 * 1024
    """Cost that makes a slice's turn twice as long as that of one that costs nothing."""
    heavy_cost: int = 64 * 1024
    """An interactive slice that costs more is heavy: those run in half of a worker's slots."""
    heavy_bulk_cost: int = 512 * 1024
    """The same of other queues, where a slice of usual work costs up to 128 KiB."""
    lane_looked_at: int = 16
    """Slices of a tenant that are looked at for one that may run, where no more heavy ones may."""
    usual_urgency: int = URGENCY
    """Urgency of bulk work; slices of a smaller number may run in slots that are kept for them."""
    max_reads: int = 1_000
    """Reads whose callers wait that are listed for each tenant: the newest."""
    streams: int = STREAMS
    """Numbers of streams that each partition by time has for itself."""
    max_arrivals: int = 10_000
    """Slices of lines that are listed for each collection, about: the newest."""
    max_fresh: int = 100_000
    """New identities and positions of a collection that moves which are listed until they are
    copied; if there are more, all are copied again."""
    position_s: int = 7 * 24 * 3600
    """How long the position of a source is remembered at least after it has moved, seconds."""
    mature: int = 64
    """Due slices that one claim moves to the lanes of their tenants; the keeper moves more."""
    published_bytes: int = 64 * 1024
    """Longest result published to a waiting caller; the gateway fetches longer ones."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much unfinished work a queue may hold, and what part of it may be one tenant's."""

    max_slices: int = 100_000
    max_bytes: int = 1 << 30
    tenant_share: float = 1.0


class IdentityKnown(Exception):
    """Raised when an identity of a job was accepted with another one meanwhile."""


class CollectionReplaced(CollectionUnknown):
    """Raised when a collection was deleted and another made under its name since it was seen."""

    def __init__(self) -> None:
        super().__init__("another collection has been made under this name")


class PartitionRolled(CollectionBusy):
    """Raised when a partition by time takes no more lines: the next one does."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a source is read when a job is accepted, so that nothing of it is accepted twice.

    Attributes:
        uid: that of the collection's lines.
        source: hash of what names the source.
        begin: where it must stand, if that is known.
        end: where it stands from then on.
    """

    uid: str
    source: bytes
    begin: int
    end: int


class Seen(NamedTuple):
    """A collection that a caller was found to have access to.

    Attributes:
        made: when it was made, as :attr:`verso_core.jobs.Collection.made` says.
        owner: tenant that made it.
    """

    made: str
    owner: str | None = None

    @classmethod
    def of(cls, collection: Collection) -> Seen:
        """Return what is noted of a collection."""
        return cls(collection.made, collection.owner)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to accept: a request, cut into slices.

    ``idempotency`` is the caller's key and the hash of the request's body. ``urgency`` is that of
    RFC 9218, section 4.1: 0 first, 7 last; it orders the jobs of one tenant. ``webhook`` is
    notified of the job's end. ``job_id`` is set by a caller that may repeat the call of ``accept``.
    ``trace`` is a ``traceparent`` that the work continues. ``wait``: the caller waits for the end,
    whose event then carries the result. ``brief_s``: a read whose caller is told of its end is kept
    so long after it, seconds; 0 keeps it as ``keep_s`` says. ``identities`` are hashes, by the name
    of a collection, that are accepted with the job: if one of them was accepted within the last
    ``identity_s`` seconds, the job is not. ``moved``: the source that its lines are of.
    ``collection``: the one that the job concerns, whose ledger takes it in. ``others``: more that
    it concerns, on the same ledger. ``seen``: those that the caller was found to have access to, by
    name; the job is not accepted for another one of such a name. ``parts``: where the slices are of
    several partitions, those of each by its name, which may be on several ledgers.
    """

    kind: Kind
    queue: Queue
    slices: Sequence[SliceSpec]
    tenant: str = "default"
    idempotency: tuple[str, str] | None = None
    deadline_s: float | None = None
    limits: Limits = field(default_factory=Limits)
    keep_s: int = 24 * 3600
    job_id: str | None = None
    urgency: int = URGENCY
    webhook: str | None = None
    trace: str | None = None
    wait: bool = False
    brief_s: int = 0
    identities: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    identity_s: int = 0
    moved: Moved | None = None
    collection: str | None = None
    others: Sequence[str] = ()
    seen: Mapping[str, Seen] = field(default_factory=dict)
    parts: Mapping[str, Sequence[SliceSpec]] = field(default_factory=dict)

    @property
    def concerned(self) -> list[str]:
        """Return the collections that must be on the ledger that takes the job in."""
        if self.collection is None or self.kind is Kind.COLLECTION_CREATE:
            return []
        return [self.collection, *self.others]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that is on disk.

    ``replayed``: an earlier request with the same key made it. ``wakeup``: a wake-up must be sent,
    since no worker slot listens and none was sent for earlier work. ``left``: slices that the
    tenant may still add; ``drained_s``: seconds until the queue is empty at the present rate; both
    None if the job existed before.
    """

    job_id: str
    replayed: bool
    wakeup: bool = True
    left: int | None = field(default=None, compare=False)
    drained_s: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the ledger knows it. Times are Unix seconds of the server's clock.

    ``done`` counts slices that reached their end, ``n_ok`` and ``n_err`` items; once the job has
    ended ``n_ok + n_err == items``. ``attempts`` is the greatest number of claims of one slice.
    ``parts`` are the jobs of a group that this describes, each with its number of slices, whose
    slices are one list here.
    """

    job_id: str
    kind: Kind
    queue: Queue
    tenant: str
    status: Status
    created: float
    started: float | None
    finished: float | None
    deadline: float | None
    items: int
    n_ok: int
    n_err: int
    slices: int
    done: int
    attempts: int
    error: ErrorBody | None
    urgency: int = URGENCY
    parts: tuple[tuple[str, int], ...] = ()

    def place(self, number: int) -> tuple[str, int]:
        """Return the job that has a slice, and the number that the slice has there."""
        for job_id, slices in self.parts:
            if number < slices:
                return job_id, number
            number -= slices
        return self.job_id, number


@dataclass(frozen=True, slots=True)
class SliceFailures:
    """What the ledger knows of the failed items of a slice.

    Attributes:
        items: of the slice; None if the slice is not known any more.
        in_result: whether its result may have failed items.
        error: why all its items failed; None if they did not.
    """

    items: int | None
    in_result: bool = False
    error: ErrorBody | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A slice that crashed or failed too often, which a replay may revive; it has no text.

    ``phase`` verify means that the slice's texts are stored, and held, but could not be verified.
    ``died`` is in Unix seconds of the server's clock.
    """

    job_id: str
    number: int
    tenant: str
    kind: Kind
    phase: Phase
    items: int
    size_bytes: int
    crashes: int
    errors: int
    error: ErrorBody
    died: float


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """A job and the result frames of its first slices, read in one exchange.

    ``results`` holds None for a slice without one; see :meth:`AsyncLedger.results`.
    """

    record: JobRecord
    results: list[bytes | None]


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a job: status, done, slices, items, ok, err, and the ``progress`` that its
    worker reported. ``id`` orders events."""

    id: str
    data: dict[str, Any]


class Phase(StrEnum):
    """What is done with a claimed slice."""

    WORK = "work"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job of one slice whose caller waits for its end, as it was accepted.

    ``made_ms`` and ``start_ms`` are in Unix milliseconds of the server's clock.
    """

    tenant: str
    made_ms: int
    items: int
    urgency: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to execute one slice until the lease ends.

    ``fence`` grows with every claim of the slice; only the newest can commit. ``seq`` orders writes
    to one document across jobs. ``not_after`` is the job's deadline in Unix seconds of the server's
    clock; ``waited_ms`` is how long the slice was due before it was claimed, ms; ``trace`` is
    the job's. ``awaited`` is set where a caller waits for the job and it has no other slice.
    """

    slice_id: str
    job_id: str
    number: int
    fence: int
    kind: Kind
    phase: Phase
    payload: bytes
    seq: int
    queue: Queue
    not_after: float | None
    waited_ms: int
    trace: str | None = None
    awaited: Awaited | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A slice whose work is done: its result frame and its items by outcome.

    ``notified``: the caller who waits has the result already.
    """

    lease: Lease
    result: bytes
    ok: int
    errors: int
    notified: bool = False


class Counting(StrEnum):
    """What one step of a count found.

    ``kept``: nothing is left to count. ``mended``: likewise, and a wrong count was corrected.
    """

    MORE = "more"
    KEPT = "kept"
    MENDED = "mended"
    MOVED = "moved"


class Commit(StrEnum):
    """The reply to the end of a lease."""

    DONE = "done"
    STALE = "stale"
    """Another attempt or a cancel took the slice over: nothing was changed."""
    SEALED = "sealed"
    """No commit is taken into this collection, or this ledger: the work must be done again."""
    BEHIND = "behind"
    """The ledger lacks what lines were coded by: the work must be done again."""


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """A document's new entry (``record.Entry.pack()``), and its text where the collection keeps it.

    The entry's sequence number must be the lease's. ``over`` is a stored entry that a verify proved
    to be this slice's own although its number is damaged. With ``replaces`` the entry has the text
    of the entry of this number and only other metadata: it is written if that one is still stored,
    else the slice's work is done again; there is no new text to verify.
    """

    collection: str
    document: str
    entry: bytes
    text: bytes | None = None
    over: bytes = b""
    replaces: int | None = None


@dataclass(frozen=True, slots=True)
class DocumentDelete:
    """A document to delete.

    With ``replaces`` only if the entry of this number is still stored, else the slice's work is
    done again.
    """

    collection: str
    document: str
    replaces: int | None = None


class Discarded(NamedTuple):
    """An entry that was replaced or deleted, and whose points may be removed.

    Read the document's live entry before: points that it names must stay. An empty ``document``
    stands for a deleted collection, all of whose vectors may be removed.
    """

    token: str
    collection: str
    document: str
    entry: bytes


@dataclass(frozen=True, slots=True)
class Depth:
    """Slices in a queue. ``queued`` are due, ``delayed`` wait for a retry or before verification;
    ``oldest_s`` is how long the oldest has been due."""

    queued: int
    delayed: int
    running: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits outside the queues, as counts (``unverified_bytes``: bytes)."""

    dead: int
    unverified: int
    unverified_bytes: int
    to_drop: int
    to_collect: int
    totals: dict[str, int]
    """Counters since the ledger was made: ``jobs:{kind}:{status}``, crashes, stale, dead."""
    to_send: int = 0
    """Webhook messages that wait to be sent."""
    read_only: bool = False
    """Whether the ledger is older than what it has acknowledged."""
    staged_bytes: int = 0
    """Payload bytes stored, or about to be, for jobs that are not accepted yet."""
    orphans: int = 0
    """Points for which the scrub found no entry."""


@dataclass(frozen=True, slots=True)
class Health:
    """Ages of the newest heartbeats and of the newest embed; None if there was none."""

    last_embed_age_s: float | None
    worker_beat_age_s: float | None
    trainer_beat_age_s: float | None = None
