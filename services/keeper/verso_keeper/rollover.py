"""Gives log collections new partitions, and drops old ones: ADR 50.

Each round looks at where every such collection stands and does what comes next. A change is noted
on the home ledger only if it still stands as it was seen, so keepers may come and go at any place,
and several may be at work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from verso_core.errors import (
    CollectionBusy,
    CollectionUnknown,
    PartitionMissing,
    Unavailable,
    VersoError,
)
from verso_core.jobs import Collection, Kind, NoItem, Queue
from verso_core.jobs.collections import (
    MAX_TIME_PARTITIONS,
    CollectionName,
    CollectionParams,
    Partitioned,
    RolloverRule,
    Stage,
    TimePart,
    collection_of_partition,
    number_of_partition,
    partition_name,
)
from verso_core.jobs.fitting import artifact_of
from verso_keeper.periodic import submit
from verso_ledger import Ledger
from verso_ledger.collections.open_slices import OpenSlices
from verso_ledger.ledgers.index import LedgerIndex
from verso_ledger.ledgers.room import ENOUGH, roomiest

SEEN_S = 3.0
"""How long gateways may ask a partition that is noted as being deleted: they read the notes once a
second."""
_DAY_S = 86_400.0
_SKEW_S = 60.0
"""By so much the clocks of keepers may differ."""
_AGAIN_S = 60.0
"""After so long a job that did not do its work is submitted again."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Where:
    """A partition as its ledger lists it."""

    ledger: Ledger
    collection: Collection


