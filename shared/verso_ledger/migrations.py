"""Migrations as the ledger keeps them: where each stands, and the names they change.

The **own name** of a collection is that of its vectors and entries, and usually also the name users
know. A migration to another space makes a second collection, hidden under an own name of its own,
fills it, and at the end maps the users' name to it: an **alias**. Requests that resolved the name
before the switch still read the old collection, which stays until it is removed.

A write during the last pass could be lost, so the source is then **sealed**: a commit into it is
refused and the work is done again; after the switch it goes to the new collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from verso_core.errors import CollectionBusy, LedgerBehind
from verso_core.jobs import Collection
from verso_core.jobs.migrate import Migration
from verso_core.record import bucket_of
from verso_ledger.codec import collection_rows, scalars
from verso_ledger.collections.locations import Locations
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import Commit, DocumentDelete, DocumentWrite
from verso_ledger.scripts import Scripts


class Migrations:
    """Moves of collections to another artifact."""

    def __init__(self, scripts: Scripts, locations: Locations) -> None:
        self._run = scripts.run
        self._redis = scripts.client
        self._locations = locations

    def all(self) -> dict[str, Migration]:
        """Return every migration that is remembered, by collection."""
        with translated():
            rows = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("migrations")))
        return {
            scalars.text(name): Migration.model_validate_json(row) for name, row in rows.items()
        }

    def get(self, collection: str) -> Migration | None:
        """Return a collection's newest migration."""
        return self.all().get(collection)

    def begin(
        self,
        state: Migration,
        *,
        seen: Migration | None,
        source: Collection,
        target: Collection | None,
        room: str = "",
    ) -> bool:
        """Start a migration, if nothing that it was decided by has changed since.

        Args:
            state: where it starts.
            seen: the newest migration as the caller read it.
            source: the collection as the caller read it: its settings are those of the target.
            target: what it will fill; None to code again in place.
            room: the token of the room made for the target's vectors.

        Returns:
            False if another call started one, or the source is not what it was.

        Raises:
            CollectionBusy: the collection is being moved to another ledger.
        """
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(key("uids"), state.source)
            pipe.hget(key("collections"), state.source)
            uid, row = pipe.execute()
        if row is None or collection_rows.load(row) != source:
            return False
        args: list[scalars.Arg] = [
            state.collection, state.source, uid or b"", target.name if target else "",
            collection_rows.dump(target) if target else "", _json(seen), _json(state), room, row,
        ]  # fmt: skip
        reply = self._run("migration_begin", args)
        if reply == b"busy":
            raise CollectionBusy("the collection is being moved to another ledger")
        return bool(reply)

    def move(self, seen: Migration, state: Migration | None, *, also: str = "none") -> bool:
        """Move a migration on from ``seen``, or forget it; return whether this call did it.

        Args:
            seen: where the caller saw it.
            state: where it is then.
            also: what is done in the same step: ``seal`` or ``open`` the source, or ``switch`` the
                collection's name to the target.
        """
        args = [seen.collection, _json(seen), _json(state), also, seen.source, seen.target]
        return bool(self._run("migration_move", args))

    def graft(
        self,
        state: Migration,
        document: str,
        *,
        seq: int | None,
        entry: bytes | None,
        text: bytes | None,
    ) -> bool:
        """Bring a document of the target to where its source is.

        Args:
            state: the migration.
            document: its id.
            seq: the sequence number that the source must still have; None: no such document.
            entry: what the target is to hold; None: nothing.
            text: kept beside it, where the collection keeps texts.

        Returns:
            False where the source has another number by now: the next pass will see it.
        """
        write: DocumentWrite | DocumentDelete = DocumentDelete(state.target, document)
        if entry is not None:
            write = DocumentWrite(state.target, document, entry, text)

        def arguments() -> list[scalars.Arg]:
            uid, buckets = self._locations.find(state.source)
            bucket = bucket_of(document, buckets=buckets)
            still = "" if seq is None else seq
            writes = self._locations.write_args([write])
            return [state.source, uid, bucket, document, still, *writes]

        return self._locations.run("graft", arguments) is Commit.DONE

    def drop(self, seen: Migration, name: str) -> bool:
        """Remove one side of a migration by its own name; its keys go later.

        Returns:
            False, with nothing removed, if the migration does not stand as seen any more.

        Raises:
            CollectionBusy: a backup is copying its points.
            LedgerBehind: the ledger is older than what it has acknowledged.
        """
        args: list[scalars.Arg] = [name, seen.buckets, seen.collection, _json(seen)]
        reply = self._run("migration_drop", args)
        if reply == b"frozen":
            raise CollectionBusy("a backup is being taken; nothing can be removed meanwhile")
        if reply == b"read_only":
            raise LedgerBehind
        return bool(reply == b"done")


def _json(state: Migration | None) -> str:
    return "" if state is None else state.model_dump_json()
