"""Moves migrations forward, one job at a time each, until they are done.

The worker knows what a job does; this module decides which job comes next:

    recode   passes over the collection until one finds nothing left to code again    -> done
    copy     passes until one finds almost nothing new                                 -> seal
    seal     one more pass, while commits into the old collection wait                 -> done

Documents that cannot be read are tried again in each pass; if some are left after the third, the
migration is blocked: nothing is switched and nothing lost, and it continues when requested again.

The ledger holds the state of a migration. Each change of the state is compared with the one before,
so of several keepers one makes it, and a restart changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from verso_core import tracing
from verso_core.errors import JobUnknown
from verso_core.jobs import Kind, Queue, Result, Status
from verso_core.jobs.migrate import (
    FAILED_LISTED,
    MigrateItem,
    MigrateParams,
    Migration,
    MigrationResult,
    Stage,
)
from verso_keeper.periodic import submit
from verso_ledger import Ledger

SPEND_S = 4.0
"""How long one job works, about: ingests share its queue."""
_FEW = 64
"""A pass that moved no more than this is followed by the sealed one."""
_PASSES = 8
"""A collection that never stops changing is sealed after so many passes."""
_BLOCKED_AFTER = 3
_RETRY_S = 5.0
_LONGEST_RETRY_S = 60.0
_log = logging.getLogger(__name__)


class Migrator:
    """Submits the jobs of migrations.

    Args:
        ledger: holds jobs and migrations.
        clock: Unix seconds.
    """

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock

    def step(self) -> None:
        """Run one round: for each migration submit its next job, or record what the last one did.

        Raises:
            LedgerUnavailable: Redis did not answer.
            QueueFull: the queue holds as much as it may.
        """
        for state in self._ledger.migrations.all().values():
            if not state.running:
                continue
            if state.job is not None:
                self._record_end(state, state.job)
            elif state.bucket >= state.buckets:
                self._end_pass(state)
            elif self._clock() >= state.due:
                self._submit(state)

    def _submit(self, state: Migration) -> None:
        item = MigrateItem(first=state.bucket, count=state.buckets, spend_s=SPEND_S)
        params = MigrateParams(collection=state.collection, step="work")
        where = f"{state.stage}-{state.number}-{state.bucket}-{state.tries}"
        key = f"migrate-{state.target}-{state.started}-{where}"
        with tracing.span("migrate", about={"verso.stage": state.stage}):
            accepted = submit(
                self._ledger, Queue.BULK, Kind.MIGRATE, params=params, item=item, key=key
            )
        self._move(state, job=accepted.job_id)

    def _record_end(self, state: Migration, job_id: str) -> None:
        """Advance past a job that has ended; one that is gone or failed is submitted again."""
        try:
            record = self._ledger.jobs.get(job_id)
        except JobUnknown:
            self._move(state, job=None, tries=state.tries + 1)
            return
        if not record.status.terminal:
            return
        data = self._ledger.jobs.result(job_id)
        if record.status is not Status.SUCCEEDED or data is None:
            code = record.error["code"] if record.error else record.status.value
            _log.error("migrate job failed", extra={"code": code, "collection": state.collection})
            wait_s = min(_RETRY_S * 2**state.tries, _LONGEST_RETRY_S)
            self._move(state, job=None, tries=state.tries + 1, due=self._clock() + wait_s)
            return
        found: MigrationResult = Result.unpack(Kind.MIGRATE, data).only
        self._move(
            state,
            job=None,
            tries=0,
            bucket=state.bucket + found.buckets,
            moved=state.moved + found.copied + found.removed,
            failed=state.failed + found.failed,
            copied=state.copied + found.copied,
            removed=state.removed + found.removed,
            unread=(*state.unread, *found.ids)[:FAILED_LISTED],
        )

    def _end_pass(self, state: Migration) -> None:
        """Decide what comes after a pass over all buckets."""
        if state.failed and (state.stage is Stage.SEAL or state.number >= _BLOCKED_AFTER):
            if self._move(state, also="open", stage=Stage.BLOCKED, ended=self._clock()):
                _log.error("migration blocked", extra={"collection": state.collection})
            return
        again: dict[str, Any] = {"bucket": 0, "moved": 0, "failed": 0, "unread": ()}
        done: dict[str, Any] = {"stage": Stage.DONE, "ended": self._clock()}
        if state.stage is Stage.SEAL:
            ended = self._move(state, also="switch", **done)
        elif state.stage is Stage.RECODE and not state.moved and not state.failed:
            ended = self._move(state, **done, old_removed=True)
        elif state.stage is Stage.COPY and not state.failed and self._few(state):
            self._move(state, also="seal", stage=Stage.SEAL, number=state.number + 1, **again)
            return
        else:
            self._move(state, number=state.number + 1, **again)
            return
        if ended:
            _log.info("migration done", extra={"collection": state.collection})

    def _few(self, state: Migration) -> bool:
        return state.number > 1 and (state.moved <= _FEW or state.number >= _PASSES)

    def _move(self, state: Migration, *, also: str = "none", **changes: Any) -> bool:
        return self._ledger.migrations.move(state, state.model_copy(update=changes), also=also)