class Rollover:
    """Rolls log collections over.

    Args:
        home: the home ledger.
        ledgers: all of the platform by name.
        clock: Unix seconds; by default the home ledger's, as a machine's that is ahead drops early.
    """

    def __init__(
        self,
        home: Ledger,
        ledgers: Mapping[str, Ledger],
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._home = home
        self._notes = home.partitions
        self._ledgers = ledgers
        self._index = LedgerIndex(ledgers)
        self._clock = clock or home.now
        # of its own: that of a ledger's moves is another thread's
        self._slices = {name: OpenSlices(one.moves.scripts) for name, one in ledgers.items()}
        self._open: dict[tuple[str, str], frozenset[str]] = {}  # by ledger and uid of the lines
        self._listed: frozenset[str] | None = None

    def step(self) -> int:
        """Run one round; return how many collections were taken on.

        A collection whose ledgers do not answer or are damaged waits; the others are taken on.

        Raises:
            LedgerUnavailable: the home ledger does not answer.
        """
        done = 0
        self._listed = None
        for name, state in self._notes.all().items():
            if state.rollover is None or state.stage is not Stage.LIVE:
                continue
            for work in (self._recover, self._advance, self._tidy):
                try:
                    done += work(name, state)
                except VersoError as error:  # the others go on
                    about = {"collection": name, "code": error.code}
                    waits = isinstance(error, (Unavailable, CollectionUnknown))
                    level = logging.DEBUG if waits else logging.WARNING
                    _log.log(level, "rollover waits: %s", error.detail, extra=about)
        return done

    def _recover(self, name: str, state: Partitioned) -> bool:
        """Note where a ledger has lost a partition, as an older copy of it has; whether one was.

        One that waits for the newest to roll over was never written to, and is made again. What
        another one held cannot be told: it is missing, and the others are served. If its ledger has
        it again, so is that one; unless it expired meanwhile: then it is deleted.
        """
        now = self._clock()
        if (number := self._dropped_before(name, state)) is not None:
            gone = TimePart(number=number, stage=Stage.DELETING, since=now, rolled=0.0)
            parts = sorted((*state.parts, gone), key=lambda one: one.number)
            return self._notes.step(name, state, state.model_copy(update={"parts": tuple(parts)}))
        for part in state.parts:
            own = partition_name(name, part.number)
            there = own in self._every_listed()
            if part.stage is Stage.MISSING and there:
                rolled = part.rolled or (now if part.number < state.writing else None)
                found = state.changed(part.number, stage=Stage.LIVE, rolled=rolled)
                return self._notes.step(name, state, found)
            if part.stage is not Stage.LIVE or there or not self._is_lost(own):
                continue
            if self._is_unwritten(name, state, part):
                again = state.changed(part.number, stage=Stage.MAKING, since=now)
                return self._notes.step(name, state, again)
            about = {"collection": name, "partition": part.number, "code": PartitionMissing.code}
            _log.error("partition missing on its ledger", extra=about)
            return self._notes.step(name, state, state.changed(part.number, stage=Stage.MISSING))
        return False

    def _dropped_before(self, name: str, state: Partitioned) -> int | None:
        """Return a partition that a ledger has though it was dropped: numbers only grow."""
        for own in self._every_listed():
            if collection_of_partition(own) == name:
                number = number_of_partition(own)
                if number < state.parts[-1].number and number not in state.every_number:
                    return number
        return None

    def _every_listed(self) -> frozenset[str]:
        """Return the collections of all ledgers that answer, read once a round."""
        if self._listed is None:
            found: set[str] = set()
            for ledger in self._ledgers.values():
                with suppress(Unavailable):
                    found |= ledger.documents.collections().keys()
            self._listed = frozenset(found)
        return self._listed

    def _is_lost(self, own: str) -> bool:
        """Whether no ledger has a partition, and that on which it was takes writes.

        Raises:
            CollectionBusy: it moves at this moment.
            LedgerUnavailable: a ledger that may have it does not answer.
        """
        placed = self._ledgers.get(self._notes.placed(own) or "")
        if placed is None or placed.epoch.read_only() is not None:
            return False  # its address is not known here; or an operator decides about the ledger
        try:
            self._index.ledger_of_collection(own)
        except CollectionUnknown:
            return True
        return False

    def _is_unwritten(self, name: str, state: Partitioned, part: TimePart) -> bool:
        """Whether a partition was never written to: the one before it takes lines still."""
        if part.number <= state.writing or state.writing not in state.numbers:
            return False
        return not self._takes_none(name, state.writing)

    def _takes_none(self, name: str, number: int) -> bool:
        """Whether a partition takes no more lines, by its own ledger."""
        own = self._where(partition_name(name, number))
        return own.ledger.partitions.held(own.collection.name).rolled

    def _advance(self, name: str, state: Partitioned) -> bool:
        """Do what comes next until a new partition takes the lines; return whether it was done."""
        made = next((one for one in state.parts if one.stage is Stage.MAKING), None)
        if made is not None:
            return self._make(name, state, made)
        if (following := state.following(state.writing)) is not None:
            return self._roll(name, state, following)
        return self._begin(name, state)

    def _tidy(self, name: str, state: Partitioned) -> bool:
        """Do what comes next with partitions that take no more lines; whether it was done."""
        return (
            self._note_times(name, state) or self._remove(name, state) or self._expire(name, state)
        )

    def _begin(self, name: str, state: Partitioned) -> bool:
        """Note that a new partition is made, if the newest one is old or large enough.

        One that has no line yet counts from now on. One that takes no lines, as its ledger was
        copied later than the home ledger by a backup, or that is missing, is followed at once.
        """
        rule, part = state.rollover, state.part(state.writing)
        if rule is None or part is None or not state.numbers:
            return False
        number = state.parts[-1].number + 1
        due = part.stage is Stage.MISSING or self._is_due(name, state, part, rule)
        if not due or number == MAX_TIME_PARTITIONS:  # the newest one goes on
            return False
        new = TimePart(number=number, since=self._clock())
        after = state.model_copy(update={"parts": (*state.parts, new)})
        return self._notes.step(name, state, after)

    def _is_due(self, name: str, state: Partitioned, part: TimePart, rule: RolloverRule) -> bool:
        """Whether a partition is to be followed by a new one."""
        own = self._where(partition_name(name, part.number))
        held = own.ledger.partitions.held(own.collection.name)
        now = self._clock()
        old = now - part.since >= rule.span_s
        large = rule.max_bytes is not None and held.memory_bytes >= rule.max_bytes
        unused = old and not held.streams and not held.rolled
        if unused or part.since > now + _SKEW_S:  # of a clock that was ahead, and is set back
            self._notes.step(name, state, state.changed(part.number, since=now))
        return held.rolled or bool(held.streams and (old or large))

    def _make(self, name: str, state: Partitioned, part: TimePart) -> bool:
        """Have a partition made as the newest one is, or note that it is there.

        One of another owner is left of a collection that was deleted while its ledger lacked it.
        """
        own = partition_name(name, part.number)
        ledger = self._ledgers[self._place(name, own, state)]
        there = ledger.documents.named(own)
        if there is not None and there.owner != state.owner:
            self._delete(ledger, own, part)
            return True
        if there is not None:
            live = state.changed(part.number, stage=Stage.LIVE, since=self._clock())
            return self._notes.step(name, state, live)
        ledger.partitions.forget_moves(own)  # of one of this name that is gone: it is made here
        like = self._newest(name, state)
        submit(
            ledger,
            Queue.INTERACTIVE,
            Kind.COLLECTION_CREATE,
            params=settings_of(like, own, owner=state.owner),
            item=NoItem(),
            key=f"rollover-{own}-{part.since:.3f}-{self._attempt}",
            collection=own,
        )
        return True

    def _roll(self, name: str, state: Partitioned, following: int) -> bool:
        """Let the partition that takes lines take no more, then note the next one."""
        self._where(partition_name(name, following))  # the old one ends only if there is a new one
        if state.writing in state.numbers and not self._end(name, state.writing):
            return False
        rolled = state.changed(state.writing, rolled=self._clock())
        done = self._notes.step(name, state, rolled.model_copy(update={"writing": following}))
        if done:
            about = {"collection": name, "partition": following}
            _log.info("log collection rolled over", extra=about)
        return done

    def _end(self, name: str, number: int) -> bool:
        """Let a partition take no more lines; return whether it takes none."""
        own = partition_name(name, number)
        where = self._where(own)
        uid = where.ledger.logs.state(where.collection.name).uid
        return where.ledger.partitions.roll(own, uid)

    def _note_times(self, name: str, state: Partitioned) -> bool:
        """Note the times of a rolled partition's lines once all that were accepted are stored."""
        for part in state.parts:
            if part.stage is not Stage.LIVE or part.rolled is None or part.last is not None:
                continue
            own = partition_name(name, part.number)
            where = self._where(own)
            if not self._takes_none(name, part.number) and not self._end(name, part.number):
                continue  # a copy of its ledger may be older than its end
            uid = where.ledger.logs.state(where.collection.name).uid
            if not self._is_stored(where.ledger, own, uid):
                continue
            first, last = where.ledger.partitions.span(uid)
            came = part.rolled if first is None else 0.0  # a line without a time came before that
            known = state.changed(part.number, first=first, last=max(last or 0.0, came))
            return self._notes.step(name, state, known)
        return False

    def _is_stored(self, ledger: Ledger, own: str, uid: str) -> bool:
        """Whether no slice that writes a partition is open, by what was open when last looked.

        Nothing new is accepted, so only those that were found are looked at again.
        """
        slices = self._slices[ledger.name]
        this = ledger.name, uid
        before = self._open.get(this)
        found = slices.of(own) if before is None else slices.of_these(before)
        self._open[this] = found.slices
        if found.slices:
            return False
        del self._open[this]
        return True

    def _expire(self, name: str, state: Partitioned) -> bool:
        """Note that a partition is deleted all of whose lines are past their time."""
        days = self._newest(name, state).retention_days
        if days is None:
            return False
        cutoff = self._clock() - days * _DAY_S
        for part in state.parts:
            kept = part.stage in (Stage.LIVE, Stage.MISSING)
            if kept and part.last is not None and part.last < cutoff:
                gone = state.changed(part.number, stage=Stage.DELETING, since=self._clock())
                return self._notes.step(name, state, gone)
        return False

    def _remove(self, name: str, state: Partitioned) -> bool:
        """Delete a partition that is noted for it and that no gateway asks, then its note."""
        for part in state.parts:
            if part.stage is not Stage.DELETING:
                continue
            now = self._clock()
            if part.since > now + _SKEW_S:  # as in `_is_due`
                return self._notes.step(name, state, state.changed(part.number, since=now))
            if now - part.since < SEEN_S:
                continue
            own = partition_name(name, part.number)
            try:
                ledger = self._index.ledger_of_collection(own)
            except CollectionUnknown:
                left = tuple(one for one in state.parts if one.number != part.number)
                if not self._notes.step(name, state, state.model_copy(update={"parts": left})):
                    return False
                self._notes.unplace(own)
                for one in self._ledgers.values():
                    with suppress(Unavailable):
                        one.partitions.forget_moves(own)
                about = {"collection": name, "partition": part.number}
                _log.info("expired partition dropped", extra=about)
                return True
            if ledger.logs.removal_paused():  # for a backup, which may take longer than a job tries
                continue
            self._delete(ledger, own, part)
        return False

    def _delete(self, ledger: Ledger, own: str, part: TimePart) -> None:
        submit(
            ledger,
            Queue.INTERACTIVE,
            Kind.COLLECTION_DELETE,
            params=CollectionName(name=own),
            item=NoItem(),
            key=f"drop-{own}-{part.since:.3f}-{self._attempt}",
            collection=own,
        )

    def _place(self, name: str, own: str, state: Partitioned) -> str:
        """Return the ledger that a new partition is made on; it is placed if it was not.

        One that is there without a placement, as its ledger was copied later than the home ledger,
        is placed where it is.

        Raises:
            LedgerUnavailable: one does not answer, which may have it.
        """
        placed = self._notes.placed(own)
        if placed is not None and placed in self._ledgers:
            return placed
        drained = self._notes.drained()
        free: dict[str, int] = {}
        holds: dict[str, int] = {}
        beside: dict[str, int] = {}
        names = {partition_name(name, number) for number in state.every_number}
        for one in self._ledgers.values():
            listed = one.documents.collections().keys()
            if own in listed:
                return self._notes.place(own, one.name)
            if one.name not in drained:
                server = one.partitions.server()
                holds[one.name], beside[one.name] = len(listed), len(names & listed)
                free[one.name] = max(0, server.memory_limit_bytes - server.memory_bytes)
        if not free:  # all are drained, and lines go on coming in
            return self._notes.place(own, self._home.name)
        chosen = roomiest(free, holds=holds, beside=beside, like=ENOUGH)
        return self._notes.place(own, chosen)

    def _newest(self, name: str, state: Partitioned) -> Collection:
        """Return the partition that takes lines, or the newest that is served.

        Raises:
            CollectionBusy: it moves at this moment.
            CollectionUnknown: there is none.
            LedgerUnavailable: a ledger that may have it does not answer.
        """
        served = state.numbers or (state.writing,)
        number = state.writing if state.writing in served else served[-1]
        return self._where(partition_name(name, number)).collection

    def _where(self, own: str) -> _Where:
        """Return where a partition is.

        Raises:
            CollectionBusy: it moves at this moment.
            CollectionUnknown: no ledger has it.
            LedgerUnavailable: a ledger that may have it does not answer.
        """
        ledger = self._index.ledger_of_collection(own)
        found = ledger.documents.named(own)
        if found is None:
            raise CollectionBusy(f"{own!r} is being moved to another ledger")
        return _Where(ledger, found)

    @property
    def _attempt(self) -> int:
        return int(self._clock() // _AGAIN_S)


def settings_of(like: Collection, name: str, *, owner: str | None) -> CollectionParams:
    """Return what makes a partition with the settings, and in the space, of another one."""
    return CollectionParams(
        name=name,
        kind=like.kind,
        precision=like.precision,
        text_policy=like.text_policy,
        search=like.search,
        codec_policy=like.codec_policy,
        indexes=like.indexes,
        retention_days=like.retention_days,
        auto_fit=like.auto_fit,
        artifact=artifact_of(like.artifacts[0]) if like.artifacts else None,
        owner=owner,
        space=like.space,
    )
