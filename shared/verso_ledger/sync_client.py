"""The ledger as workers and the keeper use it: blocking calls, safe from any thread."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from verso_core.errors import ErrorBody, error_body
from verso_core.jobs import Kind, Queue
from verso_core.record import bucket_of
from verso_ledger import codec
from verso_ledger.connection import translated
from verso_ledger.documents import Write
from verso_ledger.keys import key
from verso_ledger.maintenance import Maintenance
from verso_ledger.migrations import Migrations
from verso_ledger.models import (
    Accepted,
    Commit,
    DocumentWrite,
    End,
    JobRecord,
    Lease,
    NewJob,
    Policy,
)
from verso_ledger.server import keepalive
from verso_ledger.webhooks import Outbox

LEASE_S = 10.0
BEAT_S = 3.0


def connect(url: str, *, timeout_s: float = 10.0, retries: int = 3) -> redis.Redis:
    """Open a client that notices a dead peer and repeats what a lost connection swallowed.

    Every step of the ledger may be repeated, so the client's own retries do no harm.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s / 2,
        **keepalive(url),
        health_check_interval=5,
        retry=Retry(
            ExponentialBackoff(cap=1.0, base=0.05),
            retries=retries,
            supported_errors=(RedisConnectionError, RedisTimeoutError),
        ),
    )


