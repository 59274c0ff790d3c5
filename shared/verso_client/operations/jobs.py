"""Jobs: wait for them, read their results, list, cancel and replay them.

What the other families share is here too: requests that make a job, and answers that may be 202.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from verso_client.exchange import Call, Steps, Unreachable, path_of
from verso_core.errors import NotReady, Unavailable, VectorInvalid, VersoError, from_body
from verso_core.jobs import Kind, Status
from verso_core.jobs.job import Job

_LONGEST_WAIT_S = 20.0
_SHORTEST_POLL_S = 0.25
"""Least time between two polls of a job, where the platform answers before the job ends."""
_PAGE = 200
_JSON = {"Content-Type": "application/json"}


def answered(call: Call) -> Steps[dict[str, Any]]:
    """Return the answer to a call; if it is 202, the results of its job once the job ends."""
    reply = yield call
    row: dict[str, Any] = reply.json()
    if reply.status != 202:
        return row
    job_id = str(row["id"])
    yield from succeeded(job_id)
    return {"id": job_id, "results": (yield from results(job_id))}


def answered_one(call: Call) -> Steps[dict[str, Any]]:
    """Return the answer to a call; if it is 202, the one item of its job, or raise its error."""
    row = yield from answered(call)
    if "results" not in row:
        return row
    [item] = row["results"]
    return checked(item)


def checked(item: dict[str, Any]) -> dict[str, Any]:
    """Return one item of a job's results, or raise its error."""
    if item.get("error") is not None:
        raise from_body(item["error"])
    return item


def post(path: str, body: Mapping[str, Any] | BaseModel) -> Call:
    """Return a call that makes a job and may be repeated.

    Args:
        path: where to.
        body: the JSON object; of a request, the fields that differ from its defaults.

    Raises:
        VectorInvalid: a number is not finite.
    """
    if isinstance(body, BaseModel):
        # What the caller has given stands there unchecked, such as a mode by its name.
        body = body.model_dump(mode="json", exclude_defaults=True, warnings=False)
    try:
        content = json.dumps(body, allow_nan=False).encode("ascii")
    except ValueError as exc:
        raise VectorInvalid("expected finite numbers, got NaN or infinity") from exc
    return Call("POST", path, content=content, headers={**_JSON, "Idempotency-Key": new_key()})


def get_job(job_id: str, *, wait_s: float = 0.0, pause_s: float = 0.0) -> Steps[Job]:
    """Return a job's state, with ``wait_s`` once it ends or so many seconds have passed."""
    call = _job_call(job_id, params={"limit": "0"})
    reply = yield replace(call, wait_s=wait_s, pause_s=pause_s)
    return Job.model_validate(reply.json())


def wait(
    job_id: str,
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
    pause_s = 0.0
    while True:
        now = time.monotonic()
        left_s = max(deadline - now, 0.0)
        pause_s = min(pause_s, left_s)
        earliest = now + pause_s + _SHORTEST_POLL_S
        job = yield from get_job(job_id, wait_s=min(left_s, longest_s), pause_s=pause_s)
        if on_progress is not None:
            on_progress(job)
        if job.status.terminal:
            return job
        if left_s <= 0:
            raise NotReady(f"expected job {job_id} to end within {timeout_s:g} s")
        pause_s = max(earliest - time.monotonic(), 0.0)


def results(job_id: str) -> Steps[list[dict[str, Any]]]:
    """Return the results of a job that ended, one object for each item, in order."""
    items: list[dict[str, Any]] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = (yield _job_call(job_id, params={"cursor": cursor})).json()
        items += page["results"]
        cursor = page["next_cursor"]
    return items


def cancel(job_id: str) -> Steps[Job]:
    """Cancel a job; a job that has ended does not change."""
    reply = yield Call("DELETE", path_of("jobs", job_id))
    return Job.model_validate(reply.json())


def replay(job_id: str) -> Steps[Job]:
    """Replay a dead job with a new budget of attempts."""
    reply = yield Call("POST", path_of("jobs", job_id, "replay"))
    return Job.model_validate(reply.json())


def jobs(*, status: Status | None, kind: Kind | None, reads: bool, limit: int) -> Steps[list[Job]]:
    """List at most ``limit`` jobs, the newest first, filtered by status and kind if given."""
    found: list[Job] = []
    chosen = {name: str(value) for name, value in (("status", status), ("kind", kind)) if value}
    if reads:
        chosen["reads"] = "true"
    cursor: dict[str, str] = {}
    while len(found) < limit:
        params = {**chosen, **cursor, "limit": str(min(_PAGE, limit - len(found)))}
        row = (yield Call("GET", path_of("jobs"), params=params)).json()
        found += [Job.model_validate(job) for job in row["jobs"]]
        if row["next_cursor"] is None:
            break
        cursor = {"cursor": row["next_cursor"]}
    return found


def replay_dead() -> Steps[list[str]]:
    """Replay all dead jobs with a new budget of attempts; return their ids."""
    again: dict[str, None] = {}
    while True:
        row = (yield Call("POST", path_of("dead-letters", "replay"))).json()
        fresh = [job for job in row["jobs"] if job not in again]
        again.update(dict.fromkeys(fresh))
        if not (row["more"] and fresh):
            return list(again)


def alive() -> Steps[None]:
    """Ask whether anything answers at the platform's address; an error of it is an answer.

    Raises:
        Unreachable: nothing does.
    """
    try:
        yield Call("GET", "/healthz")
    except Unreachable:
        raise
    except VersoError:
        return


def ready() -> Steps[bool]:
    """Whether the platform can do work now."""
    try:
        yield Call("GET", "/readyz")
    except Unavailable:
        return False
    return True


def succeeded(job_id: str, *, on_progress: Callable[[Job], None] | None = None) -> Steps[Job]:
    """Wait until a job ends and return its state, or raise its error."""
    job = yield from wait(job_id, on_progress=on_progress)
    if job.status is not Status.SUCCEEDED:
        raise job.exception()
    return job


def _job_call(job_id: str, *, params: Mapping[str, str]) -> Call:
    return Call("GET", path_of("jobs", job_id), params=params)


def new_key() -> str:
    """Return a new idempotency key, quoted as the header's draft requires."""
    return f'"{uuid.uuid4()}"'
