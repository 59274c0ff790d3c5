"""Counts again what each collection holds, in parts: once for each pass of the scrub.

The ledger's counts follow every write by themselves. What they cannot follow is rot in the store,
and workers of an older version beside newer ones; and a ledger that an older version filled has
none. So once a pass of the scrub has ended, and what it could mend is mended, all entries are
counted again and the counts compared. A part takes the ledger a few milliseconds; a round goes on
for no longer than a small part of its second, so that callers notice nothing.
"""

from __future__ import annotations

import logging
import time

from verso_core.errors import CollectionUnknown
from verso_ledger import Counting, Ledger

SPEND_S = 0.1
"""How long one round counts, about."""
_log = logging.getLogger(__name__)


class Recounter:
    """Brings counts forward, one collection after the other.

    Args:
        ledger: holds entries and counts.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._counted: dict[str, int] = {}

    def step(self) -> None:
        """Run one round.

        Raises:
            LedgerUnavailable: Redis did not answer.
        """
        scrub = self._ledger.scrub.state()
        ended = scrub.number - scrub.running
        until = time.monotonic() + SPEND_S
        names = {collection.name for collection in self._ledger.documents.collections().values()}
        self._counted = {name: n for name, n in self._counted.items() if name in names}
        for name in sorted(names):
            while self._counted.get(name) != ended:
                if time.monotonic() >= until:
                    return
                self._count(name, ended)

    def _count(self, name: str, ended: int) -> None:
        try:
            counting = self._ledger.documents.count(name, scrubbed=ended)
        except CollectionUnknown:
            counting = Counting.MOVED
        if counting is Counting.MENDED:
            _log.warning("collection counts corrected", extra={"collection": name})
        if counting is not Counting.MORE:
            self._counted[name] = ended
