"""What gateways, workers and keepers do with a ledger, one command at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tests.simulation.model import LIVE, Model, Write
from tests.simulation.server import Call, Recorder

from verso_core.errors import (
    EngineUnavailable,
    IdempotencyConflict,
    LedgerBehind,
    LedgerUnavailable,
    QueueFull,
    SourceMoved,
    VersoError,
)
from verso_core.jobs import (
    Collection,
    CollectionKind,
    Kind,
    Precision,
    Queue,
    SliceSpec,
    TextPolicy,
)
from verso_core.jobs.slices import Arrival
from verso_core.record import Codec, Entry, Flag, Part, Record
from verso_core.segments import LinesWrite, Segment, SegmentWrite
from verso_ledger.codec import scalars
from verso_ledger.codec.admission import IDEMPOTENCY_S, STAGED_FOR_MS, Admission, accepted
from verso_ledger.collections.documents import Documents
from verso_ledger.collections.locations import Locations
from verso_ledger.collections.logs import Logs
from verso_ledger.keys import key
from verso_ledger.leases import Leases
from verso_ledger.maintenance import Maintenance
from verso_ledger.models import (
    DocumentDelete,
    DocumentWrite,
    IdentityKnown,
    Lease,
    Limits,
    Moved,
    NewJob,
    Phase,
)
from verso_ledger.scrub import Move, ScrubCursor
from verso_ledger.sync_client import Jobs

DOCUMENTS = [f"d{n}" for n in range(10)]
TENANTS = ["a", "b", "c"]
LIMITS = Limits(max_slices=30, max_bytes=6000, tenant_share=0.6)
COLLECTION, LOGS, UID = "c", "l", "1"
_REFUSALS: dict[type[BaseException], str] = {
    LedgerBehind: "read_only",
    QueueFull: "full",
    IdempotencyConflict: "conflict",
    LedgerUnavailable: "missing",
    IdentityKnown: "known",
    SourceMoved: "elsewhere",
}


def _same(reply: Any) -> Any:
    return reply


def _nothing(_reply: Any) -> None:
    return None


@dataclass
class Command:
    """One call of the ledger's client: what it is, what it must answer, what its driver learns.

    ``expect`` gets the steps as they were sent, and makes the same in the model.
    """

    name: str
    call: Callable[[], Any]
    expect: Callable[[Sequence[Call]], Any]
    read: Callable[[Any], Any] = _same
    learn: Callable[[Any], None] = _nothing


Driver = Generator[Command | None, Any, "list[Driver] | None"]


@dataclass
class _Answer:
    """Where a command's answer arrives; it stays empty if the answer is lost."""

    value: Any = None

    def take(self, reply: Any) -> None:
        """Take the answer."""
        self.value = reply


def _pause(dice: random.Random, most: int) -> Generator[None]:
    for _ in range(dice.randrange(most + 1)):
        yield None


def limits_of(job: NewJob) -> tuple[int, int, int, int]:
    """Return the limits of a queue and of one tenant in it: slices and bytes of each."""
    share = job.limits.tenant_share
    most, size = job.limits.max_slices, job.limits.max_bytes
    return most, size, round(most * share), round(size * share)


