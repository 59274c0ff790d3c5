"""Cold storage of documents: their entries in an object store, what names their points in memory.

1. The scrub reads each document. The entries of those that are whole and were written long enough
   ago are collected while it runs, and written to one object (:mod:`..storage`), each with a CRC of
   its own. Then each is replaced in the ledger by what is left of it, if it is still what was read:
   sequence number, size, hash of the metadata, the records' vectors and codecs, and where it is.
2. So a search without texts, a list, a filter, a delete and a replacement ask the ledger alone. Who
   needs texts reads the parts of a slice's documents, each object once.
3. An object goes when no entry names it. One of which less than half is named any more is written
   again: its entries are moved to another one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from verso_core.errors import PatchCorrupt, RecordCorrupt, Unavailable
from verso_core.jobs import Collection
from verso_core.record import OBJECT_BYTES, Entry, Flag, Part
from verso_worker.rules.cold.storage import ENTRIES, NAMED_S, ColdStorage, Written
from verso_worker.rules.ports.stores import Documents, Logs

LEAST_BYTES = 4096
"""Fewer bytes of entries stay in the ledger until there are more: each read asks for an object."""
MOST_BYTES = 1 << 20
"""An object is written when the entries that are collected have so many bytes."""
SAVED_BYTES = 8
"""An entry is moved if that saves so many bytes of the ledger."""
_AT_ONCE = 64
"""Entries that one step of the ledger replaces."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ColdEntries:
    """Entries of documents in cold storage.

    Attributes:
        storage: the object store.
        documents: the ledger's documents.
        logs: the ledger's lines; they say which collections there are, and what may be removed.
    """

    storage: ColdStorage
    documents: Documents
    logs: Logs
    _sparse: set[str] = field(default_factory=set)

    def whole(self, collection: str, entries: Sequence[Entry]) -> list[Entry | RecordCorrupt]:
        """Return entries with their records, in order, each of them or the error of its object.

        Args:
            collection: own name.
            entries: as the ledger has them; those that are not in cold storage are whole.

        Raises:
            CollectionUnknown: the collection is gone.
            ObjectsUnavailable: the object store did not answer.
        """
        places = {entry.cold: b"" for entry in entries if entry.cold is not None}
        if not places:
            return list(entries)
        uid = self.documents.uid(collection)
        asked = [(_name(uid, one.object), one.offset, one.size_bytes) for one in places]
        parts = dict(zip(places, self.storage.objects.parts(asked), strict=True))
        distinct = {id(one): one for one in entries}  # of a document's chunks each asks for it
        read = {
            name: one if one.cold is None else _back(one, parts[one.cold])
            for name, one in distinct.items()
        }
        return [read[id(one)] for one in entries]

    def moving(self, collection: Collection) -> Moving:
        """Return what moves entries of a collection."""
        after_s = self.storage.after_s
        last = -1 if after_s is None else self.documents.written_before(after_s)
        return Moving(self, collection.name, self.documents.uid(collection.name), last)

    def is_sparse(self, uid: str, place: Part) -> bool:
        """Whether less than half of an object was named when its collection was last swept."""
        return _name(uid, place.object) in self._sparse

    def sweep(self, collection: Collection) -> None:
        """Remove objects that no entry names any more, of this collection and of deleted ones.

        Raises:
            CollectionUnknown: the collection is gone.
            ObjectsUnavailable: the object store did not answer.
        """
        self.storage.sweep_deleted(self.logs)
        uid = self.documents.uid(collection.name)
        prefix = f"{uid}{ENTRIES}/"
        there = dict(self.storage.objects.list(prefix))
        if not there:
            return
        named: Counter[str] = Counter()
        for _, data in self.documents.entries(collection.name):
            try:
                place = Entry.unpack(data).cold
            except PatchCorrupt:
                return  # it may name an object
            if place is not None:
                named[_name(uid, place.object)] += place.size_bytes
        self._sparse.difference_update({one for one in self._sparse if one.startswith(prefix)})
        self._sparse.update(one for one in named if 2 * named[one] < there.get(one, 0))
        self.storage.remove(self.logs, prefix, there.keys() - named.keys())


@dataclass(slots=True)
class Moving:
    """Entries of a collection that are moved to objects.

    Attributes:
        cold: where to.
        collection: own name.
        uid: of the collection.
        last: the greatest sequence number of documents that are old enough.
    """

    cold: ColdEntries
    collection: str
    uid: str
    last: int
    _rows: list[tuple[str, bytes, Entry]] = field(default_factory=list)
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _away: bool = False

    def offer(self, document: str, stored: bytes, entry: Entry) -> None:
        """Move a document that has just read back, if it is due, with others.

        Args:
            document: its id.
            stored: its entry as the ledger has it.
            entry: the whole entry.
        """
        if not self._is_due(stored, entry):
            return
        self._rows.append((document, stored, entry))
        self._parts.append(entry.part())
        self._size += len(self._parts[-1])
        if self._size >= MOST_BYTES:
            self.end()

    def end(self) -> None:
        """Move what was collected; what cannot be moved stays in the ledger."""
        rows, parts, size = self._rows, self._parts, self._size
        self._rows, self._parts, self._size = [], [], 0
        if size < LEAST_BYTES:
            return
        until = self.cold.logs.now() + NAMED_S
        try:
            made = self.cold.storage.write(
                f"{self.uid}{ENTRIES}/", b"".join(parts), name_bytes=OBJECT_BYTES
            )
        except Unavailable as error:
            self._away = True
            _log.warning("documents are not moved to cold storage: %s", error.detail)
            return
        left, at = [], 0
        for (document, stored, entry), part in zip(rows, parts, strict=True):
            one = entry.moved(Part(made.name, at, len(part)))
            at += len(part)
            if Entry.unpack(one.pack()).back(part) == entry:
                left.append((document, stored, one.pack()))
        self._replace(made, left, until)

    def _replace(
        self, made: Written, rows: Sequence[tuple[str, bytes, bytes]], until: float
    ) -> None:
        to_cold = self.cold.documents.to_cold
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            if not made.is_fresh or not to_cold(self.collection, self.uid, part, until=until):
                return

    def _is_due(self, stored: bytes, entry: Entry) -> bool:
        if self._away or entry.seq > self.last or entry.damaged or entry.cold is not None:
            return False
        if entry.about is None or entry.flags != Flag.VERIFIED:  # of an old format, or on its way
            return False
        place = Entry.unpack(stored).cold
        if place is not None:
            return self.cold.is_sparse(self.uid, place)
        left = entry.moved(Part(bytes(OBJECT_BYTES), MOST_BYTES, len(stored)))
        return len(left.pack()) + SAVED_BYTES <= len(stored)


def _back(entry: Entry, part: bytes | None) -> Entry | RecordCorrupt:
    try:
        return entry.back(part)
    except PatchCorrupt as exc:
        return RecordCorrupt(f"an entry in cold storage cannot be read: {exc.detail}")


def _name(uid: str, name: bytes) -> str:
    return f"{uid}{ENTRIES}/{name.hex()}"
