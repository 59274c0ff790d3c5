"""The ledger as workers and the keeper use it: blocking calls, safe from any thread."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from verso_core.errors import CollectionUnknown, ErrorBody, error_body
from verso_core.jobs import Collection, Kind, Queue
from verso_core.ledger import forms, scrub
from verso_core.ledger.faults import translated
from verso_core.ledger.keys import key
from verso_core.ledger.scripts import source
from verso_core.ledger.scrub import Move, Scrub
from verso_core.ledger.terms import (
    Accepted,
    Backlog,
    Commit,
    Depth,
    Discarded,
    DocumentDelete,
    DocumentWrite,
    End,
    Health,
    JobRecord,
    Lease,
    NewJob,
    Policy,
)
from verso_core.record import Flag, bucket_of

LEASE_S = 10.0
BEAT_S = 3.0
_PAGE = 128
_MOVED_TRIES = 5

Write = DocumentWrite | DocumentDelete
Place = tuple[str, int]
"""Uid of a collection and how many buckets it has."""


def connect(url: str, *, timeout_s: float = 10.0, retries: int = 3) -> redis.Redis:
    """Open a client that notices a dead peer and repeats what a lost connection swallowed.

    Every step of the ledger may be repeated, so the client's own retries do no harm.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s / 2,
        socket_keepalive=True,
        health_check_interval=5,
        retry=Retry(
            ExponentialBackoff(cap=1.0, base=0.05),
            retries=retries,
            supported_errors=(RedisConnectionError, RedisTimeoutError),
        ),
    )


