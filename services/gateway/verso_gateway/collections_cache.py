"""The collections, read from the ledger at most once a second."""

from __future__ import annotations

import time

from verso_core.errors import CollectionUnknown, NotReady
from verso_core.jobs import Collection
from verso_ledger import AsyncLedger

_FRESH_S = 1.0
_DEFAULT = "default"


class CollectionsCache:
    """Collections by name. A name that is not found is read from the ledger at once."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger
        self._collections: dict[str, Collection] = {}
        self._read_at = -_FRESH_S

    async def get(self, name: str) -> Collection:
        """Return a collection.

        Raises:
            CollectionUnknown: there is none of this name.
            NotReady: no worker has made the default collection yet.
        """
        if name not in self._collections or time.monotonic() - self._read_at >= _FRESH_S:
            await self.list()
        if name in self._collections:
            return self._collections[name]
        if name == _DEFAULT:
            raise NotReady("the first worker has not started yet: it makes the default collection")
        raise CollectionUnknown(f"no collection {name!a}")

    def forget(self, name: str) -> None:
        """Read a collection again from the ledger the next time it is requested."""
        self._collections = {n: c for n, c in self._collections.items() if n != name}

    async def list(self) -> list[Collection]:
        """Return all collections, by name."""
        self._collections = await self._ledger.collections()
        self._read_at = time.monotonic()
        return [self._collections[name] for name in sorted(self._collections)]
