"""The wake-up of an idle worker that listens to several ledgers.

A thread reads each ledger's subscription while at least one slot listens, and passes what it hears
on to one of the slots that wait. A ledger that does not answer is subscribed again once a second;
its work is announced by the keeper meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from verso_core.errors import LedgerUnavailable
from verso_ledger.events.work_signal import WorkSubscriber

_READ_S = 0.5
_AGAIN_S = 1.0
_log = logging.getLogger(__name__)


class WorkSubscribers:
    """Receives announcements of new work in one queue of several ledgers; as a WorkSubscriber."""

    def __init__(self, subscribers: Sequence[WorkSubscriber]) -> None:
        self._subscribers = subscribers
        self._changed = threading.Condition()
        self._listeners = 0
        self._opened = 0
        self._heard = 0

    def open(self) -> None:
        """Listen from now on.

        The subscriptions begin in threads of their own: what is accepted before one stands is
        announced through the broker.
        """
        with self._changed:
            self._listeners += 1
            if self._listeners > 1:
                return
            self._opened += 1
            self._heard = 0
            for one in self._subscribers:
                threading.Thread(
                    target=self._read, args=(one, self._opened), name="work signal", daemon=True
                ).start()

    def close(self) -> None:
        """Stop listening; the last listener ends the subscriptions."""
        with self._changed:
            self._listeners -= 1
            self._changed.notify_all()

    @property
    def is_open(self) -> bool:
        """Whether a slot listens."""
        return self._listeners > 0

    def receive(self, timeout_s: float) -> bool:
        """Whether new work was announced by a ledger in time."""
        with self._changed:
            heard = self._changed.wait_for(lambda: self._heard > 0, timeout_s)
            if heard:
                self._heard -= 1
            return heard

    def _listens(self, opened: int) -> bool:
        return self._listeners > 0 and self._opened == opened

    def _read(self, subscriber: WorkSubscriber, opened: int) -> None:
        while self._listens(opened):
            try:
                self._listen(subscriber, opened)
            except LedgerUnavailable:
                time.sleep(_AGAIN_S)
            except Exception as error:  # noqa: BLE001 - without this thread no slot would hear
                if self._listens(opened):
                    _log.warning("subscription lost: %s", type(error).__name__)
                time.sleep(_AGAIN_S)

    def _listen(self, subscriber: WorkSubscriber, opened: int) -> None:
        """Pass on what a subscription hears until it is lost or no slot listens.

        Raises:
            LedgerUnavailable: the ledger did not take the subscription.
        """
        subscriber.open()
        self._note()  # what was accepted just before
        try:
            while self._listens(opened) and subscriber.is_open:
                if subscriber.receive(_READ_S):
                    self._note()
        finally:
            subscriber.close()

    def _note(self) -> None:
        with self._changed:
            self._heard = min(self._heard + 1, self._listeners)  # a slot claims all that is due
            self._changed.notify()
