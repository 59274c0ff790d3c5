"""Moves collections to other ledgers while they are served (ADR 46).

One move of a ledger at a time, by one keeper at a time, in these stages:

1. **copy**: what has changed is copied, until almost nothing is left. A worker copies the objects
   of cold storage; the ledger takes no new ones meanwhile.
2. **fence**: writes wait to be accepted until those that were accepted have ended. What has changed
   meanwhile is copied, and the ledger is closed to every late commit. If that takes too long, all
   is accepted again, and the move tries later.
3. **switched**: one step takes the collection from its ledger; another gives it to the other one.
4. **clean**: its keys are removed where it was, once nothing reads them there.

A keeper that ends at any place is followed by another one, which finds the state in the ledger. It
has a greater number, so that the other ledger refuses what its predecessor may still write.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple
from typing import Any

from verso_core.errors import CollectionUnknown, JobUnknown, LedgerUnavailable, Unavailable
from verso_core.jobs import BucketRange, Kind, Queue, Result, Status
from verso_core.jobs.moves import Move, MoveReason, MoveStage
from verso_core.jobs.scrub import OBJECT_PARTS, ScrubParams
from verso_keeper.periodic import submit
from verso_ledger import Ledger
from verso_ledger.collections.copying import CollectionCopy
from verso_ledger.collections.moves import REMEMBERED_S, Earlier, Moves, fence_ended
from verso_ledger.collections.paging import CopyRefused
from verso_ledger.names import HOME

FENCE_S = 20.0
"""How long writes wait at most."""
SPEND_S = 1.0
"""How long one round copies, about."""
_CLOSE_S = 10.0
_HELD_S = 5.0
_SEEN_S = 3.0
"""How long the old ledger serves reads after the switch: gateways read lists once a second."""
_AT_ONCE = 64
_NEARLY = 256
"""Units left to copy at which writes may wait for the rest, some tens of milliseconds."""
_BEHIND_S = 60.0
"""How long a copy gets no nearer to its end before the move says so."""
_REST_S = 60.0
"""How long a keeper may take to list all units, or to compare what is none, while all is served."""
_OPEN = 512
"""Slices that have not ended of a collection whose writes may wait for them."""
_OBJECTS_S = 4.0
"""How long one job copies objects, about: verifying shares its queue."""
_POLL_S = 0.05
_LATER_S = 5.0
_LATEST_S = 60.0
_log = logging.getLogger(__name__)


class MovedOn(Exception):
    """Raised when another caller has taken the move on."""


def _urgency(move: Move) -> tuple[int, float]:
    """Return what comes first: what callers wait for, then the oldest."""
    order = (MoveStage.SWITCHED, MoveStage.FENCE, MoveStage.CLEAN, MoveStage.CANCELLED)
    return (order.index(move.stage) if move.stage in order else len(order), move.started)


class Mover:
    """Takes the moves of collections that a ledger has on.

    Args:
        ledger: has them, or had them.
        ledgers: all of the platform by name.
        clock: Unix seconds; by default the ledger's.
        fence_s: how long writes wait at most, seconds.
        sleep: waits for slices to end, seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        ledgers: Mapping[str, Ledger],
        *,
        clock: Callable[[], float] | None = None,
        fence_s: float = FENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._jobs = ledger
        self._moves = ledger.moves
        self._ledgers = ledgers
        self._clock = clock or ledger.now
        self._fence_s = fence_s
        self._sleep = sleep
        self._holder = uuid.uuid4().hex

    def step(self) -> Move | None:
        """Run one round: take the most urgent move on that does not wait; return it.

        One whose other ledger does not answer waits, and the next one is taken on.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        moves = [one for one in self._moves.all().values() if one.running]
        for move in sorted(moves, key=_urgency):
            now = self._clock()
            if move.due > now or (move.holder != self._holder and move.held_until > now):
                continue
            try:
                return self._take_on(self._hold(move))
            except (MovedOn, CopyRefused):
                continue
            except LedgerUnavailable:
                self._put_off(move)
        return None

    def _put_off(self, move: Move) -> None:
        """Let a move wait whose ledgers do not answer, so that the next ones go on."""
        state = self._moves.all().get(move.collection)
        if state is not None and state.running and state.holder == self._holder:
            with suppress(MovedOn):
                self._wait(state, MoveReason.TARGET)

    def _hold(self, move: Move) -> Move:
        number = move.number + (move.holder != self._holder)
        return self._to(move, holder=self._holder, number=number)

    def _to(
        self,
        move: Move,
        what: str = "none",
        *,
        with_: str | int = "",
        count: Mapping[str, int] | None = None,
        **changes: Any,
    ) -> Move:
        """Take a move on; it stays this keeper's.

        Raises:
            MovedOn: another caller has, or what should go with it cannot be.
        """
        held = {"held_until": self._clock() + _HELD_S} | changes
        after = Move.model_validate(move.model_dump() | held)
        if not self._moves.step(move, after, what, with_=with_, count=count):
            raise MovedOn
        return after

    def _take_on(self, move: Move) -> Move:
        target = self._ledgers.get(move.target)
        if move.stage is MoveStage.CANCELLED:
            return self._forget(move, target)
        if target is None:
            return self._wait(move, MoveReason.TARGET)
        match move.stage:
            case MoveStage.COPY:
                if not self._moves.has(move):  # it was deleted
                    return self._to(move, stage=MoveStage.CANCELLED)
                return self._copy(move, target.moves)
            case MoveStage.FENCE:
                count = fence_ended(move, self._clock(), "opened")
                return self._to(move, "open", stage=MoveStage.COPY, count=count)
            case MoveStage.SWITCHED:
                return self._publish(move, target.moves)
            case MoveStage.CLEAN:
                return self._clean(move, target.moves)
        raise AssertionError(move.stage)

    def _forget(self, move: Move, target: Ledger | None) -> Move:
        if target is not None:
            try:
                target.moves.forget(move)
            except LedgerUnavailable:  # what was copied there is left, and never published
                _log.warning("copy is left", extra={"collection": move.collection})
        move = self._to(move, "forget", ended=self._clock(), count={"moves:cancelled": 1})
        _log.info("move cancelled", extra={"collection": move.collection})
        return move

    def _copy(self, move: Move, target: Moves) -> Move:
        if self._moves.migrating(move):
            return self._wait(move, MoveReason.MIGRATION)
        if not move.target_uid:
            target.forget(move)  # left by a move that was cancelled while that ledger was away
        uid = target.take(move, seq=self._moves.seq())
        if not uid.isdecimal():
            return self._wait(move, MoveReason.TARGET)
        if uid != move.target_uid:
            move = self._to(
                move, target_uid=uid, marked=False, objects=0, object_job=move.object_job + 1
            )
        copy = CollectionCopy(self._moves, target, move)
        if not move.marked:
            move = self._to(move, held_until=self._clock() + _REST_S)
            if move.lines:
                copy.spans.start()
            units = copy.mark_all()
            move = self._to(move, marked=True, units=units, least=None, spans=copy.spans.walks)
            where = {"collection": move.collection, "from": move.source, "to": move.target}
            _log.info("collection is copied to another ledger", extra=where)
        move = self._copy_objects(self._copy_some(move, copy))
        if move.left > _NEARLY or not copy.spans.walked or copy.spans.too_much_is_new():
            return move
        if self._objects_left(move):
            return self._to(move, reason=MoveReason.COLD_STORAGE, due=self._clock() + 1.0)
        work = self._moves.open_slices.of(move.collection)
        if work.dead:
            return self._wait(move, MoveReason.DEAD_LETTERS)
        if len(work.slices) > _OPEN:
            return self._wait(move, MoveReason.BUSY)
        move = self._to(move, held_until=self._clock() + _REST_S)
        copy.rest()
        return self._switch(move, target, copy)

    def _copy_some(self, move: Move, copy: CollectionCopy) -> Move:
        until = time.monotonic() + SPEND_S
        copied = 0
        while True:
            if copy.spans.too_much_is_new():
                copy.spans.walk_again()
                move = self._to(move, spans=copy.spans.walks, walks=move.walks + 1)
                copy.spans.restarted()
            copied += copy.some(_AT_ONCE)
            copy.spans.walk()
            left = copy.left()
            if (not left and copy.spans.walked) or time.monotonic() >= until:
                break
        return self._copied(move, copy, copied=copied, left=left)

    def _copied(self, move: Move, copy: CollectionCopy, *, copied: int, left: int) -> Move:
        """Note what a round has copied, and whether the copy gets nearer to its end."""
        now = self._clock()
        least = left if move.least is None else min(left, move.least)
        nearer = least != move.least or (move.walks == 1 and copy.spans.walks != move.spans)
        progressed = now if nearer else move.progressed
        if left > _NEARLY or not copy.spans.walked:
            reason = MoveReason.BEHIND if now - progressed > _BEHIND_S else None
        else:
            reason = None if move.reason is MoveReason.BEHIND else move.reason
        size = copy.new_bytes()
        return self._to(
            move,
            left=left,
            least=least,
            spans=copy.spans.walks,
            copied=move.copied + copied,
            bytes_copied=move.bytes_copied + size,
            progressed=progressed,
            reason=reason,
            count={"moves:bytes": size},
        )

    def _objects_left(self, move: Move) -> bool:
        return move.objects < OBJECT_PARTS and self._moves.has_cold(move)

    def _copy_objects(self, move: Move) -> Move:
        """Have a worker copy objects of cold storage, one job after another."""
        if not self._objects_left(move):
            return move
        to = f"{move.target}/{move.target_uid}"
        item = BucketRange(move.objects, OBJECT_PARTS - move.objects, _OBJECTS_S, to=to)
        try:
            job = submit(
                self._jobs,
                Queue.SCRUB,
                Kind.SCRUB,
                params=ScrubParams(collection=move.collection),
                item=item,
                key=f"objects-{move.own}-{move.started}-{move.object_job}",
            ).job_id
            record = self._jobs.jobs.get(job)
        except LedgerUnavailable:
            raise
        except JobUnknown:
            return self._to(move, object_job=move.object_job + 1)
        except (CollectionUnknown, Unavailable):  # deleted at this moment, or the queue is full
            return move
        if not record.status.terminal:
            return move
        data = self._jobs.jobs.result(job) if record.status is Status.SUCCEEDED else None
        parts = 0 if data is None else Result.unpack(Kind.SCRUB, data).only.parts
        now, following = self._clock(), move.object_job + 1
        if not parts:
            later, reason = now + _LATER_S, MoveReason.COLD_STORAGE
            return self._to(move, object_job=following, reason=reason, due=later)
        objects = move.objects + parts
        return self._to(move, objects=objects, object_job=following, progressed=now, reason=None)

    def _switch(self, move: Move, target: Moves, copy: CollectionCopy) -> Move:
        """Let writes wait, copy the rest, and switch; or let them go on."""
        began, now = time.monotonic(), self._clock()
        held = now + self._fence_s + _CLOSE_S
        fence_ms = round(self._fence_s * 1000)
        move = self._to(
            move, "fence", with_=fence_ms, stage=MoveStage.FENCE, fenced=now, held_until=held
        )
        try:
            reason = self._drain(move, copy, began)
            if reason is None:
                move = self._to(move, "close", with_=round(_CLOSE_S * 1000), held_until=held)
                reason = self._finish(move, target, copy)
            if reason is None:
                after = self._switched(move, copy, began)
                if after is not None:
                    return self._publish(after, target)
                reason = MoveReason.SOURCE
        except LedgerUnavailable:
            self._open_again(move, copy, MoveReason.TARGET)
            raise
        return self._open_again(move, copy, reason)

    def _switched(self, move: Move, copy: CollectionCopy, began: float) -> Move | None:
        """Take the collection from its ledger; return the move, None if that cannot be now."""
        size, now = copy.new_bytes(), self._clock()
        after = move.model_copy(
            update={
                "stage": MoveStage.SWITCHED,
                "paused_ms": round((time.monotonic() - began) * 1000),
                "reason": None,
                "left": 0,
                "bytes_copied": move.bytes_copied + size,
                "held_until": now + _HELD_S,
                "progressed": now,
            }
        )
        count = fence_ended(move, now, "switched") | {"moves:bytes": size}
        done = self._moves.step(move, after, "switch", with_=f"gone {move.target}", count=count)
        return after if done else None

    def _open_again(self, move: Move, copy: CollectionCopy, reason: MoveReason) -> Move:
        tries = move.tries + 1
        now = self._clock()
        about = {"collection": move.collection, "reason": reason.value}
        _log.warning("move waits", extra=about)
        return self._to(
            move,
            "open",
            stage=MoveStage.COPY,
            reason=reason,
            tries=tries,
            due=now + min(_LATEST_S, 2.0**tries),
            spans=copy.spans.walks,
            count=fence_ended(move, now, "opened"),
        )

    def _drain(self, move: Move, copy: CollectionCopy, began: float) -> MoveReason | None:
        """Copy until no slice of the collection is open; return why that did not come.

        None is accepted meanwhile: those that are open at the beginning are watched, and when they
        have ended, all are looked through once more.
        """
        slices = self._moves.open_slices
        work = slices.of(move.collection)
        while True:
            copy.some(_AT_ONCE)
            if work.dead:
                return MoveReason.DEAD_LETTERS
            if not work.slices:
                return None
            if time.monotonic() - began > self._fence_s - _POLL_S:
                return MoveReason.BUSY
            self._sleep(_POLL_S)
            work = slices.of_these(work.slices)
            if not work.slices:
                work = slices.of(move.collection)

    def _finish(self, move: Move, target: Moves, copy: CollectionCopy) -> MoveReason | None:
        """Copy what has changed up to the end; return why the two ledgers still differ."""
        began = time.monotonic()
        while copy.left():
            copy.some(_AT_ONCE)
            if time.monotonic() - began >= _CLOSE_S / 2:
                return MoveReason.BUSY
        if copy.rest():
            return MoveReason.TARGET
        if time.monotonic() - began >= _CLOSE_S:  # other keys are so large that the close is over
            return MoveReason.BUSY
        if missed := copy.spans.differ():
            _log.warning("identities are copied again", extra={"spans": missed})
            copy.spans.walk_again()
            return MoveReason.TARGET
        if self._moves.migrating(move):
            return MoveReason.MIGRATION
        if self._objects_left(move):
            return MoveReason.COLD_STORAGE
        # with replicas, all that was copied is with them when this returns
        taken = target.take(move, seq=self._moves.seq())
        return None if taken == move.target_uid else MoveReason.TARGET

    def _publish(self, move: Move, target: Moves) -> Move:
        if (undone := self._not_published(move, target)) is not None:
            return undone
        self._ledgers[HOME].moves.place(move.collection, move.target)
        about = {
            "collection": move.collection,
            "from": move.source,
            "to": move.target,
            "paused_ms": move.paused_ms,
        }
        _log.info("collection moved", extra=about)
        now = self._clock()
        return self._to(move, stage=MoveStage.CLEAN, reason=None, due=now + _SEEN_S, progressed=now)

    def _not_published(self, move: Move, target: Moves) -> Move | None:
        """Publish the copy, unless it is; return the move where that is not done."""
        now = self._clock()
        recent = [
            one
            for one in self._moves.came(move.collection)
            if one.left > now - REMEMBERED_S and one.ledger != move.target
        ]
        was = json.dumps([astuple(one) for one in (*recent, Earlier(move.source, move.uid, now))])
        match target.publish(move, *self._moves.settings(move), was):
            case "done":
                return None
            case "stale" if target.came_by(move):
                return None  # it was, and another of its name was made since it was deleted
            case "stale":
                _log.error("copy of a collection lost", extra={"collection": move.collection})
                self._ledgers[HOME].moves.place(move.collection, move.source)
                return self._to(move, "back", stage=MoveStage.COPY, marked=False, target_uid="")
        return self._wait(move, MoveReason.TARGET)

    def _clean(self, move: Move, target: Moves) -> Move:
        # what was restored from a backup may not have the copy published yet
        if (undone := self._not_published(move, target)) is not None:
            return undone
        work = self._moves.open_slices.of(move.collection, reads=True)
        if len(work.slices) > work.dead or self._moves.has_garbage(move.own):
            return self._to(move, due=self._clock() + 1.0)
        target.release(move)
        now, count = self._clock(), {"moves:done": 1}
        return self._to(move, "clean", stage=MoveStage.DONE, ended=now, count=count)

    def _wait(self, move: Move, reason: MoveReason) -> Move:
        if move.reason is not reason:
            about = {"collection": move.collection, "reason": reason.value}
            _log.warning("move waits", extra=about)
        return self._to(move, reason=reason, due=self._clock() + _LATER_S)
