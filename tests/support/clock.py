"""An event loop with a clock of its own: a busy machine does not stretch its seconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Waiting(selectors.SelectSelector):
    """Waits for nothing that has a time: the clock goes there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; where nothing is, the time has passed."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.now_s += max(0.0, timeout)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """An event loop by that clock."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        super().__init__(self._waiting)

    def time(self) -> float:
        """Return the seconds since the loop was made."""
        return self._waiting.now_s


def run_by_own_clock(work: Coroutine[Any, Any, None]) -> None:
    """Run work whose waits end in their order and take no time; it has no part outside the loop."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(work)