class Ledger:
    """The durable truth about jobs and documents; every method is one step of the server.

    Every method raises LedgerUnavailable when Redis does not answer or refuses. A step whose reply
    was lost can be called again.
    """

    def __init__(self, client: redis.Redis, *, policy: Policy | None = None) -> None:
        self._redis = client
        self._policy = policy or Policy()
        self._scripts: dict[str, Any] = {}
        self._places: dict[str, Place] = {}

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
        size, job_id = forms.check_size(job), job.job_id or forms.new_job_id()
        staged = size > forms.STAGE_BYTES
        if staged:
            for number, part in enumerate(job.slices):
                with translated():
                    name = key("payload", f"{job_id}.{number}")
                    self._redis.set(name, part.payload, px=forms.STAGED_FOR_MS)
        return forms.accepted(self._run("accept", forms.accept_args(job, job_id, staged=staged)))

    def job(self, job_id: str) -> JobRecord:
        """Give what is known of a job.

        Raises:
            JobUnknown: there is no such job, or it has expired.
        """
        with translated():
            fields = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("job", job_id)))
        return forms.job_record(job_id, fields)

    def result(self, job_id: str, number: int = 0) -> bytes | None:
        """Give the result frame of one slice of a job; None where there is none (yet)."""
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
        args: list[forms.Arg] = [
            queue, owner, n, round(lease_s * 1000), uuid.uuid4().hex, together or "",
        ]  # fmt: skip
        return [forms.lease(row) for row in self._run("claim", args)]

    def beat(self, leases: Iterable[Lease], lease_s: float = LEASE_S) -> set[str]:
        """Extend leases. Gives the slice ids that are lost: cancelled, or taken over."""
        args: list[forms.Arg] = [round(lease_s * 1000)]
        for lease in leases:
            args += [lease.slice_id, lease.fence]
        return {forms.text(name) for name in self._run("beat", args)} if len(args) > 1 else set()

    def commit(
        self,
        lease: Lease,
        result: bytes,
        *,
        ok: int,
        errors: int,
        documents: Sequence[Write] = (),
        settle_s: float = 1.0,
    ) -> Commit:
        """End a slice's work: result, documents, counters and state in one step.

        A write or delete that was asked for before what is stored changes nothing; what it replaces
        goes to the garbage list. A slice that wrote documents is then due on the scrub queue in
        phase verify after ``settle_s``, with its payload, the raw texts, still held.
        """

        def arguments() -> list[forms.Arg]:
            writes = self._write_args(documents)
            return [
                lease.slice_id, lease.fence, result, ok, errors, round(settle_s * 1000),
                Queue.SCRUB, len(documents), *writes,
            ]  # fmt: skip

        return self._end("commit", arguments)

    def commit_all(self, ends: Sequence[End]) -> list[Commit]:
        """End the work of several slices that wrote no documents, in one exchange."""
        script = self._script("commit")
        rows: list[list[forms.Arg]] = [
            [one.lease.slice_id, one.lease.fence, one.result, one.ok, one.errors, 0, Queue.SCRUB, 0]
            for one in ends
        ]
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            for row in rows:
                pipe.evalsha(script.sha, 0, *row)
            replies = pipe.execute(raise_on_error=False)
        return [
            # whatever one of them met (the server has forgotten its scripts, say), it meets alone
            Commit(forms.text(self._run("commit", row) if isinstance(reply, Exception) else reply))
            for row, reply in zip(rows, replies, strict=True)
        ]

    def verified(
        self,
        lease: Lease,
        documents: Sequence[tuple[str, str, int]],
        *,
        rewritten: Sequence[DocumentWrite] = (),
        grace_s: float = 900.0,
        settle_s: float = 1.0,
    ) -> Commit:
        """End a slice's verify phase.

        Args:
            lease: a lease of phase verify.
            documents: collection, document and sequence number of each entry that gave its text
                back. One that was replaced since is left alone.
            rewritten: entries for documents that did not; they are written, and the slice is
                verified once more after ``settle_s``.
            grace_s: how long the raw texts stay after everything was right.
        """
        right = [(name, document) for name, document, seq in documents if seq == lease.seq]

        def arguments() -> list[forms.Arg]:
            entries: list[forms.Arg] = []
            for name, document in right:
                uid, buckets = self._place_or_gone(name)
                entries += [name, uid, bucket_of(document, buckets=buckets), document]
            return [
                lease.slice_id, lease.fence, round(grace_s * 1000), round(settle_s * 1000),
                len(right), len(rewritten), *entries, *self._write_args(rewritten),
            ]  # fmt: skip

        return self._end("verified", arguments)

    def retry(self, lease: Lease, error: BaseException, *, delay_s: float) -> Commit:
        """Give a slice back after an error that may pass; the eighth makes it a dead letter.

        It is due again after ``delay_s``, which doubles with every error of the slice, up to 30 s.
        """
        body = error_body(error)
        return self._return(lease, body, delay_s=delay_s, count=True)

    def release(self, lease: Lease) -> Commit:
        """Give a slice back unharmed and uncounted: this worker shuts down."""
        body: ErrorBody = {"code": "released", "detail": "", "retryable": True}
        return self._return(lease, body, delay_s=0.0, count=False)

    def fail(self, lease: Lease, error: BaseException) -> Commit:
        """End a slice that cannot succeed; an ingest or delete becomes a dead letter instead."""
        body = error_body(error)
        args: list[forms.Arg] = [lease.slice_id, lease.fence, body["code"], body["detail"]]
        return Commit(forms.text(self._run("fail", args)))

    # -- upkeep --

    def reap(self, n: int = 1000) -> dict[Queue, int]:
        """Take back slices whose lease ran out, expire jobs past their deadline, tidy.

        Gives the number of due slices of each queue. Any number of processes may call this.
        """
        counts = forms.pairs(self._run("reap", [n, *Queue]))
        return {Queue(name): count for name, count in counts.items()}

    def drop_due(self, n: int = 1000) -> int:
        """Delete verified raw texts whose grace is over, and sweep deleted collections.

        Gives the number of payloads deleted.
        """
        return int(self._run("drop", [n]))

    def gc_take(self, n: int = 256, *, lease_s: float = 60.0) -> list[Discarded]:
        """Take entries whose points may be removed; what is not reported done comes again."""
        rows = self._run("gc_take", [n, round(lease_s * 1000)])
        return [
            Discarded(forms.text(token), forms.text(name), forms.text(document), entry)
            for token, name, document, entry in rows
        ]

    def gc_done(self, tokens: Sequence[str]) -> None:
        """Report that the points of these discarded entries are gone."""
        if not tokens:
            return
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.zrem(key("gc"), *tokens)
            pipe.unlink(*(key("gcitem", token) for token in tokens))
            pipe.execute()

    def note_embed(self) -> None:
        """Record that a real embed has just succeeded."""
        self._note("embed")

    def note_beat(self, worker: str) -> None:
        """Record that a worker is alive and can reach the ledger."""
        self._note(f"beat:{worker}")

    def forget_worker(self, worker: str) -> None:
        """Remove a worker that stopped in good order from the signs of life."""
        with translated():
            self._redis.hdel(key("health"), f"beat:{worker}")

    def health(self) -> Health:
        """Give the signs of life."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(key("health"))
            pipe.time()
            rows, clock = pipe.execute()
        return forms.health(rows, forms.server_seconds(clock))

    def depths(self) -> dict[Queue, Depth]:
        """Give what waits and runs in each queue."""
        return forms.depths(self._run("depths", list(Queue)))

    def backlog(self) -> Backlog:
        """Give what waits outside the queues."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.zcard(key("dead"))
            pipe.hmget(key("load"), "unverified:slices", "unverified:bytes")
            pipe.zcard(key("drop"))
            pipe.zcard(key("gc"))
            pipe.hgetall(key("totals"))
            dead, unverified, to_drop, to_collect, totals = pipe.execute()
        return Backlog(
            dead=dead,
            unverified=int(unverified[0] or 0),
            unverified_bytes=int(unverified[1] or 0),
            to_drop=to_drop,
            to_collect=to_collect,
            totals=forms.counters(totals),
        )

    # -- collections and documents --

    def collections(self) -> dict[str, Collection]:
        """Give all collections by name, in order."""
        with translated():
            rows = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("collections")))
        return forms.collections(rows)

    def collection(self, name: str) -> Collection:
        """Give one collection.

        Raises:
            CollectionUnknown: there is none of this name.
        """
        return Collection.model_validate_json(self._collection_json(name))

    def collection_put(self, collection: Collection) -> Collection:
        """Create a collection, and give what is stored.

        Raises:
            CollectionExists: one of this name has another precision or text policy.
        """
        stored = self._run("collection_put", [collection.name, forms.dump(collection)])
        return forms.settled(stored, collection)

    def collection_artifact(self, name: str, codec_id: str) -> int:
        """Give the slot by which this collection's records name a codec, adding it if it is new.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        while True:
            stored = self._collection_json(name)
            old = Collection.model_validate_json(stored)
            if codec_id in old.artifacts:
                return old.artifacts.index(codec_id)
            new = old.model_copy(update={"artifacts": (*old.artifacts, codec_id)})
            self._run("collection_swap", [name, stored, forms.dump(new)])

    def collection_delete(self, name: str) -> None:
        """Make a collection and all its documents invisible at once; their keys go later.

        Raises:
            CollectionUnknown: there is none of this name.
        """
        uid, buckets = self._place(name, fresh=True)
        self._run("collection_delete", [name, uid, buckets])

    def entry(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Give the live entries of documents; one that does not exist is left out.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, buckets = place = self._place(collection, fresh=True)
        found: dict[str, bytes] = {}
        with translated():
            for start in range(0, len(documents), _PAGE):
                part = documents[start : start + _PAGE]
                with self._redis.pipeline(transaction=False) as pipe:
                    for document in part:
                        pipe.hget(key("docs", uid, bucket_of(document, buckets=buckets)), document)
                    rows = zip(part, pipe.execute(), strict=True)
                found.update(self._whole(place, {d: row for d, row in rows if row is not None}))
        return found

    def entries(
        self, collection: str, *, first: int = 0, count: int | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Go through the live entries of ``count`` buckets (all) from ``first``, in no order.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, buckets = place = self._place(collection, fresh=True)
        last = buckets if count is None else min(buckets, first + count)
        for start in range(first, last, _PAGE):
            with translated(), self._redis.pipeline(transaction=False) as pipe:
                for bucket in range(start, min(start + _PAGE, last)):
                    pipe.hgetall(key("docs", uid, bucket))
                heads = {forms.text(d): row for page in pipe.execute() for d, row in page.items()}
                whole = self._whole(place, heads)
            yield from whole.items()

    def texts(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Give the texts that a collection with policy ``both`` keeps; a missing one is left out.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, _ = self._place(collection, fresh=True)
        if not documents:
            return {}
        with translated():
            rows = self._redis.mget([key("text", uid, document) for document in documents])
        pairs = zip(documents, cast("list[bytes | None]", rows), strict=True)
        return {document: row for document, row in pairs if row is not None}

    def repair(
        self, collection: str, document: str, *, old: bytes, entry: bytes, text: bytes | None
    ) -> bool:
        """Put an entry in the place of ``old``, and tell whether ``old`` was still stored.

        The new entry keeps the old one's sequence number: it says the same text.
        """
        write = DocumentWrite(collection, document, entry, text)
        return self._end("repair", lambda: [old, *self._write_args([write])]) is Commit.DONE

    # -- the scrub --

    def scrub(self) -> Scrub:
        """Tell where the scrub stands."""
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(key("scrub"))
            pipe.lrange(key("damaged"), 0, -1)
            pipe.time()
            rows, listed, clock = pipe.execute()
        return scrub.read(rows, listed, now=forms.server_seconds(clock))

    def scrub_move(self, turn: int, move: Move) -> bool:
        """Move the scrub on from ``turn``; tell whether it was this call that did."""
        return bool(self._run("scrub_move", scrub.move_args(turn, move)))

    def scrub_ask(self) -> None:
        """Ask for a pass at once, or as soon as the one under way has ended."""
        self._run("scrub_ask", [])

    # -- inner parts --

    def _run(self, step: str, args: Sequence[forms.Arg]) -> Any:
        with translated():
            return self._script(step)(args=args)

    def _script(self, step: str) -> Any:
        script = self._scripts.get(step)
        if script is None:
            script = self._redis.register_script(source(step, self._policy))
            self._scripts[step] = script
        return script

    def _end(self, step: str, arguments: Callable[[], list[forms.Arg]]) -> Commit:
        """Run a step that names collections; while it says that one moved, look it up again."""
        for _ in range(_MOVED_TRIES):
            reply = forms.text(self._run(step, arguments()))
            if reply != "moved":
                return Commit(reply)
            self._places.clear()
        return Commit.STALE

    def _return(self, lease: Lease, body: ErrorBody, *, delay_s: float, count: bool) -> Commit:
        args: list[forms.Arg] = [
            lease.slice_id, lease.fence, round(delay_s * 1000), body["code"], body["detail"],
            int(count),
        ]  # fmt: skip
        return Commit(forms.text(self._run("retry", args)))

    def _collection_json(self, name: str) -> bytes:
        with translated():
            row = self._redis.hget(key("collections"), name)
        if row is None:
            raise CollectionUnknown(f"no collection is named {name[:64]!r}")
        return cast("bytes", row)

    def _note(self, field: str) -> None:
        self._run("note", [field])

    def _write_args(self, documents: Sequence[Write]) -> list[forms.Arg]:
        args: list[forms.Arg] = []
        for document in documents:
            uid, buckets = self._place_or_gone(document.collection)
            args += forms.write_args(document, uid=uid, buckets=buckets)
        return args

    def _place(self, name: str, *, fresh: bool = False) -> Place:
        """Find a collection's uid and buckets; the scripts check the uid again when they write."""
        if not fresh and name in self._places:
            return self._places[name]
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(key("uids"), name)
            pipe.hget(key("collections"), name)
            uid, row = pipe.execute()
        if uid is None or row is None:
            self._places.pop(name, None)
            raise CollectionUnknown(f"no collection is named {name[:64]!r}")
        place = (forms.text(uid), Collection.model_validate_json(row).buckets)
        self._places[name] = place
        return place

    def _place_or_gone(self, name: str) -> Place:
        """Like :meth:`_place`; a collection that is gone has the uid '', and writes skip it."""
        try:
            return self._place(name)
        except CollectionUnknown:
            return "", 1

    def _whole(self, place: Place, heads: dict[str, bytes]) -> dict[str, bytes]:
        """Put long entries in the place of their heads."""
        uid, buckets = place
        long = [document for document, head in heads.items() if head[:1] and head[0] & Flag.LONG]
        if not long:
            return heads
        rows = self._redis.mget([key("long", uid, document) for document in long])
        for document, row in zip(long, cast("list[bytes | None]", rows), strict=True):
            if (
                row is None
            ):  # replaced or deleted between the two reads: read both parts in one step
                row = self._run("entry", [uid, bucket_of(document, buckets=buckets), document])
            if row is None:
                del heads[document]
            else:
                heads[document] = row
        return heads
