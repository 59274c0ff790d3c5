"""Claim slices from the ledger and have them executed: what a wake-up makes a worker do.

1. A wake-up, a Celery message, names a queue and no job. It activates one slot of that queue.
2. An active slot claims slices and executes them until no slice is due.
3. It then listens for a while (:mod:`verso_ledger.events.work_signal`) and claims again when new
   work is announced. When none is, the slot becomes inactive.
4. While every active slot is executing, another slot is woken, up to the queue's limit.

A superfluous wake-up claims nothing. After a lost wake-up the keeper sends another within a second,
and the worker polls: it calls :meth:`Dispatcher.run_queue` every few seconds. Embeds that wait
together are claimed together and run as one call of the engine. Where a platform has several
ledgers, the slots take work from one after another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from verso_core.errors import LedgerUnavailable
from verso_core.jobs import Kind, Queue
from verso_ledger import Lease, WorkSubscriber
from verso_ledger.events.work_signals import WorkSubscribers
from verso_worker.jobs.sources import Source

_TOGETHER = 16  # embed slices of one engine call: more would make the first wait for the last
_log = logging.getLogger(__name__)
_CHECK_S = 0.5  # a listening slot checks this often whether the worker closes

_Subscriber = WorkSubscriber | WorkSubscribers
WakeSlot = Callable[[], None]
"""Sends a wake-up for one more slot of the same queue."""


class Slots:
    """Counts a queue's slots: inactive, active (claiming or listening), or executing a slice.

    Any number of threads may use it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._active = 0
        self._busy = 0
        self._woken = False
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """How many slices may be executed at once."""
        return self._limit

    @property
    def busy(self) -> int:
        """How many slots are executing now."""
        return self._busy

    def activate(self) -> bool:
        """Activate one slot; False when all are active."""
        with self._lock:
            if self._active >= self._limit:
                return False
            self._active += 1
            self._woken = False
            return True

    def release(self) -> None:
        """Release one slot."""
        with self._lock:
            self._active -= 1
            self._woken = False  # the wake-up that was sent may have found all slots active

    @contextmanager
    def executing(self) -> Iterator[bool]:
        """Mark a slot as executing; yield whether another slot should be woken.

        One should when all active slots are executing, more are allowed, and none has been woken.
        """
        with self._lock:
            self._busy += 1
            wake = self._busy == self._active < self._limit and not self._woken
            self._woken = self._woken or wake
        try:
            yield wake
        finally:
            with self._lock:
                self._busy -= 1