class Gateway:
    """Accepts jobs, cancels and replays them, and keeps reads whose callers come back."""

    def __init__(self, recorder: Recorder, model: Model, dice: random.Random) -> None:
        self._run = recorder.run
        self._client = recorder.client
        self._model = model
        self._dice = dice
        self._jobs = Jobs(recorder)
        self._logs = Logs(recorder, Locations(recorder))
        self._documents = Documents(recorder, Locations(recorder))
        self._keys: list[tuple[str, str, str]] = []
        self._number = 0

    def activities(self) -> list[tuple[Callable[[], Driver], float]]:
        """Return what a gateway does, and how often."""
        return [
            (self.submit, 4.0),
            (self.submit_large, 0.5),
            (self.send_lines, 1.5),
            (self.cancel, 0.4),
            (self.replay, 1.5),
            (self.retain, 0.3),
        ]

    def create_collections(self) -> Command:
        """Create a collection of documents and one of lines."""

        def create() -> None:
            for name, kind in ((COLLECTION, CollectionKind.DOCUMENTS), (LOGS, CollectionKind.LOGS)):
                self._documents.collection_put(_collection(name, kind))

        def expect(_sent: Sequence[Call]) -> None:
            self._model.seq = 2
            self._model.lines.uid = "2"

        return Command("create", create, expect)

    def submit(self) -> Driver:
        """Submit a job, and now and then the same request once more."""
        job = self._new_job()
        yield self._accept(job)
        if job.idempotency and self._dice.random() < 0.5:
            yield from _pause(self._dice, 4)
            yield self._accept(_again(job, self._id()))
        return None

    def submit_large(self) -> Driver:
        """Submit a job whose payloads are stored before it is accepted."""
        job = self._new_job()
        if not job.slices:
            return None
        job_id, limits = str(job.job_id), limits_of(job)
        admission = Admission.of(job)
        answer = _Answer()
        yield Command(
            f"stage {job_id}",
            lambda: self._run("stage", admission.reservation),
            lambda _: self._model.stage(job, job_id, limits),
            lambda reply: scalars.text(reply[0]),
            answer.take,
        )
        if answer.value is None or scalars.text(answer.value[0]) == "full":
            return None
        for number, part in enumerate(job.slices):
            yield from _pause(self._dice, 2)
            yield self._put_payload(f"{job_id}.{number}", part.payload)
        args = list(admission.args)
        args[11] = 1
        for number in range(len(job.slices)):
            args[25 + 5 * number + 3] = b""
        yield self._accepting(job, lambda: accepted(self._run("accept", args)), staged=True)
        return None

    def send_lines(self) -> Driver:
        """Send lines of a source from where it stands, as an agent that follows a file does."""
        dice, model = self._dice, self._model
        labels = {"app": dice.choice("xyz")}
        lines, reserved = dice.randint(1, 9), _Answer()
        yield Command(
            f"reserve {labels['app']} {lines}",
            lambda: self._logs.reserve(LOGS, labels, lines),
            lambda _: model.lines.reserve(labels["app"], lines),
            lambda reply: (reply.uid, reply.stream, reply.first) if not isinstance(reply, Exception)
            else ("read_only",),
            reserved.take,
        )  # fmt: skip
        if reserved.value is None or isinstance(reserved.value, Exception):
            return None
        yield from _pause(dice, 3)
        source = dice.choice([b"s0", b"s1", b"s2"])
        known = model.lines.position(source)
        begin = known if known is not None and dice.random() < 0.8 else dice.randrange(50)
        place = {"stream": reserved.value.stream, "first": reserved.value.first, "lines": lines}
        part = SliceSpec(
            json.dumps(place).encode(), lines, arrival=Arrival(uid=model.lines.uid, lines=lines)
        )
        identities = [b"%d" % dice.randrange(40) for _ in range(dice.choice([0, 0, 2]))]
        yield self._accept(
            NewJob(
                Kind.INGEST_LINES,
                Queue.BULK,
                [part],
                tenant=dice.choice(TENANTS),
                limits=LIMITS,
                keep_s=dice.choice([2, 5]),
                job_id=self._id(),
                identities={LOGS: identities} if identities else {},
                identity_s=3,
                moved=Moved(model.lines.uid, source, begin, begin + lines),
            )
        )
        return None

    def cancel(self) -> Driver:
        """Cancel a job that has not ended, mostly."""
        job = self._any_job(lambda st: st in LIVE)
        yield Command(
            f"cancel {job}",
            lambda: self._run("cancel", [job]),
            lambda _: self._model.cancel(job),
            scalars.text,
        )
        return None

    def replay(self) -> Driver:
        """Replay a job with dead letters, mostly."""
        letters = [sid.partition(".")[0] for sid in self._model.died]
        job = self._dice.choice(letters) if letters else self._any_job(lambda _: True)
        yield Command(
            f"replay {job}",
            lambda: self._run("replay", [job]),
            lambda _: self._model.replay(job),
            scalars.text,
        )
        return None

    def retain(self) -> Driver:
        """Keep a read whose caller was not told of its end."""
        reads = [name for rows in self._model.reads.values() for _, name in rows]
        job = self._dice.choice(reads) if reads else "none"
        yield Command(
            f"retain {job}",
            lambda: self._run("retain", [job, IDEMPOTENCY_S]),
            lambda _: self._model.retain(job, IDEMPOTENCY_S),
            scalars.text,
        )
        return None

    def _any_job(self, wanted: Callable[[str], bool]) -> str:
        jobs = list(self._model.jobs.values())
        some = [job.job_id for job in jobs if wanted(job.st)] or [job.job_id for job in jobs]
        return self._dice.choice(some) if some else "none"

    def _id(self) -> str:
        self._number += 1
        return f"j{self._number}"

    def _new_job(self) -> NewJob:
        dice = self._dice
        kind = dice.choice([Kind.EMBED, Kind.EMBED, Kind.INGEST, Kind.INGEST, Kind.DELETE,
                            Kind.UPDATE, Kind.SEARCH])  # fmt: skip
        count = 1 if kind is Kind.SEARCH else dice.choice([0, 1, 1, 2, 3])
        wait = kind.is_read and dice.random() < 0.5
        idempotency = None
        if dice.random() < 0.2:
            idempotency = (f"k{dice.randrange(200)}", dice.choice("xxxy"))
        return NewJob(
            kind,
            dice.choice([Queue.BULK, Queue.INTERACTIVE]),
            [self._part(number) for number in range(count)],
            tenant=dice.choice(TENANTS),
            idempotency=idempotency,
            deadline_s=dice.choice([None, None, None, 0.05, 0.5]),
            limits=LIMITS,
            keep_s=dice.choice([1, 5]),
            job_id=self._id(),
            urgency=dice.choice([1, 3, 3, 3, 6]),
            wait=wait,
            brief_s=dice.choice([0, 1]) if wait else 0,
        )

    def _part(self, number: int) -> SliceSpec:
        size = self._dice.choice([10, 50, 400])
        cost = self._dice.choice([None, 0, 1000])
        return SliceSpec(b"%d" % number * size, items=self._dice.randint(1, 3), cost=cost)

    def _put_payload(self, sid: str, payload: bytes) -> Command:
        def put() -> None:
            self._client.set(key("payload", sid), payload, px=STAGED_FOR_MS, nx=True)

        return Command(f"put {sid}", put, lambda _: self._model.put_payload(sid, payload))

    def _accept(self, job: NewJob) -> Command:
        return self._accepting(job, lambda: self._jobs.accept(job), staged=False)

    def _accepting(self, job: NewJob, call: Callable[[], Any], *, staged: bool) -> Command:
        return Command(
            f"accept {job.job_id} {job.kind} {job.queue} x{len(job.slices)}",
            call,
            lambda _: _accepted(
                self._model.accept(
                    job,
                    str(job.job_id),
                    limits=limits_of(job),
                    staged=staged,
                    idem_s=IDEMPOTENCY_S,
                )
            ),
            _acceptance,
        )


