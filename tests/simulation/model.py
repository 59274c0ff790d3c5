"""What a ledger promises, as plain Python: the model that the ledger's steps are compared with.

The model knows jobs, slices, queues and times. It keeps no counter beside what it counts: how much
a queue holds, which writes are pending and which letters are dead follow from the slices. Documents
and lines are in :mod:`tests.simulation.stores`. Times are milliseconds of the simulated clock.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.simulation.stores import Documents, Lines, Scrub

from verso_core.jobs import Kind, Queue
from verso_ledger.codec.admission import STAGED_FOR_MS
from verso_ledger.models import DocumentDelete, DocumentWrite, NewJob, Policy

PROMISED = {Kind.INGEST, Kind.INGEST_LINES, Kind.DELETE, Kind.UPDATE, Kind.DELETE_MATCHING}
"""Kinds whose payload is what a caller was promised: a dead one is kept until it is replayed."""
LIVE = ("queued", "running")
Place = Literal["ready", "lane", "leased", ""]
PLACES: tuple[Place, ...] = ("ready", "lane", "leased")
Write = DocumentWrite | DocumentDelete


@dataclass(frozen=True)
class _Room:
    """Slots that an owner has left: usual ones, heavy ones of them, heavy ones that are urgent."""

    any_usual: bool
    usual: int
    heavy: int
    urgent: int


_NO_BOUND = 1 << 30


@dataclass(eq=False)
class Slice:
    """A slice. ``place`` is where it waits or runs, ``until`` when that ends or begins."""

    sid: str
    job: str
    kind: Kind
    queue: Queue
    tenant: str
    urgency: int
    number: int
    items: int
    size: int
    cost: int
    seq: int
    st: str = "queued"
    ph: str = "work"
    waits_in: Queue = Queue.BULK
    fence: int = 0
    place: Place = ""
    until: int = 0
    owner: str = ""
    crashes: int = 0
    errors: int = 0
    timeouts: int = 0
    rewrites: int = 0
    ok: int = 0
    err: int = 0
    committed: int = 0
    returned: int = 0
    verified: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Return its place among the due slices of its tenant."""
        return self.urgency, self.seq


@dataclass(eq=False)
class Job:
    """A job. ``ok`` and ``err`` are sums over slices that have ended, so they are not stored."""

    job_id: str
    kind: Kind
    queue: Queue
    tenant: str
    seq: int
    keep_s: int
    brief_s: int
    idem: str
    deadline: int
    slices: list[Slice]
    st: str = "queued"
    unverified: int = 0
    events: int = 0
    results: dict[int, bytes] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """Count its items."""
        return sum(one.items for one in self.slices)

    @property
    def ok(self) -> int:
        """Count the items that succeeded."""
        return sum(one.ok for one in self.slices)

    @property
    def err(self) -> int:
        """Count the items that failed."""
        return sum(one.err for one in self.slices)

    @property
    def unread(self) -> int:
        """Count the slices whose texts were not read back yet; while there are any, it is kept."""
        return sum(one.ph == "verify" for one in self.slices)

    @property
    def done(self) -> int:
        """Count the slices whose work has ended."""
        return sum(one.ph != "work" or one.st not in LIVE for one in self.slices)


