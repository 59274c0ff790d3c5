"""Which ledger a new collection or partition is made on: one rule for gateways and keepers."""

from __future__ import annotations

from collections.abc import Mapping

LIKE = 0.95
"""Ledgers with so large a part of the most free memory count as equal: the one with the fewest
collections is chosen, so that many new ones do not all go to one."""
ENOUGH = 0.5
"""The same for partitions of one collection, which are on as many ledgers as there are."""


def roomiest(
    free: Mapping[str, int],
    *,
    holds: Mapping[str, int],
    beside: Mapping[str, int],
    like: float = LIKE,
) -> str:
    """Return a ledger with nearly the most free memory and the fewest collections.

    Args:
        free: memory by ledger, bytes; of one at least.
        holds: collections by ledger.
        beside: partitions of the same collection by ledger, which should lie apart.
        like: ledgers with so large a part of the most free memory count as equal.
    """
    most = max(free.values())
    alike = [name for name, left in free.items() if left >= most * like]
    return min(alike, key=lambda name: (beside.get(name, 0), holds[name]))
