"""Let workers do what was accepted, in one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from verso_ledger import Ledger

_MOST = 5000


def settle(ledgers: Iterable[Ledger], work: Callable[[], object]) -> None:
    """Call ``work`` until no ledger has a slice that waits or runs.

    Raises:
        AssertionError: that does not end.
    """
    every = list(ledgers)
    for _ in range(_MOST):
        depths = (depth for one in every for depth in one.maintenance.depths().values())
        if not any(depth.queued + depth.delayed + depth.running for depth in depths):
            return
        work()
    raise AssertionError("work does not end")
