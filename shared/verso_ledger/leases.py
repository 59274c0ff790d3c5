"""Leases: a worker claims slices, renews their leases, and ends each lease exactly once."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError

from verso_core.errors import ErrorBody, error_body
from verso_core.jobs import Kind, Queue
from verso_core.record import bucket_of
from verso_core.segments import LinesWrite
from verso_ledger.codec import job_rows, scalars
from verso_ledger.collections.locations import Locations, Write
from verso_ledger.collections.logs import write_args as lines_args
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import Commit, DocumentWrite, Finished, Lease
from verso_ledger.scripts import Scripts

LEASE_S = 10.0
_LATER_MS = 1000
"""After so long a slice that an earlier release does not know is due again, uncounted."""


class Leases:
    """The part of the ledger that workers and trainers take slices from."""

    def __init__(self, scripts: Scripts, locations: Locations) -> None:
        self._scripts = scripts
        self._locations = locations

    def claim(
        self,
        queue: Queue,
        *,
        owner: str,
        n: int = 1,
        lease_s: float = LEASE_S,
        together: Kind | None = None,
        slots: int = 0,
        kept: int = 0,
    ) -> list[Lease]:
        """Take up to ``n`` due slices. Slices whose deadline has passed end as expired instead.

        With ``together`` several slices are returned only if all are of that kind: the owner runs
        them as one, so that none waits for another. ``kept`` of the owner's ``slots`` run only
        slices more urgent than usual. Heavy slices are left once half of the other slots run such;
        0 for no bound.
        """
        asked: list[scalars.Arg] = [together or "", slots, kept]
        until = time.monotonic() + _LATER_MS / 1000  # none that is left comes twice
        while True:
            token = uuid.uuid4().hex
            rows = self._scripts.run(
                "claim", [queue, owner, n, round(lease_s * 1000), token, *asked]
            )
            leases = [lease for lease in map(self._known, rows) if lease is not None]
            if leases or not rows or time.monotonic() > until:
                return leases

    def _known(self, row: Sequence[Any]) -> Lease | None:
        """Read a row of ``claim.lua``; work of a kind of a later release waits for its workers."""
        try:
            return job_rows.lease(row)
        except ValueError:
            args: list[scalars.Arg] = [scalars.text(row[0]), int(row[3]), _LATER_MS]
            self._scripts.run("retry", [*args, "not_ready", "it is of a later release", 0, 0])
            return None

    def renew(self, leases: Iterable[Lease], lease_s: float = LEASE_S) -> set[str]:
        """Extend leases; return the ids of slices that are lost: cancelled, or taken over."""
        args: list[scalars.Arg] = [round(lease_s * 1000)]
        for lease in leases:
            args += [lease.slice_id, lease.fence]
        if len(args) == 1:
            return set()
        return {scalars.text(name) for name in self._scripts.run("renew", args)}

    def report_progress(self, lease: Lease, state: Mapping[str, Any]) -> Commit:
        """Add an event with the progress of a slice to its job."""
        args: list[scalars.Arg] = [lease.slice_id, lease.fence, json.dumps(state)]
        return Commit(scalars.text(self._scripts.run("progress", args)))

    def commit(
        self,
        lease: Lease,
        result: bytes,
        *,
        ok: int,
        errors: int,
        documents: Sequence[Write] = (),
        verify_delay_s: float = 1.0,
        notified: bool = False,
        lines: LinesWrite | None = None,
    ) -> Commit:
        """End a slice's work: result, documents, counters and state in one step.

        A write or delete older than the stored entry changes nothing; a replaced entry goes to the
        garbage list. A slice that wrote documents is due on the scrub queue in phase verify after
        ``verify_delay_s``; its payload, the raw texts, is kept until then. So is that of
        one with ``lines``. ``notified``: the waiting caller has the result already.
        """
        finished = Finished(lease, result, ok=ok, errors=errors, notified=notified)

        def arguments() -> list[scalars.Arg]:
            writes = self._locations.write_args(documents)
            segments = [] if lines is None else lines_args(lines)
            start = job_rows.finished_args(finished, verify_delay_s)
            return [*start, len(documents), *writes, *segments]

        return self._locations.run("commit", arguments)

    def commit_all(self, finished: Sequence[Finished]) -> list[Commit]:
        """End the work of several slices that wrote no documents, in one exchange."""
        script = self._scripts.prepared("commit")
        rows = [[*job_rows.finished_args(one, 0.0), 0] for one in finished]
        with translated(), self._scripts.client.pipeline(transaction=False) as pipe:
            for row in rows:
                pipe.evalsha(script.sha, 0, *row)
            self._scripts.replicas.ask(pipe)
            replies = self._scripts.replicas.check(pipe.execute(raise_on_error=False))
        return [
            # A step that failed (the server has forgotten its scripts, say) is repeated alone.
            Commit(
                scalars.text(
                    self._scripts.run("commit", row) if isinstance(reply, Exception) else reply
                )
            )
            for row, reply in zip(rows, replies, strict=True)
        ]

    def notify_callers(self, finished: Sequence[Finished], *, spent_ms: int) -> list[Finished]:
        """Publish results to the callers who wait for them, before the commits are on disk.

        Only for work that changes nothing, and only for slices of which every item succeeded: if
        the commit fails, another worker executes the slice again.

        Returns:
            The slices, with whether a caller was notified; their commit then does not publish.
        """
        limit = self._scripts.policy.published_bytes
        messages = [
            job_rows.end_message(one.lease, one.lease.awaited, one.result, spent_ms=spent_ms)
            if one.lease.awaited and not one.errors and len(one.result) <= limit
            else None
            for one in finished
        ]
        published = [message for message in messages if message is not None]
        received = [0] * len(published)
        if published:
            # Where publishing fails the commit notifies.
            with suppress(RedisError), self._scripts.client.pipeline(transaction=False) as pipe:
                for message in published:
                    pipe.publish(key("news"), message)
                received = pipe.execute()
        counts = iter(received)
        return [
            replace(one, notified=message is not None and next(counts) > 0)
            for one, message in zip(finished, messages, strict=True)
        ]

    def commit_verified(
        self,
        lease: Lease,
        documents: Sequence[tuple[str, str, int]],
        *,
        rewritten: Sequence[DocumentWrite] = (),
        raw_text_retention_s: float = 900.0,
        verify_delay_s: float = 1.0,
        lines: tuple[str, str, int] | None = None,
    ) -> Commit:
        """End a slice's verify phase.

        Args:
            lease: a lease of phase verify.
            documents: collection, document and sequence number of each entry that was decoded to
                its text. An entry that was replaced since is left alone.
            rewritten: entries for the other documents. They are written, and the slice is verified
                again after ``verify_delay_s``, which grows each time; the eighth time makes it a
                dead letter.
            lines: own name and uid of a log collection, and its lines that were read back.
            raw_text_retention_s: how long the raw texts stay once all entries are verified.
        """
        right = [(name, document) for name, document, seq in documents if seq == lease.seq]

        def arguments() -> list[scalars.Arg]:
            entries: list[scalars.Arg] = []
            for name, document in right:
                uid, buckets = self._locations.find_or_gone(name)
                entries += [name, uid, bucket_of(document, buckets=buckets), document]
            return [
                lease.slice_id, lease.fence,
                round(raw_text_retention_s * 1000), round(verify_delay_s * 1000),
                len(right), len(rewritten), *entries, *self._locations.write_args(rewritten),
                *(write.over for write in rewritten), *(lines or ()),
            ]  # fmt: skip

        return self._locations.run("verified", arguments)

    def retry(
        self, lease: Lease, error: BaseException, *, delay_s: float, timed_out: bool = False
    ) -> Commit:
        """Return a slice after a retryable error; the eighth makes it a dead letter.

        The slice is due again after ``delay_s``, which doubles with every error, up to 30 s. Work
        that took too long (``timed_out``) probably will again: the second time the slice fails,
        unless its payload is the only copy of a text.
        """
        body = error_body(error)
        return self._return(lease, body, delay_s=delay_s, count=True, timed_out=timed_out)

    def release(self, lease: Lease, *, delay_s: float = 0.0) -> Commit:
        """Return a slice uncounted: this worker shuts down, or the slice came too early.

        The slice is due again after ``delay_s``.
        """
        body: ErrorBody = {"code": "released", "detail": "", "retryable": True}
        return self._return(lease, body, delay_s=delay_s, count=False)

    def fail(self, lease: Lease, error: BaseException) -> Commit:
        """End a slice that cannot succeed; an ingest or delete becomes a dead letter instead."""
        body = error_body(error)
        args: list[scalars.Arg] = [lease.slice_id, lease.fence, body["code"], body["detail"]]
        return Commit(scalars.text(self._scripts.run("fail", args)))

    def _return(
        self,
        lease: Lease,
        body: ErrorBody,
        *,
        delay_s: float,
        count: bool,
        timed_out: bool = False,
    ) -> Commit:
        args: list[scalars.Arg] = [
            lease.slice_id, lease.fence, round(delay_s * 1000), body["code"], body["detail"],
            int(count), int(timed_out),
        ]  # fmt: skip
        return Commit(scalars.text(self._scripts.run("retry", args)))