class Model:
    """The state that a ledger must have after the steps that were made so far.

    Each step returns what the ledger must reply. Expired jobs, slices and payloads are forgotten
    when the time is set.
    """

    def __init__(self, policy: Policy, now: int) -> None:
        self.policy = policy
        self.now = now
        self.seq = 0
        self.jobs: dict[str, Job] = {}
        self.slices: dict[str, Slice] = {}
        self.payloads: dict[str, bytes] = {}
        self.idems: dict[str, tuple[str, str]] = {}
        self.claims: dict[str, list[tuple[str, int]]] = {}
        self.staged: dict[str, tuple[int, int, int]] = {}
        self.deadlines: dict[str, int] = {}
        self.drops: dict[str, int] = {}
        self.died: dict[str, int] = {}
        self.virtual: dict[Queue, float] = defaultdict(float)
        self.served: dict[tuple[Queue, str], float] = defaultdict(float)
        self.turns: dict[Queue, dict[str, float]] = {queue: {} for queue in Queue}
        self.reads: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.totals: dict[str, int] = defaultdict(int)
        self.read_only = False
        self.documents = Documents(self)
        self.lines = Lines(self)
        self.scrub = Scrub(self)
        self.accepted: int = 0
        self.ended: int = 0
        self._expiry: dict[tuple[str, str], int] = {}
        self._due: list[tuple[int, str, str]] = []
        self._at: dict[tuple[Place, Queue], dict[str, Slice]] = defaultdict(dict)

    # -- time ------------------------------------------------------------------------------------

    def set_time(self, now: int) -> None:
        """Let time pass; what has expired is gone."""
        self.now = now
        while self._due and self._due[0][0] < now:
            until, kind, name = heapq.heappop(self._due)
            if self._expiry.get((kind, name)) == until:
                del self._expiry[kind, name]
                getattr(self, kind).pop(name, None)

    def _expire(self, kind: str, name: str, until: int | None) -> None:
        """Have something forgotten at a time; None: keep it for ever."""
        if until is None:
            self._expiry.pop((kind, name), None)
        elif name in getattr(self, kind):
            self._expiry[kind, name] = until
            heapq.heappush(self._due, (until, kind, name))

    def _keep_job(self, job: Job, seconds: int | None) -> None:
        self._expire("jobs", job.job_id, None if seconds is None else self.now + 1000 * seconds)

    def _forget(self, one: Slice) -> None:
        self.payloads.pop(one.sid, None)
        self._expiry.pop(("payloads", one.sid), None)
        job = self.jobs.get(one.job)
        seconds = (job.brief_s if job else 0) or self.policy.keep_s
        self._expire("slices", one.sid, self.now + 1000 * seconds)

    # -- what follows from the slices ------------------------------------------------------------

    def at(self, place: Place, queue: Queue) -> dict[str, Slice]:
        """Return the slices that wait, or run, at a place of a queue."""
        return self._at[place, queue]

    def lane(self, queue: Queue, tenant: str) -> list[Slice]:
        """Return a tenant's due slices, the next one first."""
        mine = [one for one in self._at["lane", queue].values() if one.tenant == tenant]
        return sorted(mine, key=lambda one: one.rank)

    def unfinished(self, queue: Queue, tenant: str | None = None) -> tuple[int, int]:
        """Return how many slices of a queue have work that has not ended, and their bytes."""
        found = [
            one.size
            for place in PLACES
            for one in self._at[place, queue].values()
            if one.ph == "work" and tenant in (None, one.tenant)
        ]
        return len(found), sum(found)

    def pending(self) -> dict[str, int]:
        """Return the number of every write or delete that may still be committed."""
        return {
            one.sid: one.seq
            for one in self.slices.values()
            if one.kind in PROMISED and one.ph == "work" and one.st in (*LIVE, "dead")
        }

    def _put(self, one: Slice, place: Place, until: int = 0) -> None:
        """Move a slice; a tenant whose first slice falls due takes its turn from now on."""
        queue = one.waits_in
        was = self._at[one.place, queue].pop(one.sid, None)
        if was is not None and one.place == "lane":
            self._leave_turns(queue, one.tenant)
        one.place, one.until = place, until
        if place:
            self._at[place, queue][one.sid] = one
        if place == "lane" and one.tenant not in self.turns[queue]:
            start = max(self.virtual[queue], self.served[queue, one.tenant])
            self.turns[queue][one.tenant] = start

    def _leave_turns(self, queue: Queue, tenant: str) -> None:
        if not any(one.tenant == tenant for one in self._at["lane", queue].values()):
            self.turns[queue].pop(tenant, None)

    def _make_ready(self, one: Slice, delay_ms: int) -> None:
        one.st, one.owner = "queued", ""
        self._put(one, "ready" if delay_ms > 0 else "lane", self.now + delay_ms)

    def _mature(self, queue: Queue, n: int) -> None:
        due = sorted(
            (one.until, one.sid) for one in self._at["ready", queue].values()
            if one.until <= self.now
        )  # fmt: skip
        for _, sid in due[:n]:
            self._put(self.slices[sid], "lane")

    def _held(self, sid: str, fence: int) -> Slice | None:
        one = self.slices.get(sid)
        return one if one and one.st == "running" and one.fence == fence else None

    # -- ends ------------------------------------------------------------------------------------

    def _event(self, job: Job) -> None:
        if not job.brief_s:
            job.events += 1

    def _end_job(self, job: Job, st: str) -> None:
        job.st = st
        self.deadlines.pop(job.job_id, None)
        self.totals[f"jobs:{job.kind}:{st}"] += 1
        self.ended += 1
        self._event(job)
        if job.brief_s:
            self._keep_job(job, job.brief_s)
            name = f"{job.tenant}:{job.idem}"
            if job.idem:
                self._expire("idems", name, self.now + 1000 * job.brief_s)
        elif st != "dead":
            if not job.unread:
                self._keep_job(job, job.keep_s)
        elif job.kind not in PROMISED:
            self._keep_job(job, self.policy.dead_keep_s)

    def _end_work(self, one: Slice, st: str, ok: int, err: int) -> None:
        """End the work of a slice; the last one ends the job."""
        self._put(one, "")
        one.st, one.ok, one.err = st, ok, err
        job = self.jobs[one.job]
        if any(part.ph == "work" and part.st in LIVE for part in job.slices):
            self._event(job)
            return
        ends = {part.st for part in job.slices if part.ph == "work"}
        worst = next((name for name in ("dead", "failed", "expired") if name in ends), None)
        only_errors = job.ok == 0 < job.err
        self._end_job(job, worst or ("failed" if only_errors else "succeeded"))

    def _die(self, one: Slice) -> None:
        """Make a dead letter; a read whose caller waits fails instead."""
        job = self.jobs.get(one.job)
        if job and job.brief_s:
            self._end_work(one, "failed", 0, one.items)
            self._forget(one)
            return
        self._put(one, "")
        self.died[one.sid] = self.now
        self.totals["dead"] += 1
        if one.ph == "work":
            self._end_work(one, "dead", 0, one.items)
            if one.kind not in PROMISED:
                until = self.now + 1000 * self.policy.dead_keep_s
                self._expire("slices", one.sid, until)
                self._expire("payloads", one.sid, until)
            return
        one.st = "dead"
        if job:
            job.unverified += 1
            self._keep_job(job, None)

    # -- gateways --------------------------------------------------------------------------------

    def _room(self, job: NewJob, limits: tuple[int, int, int, int]) -> bool:
        count, size = len(job.slices), sum(len(part.payload) for part in job.slices)
        everything = self.unfinished(job.queue)
        own = self.unfinished(job.queue, job.tenant)
        waiting = [sum(row[n] for row in self.staged.values()) for n in (0, 1)]
        return (
            everything[0] + waiting[0] + count <= limits[0]
            and everything[1] + waiting[1] + size <= limits[1]
            and own[0] + count <= limits[2]
            and own[1] + size <= limits[3]
        )

    def stage(self, job: NewJob, job_id: str, limits: tuple[int, int, int, int]) -> str:
        """Reserve room for payloads that come before their job."""
        if job_id in self.jobs:
            return "new"
        self.end_reservations()
        if not self._room(job, limits):
            return "full"
        size = sum(len(part.payload) for part in job.slices)
        self.staged[job_id] = (len(job.slices), size, self.now + STAGED_FOR_MS)
        return "reserved"

    def end_reservations(self) -> None:
        """Forget reservations whose time is over."""
        self.staged = {name: row for name, row in self.staged.items() if row[2] > self.now}

    def put_payload(self, sid: str, payload: bytes) -> None:
        """Store a payload whose job is not accepted yet."""
        if sid in self.payloads:
            return
        self.payloads[sid] = payload
        self._expire("payloads", sid, self.now + STAGED_FOR_MS)

    def accept(
        self,
        job: NewJob,
        job_id: str,
        *,
        limits: tuple[int, int, int, int],
        staged: bool,
        idem_s: int,
    ) -> tuple[str | int, ...]:
        """Accept a job once; refuse what does not fit, and what was accepted before."""
        if staged:
            self.staged.pop(job_id, None)
        if job_id in self.jobs:
            return ("new", job_id)
        refused = self._refuse(job, job_id, limits=limits, staged=staged)
        if refused is not None:
            for number in range(len(job.slices)) if staged else ():
                self.payloads.pop(f"{job_id}.{number}", None)
            return refused
        self.lines.admit(job)
        # Urgent bulk work has slots of its own, which what waits may not have.
        urgent = job.queue is Queue.BULK and job.urgency < self.policy.usual_urgency
        idle = urgent or not self.turns[job.queue]
        everything = self.unfinished(job.queue)[0]
        own = self.unfinished(job.queue, job.tenant)[0]
        self._make(job, job_id, staged=staged, idem_s=idem_s)
        left = min(limits[0] - everything, limits[2] - own) - len(job.slices)
        return ("new", job_id, int(idle), max(0, left))

    def _refuse(
        self, job: NewJob, job_id: str, *, limits: tuple[int, int, int, int], staged: bool
    ) -> tuple[str | int, ...] | None:
        if job.kind in PROMISED and self.read_only:
            return ("read_only",)
        if job.idempotency:
            earlier = self.idems.get(f"{job.tenant}:{job.idempotency[0]}")
            if earlier and earlier[0] in self.jobs:
                same = earlier[1] == job.idempotency[1]
                return ("dup" if same else "conflict", earlier[0])
        for number in range(len(job.slices)) if staged else ():
            if f"{job_id}.{number}" not in self.payloads:
                return ("missing", number)
        return self.lines.refuse(job) if self._room(job, limits) else ("full",)

    def _make(self, job: NewJob, job_id: str, *, staged: bool, idem_s: int) -> None:
        self.accepted += 1
        first, brief_s = self.seq + 1, job.brief_s if job.wait else 0
        self.seq += max(1, len(job.slices))
        deadline = 0
        if job.deadline_s is not None:
            deadline = self.now + max(1, round(job.deadline_s * 1000))
            self.deadlines[job_id] = deadline
        idem = job.idempotency[0] if job.idempotency else ""
        if job.idempotency:
            name = f"{job.tenant}:{idem}"
            self.idems[name] = (job_id, job.idempotency[1])
            self._expire("idems", name, self.now + 1000 * idem_s)
        made = Job(
            job_id, job.kind, job.queue, job.tenant, seq=first, keep_s=job.keep_s,
            brief_s=brief_s, idem=idem, deadline=deadline, slices=[],
        )  # fmt: skip
        self.jobs[job_id] = made
        if brief_s:
            self.reads[job.tenant] = [*self.reads[job.tenant], (first, job_id)]
            self.reads[job.tenant] = self.reads[job.tenant][-self.policy.max_reads :]
            self._expire("reads", job.tenant, self.now + 1000 * max(self.policy.keep_s, brief_s))
        for number, part in enumerate(job.slices):
            sid = f"{job_id}.{number}"
            if staged:
                self._expire("payloads", sid, None)
            else:
                self.payloads[sid] = part.payload
            one = Slice(
                sid, job_id, job.kind, job.queue, job.tenant, job.urgency, number=number,
                items=part.items, size=len(part.payload),
                cost=len(part.payload) if part.cost is None else part.cost,
                seq=first + number, waits_in=job.queue,
            )  # fmt: skip
            made.slices.append(one)
            self.slices[sid] = one
            self._put(one, "lane")
            if part.arrival is not None:
                self.lines.arrive(sid, part.arrival.lines)
        if not job.slices:
            self._end_job(made, "succeeded")

    def cancel(self, job_id: str) -> str:
        """End a job; what is committed stays, and nothing else of it is done any more."""
        job = self.jobs.get(job_id)
        if job is None:
            return "unknown"
        if job.st not in LIVE:
            return job.st
        for one in job.slices:
            if one.ph == "work" and one.st in (*LIVE, "dead"):
                self._put(one, "")
                self.died.pop(one.sid, None)
                one.st, one.ok, one.err = "cancelled", 0, one.items
                self._forget(one)
        self._end_job(job, "cancelled")
        return "cancelled"

    def replay(self, job_id: str) -> str:
        """Have the dead slices of a job tried again, without a deadline."""
        job = self.jobs.get(job_id)
        if job is None:
            return "unknown"
        if job.st != "dead" and not job.unverified:
            return job.st
        revived = False
        for one in job.slices:
            if one.st != "dead" or one.sid not in self.payloads:
                continue
            del self.died[one.sid]
            one.crashes = one.errors = one.rewrites = 0
            self._expire("slices", one.sid, None)
            self._expire("payloads", one.sid, None)
            self._make_ready(one, 0)
            if one.ph == "work":
                one.ok = one.err = 0
                revived = True
        job.unverified = 0
        if not revived:
            return job.st
        job.st, job.deadline = "queued", 0
        self.deadlines.pop(job_id, None)
        self._keep_job(job, None)
        self._event(job)
        return "queued"

    def retain(self, job_id: str, idem_s: int) -> str:
        """Keep a read as other jobs are kept."""
        job = self.jobs.get(job_id)
        if job is None:
            return "unknown"
        if not job.brief_s:
            return job.st
        job.brief_s = 0
        mine = [row for row in self.reads[job.tenant] if row[1] != job_id]
        self.reads[job.tenant] = mine
        self._event(job)
        if job.st not in LIVE:
            self._keep_job(job, job.keep_s)
            for one in job.slices:
                self._expire("slices", one.sid, self.now + 1000 * self.policy.keep_s)
            if job.idem:
                name = f"{job.tenant}:{job.idem}"
                self._expire("idems", name, self.now + 1000 * idem_s)
        return job.st

    # -- workers ---------------------------------------------------------------------------------

    def claim(
        self,
        queue: Queue,
        owner: str,
        *,
        n: int,
        lease_ms: int,
        token: str,
        together: str,
        slots: int,
        kept: int,
    ) -> list[tuple[str, int, str, bytes, int]]:
        """Lease due slices in the order of turns; the same token again leases nothing more."""
        if token in self.claims:
            return [
                self._described(self.slices[sid])
                for sid, fence in self.claims[token]
                if (again := self._held(sid, fence)) and again.owner == owner
            ]
        self._mature(queue, self.policy.mature)
        taken: list[Slice] = []
        passed: set[str] = set()
        tries = n + 64
        while len(taken) < n and tries > 0:
            tries -= 1
            turns = sorted((at, t) for t, at in self.turns[queue].items() if t not in passed)
            if not turns:
                break
            start, tenant = turns[0]
            room = self._room_of(queue, owner, slots, kept)
            one = self._first_of(self.lane(queue, tenant), queue, room)
            if one is None:
                passed.add(tenant)
                continue
            kinds = {other.kind for other in taken} | {one.kind}
            if together and taken and kinds != {together}:
                break
            if self._lease(one, owner, lease_ms):
                taken.append(one)
                self._end_turn(queue, tenant, start, one.cost)
        if taken:
            self.claims[token] = [(one.sid, one.fence) for one in taken]
            self._expire("claims", token, self.now + lease_ms)
        return [self._described(one) for one in taken]

    def _weighed(self, one: Slice, queue: Queue) -> tuple[bool, bool]:
        """Return whether a slice is heavy, and whether it is more urgent than usual."""
        policy = self.policy
        most = policy.heavy_cost if queue is Queue.INTERACTIVE else policy.heavy_bulk_cost
        return one.cost > most, one.urgency < policy.usual_urgency

    def _room_of(self, queue: Queue, owner: str, slots: int, kept: int) -> _Room:
        """Return the slots that an owner has left: some are kept for what is urgent."""
        usual = slots - kept
        half = usual // 2 if usual >= 2 else 1 if kept else _NO_BOUND
        running = [x for x in self._at["leased", queue].values() if x.owner == owner]
        weighed = [self._weighed(one, queue) for one in running]
        heavy = sum(is_heavy for is_heavy, _ in weighed)
        plain = sum(not urgent for _, urgent in weighed)
        return _Room(
            any_usual=kept == 0, usual=usual - plain, heavy=half - heavy,
            urgent=half + kept - heavy,
        )  # fmt: skip

    def _first_of(self, lane: Sequence[Slice], queue: Queue, room: _Room) -> Slice | None:
        """Return the first of a few due slices that may run in a slot that is left."""
        for one in lane[: self.policy.lane_looked_at]:
            heavy, urgent = self._weighed(one, queue)
            usual = urgent or room.any_usual or room.usual > 0
            if usual and (not heavy or (room.urgent if urgent else room.heavy) > 0):
                return one
            if not usual:
                return None  # those behind it are no more urgent
        return None

    def _lease(self, one: Slice, owner: str, lease_ms: int) -> bool:
        self._put(one, "")
        job = self.jobs.get(one.job)
        if one.ph == "work" and job and 0 < job.deadline <= self.now:
            self._end_work(one, "expired", 0, one.items)
            self._forget(one)
            return False
        if one.sid not in self.payloads:
            self._die(one)
            return False
        one.fence += 1
        one.st, one.owner = "running", owner
        self._put(one, "leased", self.now + lease_ms)
        if one.ph == "work" and job and job.st == "queued":
            job.st = "running"
            self._event(job)
        return True

    def _end_turn(self, queue: Queue, tenant: str, start: float, cost: int) -> None:
        """Let a turn start at the later of virtual time and its tenant's last finish."""
        finish = start + 1 + cost / self.policy.turn_cost
        self.virtual[queue] = _stored(max(start, self.virtual[queue]))
        self.served[queue, tenant] = _stored(finish)
        if tenant in self.turns[queue]:
            self.turns[queue][tenant] = finish

    def _described(self, one: Slice) -> tuple[str, int, str, bytes, int]:
        return one.sid, one.fence, one.ph, self.payloads.get(one.sid, b""), one.seq

    def renew(self, leases: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        """Extend leases that are held; return the others."""
        lost = []
        for sid, fence in leases:
            if one := self._held(sid, fence):
                one.until = self.now + lease_ms
            else:
                lost.append(sid)
        return lost

    def progress(self, sid: str, fence: int) -> str:
        """Add an event to a job, if the lease is held."""
        one = self._held(sid, fence)
        if one is None:
            return "stale"
        if one.job in self.jobs:
            self._event(self.jobs[one.job])
        return "done"

    def commit(
        self,
        sid: str,
        fence: int,
        result: bytes,
        *,
        ok: int,
        errors: int,
        delay_ms: int,
        writes: Sequence[Write],
        segments: Sequence[tuple[int, int, int]],
    ) -> str:
        """End the work of a slice once, under the newest lease alone."""
        one = self._held(sid, fence)
        if one is None or one.ph != "work":
            known = self.slices.get(sid)
            if known and known.committed == fence:
                return "done"
            self.totals["stale"] += 1
            return "stale"
        if (writes or segments) and self.read_only:
            return "sealed"
        if not self.documents.current(writes):
            return "sealed"
        wrote = self.documents.write(writes, one.seq)
        if segments:
            self.lines.write(segments)
            wrote = True
        self.jobs[one.job].results[one.number] = result
        one.committed = fence
        if wrote:
            one.ph = "verify"
            self._end_work(one, "succeeded", ok, errors)
            one.waits_in = Queue.SCRUB
            one.crashes = one.errors = 0
            self._make_ready(one, delay_ms)
        else:
            self._end_work(one, "succeeded", ok, errors)
            self._forget(one)
        return "done"

    def verify(
        self,
        sid: str,
        fence: int,
        *,
        keep_ms: int,
        delay_ms: int,
        right: Sequence[str],
        rewritten: Sequence[DocumentWrite],
        lines: int,
    ) -> str:
        """End a verify pass: the raw texts go only if nothing had to be written again."""
        one = self._held(sid, fence)
        if one is None or one.ph != "verify":
            known = self.slices.get(sid)
            if known and known.verified == fence:
                return "done"
            self.totals["stale"] += 1
            return "stale"
        if self.read_only:
            return "sealed"
        self.documents.mark_verified(right, one.seq)
        self.documents.rewrite(rewritten, one.seq)
        self.lines.verified += lines
        one.verified = fence
        if rewritten:
            one.crashes = one.errors = 0
            one.rewrites += 1
            if one.rewrites >= self.policy.max_errors:
                self._die(one)
            else:
                delay = delay_ms * 2 ** (one.rewrites - 1)
                self._make_ready(one, min(delay, self.policy.max_delay_ms))
            return "done"
        self._put(one, "")
        one.st, one.ph = "succeeded", "verified"
        job = self.jobs.get(one.job)
        if job and not job.unread and job.st not in (*LIVE, "dead"):
            self._keep_job(job, job.keep_s)
        if keep_ms == 0:
            self._forget(one)
        else:
            self.drops[sid] = self.now + keep_ms
        return "done"

    def retry(self, sid: str, fence: int, *, delay_ms: int, count: bool, timed_out: bool) -> str:
        """Return a slice to its queue, as often as the policy says."""
        one = self._held(sid, fence)
        if one is None:
            known = self.slices.get(sid)
            return "done" if known and known.returned == fence else "stale"
        one.returned = fence
        one.errors += count
        one.timeouts += timed_out
        slow = timed_out and one.timeouts >= self.policy.max_timeouts
        if slow and one.ph == "work" and one.kind not in PROMISED:
            self._end_work(one, "failed", 0, one.items)
            self._forget(one)
        elif count and one.errors >= self.policy.max_errors:
            self._die(one)
        else:
            doubled = delay_ms * 2 ** max(0, (one.errors if count else 0) - 1)
            self._make_ready(one, min(doubled, self.policy.max_delay_ms))
        return "done"

    def fail(self, sid: str, fence: int) -> str:
        """End a slice that cannot succeed; what was promised is a dead letter instead."""
        one = self._held(sid, fence)
        if one is None:
            known = self.slices.get(sid)
            return "done" if known and known.returned == fence else "stale"
        one.returned = fence
        if one.ph == "verify" or one.kind in PROMISED:
            self._die(one)
        else:
            self._end_work(one, "failed", 0, one.items)
            self._forget(one)
        return "done"

    # -- the keeper ------------------------------------------------------------------------------

    def reap(self) -> dict[Queue, int]:
        """Take back leases that ran out, end what came too late, and tidy."""
        for queue in Queue:
            leased = self._at["leased", queue].values()
            for one in sorted((x for x in leased if x.until <= self.now), key=_by_until):
                one.crashes += 1
                self.totals["crashes"] += 1
                if one.crashes >= self.policy.max_crashes:
                    self._die(one)
                else:
                    steps = self.policy.backoff_ms
                    self._make_ready(one, steps[min(one.crashes, len(steps)) - 1])
        for job_id in [name for name, at in self.deadlines.items() if at <= self.now]:
            self._pass_deadline(self.jobs[job_id])
        self.documents.tidy(min(self.pending().values(), default=None))
        for sid in [s for s, at in self.died.items() if at <= self.dead_before]:
            if sid not in self.slices:
                del self.died[sid]
        self.end_reservations()
        for queue in Queue:
            self._mature(queue, 1000)
        return {queue: len(self._at["lane", queue]) for queue in Queue}

    @property
    def dead_before(self) -> int:
        """Return when letters died whose names may be gone."""
        return self.now - 1000 * self.policy.dead_keep_s

    def _pass_deadline(self, job: Job) -> None:
        for one in job.slices:
            if one.ph == "work" and one.st == "queued":
                self._end_work(one, "expired", 0, one.items)
                self._forget(one)
        if any(one.ph == "work" and one.st == "running" for one in job.slices):
            self.deadlines[job.job_id] = self.now + 1000
        else:
            self.deadlines.pop(job.job_id, None)

    def drop(self) -> int:
        """Drop verified texts whose retention is over."""
        if self.read_only:
            return 0
        due = [sid for sid, at in self.drops.items() if at <= self.now]
        dropped = 0
        for sid in due:
            del self.drops[sid]
            if sid in self.slices:
                self._forget(self.slices[sid])
                dropped += 1
        return dropped


def _by_until(one: Slice) -> tuple[int, str]:
    return one.until, one.sid


def _stored(number: float) -> float:
    """Return a number as the ledger stores it."""
    return float(f"{number:.6f}")
