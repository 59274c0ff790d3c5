"""A duty done again and again, on a thread of its own, whatever happens to the ledger."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from verso_core.errors import Unavailable

_log = logging.getLogger(__name__)


class Rounds:
    """Calls ``duty`` every ``every_s`` seconds until stopped.

    A part that is unavailable is said once for each outage, and the next round tries again.

    Args:
        name: what the duty is called in logs.
        duty: one round; raises Unavailable when it could not be done.
        every_s: from the end of one round to the next, seconds.
        done: called after every round, also one that failed.
    """

    def __init__(
        self,
        name: str,
        duty: Callable[[], object],
        *,
        every_s: float,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        self._name = name
        self._duty = duty
        self._every_s = every_s
        self._done = done
        self._over = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the first round."""
        self._thread.start()

    def stop(self, *, timeout_s: float) -> None:
        """Start no further round, and wait for the one that runs."""
        self._over.set()
        self._thread.join(timeout_s)

    def once(self) -> None:
        """Do one round."""
        try:
            self._duty()
        except Unavailable as error:
            if not self._failing:
                _log.warning("%s waits: %s", self._name, error.detail, extra={"code": error.code})
            self._failing = True
        else:
            if self._failing:
                _log.info("%s goes on", self._name)
            self._failing = False
        self._done()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.once()
            except Exception:  # noqa: BLE001 - if this duty ended, nobody would take work back
                _log.exception("%s failed", self._name)
            self._over.wait(self._every_s)
