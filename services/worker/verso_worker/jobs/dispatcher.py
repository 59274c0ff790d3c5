"""Claim slices from the ledger and have them worked on: what a door-bell makes a worker do.

A bell names a queue and no job. Whoever hears it is a hand that is awake: it claims slices from
that queue until there are none, then listens for a while for more, and goes back to sleep. While
all hands that are awake work, another is called, up to as many as the queue may have. A bell too
many claims nothing; a bell too few is made good by the keeper's bells and by
:meth:`Dispatcher.drain`
being called from time to time anyway.

Embeds that wait together are claimed together, to run as one call of the engine. One that comes
alone is shown to an idle hand before it is accepted; see :mod:`verso_worker.jobs.headstart`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from verso_core.jobs import Kind, Queue
from verso_core.result_files import ResultFiles
from verso_ledger import Ahead, Lease, Ledger, WorkSubscriber
from verso_worker.jobs.executor import Executor, IdleTicket
from verso_worker.jobs.leases import LeaseRenewer
from verso_worker.jobs.slots import Slots
from verso_worker.metrics import Metrics
from verso_worker.models.canary import ArtifactCanary
from verso_worker.rules.pipeline import Pipeline

_GC_BATCH = 64
_TOGETHER = 16  # embed slices of one engine call: more would make the first wait for the last
_HEED_S = 0.5  # a hand that listens heeds the worker's end so often


class Dispatcher:
    """One worker's hands.

    Args:
        ledger: the truth about jobs.
        pipeline: the rules.
        heart: renews the leases of what is in hand.
        metrics: what is counted.
        owner: this worker's name.
        hands: how many slices of each queue may be in hand at once.
        lease_s: length of a lease, seconds.
        verify_delay_s: from a commit to its independent verify, seconds.
        raw_text_retention_s: from a passed verify to the drop of the text, seconds.
        results: where results go that are too large for the ledger; None keeps all in the ledger.
        ears: where a hand hears of new work; a queue without one has hands that do not linger.
        idle_listen_s: how long a hand listens before it goes back to sleep, seconds.
        trials: where a canary gets its share of the jobs; None where there is never one.
    """

    def __init__(
        self,
        ledger: Ledger,
        pipeline: Pipeline,
        heart: LeaseRenewer,
        metrics: Metrics,
        *,
        owner: str,
        hands: Mapping[Queue, int],
        lease_s: float,
        verify_delay_s: float,
        raw_text_retention_s: float,
        results: ResultFiles | None = None,
        ears: Mapping[Queue, WorkSubscriber] | None = None,
        idle_listen_s: float = 0.0,
        trials: ArtifactCanary | None = None,
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._heart = heart
        self._owner = owner
        self._hands = {queue: Slots(n) for queue, n in hands.items()}
        self._workshop = Executor(
            ledger,
            pipeline,
            heart,
            metrics,
            verify_delay_s=verify_delay_s,
            raw_text_retention_s=raw_text_retention_s,
            results=results or ResultFiles(None),
            trials=trials,
        )
        self._ears = dict(ears or {})
        self._idle_listen_s = idle_listen_s
        self._lease_s = lease_s
        self._closing = threading.Event()

    def close(self) -> None:
        """Claim nothing from now on; what is in hand is finished."""
        self._closing.set()

    def hands(self) -> dict[Queue, tuple[int, int]]:
        """Return how many hands of each queue are at work, and how many there may be."""
        return {queue: (hands.at_work, hands.most) for queue, hands in self._hands.items()}

    def give_back(self) -> int:
        """Return every slice in hand, uncounted, so that another worker begins it at once.

        Whoever still works on one here finds its commit refused. Returns how many were returned.

        Raises:
            LedgerUnavailable: Redis did not answer; the leases run out by themselves.
        """
        held = self._heart.held()
        for lease in held:
            self._ledger.release(lease)
        return len(held)

    def drain(self, queue: Queue, *, call: Callable[[], None] | None = None) -> int:
        """Work through a queue, listen for more, and leave when none comes; count the slices.

        Leaves at once when enough hands are on the queue.

        Args:
            queue: the queue.
            call: rings for another hand, from a thread of its own.
        """
        done = 0
        hands = self._hands[queue]
        while hands.wake():
            try:
                worked = self._work_off(queue, call)
                # Only who was rung for listens: the look from time to time takes what there is.
                if call is not None and queue in self._ears:
                    worked += self._listen(queue, self._ears[queue], call)
            finally:
                hands.sleep()
            done += worked
            # Looked at again after the last: a bell that found all hands awake went unheard.
            if not worked:
                break
        if queue is Queue.SCRUB and not self._closing.is_set():
            self._collect()
        return done

    def _work_off(
        self, queue: Queue, call: Callable[[], None] | None, ear: WorkSubscriber | None = None
    ) -> int:
        """Claim and work until nothing is due; then, with an ear, stand in line.

        Where several came at once the callers will be back at once as well: a hand in line would
        take the first of them alone, and a batch costs the engine less. So who did a batch claims.
        """
        done, last, stands = 0, 1, False
        while not (stands or self._closing.is_set()) and (
            leases := self._claim(queue, ear if last == 1 else None)
        ):
            work = partial(self._workshop.do, leases, stand=self._stand(ear))
            stands = self._set_to(queue, work, call)
            last = len(leases)
            done += last
        return done

    def _set_to(
        self, queue: Queue, work: Callable[[], bool], call: Callable[[], None] | None
    ) -> bool:
        """Be at work, and call another hand if none is free."""
        with self._hands[queue].busy() as alone:
            if alone and call is not None and not self._closing.is_set():
                call()
            return work()

    def _take_up(
        self,
        queue: Queue,
        given: Sequence[Lease | Ahead],
        call: Callable[[], None],
        *,
        ear: WorkSubscriber,
    ) -> int:
        """Do what was heard of, then what else is due, unless it is known that nothing is."""
        done, known, stand = 0, False, self._stand(ear)
        for one in given:
            if isinstance(one, Ahead):  # its lease is what is heard next, as a rule
                known = self._set_to(queue, partial(self._workshop.begin, one, stand=stand), call)
                continue
            done += 1
            # who has begun it will look at the queue after it
            known = self._workshop.leave(one) or self._set_to(
                queue, partial(self._workshop.do, [one], stand=stand), call
            )
        return done if known else done + self._work_off(queue, call, ear)

    def _stand(self, ear: WorkSubscriber | None) -> IdleTicket | None:
        if ear is None:
            return None
        name = partial(ear.hand, owner=self._owner, lease_s=self._lease_s)
        return IdleTicket(name, self._idle_listen_s + _HEED_S)

    def _listen(self, queue: Queue, ear: WorkSubscriber, call: Callable[[], None]) -> int:
        """Wait for new work, until none came for a while."""
        ear.enter()
        try:
            done = self._work_off(queue, call, ear)  # what came before the ear was on
            while (given := self._hears(queue, ear)) is not None:
                done += self._take_up(queue, given, call, ear=ear)
        finally:
            ear.leave()
        return done

    def _hears(self, queue: Queue, ear: WorkSubscriber) -> list[Lease | Ahead] | None:
        """Wait to be given work or to hear of some; None when none came and the line was left."""
        end = time.monotonic() + self._idle_listen_s
        while not self._closing.is_set() and ear.on and (left_s := end - time.monotonic()) > 0:
            if (given := ear.hear(min(left_s, _HEED_S))) is not None:
                return given
        if self._ledger.leave_line(queue, ear.channel):
            return None
        return ear.hear(_HEED_S)  # on its way; what was lost on it comes back when its lease ends

    def _claim(self, queue: Queue, ear: WorkSubscriber | None) -> list[Lease]:
        stand = self._stand(ear)
        # Bulk slices are a whole engine batch each, and are claimed only when a hand is free.
        return self._ledger.claim(
            queue,
            owner=self._owner,
            n=_TOGETHER if queue is Queue.INTERACTIVE else 1,
            lease_s=self._lease_s,
            together=Kind.EMBED,
            hand=stand.name() if stand else "",
            line_s=stand.line_s if stand else 0.0,
        )

    def _collect(self) -> None:
        """Remove points that no entry names any more."""
        while taken := self._ledger.gc_take(_GC_BATCH):
            for old in taken:
                self._pipeline.collect(old.collection, old.document, old.entry)
            self._ledger.gc_done([old.token for old in taken])
