"""Write the arguments that accept a job, and read what the ledger replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from verso_core.errors import (
    BodyTooLarge,
    CollectionBusy,
    IdempotencyConflict,
    LedgerBehind,
    LedgerUnavailable,
    QueueFull,
    SourceMoved,
    WebhookUnknown,
)
from verso_ledger.codec.scalars import Arg, text
from verso_ledger.keys import key
from verso_ledger.models import Accepted, CollectionReplaced, IdentityKnown, NewJob, PartitionRolled
from verso_ledger.names import HOME, new_job_id

STAGE_BYTES = 4 << 20
"""The payload of a job larger than this is stored slice by slice before the accept step, so that no
step blocks the server for long."""
STAGED_FOR_MS = 600_000
"""How long a staged payload waits for that step. It is never stored over one that is there: that
may be of the same job, accepted by a call whose reply was lost."""
_PART_BYTES = 1 << 20
ROLLED = "the partition takes no more lines, and which one does is not known yet"
IDEMPOTENCY_S = 24 * 3600


class Admission(NamedTuple):
    """A job on its way in: what is stored before the accept step, and the step's arguments."""

    staged: list[tuple[str, bytes]]
    """Key and payload of each slice of a large job."""
    args: list[Arg]
    reservation: list[Arg]
    """Arguments of the step that reserves room for those payloads."""

    @classmethod
    def of(cls, job: NewJob, *, ledger: str = HOME) -> Admission:
        """Return what is written to accept a job; one without an id gets a new one of the ledger.

        Raises:
            BodyTooLarge: the job's tenant could not have it in an empty queue.
        """
        size, job_id = _checked_size(job), job.job_id or new_job_id(ledger)
        staged = size > STAGE_BYTES
        parts = enumerate(job.slices) if staged else ()
        payloads = [(key("payload", f"{job_id}.{number}"), part.payload) for number, part in parts]
        limits = _limit_args(job)
        reservation: list[Arg] = [
            job_id, job.queue, job.tenant, len(job.slices), size, *limits, STAGED_FOR_MS,
        ]  # fmt: skip
        return cls(payloads, _accept_args(job, job_id, staged=staged), reservation)

    @property
    def parts(self) -> Iterator[list[tuple[str, bytes]]]:
        """Yield what is staged in parts, each of which the server takes without a pause."""
        part: list[tuple[str, bytes]] = []
        size = 0
        for row in self.staged:
            part.append(row)
            size += len(row[1])
            if size >= _PART_BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part


def _limit_args(job: NewJob) -> list[int]:
    limits = job.limits
    return [
        limits.max_slices,
        limits.max_bytes,
        round(limits.max_slices * limits.tenant_share),
        round(limits.max_bytes * limits.tenant_share),
    ]


def _checked_size(job: NewJob) -> int:
    size = sum(len(part.payload) for part in job.slices)
    _, _, most_slices, most_bytes = _limit_args(job)
    if len(job.slices) > most_slices or size > most_bytes:
        raise BodyTooLarge(
            f"expected <= {most_slices} slices and {most_bytes} bytes, "
            f"got {len(job.slices)} and {size}"
        )
    return size


def _accept_args(job: NewJob, job_id: str, *, staged: bool) -> list[Arg]:
    idempotency_key, body_hash = job.idempotency or ("", "")
    max_slices, max_bytes, own_slices, own_bytes = _limit_args(job)
    deadline_ms = 0 if job.deadline_s is None else max(1, round(job.deadline_s * 1000))
    args: list[Arg] = [
        job_id, job.kind, job.queue, job.tenant, idempotency_key, body_hash, deadline_ms,
        job.keep_s, max_slices, max_bytes, IDEMPOTENCY_S, int(staged),
        len(job.slices), job.urgency, own_slices, own_bytes, job.webhook or "",
        job.trace or "", int(job.wait), job.brief_s if job.wait else 0,
    ]  # fmt: skip
    moved = job.moved
    args += ["", b"", 0, 0] if moved is None else [moved.uid, moved.source, moved.begin, moved.end]
    concerned = (
        f"{name}={seen.made}" if (seen := job.seen.get(name)) else name for name in job.concerned
    )
    args.append(" ".join(["r" if job.kind.is_read else "w", *concerned]))
    for part in job.slices:
        size = len(part.payload)
        cost = size if part.cost is None else part.cost
        arrival = "" if part.arrival is None else f"{part.arrival.uid} {part.arrival.lines}"
        args += [part.items, size, cost, b"" if staged else part.payload, arrival]
    if job.identities:
        args += identity_args(job.identities, job.identity_s)
    return args


def identity_args(identities: Mapping[str, Sequence[bytes]], identity_s: int) -> list[Arg]:
    """Return hashes of identities as ``identities.lua`` and ``accept.lua`` read them."""
    args: list[Arg] = [identity_s, len(identities)]
    for collection, hashes in identities.items():
        args += [collection, len(hashes), *hashes]
    return args


def accepted_before(reply: Sequence[Any]) -> Accepted | None:
    """Read the reply of ``stage.lua``: the job, if an earlier call made it; None once it has room.

    Raises:
        QueueFull: the queue holds as much as it may.
    """
    return None if text(reply[0]) == "reserved" else accepted(reply)


def _queue_full(reply: Sequence[Any]) -> QueueFull:
    detail = "the queue holds as much work as it may"
    return QueueFull(detail, retry_after_s=float(reply[1]))


def accepted(reply: Sequence[Any]) -> Accepted:
    """Read the reply of ``accept.lua``.

    Raises:
        IdempotencyConflict: the key was used with another body.
        QueueFull: the queue holds as much as it may.
        LedgerBehind: the ledger is read-only, and the job would write.
        LedgerUnavailable: staged payloads expired before the job was accepted.
        CollectionBusy: a collection that it concerns moves to another ledger, or has moved.
        CollectionReplaced: one that it concerns is another than the caller has seen.
        PartitionRolled: a partition by time takes no more lines.
        IdentityKnown: an identity was accepted meanwhile.
        SourceMoved: the source of its lines stands elsewhere.
        WebhookUnknown: the tenant has no webhook of the id given.
    """
    word = text(reply[0])
    if word == "nohook":
        raise WebhookUnknown("expected the id of one of your webhooks")
    if word == "read_only":
        raise LedgerBehind
    if word == "conflict":
        raise IdempotencyConflict("expected the same body as this key's first request, got another")
    if word == "full":
        raise _queue_full(reply)
    if word == "missing":
        raise LedgerUnavailable("the request took too long to come in")
    if word == "moving":
        raise CollectionBusy("the collection is being moved to another ledger")
    if word == "replaced":
        raise CollectionReplaced
    if word == "rolled":
        raise PartitionRolled(ROLLED)
    if word == "known":
        raise IdentityKnown
    if word == "elsewhere":
        position = int(reply[1])
        raise SourceMoved(f"the source was accepted up to {position}", position=position)
    return Accepted(
        job_id=text(reply[1]),
        replayed=word == "dup",
        wakeup=word != "dup" and (len(reply) < 3 or bool(reply[2])),
        left=int(reply[3]) if len(reply) > 3 else None,
        drained_s=int(reply[4]) if len(reply) > 4 else None,
    )
