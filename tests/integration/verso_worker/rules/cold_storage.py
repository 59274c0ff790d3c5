"""The clock that tests of cold storage move."""

from __future__ import annotations

from tests.integration.verso_worker.rules.log_lines import START

DAY = 86_400.0


class Clock:
    """A clock that a test moves, two days after the first lines."""

    def __init__(self) -> None:
        self.now = START + 2 * DAY

    def __call__(self) -> float:
        return self.now
