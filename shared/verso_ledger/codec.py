"""Arguments and replies of the ledger's steps, for both clients."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from verso_core.errors import (
    CLASSES,
    BodyTooLarge,
    CollectionExists,
    ErrorBody,
    IdempotencyConflict,
    JobUnknown,
    LedgerBehind,
    LedgerUnavailable,
    QueueFull,
    SourceMoved,
    VersoError,
    WebhookUnknown,
)
from verso_core.jobs import URGENCY, Collection, CollectionKind, Kind, Queue, Status
from verso_core.jobs.fitting import Fitting
from verso_core.record import MAX_SLOT, Codec, Entry, Holdings, Share, bucket_of
from verso_ledger.keys import key
from verso_ledger.models import (
    Accepted,
    Awaited,
    Backlog,
    Depth,
    DocumentDelete,
    DocumentWrite,
    Event,
    Finished,
    Health,
    IdentityKnown,
    JobOutcome,
    JobRecord,
    Lease,
    NewJob,
    Phase,
)

MAX_BUCKET_VALUE_BYTES = 1024
"""Longest entry inside a bucket: the server's ``hash-max-listpack-value``."""
STAGE_BYTES = 4 << 20
"""The payload of a job larger than this is stored slice by slice before the accept step, so that no
step blocks the server for long."""
STAGED_FOR_MS = 600_000
_PART_BYTES = 1 << 20
IDEMPOTENCY_S = 24 * 3600
SERVING_S = 60.0
"""A worker without a heartbeat for longer than this, seconds, serves nothing."""

Arg = bytes | str | int | float


class Admission(NamedTuple):
    """A job on its way in: what is stored before the accept step, and the step's arguments."""

    staged: list[tuple[str, bytes]]
    """Key and payload of each slice of a large job."""
    args: list[Arg]
    reservation: list[Arg]
    """Arguments of the step that reserves room for those payloads."""

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


def admission(job: NewJob) -> Admission:
    """Return what is written to accept a job; one without an id gets a new one.

    Raises:
        BodyTooLarge: the queue could not hold this job even if it were empty.
    """
    size, job_id = _checked_size(job), job.job_id or uuid.uuid4().hex
    staged = size > STAGE_BYTES
    parts = enumerate(job.slices) if staged else ()
    payloads = [(key("payload", f"{job_id}.{number}"), part.payload) for number, part in parts]
    limits = _limit_args(job)
    reservation: list[Arg] = [
        job_id, job.queue, job.tenant, len(job.slices), size, *limits, STAGED_FOR_MS,
    ]  # fmt: skip
    return Admission(payloads, _accept_args(job, job_id, staged=staged), reservation)


def _limit_args(job: NewJob) -> list[Arg]:
    limits = job.limits
    return [
        limits.max_slices,
        limits.max_bytes,
        round(limits.max_slices * limits.tenant_share),
        round(limits.max_bytes * limits.tenant_share),
    ]


def _checked_size(job: NewJob) -> int:
    size = sum(len(part.payload) for part in job.slices)
    if len(job.slices) > job.limits.max_slices or size > job.limits.max_bytes:
        raise BodyTooLarge(
            f"expected <= {job.limits.max_slices} slices and {job.limits.max_bytes} bytes, "
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


def reserved(reply: Sequence[Any]) -> None:
    """Read the reply of ``stage.lua``.

    Raises:
        QueueFull: the queue holds as much as it may.
    """
    if text(reply[0]) == "full":
        raise _queue_full(reply)


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


def job_record(job_id: str, fields: Mapping[bytes, bytes]) -> JobRecord:
    """Read a job's hash.

    Raises:
        JobUnknown: there is no such job, or it has expired.
    """
    if not fields:
        raise JobUnknown(f"no job has the id {job_id[:64]!r}")
    return _record(job_id, {text(name): text(value) for name, value in fields.items()})


def _record(job_id: str, row: Mapping[str, str]) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        kind=Kind(row["kind"]),
        queue=Queue(row["queue"]),
        tenant=row["tenant"],
        status=Status(row["st"]),
        created=int(row["made"]) / 1000,
        started=_seconds(row.get("start")),
        finished=_seconds(row.get("end")),
        deadline=_seconds(row.get("deadline")),
        items=int(row["items"]),
        n_ok=int(row["ok"]),
        n_err=int(row["err"]),
        slices=int(row["slices"]),
        done=int(row["done"]),
        attempts=int(row["att"]),
        error=error(row["code"], row.get("detail", "")) if "code" in row else None,
        urgency=int(row.get("u", URGENCY)),
    )


def status_or_unknown(reply: bytes, job_id: str) -> Status:
    """Read a reply that is a job's status.

    Raises:
        JobUnknown: there is no such job, or it has expired.
    """
    word = text(reply)
    if word == "unknown":
        raise JobUnknown(f"no job has the id {job_id[:64]!r}")
    return Status(word)