class Dispatcher:
    """Claims slices for one worker's slots.

    Args:
        sources: the ledgers that it claims from.
        slots: how many slices of each queue may be executed at once.
        kept: how many of a queue's slots execute only slices more urgent than usual, so that a
            person's request does not wait for bulk work of the same key.
        idle_listen_s: how long an idle slot listens before it becomes inactive, seconds.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        slots: Mapping[Queue, int],
        kept: Mapping[Queue, int] | None = None,
        idle_listen_s: float = 0.0,
    ) -> None:
        self._sources: list[Source] = []
        self._subscribers: dict[Queue, _Subscriber] = {}
        self._turns = dict.fromkeys(slots, 0)
        self._lock = threading.Lock()
        self._slots = {queue: Slots(limit) for queue, limit in slots.items()}
        self._kept = dict(kept or {})
        self._idle_listen_s = idle_listen_s
        self._closing = threading.Event()
        for source in sources:
            self.add(source)

    def add(self, source: Source) -> None:
        """Claim from one more ledger from now on."""
        with self._lock:
            self._sources = [*self._sources, source]
            for queue in source.subscribers:
                own = [one.subscribers[queue] for one in self._sources if queue in one.subscribers]
                self._subscribers[queue] = own[0] if len(own) == 1 else WorkSubscribers(own)

    def close(self) -> None:
        """Claim nothing from now on; slices that are executing are finished."""
        self._closing.set()

    def slots(self) -> dict[Queue, tuple[int, int]]:
        """Return how many slots of each queue are executing, and how many there are."""
        return {queue: (slots.busy, slots.limit) for queue, slots in self._slots.items()}

    def release_all(self) -> int:
        """Return all held slices to the queue at once; the attempts are not counted.

        A slot that still executes one of them finds its commit refused.

        Returns:
            The number of slices returned.

        Raises:
            LedgerUnavailable: Redis did not answer; the leases expire.
        """
        held = [(source, lease) for source in self._sources for lease in source.leases.held()]
        for source, lease in held:
            source.ledger.leases.release(lease)
        return len(held)

    def run_queue(self, queue: Queue, *, wake_slot: WakeSlot | None = None) -> int:
        """Execute the slices of a queue, listen for more, and return when none comes.

        Return at once when all slots of the queue are active.

        Args:
            queue: the queue.
            wake_slot: wakes another slot, in a thread of its own. None for a poll, which executes
                what is due and does not listen.

        Returns:
            The number of slices executed.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        total = 0
        slots = self._slots[queue]
        while slots.activate():
            try:
                count = self._run_due(queue, wake_slot)
                if wake_slot is not None and queue in self._subscribers:
                    count += self._listen(queue, self._subscribers[queue], wake_slot)
            finally:
                slots.release()
            total += count
            # Claim once more after work: a wake-up that came while all slots were active is lost.
            if not count:
                break
        if queue is Queue.SCRUB and not self._closing.is_set():
            self._collect()
        return total

    def _collect(self) -> None:
        """Remove the points of discarded entries of every ledger.

        Raises:
            LedgerUnavailable: the only ledger did not answer.
        """
        if len(self._sources) == 1:
            self._sources[0].executor.collect_discarded()
            return
        for source in self._sources:
            try:
                with source.asked() as may_ask:
                    if may_ask:
                        source.executor.collect_discarded()
            except LedgerUnavailable as error:
                _log.debug("entries not collected: %s", error.detail)

    def _run_due(self, queue: Queue, wake_slot: WakeSlot | None) -> int:
        """Claim and execute slices until none is due; return their number."""
        count = 0
        while not self._closing.is_set() and (claimed := self._claim(queue)):
            with self._slots[queue].executing() as wake, self._busy(claimed.source, queue):
                if wake and wake_slot is not None and not self._closing.is_set():
                    wake_slot()
                claimed.source.executor.execute(claimed.leases)
            count += len(claimed.leases)
        return count

    @contextmanager
    def _busy(self, source: Source, queue: Queue) -> Iterator[None]:
        """Count a slot that executes slices of a ledger."""
        with self._lock:
            source.busy[queue] = source.busy.get(queue, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                source.busy[queue] -= 1

    def _listen(self, queue: Queue, subscriber: _Subscriber, wake_slot: WakeSlot) -> int:
        """Execute announced slices until none was announced for a while; return their number."""
        subscriber.open()
        try:
            count = self._run_due(queue, wake_slot)  # slices due before the subscription
            while self._receive(subscriber):
                count += self._run_due(queue, wake_slot)
        finally:
            subscriber.close()
        return count

    def _receive(self, subscriber: _Subscriber) -> bool:
        """Whether new work was announced within the slot's listening time."""
        end = time.monotonic() + self._idle_listen_s
        while (
            not self._closing.is_set()
            and subscriber.is_open
            and (left_s := end - time.monotonic()) > 0
        ):
            if subscriber.receive(min(left_s, _CHECK_S)):
                return True
        return False

    def _claim(self, queue: Queue) -> _Claimed | None:
        """Claim slices of the next ledger that has some due.

        Raises:
            LedgerUnavailable: no ledger answered.
        """
        sources = self._sources
        if len(sources) == 1:
            leases = self._claim_of(sources[0], queue)
            return _Claimed(sources[0], leases) if leases else None
        first = self._turns[queue]
        error: LedgerUnavailable | None = None
        answered = False
        for step in range(len(sources)):
            source = sources[(first + step) % len(sources)]
            try:
                with source.asked() as may_ask:
                    leases = self._claim_of(source, queue) if may_ask else []
            except LedgerUnavailable as exc:
                error = exc
                continue
            answered = answered or may_ask
            if leases:
                self._turns[queue] = (first + step + 1) % len(sources)
                return _Claimed(source, leases)
        if error is not None and not answered:
            raise error
        return None

    def _claim_of(self, source: Source, queue: Queue) -> list[Lease]:
        limit, kept = self._slots[queue].limit, self._kept.get(queue, 0)
        # A ledger counts what it leases. Slots that work for others are not its own to give; two
        # remain, so that heavy slices of a ledger always leave one of them to quick ones.
        elsewhere = sum(one.busy.get(queue, 0) for one in self._sources if one is not source)
        # A bulk slice is a whole engine batch, and is claimed only when a slot is free for it.
        return source.ledger.leases.claim(
            queue,
            owner=source.leases.owner,
            n=_TOGETHER if queue is Queue.INTERACTIVE else 1,
            lease_s=source.leases.lease_s,
            together=Kind.EMBED,
            slots=max(limit - elsewhere, min(limit, 1 if kept else 2)),
            kept=kept,
        )


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Slices of one ledger that a slot executes."""

    source: Source
    leases: list[Lease]
