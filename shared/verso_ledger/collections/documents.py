"""Collections and documents, as workers read and write them.

A hash beside the entries counts what a collection holds. The step that changes an entry changes the
counts too, so they cost nothing to read and are exact for all that the ledger wrote, through
crashes, restarts and restored copies. An entry that is damaged in the store still counts as it did
when it was written, until everything is counted again (``count.lua``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast
from uuid import UUID

from verso_core.errors import CollectionBusy, CollectionUnknown, LedgerBehind, PatchCorrupt
from verso_core.jobs import Collection
from verso_core.jobs.fitting import artifact_of
from verso_core.jobs.statistics import Holdings, LedgerMemory
from verso_core.record import Entry, Flag, bucket_of, document_hash
from verso_ledger.codec import collection_rows, scalars
from verso_ledger.collections.locations import MOVED_TRIES, Location, Locations
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import Commit, Counting, DocumentWrite
from verso_ledger.names import HOME
from verso_ledger.scripts import Scripts

ORPHANS_MAX = 100_000
"""Most points that are recorded as orphans; others are recorded once these are removed."""

_PAGE = 128
_DAY_S = 86_400
_MEASURED_BUCKETS = 512
_MEASURED_DOCUMENTS = 512


class Documents:
    """Collections and the entries of their documents."""

    def __init__(self, scripts: Scripts, locations: Locations, *, ledger: str = HOME) -> None:
        self._run = scripts.run
        self._redis = scripts.client
        self._locations = locations
        self._ledger = ledger
        self._reader = collection_rows.Reader()

    def collections(self) -> dict[str, Collection]:
        """Return all collections by the name that users know, in order.

        Each carries its own name, under which its vectors and entries are stored; after a
        migration that is another name.
        """
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(key("collections"))
            pipe.hgetall(key("aliases"))
            pipe.smembers(key("hidden"))
            rows, aliases, hidden = pipe.execute()
        return self._reader.collections(rows, aliases=aliases, hidden=hidden)

    def named(self, name: str) -> Collection | None:
        """Return the collection that users know by a name, as :meth:`collections` has it."""
        asked, own = "", name
        while own != asked:
            asked = own
            with translated(), self._redis.pipeline(transaction=True) as pipe:
                pipe.hget(key("collections"), asked)
                pipe.hget(key("aliases"), name)
                pipe.sismember(key("hidden"), name)
                row, alias, hidden = pipe.execute()
            own = name if alias is None else scalars.text(alias)
        shown = row is not None and (alias is not None or not hidden)
        return collection_rows.load(row) if shown else None

    def here(self) -> dict[str, Collection]:
        """Return the collections that have not moved to another ledger, as :meth:`collections`."""
        found = self.collections()
        with translated():
            shut = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("shut")))
        gone = {scalars.text(field) for field, state in shut.items() if scalars.has_moved(state)}
        return {name: one for name, one in found.items() if f"n:{name}" not in gone}

    def collection(self, name: str) -> Collection:
        """Return one collection by its own name.

        Raises:
            CollectionUnknown: there is none of this name.
        """
        return collection_rows.load(self._collection_json(name))

    def collection_put(
        self, collection: Collection, *, prepare: Callable[[Collection], None] | None = None
    ) -> Collection:
        """Create a collection; return what is stored.

        If a collection of this name was deleted lately, or its creation was started, the new one
        gets an unused own name: a worker may be about to drop the vectors of the old one.

        Args:
            collection: by the name that users know.
            prepare: makes room for the vectors of the collection, given by its own name, before
                the collection can be found. Without a collection in the end the room is garbage.

        Raises:
            CollectionExists: one of this name has another precision or text policy.
            CollectionBusy: other callers create and delete collections of this name meanwhile.
        """
        for _ in range(MOVED_TRIES):
            with translated():
                razed = cast("bytes | None", self._redis.get(key("razed", collection.name))) or b""
            own = collection_rows.own_name(collection.name, razed, ledger=self._ledger)
            made = collection.model_copy(update={"name": own})
            room = ""
            if prepare is not None:
                room = self.collection_room(own, name=collection.name, razed=razed)
                if room == "moved":
                    continue
                prepare(made)
            stored = self._run(
                "collection_put", [own, collection_rows.dump(made), collection.name, room]
            )
            if stored != b"moved":
                return collection_rows.stored_collection(stored, collection)
        raise CollectionBusy(f"{collection.name!r} is created and deleted by others; try again")

    def collection_room(self, own: str, *, name: str = "", razed: bytes = b"") -> str:
        """Announce that room is about to be made for a collection's vectors; return its token.

        Unless the token comes with the collection in time, the room is garbage.

        Args:
            own: own name of the collection.
            name: what users will call it; none for a name drawn at random.
            razed: what the caller knows of that name; the token is ``moved`` if that is outdated.

        Raises:
            LedgerBehind: the ledger is older than what it has acknowledged.
        """
        room = scalars.text(self._run("collection_room", [own, name, razed]))
        if room == "read_only":
            raise LedgerBehind
        return room

    def collection_artifact(self, name: str, codec_id: str) -> int:
        """Return the slot by which this collection's records name a codec, adding it if it is new.

        Raises:
            CollectionBusy: all slots are in use; or the codec is of a generation that is gone; or
                it is being moved to another ledger.
            CollectionUnknown: there is no collection of this name.
        """
        while True:
            stored = self._collection_json(name)
            old = collection_rows.load(stored)
            if codec_id in old.artifacts:
                return old.artifacts.index(codec_id)
            if codec_id != artifact_of(codec_id):
                raise CollectionBusy(f"the fitted tables {codec_id} were just deleted")
            slots = old.with_slot(codec_id)
            if slots is None:
                raise CollectionBusy(f"all artifact slots of {name!r} are in use")
            self._swapped(name, stored, old.model_copy(update={"artifacts": slots}))

    def collection_change(
        self, name: str, change: Callable[[Collection], Collection]
    ) -> Collection:
        """Change a collection's settings, by its own name; return it as it is then.

        Args:
            name: own name.
            change: returns the changed collection; called again where others change it meanwhile.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        while True:
            stored = self._collection_json(name)
            changed = change(collection_rows.load(stored))
            if self._swapped(name, stored, changed):
                return changed

    def collection_delete(self, name: str, *, by: int = 0) -> list[str]:
        """Make a collection and all its documents invisible at once; their keys go later.

        The same happens to what a migration of it made or left. All their vectors are garbage from
        then on (:meth:`Maintenance.gc_take`); a caller may drop them at once.

        Args:
            name: own name.
            by: sequence number of the slice that requests it; 0 for none.

        Returns:
            The own names whose vectors may go.

        Raises:
            CollectionUnknown: there is none of this name, or it is younger than the slice.
            CollectionBusy: a backup is copying its points.
            LedgerBehind: the ledger is older than what it has acknowledged.
        """
        uid, buckets = self._locations.find(name, fresh=True)
        reply = self._run("collection_delete", [name, uid, buckets, by])
        if reply == b"busy":
            raise CollectionBusy("the collection is being moved to another ledger")
        if reply == b"frozen":
            raise CollectionBusy("a backup is being taken; no collection can be deleted meanwhile")
        if reply == b"read_only":
            raise LedgerBehind
        if reply == b"younger":
            raise CollectionUnknown("the collection that this was asked of is gone")
        return [scalars.text(own) for own in reply]

    def collection_deleted(self, name: str, *, by: int) -> bool:
        """Whether the last collection that users knew by a name was deleted by this slice."""
        with translated():
            razed = cast("bytes | None", self._redis.get(key("razed", name)))
        return razed is not None and int(razed.split()[1]) == by

    def entry(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Return the live entries of documents; one that does not exist is left out.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, buckets = location = self._locations.find(collection, fresh=True)
        found: dict[str, bytes] = {}
        with translated():
            for start in range(0, len(documents), _PAGE):
                part = documents[start : start + _PAGE]
                with self._redis.pipeline(transaction=False) as pipe:
                    for document in part:
                        pipe.hget(key("docs", uid, bucket_of(document, buckets=buckets)), document)
                    rows = zip(part, pipe.execute(), strict=True)
                found.update(self._whole(location, {d: row for d, row in rows if row is not None}))
        return found

    def entries(
        self, collection: str, *, first: int = 0, count: int | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the live entries of ``count`` buckets (all) from ``first``, in no order.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, buckets = location = self._locations.find(collection, fresh=True)
        last = buckets if count is None else min(buckets, first + count)
        for start in range(first, last, _PAGE):
            with translated():
                heads = self._heads(uid, range(start, min(start + _PAGE, last)))
                whole = self._whole(location, heads)
            yield from whole.items()

    def names(self, collection: str, hashes: Iterable[int]) -> dict[int, str]:
        """Return the documents whose ids have these hashes (``document_hash``), by hash.

        Their buckets are read for it, names alone; a hash of no document is left out.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        wanted = set(hashes)
        uid, buckets = self._locations.find(collection, fresh=True)
        needed = sorted({one % buckets for one in wanted})
        found: dict[int, str] = {}
        for start in range(0, len(needed), _PAGE):
            with translated(), self._redis.pipeline(transaction=False) as pipe:
                for bucket in needed[start : start + _PAGE]:
                    pipe.hkeys(key("docs", uid, bucket))
                pages = pipe.execute()
            named = (scalars.text(name) for page in pages for name in page)
            found |= {digest: one for one in named if (digest := document_hash(one)) in wanted}
        return found

    def holdings(self, collection: str) -> Holdings:
        """Return what a collection holds, counting it first if it was never counted.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        while True:
            uid, _ = self._locations.find(collection, fresh=True)
            with translated():
                row = cast("dict[bytes, bytes]", self._redis.hgetall(key("counts", uid)))
            found = collection_rows.holdings(row)
            if found is not None:
                return found
            self.count(collection)

    def memory(self, collection: str) -> LedgerMemory:
        """Return what the server holds in memory for a collection (``MEMORY USAGE``).

        Measured on some of its buckets, and on the other keys of some of its documents: a hash
        spreads documents over buckets, so that the first buckets are a fair sample.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, buckets = self._locations.find(collection, fresh=True)
        measured = min(buckets, _MEASURED_BUCKETS)
        entries = self._usage([key("docs", uid, bucket) for bucket in range(measured)])
        heads: dict[str, bytes] = {}
        read = 0
        while read < measured and len(heads) < _MEASURED_DOCUMENTS:
            heads |= self._heads(uid, range(read, min(read + _PAGE // 8, measured)))
            read = min(read + _PAGE // 8, measured)
        long = [document for document, head in heads.items() if head[:1] and head[0] & Flag.LONG]
        own = self._usage([key("long", uid, document) for document in long])
        texts = self._usage([key("text", uid, document) for document in heads])
        return LedgerMemory(
            entries=round(buckets * (entries / measured + own / read)),
            texts=round(buckets * texts / read),
        )

    def _heads(self, uid: str, part: range) -> dict[str, bytes]:
        """Return what some buckets hold, by document; of a long entry its head."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            for bucket in part:
                pipe.hgetall(key("docs", uid, bucket))
            return {scalars.text(d): row for page in pipe.execute() for d, row in page.items()}

    def _usage(self, names: Sequence[str]) -> int:
        """Return what keys take in the server's memory, bytes; 0 for a key that is gone."""
        used = 0
        for start in range(0, len(names), _PAGE):
            with translated(), self._redis.pipeline(transaction=False) as pipe:
                for name in names[start : start + _PAGE]:
                    pipe.memory_usage(name)
                used += sum(size or 0 for size in pipe.execute())
        return used

    def count(self, collection: str, *, scrubbed: int | None = None) -> Counting:
        """Count a part of what a collection holds, if anything is left: takes some milliseconds.

        Args:
            collection: own name.
            scrubbed: number of the scrub's newest pass that has ended, after each of which
                everything is counted again; None counts only what was never counted.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, buckets = self._locations.find(collection, fresh=True)
        number = "" if scrubbed is None else scrubbed
        return Counting(scalars.text(self._run("count", [collection, uid, buckets, number])))

    def texts(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Return the texts that a collection with policy ``both`` keeps; a missing one is left out.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, _ = self._locations.find(collection, fresh=True)
        if not documents:
            return {}
        with translated():
            rows = self._redis.mget([key("text", uid, document) for document in documents])
        pairs = zip(documents, cast("list[bytes | None]", rows), strict=True)
        return {document: row for document, row in pairs if row is not None}

    def repair(
        self, collection: str, document: str, *, old: bytes, entry: bytes, text: bytes | None
    ) -> bool:
        """Replace ``old`` by an entry of the same text; return whether ``old`` was still stored.

        The new entry keeps the old one's sequence number.
        """
        write = DocumentWrite(collection, document, entry, text)
        reply = self._locations.run("repair", lambda: [old, *self._locations.write_args([write])])
        return reply is Commit.DONE

    def uid(self, collection: str) -> str:
        """Return what the keys of a collection are named by.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        return self._locations.find(collection, fresh=True)[0]

    def written_before(self, age_s: float) -> int:
        """Return a sequence number: the documents up to it were written so long ago, or longer.

        The first pass of the scrub on a day says which number it found: documents that were written
        since are as young as that day's end.
        """
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.get(key("seq"))
            pipe.hgetall(key("ages"))
            pipe.time()
            newest, ages, clock = pipe.execute()
        if age_s <= 0:
            return int(newest or 0)
        last = (scalars.server_seconds(clock) - age_s) // _DAY_S
        noted = {int(day): int(seq) for day, seq in ages.items() if day.isdigit() and seq.isdigit()}
        return max((seq for day, seq in noted.items() if day < last), default=0)

    def to_cold(
        self,
        collection: str,
        uid: str,
        rows: Sequence[tuple[str, bytes, bytes]],
        *,
        until: float,
    ) -> bool:
        """Replace entries by what is left of them once they are in cold storage, in one step.

        Args:
            collection: own name.
            uid: of the collection whose objects hold the entries.
            rows: for each a document, its entry as it was read, and what is left of it; another one
                that is stored by now stays, as all do while the collection moves.
            until: the server's time after which nothing is replaced, Unix seconds.

        Returns:
            False if the collection is gone, the ledger read-only, or the time over.
        """
        _, buckets = self._locations.find(collection)
        args: list[scalars.Arg] = [round(until * 1000), len(rows), *(old for _, old, _ in rows)]
        for document, _, new in rows:
            write = DocumentWrite(collection, document, new, None)
            args += collection_rows.write_args(write, uid=uid, buckets=buckets)
        return scalars.text(self._run("to_cold", args)) == "done"

    def orphans(self, collection: str, points: Sequence[UUID], *, age_s: float) -> list[UUID]:
        """Record points that no entry names; return those of them that may be removed.

        Args:
            collection: own name.
            points: the points.
            age_s: least age of an earlier pass of the scrub that found no entry either.
        """
        named = [point.hex for point in points]
        args: list[scalars.Arg] = [collection, round(age_s * 1000), ORPHANS_MAX, *named]
        return [UUID(hex=scalars.text(point)) for point in self._run("orphans", args)]

    def orphans_forget(self, collection: str, points: Sequence[UUID]) -> None:
        """Remove points from the recorded orphans: an entry names them, or they are gone."""
        with translated():
            if not points or not self._redis.zcard(key("orphans")):
                return
            uid, _ = self._locations.find(collection, fresh=True)
            self._redis.zrem(key("orphans"), *(f"{uid}:{point.hex}" for point in points))

    def _swapped(self, name: str, stored: bytes, new: Collection) -> bool:
        """Replace a collection's settings if they are as stored; return whether they were.

        Raises:
            CollectionBusy: it is being moved to another ledger.
        """
        reply = self._run("collection_swap", [name, stored, collection_rows.dump(new)])
        if reply == b"busy":
            raise CollectionBusy("the collection is being moved to another ledger")
        return bool(reply)

    def _collection_json(self, name: str) -> bytes:
        with translated():
            row = self._redis.hget(key("collections"), name)
        if row is None:
            raise CollectionUnknown(f"no collection is named {name[:64]!r}")
        return cast("bytes", row)

    def _whole(self, location: Location, heads: dict[str, bytes]) -> dict[str, bytes]:
        """Replace the heads of long entries by the entries.

        The entry of a damaged head gets the LONG flag, which no whole entry has, so that it counts
        as damaged as well.
        """
        uid, buckets = location
        long = [document for document, head in heads.items() if head[:1] and head[0] & Flag.LONG]
        if not long:
            return heads
        rows = self._redis.mget([key("long", uid, document) for document in long])
        for document, row in zip(long, cast("list[bytes | None]", rows), strict=True):
            if row is None:  # replaced or deleted between the two reads: read both in one step
                row = self._run("entry", [uid, bucket_of(document, buckets=buckets), document])
            if row is None:
                del heads[document]
            else:
                mark = Flag.LONG if _damaged(heads[document]) else Flag.NONE
                heads[document] = bytes([row[0] | mark]) + row[1:] if row else row
        return heads


def _damaged(head: bytes) -> bool:
    try:
        return Entry.unpack(head).damaged
    except PatchCorrupt:
        return True
