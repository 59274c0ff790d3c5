"""Read jobs, leases and events of jobs, and write how a slice ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from verso_core.errors import JobUnknown
from verso_core.jobs import URGENCY, Kind, Queue, Status
from verso_ledger.codec.scalars import Arg, error, seconds, text
from verso_ledger.models import Awaited, Event, Finished, JobOutcome, JobRecord, Lease, Phase


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
        started=seconds(row.get("start")),
        finished=seconds(row.get("end")),
        deadline=seconds(row.get("deadline")),
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
        not_after=seconds(text(row[9])),
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