def _again(job: NewJob, job_id: str) -> NewJob:
    values = {name: getattr(job, name) for name in NewJob.__slots__}
    return NewJob(**values | {"job_id": job_id})


def _accepted(reply: tuple[str | int, ...]) -> tuple[str | int | bool | None, ...]:
    """Return what the client makes of the reply of accept."""
    if reply[0] == "new":
        wake, left = reply[2:] if len(reply) > 2 else (1, None)
        return ("new", reply[1], bool(wake), left)
    if reply[0] == "dup":
        return ("dup", reply[1], False, None)
    return reply if reply[0] == "elsewhere" else reply[:1]


def _acceptance(reply: Any) -> tuple[str | int | bool | None, ...]:
    if isinstance(reply, SourceMoved):
        return ("elsewhere", reply.position)
    if isinstance(reply, Exception):
        return (_REFUSALS[type(reply)],)
    return ("dup" if reply.replayed else "new", reply.job_id, reply.wakeup, reply.left)


def _collection(name: str, kind: CollectionKind) -> Collection:
    return Collection(
        name=name, precision=Precision.FLOAT16, text_policy=TextPolicy.PATCH, space="0" * 16,
        dim=384, int8_scale=0.5, artifacts=(), buckets=4, checksum_key="00ff",
        created=datetime(2026, 1, 1, tzinfo=UTC), kind=kind,
    )  # fmt: skip