class Ledger(Migrations, Maintenance, Outbox):
    """The durable truth about jobs and documents; every method is one step of the server.

    Every method raises LedgerUnavailable when Redis does not answer or refuses. A step whose reply
    was lost can be called again.
    """

    @classmethod
    def from_url(cls, url: str, *, policy: Policy | None = None) -> Ledger:
        """Connect to the ledger at ``redis://…`` or ``unix://…``."""
        return cls(connect(url), policy=policy)

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def ping(self) -> None:
        """Ask for a sign of life."""
        with translated():
            self._redis.ping()

    # -- jobs --

    def accept(self, job: NewJob) -> Accepted:
        """Take a job in: when this returns it is on disk.

        Raises:
            IdempotencyConflict: the idempotency key came with another body before.
            QueueFull: the queue holds as much as it may.
            BodyTooLarge: the job is larger than an empty queue may hold.
        """
        size, job_id = codec.check_size(job), job.job_id or codec.new_job_id()
        staged = size > codec.STAGE_BYTES
        if staged:
            for number, part in enumerate(job.slices):
                with translated():
                    name = key("payload", f"{job_id}.{number}")
                    self._redis.set(name, part.payload, px=codec.STAGED_FOR_MS)
        return codec.accepted(self._run("accept", codec.accept_args(job, job_id, staged=staged)))

    def job(self, job_id: str) -> JobRecord:
        """Return what is known of a job.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        with translated():
            fields = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("job", job_id)))
        return codec.job_record(job_id, fields)

    def result(self, job_id: str, number: int = 0) -> bytes | None:
        """Return the result frame of one slice of a job; None where there is none (yet)."""
        with translated():
            return cast("bytes | None", self._redis.hget(key("result", job_id), str(number)))

    # -- leases --

    def claim(
        self,
        queue: Queue,
        *,
        owner: str,
        n: int = 1,
        lease_s: float = LEASE_S,
        together: Kind | None = None,
    ) -> list[Lease]:
        """Take up to ``n`` due slices. Slices whose deadline has passed end as expired instead.

        With ``together`` more than one are given only where all are of that kind: slices that the
        owner runs as one, and none that would have to wait for another.
        """
        args: list[codec.Arg] = [
            queue, owner, n, round(lease_s * 1000), uuid.uuid4().hex, together or "",
        ]  # fmt: skip
        return [codec.lease(row) for row in self._run("claim", args)]

    def beat(self, leases: Iterable[Lease], lease_s: float = LEASE_S) -> set[str]:
        """Extend leases. Returns the slice ids that are lost: cancelled, or taken over."""
        args: list[codec.Arg] = [round(lease_s * 1000)]
        for lease in leases:
            args += [lease.slice_id, lease.fence]
        return {codec.text(name) for name in self._run("beat", args)} if len(args) > 1 else set()

    def progress(self, lease: Lease, state: Mapping[str, Any]) -> Commit:
        """Tell whoever follows the job how far a slice is."""
        args: list[codec.Arg] = [lease.slice_id, lease.fence, json.dumps(state)]
        return Commit(codec.text(self._run("progress", args)))

    def commit(
        self,
        lease: Lease,
        result: bytes,
        *,
        ok: int,
        errors: int,
        documents: Sequence[Write] = (),
        verify_delay_s: float = 1.0,
        told: bool = False,
    ) -> Commit:
        """End a slice's work: result, documents, counters and state in one step.

        A write or delete that was asked for before what is stored changes nothing; what it replaces
        goes to the garbage list. A slice that wrote documents is then due on the scrub queue in
        phase verify after ``verify_delay_s``, with its payload, the raw texts, still held.
        ``told`` if
        whoever waits has the result. ``hand`` stands in line as in :meth:`claim` where nothing
        else is due.
        """

        def arguments() -> list[codec.Arg]:
            writes = self._write_args(documents)
            return [
                lease.slice_id, lease.fence, result, ok, errors, round(verify_delay_s * 1000),
                Queue.SCRUB, int(told), len(documents), *writes,
            ]  # fmt: skip

        return self._end("commit", arguments)

    def tell(self, ends: Sequence[End], *, spent_ms: int) -> list[End]:
        """Return whoever waits for these slices' jobs their results, before the commits are on
        disk.

        Only for work that changes nothing, and here for slices of which every item succeeded:
        should a commit not come about, the slice is done again, by whoever claims it. Returns the
        ends with whether somebody was told; the commit then need not.
        """
        news = [
            codec.end_news(one.lease, one.lease.awaited, one.result, spent_ms=spent_ms)
            if one.lease.awaited and not one.errors and len(one.result) <= self._policy.told_bytes
            else None
            for one in ends
        ]
        said = [one for one in news if one is not None]
        heard: list[int] = []
        if said:
            with suppress(RedisError), self._redis.pipeline(transaction=False) as pipe:
                for message in said:
                    pipe.publish(key("news"), message)
                heard = pipe.execute()
        told = iter(heard or [0] * len(said))
        return [
            replace(end, told=one is not None and next(told) > 0)
            for end, one in zip(ends, news, strict=True)
        ]

    def commit_all(self, ends: Sequence[End]) -> list[Commit]:
        """End the work of several slices that wrote no documents, in one exchange."""
        script = self._script("commit")
        rows: list[list[codec.Arg]] = [
            [
                one.lease.slice_id, one.lease.fence, one.result, one.ok, one.errors,
                0, Queue.SCRUB, int(one.told), 0,
            ]
            for one in ends
        ]  # fmt: skip
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            for row in rows:
                pipe.evalsha(script.sha, 0, *row)
            replies = pipe.execute(raise_on_error=False)
        return [
            # whatever one of them met (the server has forgotten its scripts, say), it meets alone
            Commit(codec.text(self._run("commit", row) if isinstance(reply, Exception) else reply))
            for row, reply in zip(rows, replies, strict=True)
        ]

    def verified(
        self,
        lease: Lease,
        documents: Sequence[tuple[str, str, int]],
        *,
        rewritten: Sequence[DocumentWrite] = (),
        grace_s: float = 900.0,
        verify_delay_s: float = 1.0,
    ) -> Commit:
        """End a slice's verify phase.

        Args:
            lease: a lease of phase verify.
            documents: collection, document and sequence number of each entry that gave its text
                back. One that was replaced since is left alone.
            rewritten: entries for documents that did not; they are written, and the slice is
                verified once more after ``verify_delay_s``, then after ever longer; the eighth
                time makes
                it a dead letter.
            grace_s: how long the raw texts stay after everything was right.
        """
        right = [(name, document) for name, document, seq in documents if seq == lease.seq]

        def arguments() -> list[codec.Arg]:
            entries: list[codec.Arg] = []
            for name, document in right:
                uid, buckets = self._place_or_gone(name)
                entries += [name, uid, bucket_of(document, buckets=buckets), document]
            return [
                lease.slice_id, lease.fence, round(grace_s * 1000), round(verify_delay_s * 1000),
                len(right), len(rewritten), *entries, *self._write_args(rewritten),
                *(write.over for write in rewritten),
            ]  # fmt: skip

        return self._end("verified", arguments)

    def retry(self, lease: Lease, error: BaseException, *, delay_s: float) -> Commit:
        """Return a slice back after an error that may pass; the eighth makes it a dead letter.

        It is due again after ``delay_s``, which doubles with every error of the slice, up to 30 s.
        """
        body = error_body(error)
        return self._return(lease, body, delay_s=delay_s, count=True)

    def release(self, lease: Lease, *, delay_s: float = 0.0) -> Commit:
        """Return a slice back unharmed and uncounted: this worker shuts down, or it came too early.

        It is due again after ``delay_s``.
        """
        body: ErrorBody = {"code": "released", "detail": "", "retryable": True}
        return self._return(lease, body, delay_s=delay_s, count=False)

    def fail(self, lease: Lease, error: BaseException) -> Commit:
        """End a slice that cannot succeed; an ingest or delete becomes a dead letter instead."""
        body = error_body(error)
        args: list[codec.Arg] = [lease.slice_id, lease.fence, body["code"], body["detail"]]
        return Commit(codec.text(self._run("fail", args)))

    def _return(self, lease: Lease, body: ErrorBody, *, delay_s: float, count: bool) -> Commit:
        args: list[codec.Arg] = [
            lease.slice_id, lease.fence, round(delay_s * 1000), body["code"], body["detail"],
            int(count),
        ]  # fmt: skip
        return Commit(codec.text(self._run("retry", args)))
