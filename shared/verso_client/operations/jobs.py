"""Jobs: wait for them, read their results, list, cancel and replay them.

What the other families share is here too: requests that make a job, and answers that may be 202.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from verso_client.exchange import Call, Reply, Retries, Steps, perform
from verso_core.errors import NotReady, Unavailable, VectorInvalid, from_body
from verso_core.jobs import Kind, Status
from verso_core.jobs.job import Job

_LONGEST_WAIT_S = 20.0
_PAGE = 200
_JSON = {"Content-Type": "application/json"}


def answered(call: Call, retries: Retries) -> Steps[dict[str, Any]]:
    """Return the answer to a call; if it is 202, the results of its job once the job ends."""
    reply: Reply = yield from perform(call, retries)
    row: dict[str, Any] = reply.json()
    if reply.status != 202:
        return row
    job_id = str(row["id"])
    yield from succeeded(job_id, retries)
    return {"id": job_id, "results": (yield from results(job_id, retries))}


def sole(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the one item of a job's results, or raise its error."""
    [item] = items
    if item.get("error") is not None:
        raise from_body(item["error"])
    return item


def post(path: str, body: Mapping[str, Any]) -> Call:
    """Return a call that makes a job and may be repeated."""
    try:
        content = json.dumps(body, allow_nan=False).encode("ascii")
    except ValueError as exc:
        raise VectorInvalid("expected finite numbers, got NaN or infinity") from exc
    return Call("POST", path, content=content, headers={**_JSON, "Idempotency-Key": new_key()})


def ask(path: str, body: Mapping[str, Any], retries: Retries) -> Steps[dict[str, Any]]:
    """Post a request that makes a job; return its answer, or ``results`` after a 202."""
    row: dict[str, Any] = yield from answered(post(path, body), retries)
    return row


def get_job(job_id: str, retries: Retries, *, wait_s: float = 0.0) -> Steps[Job]:
    """Return a job's state, with ``wait_s`` once it ends or so many seconds have passed."""
    call = _job_call(job_id, params={"limit": "0"}, wait_s=wait_s)
    reply = yield from perform(call, retries)
    return Job.model_validate(reply.json())


def wait(
    job_id: str,
    retries: Retries,
    *,
    timeout_s: float = math.inf,
    on_progress: Callable[[Job], None] | None = None,
) -> Steps[Job]:
    """Wait until a job ends.

    Raises:
        NotReady: the job did not end within ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    # Progress that is watched is reported every second.
    longest_s = 1.0 if on_progress is not None else _LONGEST_WAIT_S
    while True:
        left_s = deadline - time.monotonic()
        job = yield from get_job(job_id, retries, wait_s=min(max(left_s, 0.0), longest_s))
        if on_progress is not None:
            on_progress(job)
        if job.status.terminal:
            return job
        if left_s <= 0:
            raise NotReady(f"expected job {job_id} to end within {timeout_s:g} s")


def results(job_id: str, retries: Retries) -> Steps[list[dict[str, Any]]]:
    """Return the results of a job that ended, one object for each item, in order."""
    items: list[dict[str, Any]] = []
    cursor: str | None = "0"
    while cursor is not None:
        reply = yield from perform(_job_call(job_id, params={"cursor": cursor}), retries)
        page = reply.json()
        items += page["results"]
        cursor = page["next_cursor"]
    return items


def cancel(job_id: str, retries: Retries) -> Steps[Job]:
    """Cancel a job; a job that has ended does not change."""
    reply = yield from perform(Call("DELETE", f"/v1/jobs/{quote(job_id, safe='')}"), retries)
    return Job.model_validate(reply.json())


def replay(job_id: str, retries: Retries) -> Steps[Job]:
    """Replay a dead job with a new budget of attempts."""
    path = f"/v1/jobs/{quote(job_id, safe='')}/replay"
    reply = yield from perform(Call("POST", path), retries)
    return Job.model_validate(reply.json())


def jobs(
    retries: Retries, *, status: Status | None, kind: Kind | None, limit: int
) -> Steps[list[Job]]:
    """List at most ``limit`` jobs, the newest first, filtered by status and kind if given."""
    found: list[Job] = []
    chosen = {name: str(value) for name, value in (("status", status), ("kind", kind)) if value}
    cursor: dict[str, str] = {}
    while len(found) < limit:
        params = {**chosen, **cursor, "limit": str(min(_PAGE, limit - len(found)))}
        row = (yield from perform(Call("GET", "/v1/jobs", params=params), retries)).json()
        found += [Job.model_validate(job) for job in row["jobs"]]
        if row["next_cursor"] is None:
            break
        cursor = {"cursor": row["next_cursor"]}
    return found


def replay_dead(retries: Retries) -> Steps[list[str]]:
    """Replay all dead jobs with a new budget of attempts; return their ids."""
    again: dict[str, None] = {}
    while True:
        reply = yield from perform(Call("POST", "/v1/dead-letters/replay"), retries)
        row = reply.json()
        fresh = [job for job in row["jobs"] if job not in again]
        again.update(dict.fromkeys(fresh))
        if not (row["more"] and fresh):
            return list(again)


def ready(retries: Retries) -> Steps[bool]:
    """Whether the platform can do work now."""
    try:
        yield from perform(Call("GET", "/readyz"), retries)
    except Unavailable:
        return False
    return True


def succeeded(
    job_id: str, retries: Retries, *, on_progress: Callable[[Job], None] | None = None
) -> Steps[Job]:
    """Wait until a job ends and return its state, or raise its error."""
    job = yield from wait(job_id, retries, on_progress=on_progress)
    if job.status is not Status.SUCCEEDED:
        raise job.exception()
    return job


def _job_call(job_id: str, *, params: Mapping[str, str], wait_s: float = 0.0) -> Call:
    headers = {"Prefer": f"wait={math.ceil(wait_s)}"} if wait_s > 0 else {}
    return Call("GET", f"/v1/jobs/{quote(job_id, safe='')}", params=params, headers=headers)


def new_key() -> str:
    """Return a new idempotency key, quoted as the header's draft requires."""
    return f'"{uuid.uuid4()}"'