class Worker:
    """Claims slices and ends their leases, in time or too late, or never."""

    def __init__(self, recorder: Recorder, model: Model, dice: random.Random, name: str) -> None:
        self._model = model
        self._dice = dice
        self._name = name
        self._leases = Leases(recorder, Locations(recorder))
        self._documents = Documents(recorder, Locations(recorder))

    def to_cold(self) -> Driver:
        """Move verified documents to cold storage, while others may write them, or too late."""
        known = self._model.documents.stored
        rows = [
            (name, one.entry)
            for name in self._dice.sample(DOCUMENTS, 4)
            if (one := known.get(name)) is not None and one.verified
        ]
        place = Part(self._dice.randbytes(8), self._dice.randrange(1 << 20), 90)
        hot = [(name, Entry.unpack(entry)) for name, entry in rows]
        read = [replace(entry, flags=Flag.VERIFIED) for _, entry in hot if entry.cold is None]
        if len(read) < len(rows):
            return None
        left = [entry.moved(place).pack() for entry in read]
        sent = [
            (name, entry.pack(), new)
            for (name, _), entry, new in zip(rows, read, left, strict=True)
        ]
        until = self._model.now + self._dice.choice([0, 50, 5_000])
        yield from _pause(self._dice, 8)
        yield Command(
            f"to_cold {' '.join(name for name, _ in rows)}",
            lambda: self._documents.to_cold(COLLECTION, UID, sent, until=until / 1000),
            lambda _: self._model.documents.to_cold(
                [(*row, new) for row, new in zip(rows, left, strict=True)], until
            ),
        )
        return None

    def claim(self) -> Driver:
        """Claim slices; each lease goes on by itself."""
        dice = self._dice
        queue = dice.choice([Queue.BULK, Queue.INTERACTIVE, Queue.SCRUB])
        n, lease_ms, slots = dice.randint(1, 4), dice.choice([20, 200, 1000]), dice.choice([0, 4])
        kept = dice.choice([0, 1]) if slots else 0
        together = dice.choice([None, Kind.EMBED])
        answer = _Answer()

        def expect(sent: Sequence[Call]) -> Any:
            return self._model.claim(
                queue, self._name, n=n, lease_ms=lease_ms, token=str(sent[-1][1][4]),
                together=together or "", slots=slots, kept=kept,
            )  # fmt: skip

        yield Command(
            f"claim {queue} {self._name} n={n} {lease_ms} ms",
            lambda: self._leases.claim(
                queue, owner=self._name, n=n, lease_s=lease_ms / 1000, together=together,
                slots=slots,
                kept=kept,
            ),
            expect,
            lambda leases: [(x.slice_id, x.fence, x.phase, x.payload, x.seq) for x in leases],
            answer.take,
        )  # fmt: skip
        return [self._execute(lease) for lease in answer.value or ()]

    def _execute(self, lease: Lease) -> Driver:
        dice = self._dice
        ends = self._verify if lease.phase is Phase.VERIFY else self._commit
        writes = self._writes(lease)
        yield from _pause(dice, 3)
        while dice.random() < 0.3:
            yield dice.choice([self._renew, self._progress])(lease)
            yield from _pause(dice, 6)
        end = dice.choices([ends, self._retry, self._release, self._fail], [10, 2, 1, 0.7])[0]
        command = end(lease, writes)
        yield command
        if dice.random() < 0.15:  # a thread that did not hear of the end
            yield from _pause(dice, 12)
            yield command if dice.random() < 0.5 else ends(lease, writes)
        return None

    def _writes(self, lease: Lease) -> list[Write]:
        """Return what a slice writes: always the same for the same slice, but for changes."""
        if lease.kind not in (Kind.INGEST, Kind.DELETE, Kind.UPDATE):
            return []
        chosen = random.Random(lease.slice_id).sample(DOCUMENTS, 2)
        if lease.kind is Kind.DELETE:
            return [DocumentDelete(COLLECTION, name) for name in chosen]
        entry = _entry(lease.seq, b"%d" % lease.seq * (400 if lease.seq % 5 == 0 else 5))
        if lease.kind is Kind.INGEST:
            text = b"text" if lease.seq % 3 == 0 else None
            return [DocumentWrite(COLLECTION, name, entry, text) for name in chosen]
        found = self._model.documents.stored.get(chosen[0])
        if found is None:
            return []
        return [DocumentWrite(COLLECTION, chosen[0], entry, replaces=found.seq)]

    def _renew(self, lease: Lease) -> Command:
        lease_ms = self._dice.choice([50, 500])
        return Command(
            f"renew {lease.slice_id} {lease.fence}",
            lambda: self._leases.renew([lease], lease_ms / 1000),
            lambda _: set(self._model.renew([(lease.slice_id, lease.fence)], lease_ms)),
        )

    def _progress(self, lease: Lease) -> Command:
        return Command(
            f"progress {lease.slice_id} {lease.fence}",
            lambda: self._leases.report_progress(lease, {"at": 1}),
            lambda _: self._model.progress(lease.slice_id, lease.fence),
        )

    def _commit(self, lease: Lease, writes: Sequence[Write]) -> Command:
        delay_ms = self._dice.choice([0, 50])
        places: list[tuple[int, int, int]] = []
        if lease.kind is Kind.INGEST_LINES:
            place = json.loads(lease.payload)
            places = [(place["stream"], place["first"], place["lines"])]
        lines = LinesWrite(LOGS, "2", [_segment(*row) for row in places]) if places else None
        ok, errors = self._dice.choice([(1, 1), (2, 0), (0, 2)])
        result = lease.slice_id.encode()
        return Command(
            f"commit {lease.slice_id} {lease.fence}",
            lambda: self._leases.commit(
                lease, result, ok=ok, errors=errors, documents=writes,
                verify_delay_s=delay_ms / 1000, lines=lines,
            ),
            lambda _: self._model.commit(
                lease.slice_id, lease.fence, result, ok=ok, errors=errors, delay_ms=delay_ms,
                writes=writes, segments=places,
            ),
        )  # fmt: skip

    def _verify(self, lease: Lease, writes: Sequence[Write]) -> Command:
        delay_ms, keep_ms = self._dice.choice([0, 50]), self._dice.choice([0, 100])
        written = [one for one in writes if isinstance(one, DocumentWrite)]
        rewritten = []
        if written and self._dice.random() < 0.2:
            entry = _entry(lease.seq, b"again")
            rewritten = [DocumentWrite(COLLECTION, written[0].document, entry)]
        right = [one.document for one in written]
        lines = json.loads(lease.payload)["lines"] if lease.kind is Kind.INGEST_LINES else 0
        return Command(
            f"verify {lease.slice_id} {lease.fence}",
            lambda: self._leases.commit_verified(
                lease, [(COLLECTION, name, lease.seq) for name in right], rewritten=rewritten,
                raw_text_retention_s=keep_ms / 1000, verify_delay_s=delay_ms / 1000,
                lines=(LOGS, "2", lines) if lines else None,
            ),
            lambda _: self._model.verify(
                lease.slice_id, lease.fence, keep_ms=keep_ms, delay_ms=delay_ms, right=right,
                rewritten=rewritten, lines=lines,
            ),
        )  # fmt: skip

    def _retry(self, lease: Lease, _writes: Sequence[Write]) -> Command:
        delay_ms, late = self._dice.choice([0, 30, 400]), self._dice.random() < 0.3
        return Command(
            f"retry {lease.slice_id} {lease.fence}",
            lambda: self._leases.retry(
                lease, EngineUnavailable("gone"), delay_s=delay_ms / 1000, timed_out=late
            ),
            lambda _: self._model.retry(
                lease.slice_id, lease.fence, delay_ms=delay_ms, count=True, timed_out=late
            ),
        )

    def _release(self, lease: Lease, _writes: Sequence[Write]) -> Command:
        return Command(
            f"release {lease.slice_id} {lease.fence}",
            lambda: self._leases.release(lease),
            lambda _: self._model.retry(
                lease.slice_id, lease.fence, delay_ms=0, count=False, timed_out=False
            ),
        )

    def _fail(self, lease: Lease, _writes: Sequence[Write]) -> Command:
        return Command(
            f"fail {lease.slice_id} {lease.fence}",
            lambda: self._leases.fail(lease, VersoError("no")),
            lambda _: self._model.fail(lease.slice_id, lease.fence),
        )


