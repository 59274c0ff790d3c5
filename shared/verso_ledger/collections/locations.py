"""Where collections are: the uid that the keys of each have, and how many buckets it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verso_core.errors import CollectionUnknown
from verso_ledger.codec import collection_rows, scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import Commit, DocumentDelete, DocumentWrite
from verso_ledger.scripts import Scripts

MOVED_TRIES = 5

Write = DocumentWrite | DocumentDelete
Location = tuple[str, int]
"""Uid of a collection and how many buckets it has."""


class Locations:
    """Locations of collections, cached until a step replies that a collection has moved."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._redis = scripts.client
        self._known: dict[str, Location] = {}

    def find(self, name: str, *, fresh: bool = False) -> Location:
        """Return a collection's location; the scripts check the uid again when they write.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        if not fresh and name in self._known:
            return self._known[name]
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(key("uids"), name)
            pipe.hget(key("collections"), name)
            uid, row = pipe.execute()
        if uid is None or row is None:
            self._known.pop(name, None)
            raise CollectionUnknown(f"no collection is named {name[:64]!r}")
        location = (scalars.text(uid), collection_rows.load(row).buckets)
        self._known[name] = location
        return location

    def find_or_gone(self, name: str) -> Location:
        """Return a collection's location, with the uid '' if it is gone: writes skip it."""
        try:
            return self.find(name)
        except CollectionUnknown:
            return "", 1

    def write_args(self, documents: Sequence[Write]) -> list[scalars.Arg]:
        """Return the arguments of writes for ``read_writes`` in ``entries.lua``."""
        args: list[scalars.Arg] = []
        for document in documents:
            uid, buckets = self.find_or_gone(document.collection)
            args += collection_rows.write_args(document, uid=uid, buckets=buckets)
        return args

    def run(self, step: str, arguments: Callable[[], list[scalars.Arg]]) -> Commit:
        """Run a step that names collections; repeat it with new locations if one has moved."""
        for _ in range(MOVED_TRIES):
            reply = scalars.text(self._scripts.run(step, arguments()))
            if reply != "moved":
                return Commit(reply)
            self._known.clear()
        return Commit.STALE
