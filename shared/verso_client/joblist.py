"""Lists of jobs, and dead jobs run again together, as steps without input or output."""

from __future__ import annotations

from verso_client.answers import Job
from verso_client.exchange import Call, Steps
from verso_client.retries import Retries, perform
from verso_core.jobs import Kind, Status

_PAGE = 200


def jobs(
    retries: Retries, *, status: Status | None, kind: Kind | None, limit: int
) -> Steps[list[Job]]:
    """List jobs, the newest first, at most ``limit``; only of this state and kind, if given."""
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
    """Yield all dead jobs new attempts; gives their ids."""
    again: dict[str, None] = {}
    while True:
        reply = yield from perform(Call("POST", "/v1/dead-letters/replay"), retries)
        row = reply.json()
        fresh = [job for job in row["jobs"] if job not in again]
        again.update(dict.fromkeys(fresh))
        if not (row["more"] and fresh):
            return list(again)