def _entry(seq: int, payload: bytes) -> bytes:
    record = Record(Codec.RAW, 0, b"hashhash", b"sums", payload)
    return Entry(seq=seq, size_bytes=len(payload), records=(record,)).pack()


def _segment(stream: int, first: int, lines: int) -> SegmentWrite:
    return SegmentWrite(Segment(stream, first, lines), b"%d" % first, text_bytes=10 * lines)


class Keeper:
    """Takes back leases, drops texts, removes garbage, and moves the scrub."""

    def __init__(self, recorder: Recorder, model: Model, dice: random.Random) -> None:
        self._run = recorder.run
        self._model = model
        self._dice = dice
        self._maintenance = Maintenance(recorder)
        self._scrub = ScrubCursor(recorder)

    def activities(self) -> list[tuple[Callable[[], Driver], float]]:
        """Return what a keeper does, and how often."""
        return [
            (self.reap, 2.5),
            (self.drop, 0.7),
            (self.collect, 0.6),
            (self.scrub, 0.5),
            (self.freeze, 0.1),
            (self.make_read_only, 0.02),
        ]

    def reap(self) -> Driver:
        """Take back slices whose lease ran out, and tidy."""
        model = self._model
        yield Command("reap", self._maintenance.reap, lambda _: model.reap())
        return None

    def drop(self) -> Driver:
        """Drop verified texts."""
        yield Command("drop", self._maintenance.drop_due, lambda _: self._model.drop())
        return None

    def collect(self) -> Driver:
        """Take garbage and report it removed."""
        n, answer, documents = self._dice.choice([1, 5]), _Answer(), self._model.documents
        yield Command(
            "gc_take",
            lambda: self._maintenance.gc_take(n, lease_s=0.5),
            lambda _: documents.take_garbage(n, 500),
            lambda rows: [(int(x.token), x.document, Entry.unpack(x.entry).seq) for x in rows],
            answer.take,
        )
        tokens = [one.token for one in answer.value or ()]
        yield from _pause(self._dice, 3)
        if not tokens:
            return None

        def done(_sent: Sequence[Call]) -> None:
            for token in tokens:
                documents.garbage.pop(int(token), None)

        yield Command("gc_done", lambda: self._maintenance.gc_done(tokens), done)
        return None

    def scrub(self) -> Driver:
        """Move the scrub's cursor from where it was seen, which may be too late."""
        dice, model = self._dice, self._model
        turn = model.scrub.turn
        move = Move(
            begin=dice.random() < 0.3, end=dice.random() < 0.2,
            add={"documents": dice.randrange(5)},
        )  # fmt: skip
        if dice.random() < 0.1:
            since = dice.randrange(model.seq + 1)
            yield Command(
                "scrub_recent",
                lambda: self._run("scrub_recent", [since]),
                lambda _: model.scrub.request_recent(since),
            )
        yield from _pause(dice, 3)
        yield Command(
            f"scrub from {turn}",
            lambda: int(self._scrub.move(turn, move)),
            lambda _: model.scrub.move(turn, move),
        )
        return None

    def freeze(self) -> Driver:
        """Keep garbage for a backup, and let it go."""
        owner = self._dice.choice(["x", "y"])
        for ms in (300, 0):
            yield self._freeze(owner, ms)
            yield from _pause(self._dice, 8)
        return None

    def _freeze(self, owner: str, ms: int) -> Command:
        return Command(
            f"freeze {owner} {ms}",
            lambda: self._run("freeze", [owner, ms, 0]),
            lambda _: self._model.documents.freeze(owner, ms),
        )

    def make_read_only(self) -> Driver:
        """Find that the ledger is older than it was, and later take it as it is."""
        model, seq = self._model, self._model.seq + 10

        def stop(_sent: Sequence[Call]) -> int:
            self._reached = self._reached if model.read_only else seq
            model.read_only = True
            return 1

        yield Command("make_read_only", lambda: self._run("make_read_only", ["e", seq]), stop)
        yield from _pause(self._dice, 20)

        def go_on(_sent: Sequence[Call]) -> int:
            was, model.read_only = model.read_only, False
            if was:
                model.seq = max(model.seq, self._reached + 5)
            return int(was)

        yield Command("go on", lambda: self._run("accept_as_is", ["e2", 5]), go_on)
        return None

    _reached = 0