def event(row: Sequence[Any]) -> Event:
    """Read one entry of an events stream."""
    fields = {text(name): text(value) for name, value in dict(row[1]).items()}
    data: dict[str, Any] = {"status": fields.pop("status")}
    progress = fields.pop("progress", None)
    data |= {name: int(value) for name, value in fields.items()}
    if progress is not None:
        data["progress"] = json.loads(progress)
    return Event(id=text(row[0]), data=data)


def lease(row: Sequence[Any]) -> Lease:
    """Read one row of ``claim.lua``."""
    return Lease(
        slice_id=text(row[0]),
        job_id=text(row[1]),
        number=int(row[2]),
        fence=int(row[3]),
        kind=Kind(text(row[4])),
        phase=Phase(text(row[5])),
        payload=row[6],
        seq=int(row[7]),
        queue=Queue(text(row[8])),
        not_after=_seconds(text(row[9])),
        waited_ms=int(row[10]),
        trace=text(row[11]) or None,
        awaited=_awaited(row[12]),
    )


def _awaited(row: Sequence[Any]) -> Awaited | None:
    if not row:
        return None
    tenant, made, items, urgency, start = row
    return Awaited(text(tenant), int(made), int(items), int(urgency), start_ms=int(start))


def finished_args(finished: Finished, verify_delay_s: float) -> list[Arg]:
    """Write the arguments of ``commit.lua`` before the count of writes."""
    lease = finished.lease
    return [
        lease.slice_id, lease.fence, finished.result, finished.ok, finished.errors,
        round(verify_delay_s * 1000), Queue.SCRUB, int(finished.notified),
    ]  # fmt: skip


def end_message(lease: Lease, awaited: Awaited, result: bytes, *, spent_ms: int) -> bytes:
    """Write the message of an awaited job's success, as ``emit`` in ``prelude.lua`` does."""
    fields: dict[str, Arg] = {
        "kind": lease.kind, "queue": lease.queue, "tenant": awaited.tenant, "u": awaited.urgency,
        "st": Status.SUCCEEDED, "made": awaited.made_ms, "start": awaited.start_ms,
        "end": awaited.start_ms + spent_ms, "deadline": round((lease.not_after or 0) * 1000),
        "items": awaited.items, "ok": awaited.items, "err": 0, "slices": 1, "done": 1,
        "att": lease.fence,
    }  # fmt: skip
    row = json.dumps([str(part) for pair in fields.items() for part in pair])
    return f"{lease.job_id} {Status.SUCCEEDED}\n{row}\n".encode() + result


def end_outcome(job_id: str, message: bytes) -> JobOutcome | None:
    """Read the outcome that came with the event of a job's end; None where it cannot be read."""
    head, _, result = message.partition(b"\n")
    try:
        row = json.loads(head)
    except ValueError:  # such as a detail that is not UTF-8: the job can still be read
        return None
    fields = dict(zip(row[::2], row[1::2], strict=True))
    return JobOutcome(_record(job_id, fields), [result or None])


def write_args(document: DocumentWrite | DocumentDelete, *, uid: str, buckets: int) -> list[Arg]:
    """Write the nine arguments that ``read_writes`` in ``prelude.lua`` reads."""
    bucket = bucket_of(document.document, buckets=buckets)
    where: list[Arg] = [document.collection, uid, bucket, document.document]
    if isinstance(document, DocumentDelete):
        op = "d" if document.replaces is None else f"d:{document.replaces}"
        return [op, *where, "", "", 0, ""]
    short, long = document.entry, b""
    if len(short) > MAX_BUCKET_VALUE_BYTES:
        short, long = Entry.unpack(document.entry).head(), document.entry
    op = "w" if document.replaces is None else f"m:{document.replaces}"
    return [op, *where, short, long, int(document.text is not None), document.text or b""]


def own_name(name: str, razed: bytes) -> str:
    """Return the own name of a new collection.

    Args:
        name: what users call it.
        razed: what the ledger knows of the last collection of this name; empty for nothing.
    """
    if not razed:
        return name
    digest = hashlib.blake2b(b" ".join((name.encode(), razed)), digest_size=8)
    return f"again-{digest.hexdigest()}"


def stored_collection(stored: bytes, asked: Collection) -> Collection:
    """Return the stored collection if it has the requested settings.

    Raises:
        LedgerBehind: none was stored, since the ledger is read-only.
        CollectionExists: the stored one has other settings.
    """
    if stored == b"read_only":
        raise LedgerBehind
    found = Collection.model_validate_json(stored)
    if (found.precision, found.text_policy) != (asked.precision, asked.text_policy):
        raise CollectionExists(
            f"{asked.name!r} exists with precision {found.precision.value} and text policy "
            f"{found.text_policy.value}"
        )
    return found


def collections(
    rows: Mapping[bytes, bytes], *, aliases: Mapping[bytes, bytes], hidden: Container[bytes]
) -> dict[str, Collection]:
    """Read all collections, by the name that users know, in order."""
    shown = {name: row for name, row in rows.items() if name not in hidden}
    shown |= {alias: rows[name] for alias, name in aliases.items() if name in rows}
    return {text(name): Collection.model_validate_json(row) for name, row in sorted(shown.items())}


def depths(rows: Iterable[Sequence[Any]]) -> dict[Queue, Depth]:
    """Read the reply of ``depths.lua``."""
    return {
        Queue(text(name)): Depth(
            queued=due, delayed=waiting - due, running=running, oldest_s=oldest_ms / 1000
        )
        for name, due, waiting, running, oldest_ms in rows
    }


def ask_backlog(pipe: Any) -> None:
    """Add the commands whose replies :func:`backlog` reads to a pipeline."""
    pipe.zcard(key("dead"))
    pipe.hmget(key("load"), "unverified:slices", "unverified:bytes", "staged:bytes")
    pipe.zcard(key("drop"))
    pipe.zcard(key("gc"))
    pipe.hgetall(key("totals"))
    pipe.zcard(key("hooks"))
    pipe.exists(key("halted"))
    pipe.zcard(key("orphans"))


def backlog(replies: Sequence[Any]) -> Backlog:
    """Read the replies to the commands of :func:`ask_backlog`."""
    dead, unverified, to_drop, to_collect, totals, to_send, read_only, orphans = replies
    return Backlog(
        dead=dead,
        unverified=int(unverified[0] or 0),
        unverified_bytes=int(unverified[1] or 0),
        staged_bytes=int(unverified[2] or 0),
        to_drop=to_drop,
        to_collect=to_collect,
        totals=counters(totals),
        to_send=to_send,
        read_only=bool(read_only),
        orphans=orphans,
    )


def health(rows: Mapping[bytes, bytes], now_s: float) -> Health:
    """Read heartbeats and the time of the last embed."""
    beats = [int(value) for name, value in rows.items() if name.startswith(b"beat:")]
    trainers = [int(value) for name, value in rows.items() if name.startswith(b"trainer:")]
    embed = rows.get(b"embed")
    return Health(
        last_embed_age_s=None if embed is None else max(0.0, now_s - int(embed) / 1000),
        worker_beat_age_s=None if not beats else max(0.0, now_s - max(beats) / 1000),
        trainer_beat_age_s=None if not trainers else max(0.0, now_s - max(trainers) / 1000),
    )


def serving(
    rows: Mapping[bytes, bytes], signs: Mapping[bytes, bytes], now_s: float
) -> dict[str, dict[str, Any]]:
    """Read what the workers with a recent heartbeat serve."""
    found = {}
    for name, row in sorted(rows.items()):
        beat = signs.get(b"beat:" + name)
        if beat is not None and now_s - int(beat) / 1000 < SERVING_S:
            found[text(name)] = json.loads(row)
    return found


def holdings(row: Mapping[bytes, bytes]) -> Holdings | None:
    """Read a collection's counts; None if it was never counted."""
    if b"full" not in row:
        return None
    counts = {name.decode(): int(n) for name, n in row.items() if n.isdigit()}
    shares = {
        codec: Share(counts.get(f"records:{codec:d}", 0), counts.get(f"bytes:{codec:d}", 0))
        for codec in Codec
    }
    return Holdings(
        documents=counts.get("documents", 0),
        chunks=counts.get("chunks", 0),
        verified=counts.get("verified", 0),
        unreadable=counts.get("unreadable", 0),
        bytes_text=counts.get("bytes_text", 0),
        bytes_entries=counts.get("bytes_entries", 0),
        codecs={codec: share for codec, share in shares.items() if share.records},
        slots={
            slot: records
            for slot in range(MAX_SLOT + 1)
            if (records := counts.get(f"slot:{slot}", 0))
        },
    )


def counters(rows: Mapping[bytes, bytes]) -> dict[str, int]:
    """Read the whole numbers of a hash; other values are left out."""
    return {text(k): int(v) for k, v in rows.items() if v.lstrip(b"-").isdigit()}


def pairs(reply: Iterable[Any]) -> dict[str, int]:
    """Read a flat reply of names and numbers."""
    flat = list(reply)
    return {text(k): int(v) for k, v in zip(flat[::2], flat[1::2], strict=True)}


def server_seconds(reply: Sequence[Any]) -> float:
    """Read the reply of TIME as Unix seconds."""
    return int(reply[0]) + int(reply[1]) / 1e6


def dump(collection: Collection) -> str:
    """Write a collection as it is stored.

    An owner, fitted tables and what is as it was before it could be chosen are left out.
    """
    without = {"owner"} if collection.owner is None else set()
    without |= {"fitting"} if collection.fitting == Fitting() else set()
    without |= {"auto_fit"} if collection.auto_fit else set()
    without |= {"kind"} if collection.kind is CollectionKind.DOCUMENTS else set()
    fields = collection.model_dump(mode="json", exclude=without)
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)


def text(value: Any) -> str:
    """Read a string of Redis."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _seconds(ms: str | None) -> float | None:
    value = int(ms or 0)
    return value / 1000 if value else None


def error(code: str, detail: str) -> ErrorBody:
    """Return an error as it was stored."""
    known = CLASSES.get(code, VersoError)
    return {"code": code, "detail": detail, "retryable": known.retryable}
