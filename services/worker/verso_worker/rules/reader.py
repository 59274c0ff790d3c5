"""Read stored chunks back: entries from the ledger, vectors from their store, texts from both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from verso_core.errors import (
    ArtifactInvalid,
    DocumentUnknown,
    PatchCorrupt,
    RecordCorrupt,
    VectorsDamaged,
    VersoError,
)
from verso_core.jobs import Collection, SearchMode, TextPolicy
from verso_core.record import Codec, Entry, Flag, Record, point_ids
from verso_worker.records.cache import Cache
from verso_worker.records.points import NO_TERMS, Terms
from verso_worker.records.space import Space, Stored
from verso_worker.rules.cold.entries import ColdEntries
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.stores import Documents, Lexicon, Vectors


def name_of(collection: Collection, record: Record, *, place: bytes = b"") -> bytes | None:
    """Return the key of a record's text; None for a raw record, which holds the text itself.

    It is a hash of everything that determines the text: the collection's own key, the codec that
    wrote the record, and the record itself, which holds the hash of the vector; of one in cold
    storage its place, which no other record is ever given. So a key never stands for another text,
    and no text has to be removed when a document is replaced or deleted: a read starts from the
    ledger's live entry, which does not name the old record.

    Only reads for callers use cached texts. Verify, scrub and migration check what the stores
    return.
    """
    if record.slot >= len(collection.artifacts) or (record.codec is Codec.RAW and not place):
        return None
    digest = hashlib.blake2b(digest_size=16, key=bytes.fromhex(collection.checksum_key))
    for part in (collection.artifacts[record.slot].encode(), record.pack(), place):
        digest.update(len(part).to_bytes(4, "little") + part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk to read: its document, the document's live entry, and its index in the entry.

    fault: the error of a damaged entry, which reading the chunk returns; else None.
    """

    document: str
    entry: Entry
    index: int
    fault: VersoError | None = None

    @property
    def place(self) -> bytes:
        """What names the record in cold storage; nothing elsewhere."""
        return b"" if (one := self.entry.cold) is None else repr((one, self.index)).encode()


NO_ENTRY = Entry(seq=0, size_bytes=0, records=())
"""Replaces a damaged entry."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the exact bytes of stored documents and chunks, or says which error prevents it.

    cache: texts that were read lately; without it every read goes to the stores.
    """

    models: Models
    vectors: Vectors
    documents: Documents
    cold: ColdEntries
    cache: Cache[bytes] | None = None

    def live(self, collection: Collection, ids: Iterable[str]) -> dict[str, Entry | VersoError]:
        """Return the entries of the documents that exist and are not deleted."""
        found: dict[str, Entry | VersoError] = {}
        wanted = list(dict.fromkeys(ids))
        for document, data in self.documents.entry(collection.name, wanted).items():
            try:
                entry = Entry.unpack(data)
            except VersoError as error:
                found[document] = error
                continue
            if not entry.flags & Flag.DELETED:
                found[document] = entry
        return found

    def scan(
        self, collection: Collection, *, first: int = 0, count: int | None = None
    ) -> Iterator[tuple[str, Entry]]:
        """Yield the live documents of some buckets, without those with damaged entries."""
        for document, data in self.documents.entries(collection.name, first=first, count=count):
            try:
                entry = Entry.unpack(data)
            except PatchCorrupt:
                continue
            if not entry.flags & Flag.DELETED:
                yield document, entry

    def chunks(self, collection: Collection, wanted: Sequence[Chunk]) -> list[bytes | VersoError]:
        """Return chunks or their errors in order; those of one artifact are read in one batch."""
        if self.cache is None:
            return self._read(collection, wanted)
        names = [
            None
            if chunk.fault is not None
            else name_of(collection, chunk.entry.records[chunk.index], place=chunk.place)
            for chunk in wanted
        ]
        found = self.cache.find([name for name in names if name is not None])
        rest = [row for row, name in enumerate(names) if name is None or name not in found]
        read = dict(zip(rest, self._read(collection, [wanted[row] for row in rest]), strict=True))
        fresh = ((names[row], text) for row, text in read.items())
        self.cache.keep(
            {name: text for name, text in fresh if name is not None and isinstance(text, bytes)}
        )
        return [read[row] if row in read else found[name or b""] for row, name in enumerate(names)]

    def terms(
        self, collection: Collection, chunks: Mapping[UUID, Chunk], lexicon: Lexicon
    ) -> dict[UUID, Terms | VersoError]:
        """Return the terms of chunks by their points: the store's, or else those of their texts.

        An index of words, which most stores have, does not give them back.
        """
        if collection.search is SearchMode.DENSE or not chunks:
            return dict.fromkeys(chunks, NO_TERMS)
        known = self.vectors.terms(collection.name, list(chunks))
        rest = [point for point in chunks if point not in known]
        texts = self.chunks(collection, [chunks[point] for point in rest])
        read = {
            point: text for point, text in zip(rest, texts, strict=True) if isinstance(text, bytes)
        }
        made = dict(zip(read, lexicon.documents(list(read.values())), strict=True))
        faults = {
            point: text
            for point, text in zip(rest, texts, strict=True)
            if isinstance(text, VersoError)
        }
        return {**known, **made, **faults}

    def whole(
        self, collection: Collection, entries: Mapping[str, Entry | VersoError]
    ) -> dict[str, Entry | VersoError]:
        """Return entries by document with the records of those that are in cold storage.

        Raises:
            ObjectsUnavailable: cold storage did not answer.
        """
        sound = {name: entry for name, entry in entries.items() if isinstance(entry, Entry)}
        read = self.cold.whole(collection.name, list(sound.values()))
        return {**entries, **dict(zip(sound, read, strict=True))}

    def _with_records(self, collection: Collection, wanted: Sequence[Chunk]) -> list[Chunk]:
        """Return chunks with their entries' records, or the error of each that has none."""
        if all(chunk.entry.cold is None for chunk in wanted):
            return list(wanted)
        known = [NO_ENTRY if chunk.fault is not None else chunk.entry for chunk in wanted]
        read = self.cold.whole(collection.name, known)
        return [
            replace(chunk, entry=entry) if isinstance(entry, Entry) else replace(chunk, fault=entry)
            for chunk, entry in zip(wanted, read, strict=True)
        ]

    def _read(self, collection: Collection, wanted: Sequence[Chunk]) -> list[bytes | VersoError]:
        wanted = self._with_records(collection, wanted)
        texts: list[bytes | VersoError] = [RecordCorrupt("not read")] * len(wanted)
        by_slot: dict[int, list[int]] = {}
        for row, chunk in enumerate(wanted):
            if chunk.fault is not None:
                texts[row] = chunk.fault
            else:
                by_slot.setdefault(chunk.entry.records[chunk.index].slot, []).append(row)
        for slot, rows in by_slot.items():
            found = self._written_by(collection, slot, [wanted[row] for row in rows])
            for row, text in zip(rows, found, strict=True):
                texts[row] = text
        return texts

    def _written_by(
        self, collection: Collection, slot: int, wanted: Sequence[Chunk]
    ) -> list[bytes | VersoError]:
        """Read chunks that the artifact in one slot of the collection wrote."""
        if not collection.uses_slot(slot):  # maybe since the job of this reader began
            collection = self.documents.collection(collection.name)
        if not collection.uses_slot(slot):
            fault = f"expected an artifact slot < {len(collection.artifacts)} in use, got {slot}"
            return [RecordCorrupt(fault)] * len(wanted)
        try:
            model = self.models.get(collection.artifacts[slot])
        except ArtifactInvalid as error:
            return [RecordCorrupt(error.detail)] * len(wanted)
        records = [chunk.entry.records[chunk.index] for chunk in wanted]
        points = [
            point_ids(collection.name, chunk.document, chunk.entry)[chunk.index]
            if record.codec.reads_vector
            else None
            for chunk, record in zip(wanted, records, strict=True)
        ]
        named = [point for point in points if point is not None]
        vectors, damage = self._vectors(collection, named)
        read = model.recorder.read(
            records,
            [None if point is None else vectors.get(point) for point in points],
            precision=Space.of(collection),
            key=bytes.fromhex(collection.checksum_key),
        )
        if damage is None:
            return read
        return [text if one is None else damage for one, text in zip(points, read, strict=True)]

    def _vectors(
        self, collection: Collection, points: Sequence[UUID]
    ) -> tuple[dict[UUID, Stored], VectorsDamaged | None]:
        """Return the vectors of points; none, and why, where the collection's are damaged."""
        if not points:
            return {}, None
        try:
            return self.vectors.get(collection.name, points), None
        except VectorsDamaged as error:
            return {}, error

    def texts(
        self, collection: Collection, ids: Sequence[str], *, use_kept: bool = True
    ) -> dict[str, tuple[Entry, bytes] | VersoError]:
        """Read whole documents.

        If a record is corrupt and the collection keeps texts as well, the kept text is returned,
        unless ``use_kept`` is false: a verify must check the records alone.
        """
        live = self.live(collection, ids)
        wanted = [
            Chunk(document, entry, index)
            for document, entry in live.items()
            if isinstance(entry, Entry)
            for index in range(len(entry.records))
        ]
        parts: dict[str, list[bytes | VersoError]] = {}
        for chunk, text in zip(wanted, self.chunks(collection, wanted), strict=True):
            parts.setdefault(chunk.document, []).append(text)
        found: dict[str, tuple[Entry, bytes] | VersoError] = {}
        for document in dict.fromkeys(ids):
            entry = live.get(document)
            if entry is None:
                found[document] = DocumentUnknown(f"no document {document!r}")
            elif isinstance(entry, VersoError):
                found[document] = entry
            else:
                text = join(entry, parts.get(document, []))
                found[document] = text if isinstance(text, VersoError) else (entry, text)
        if use_kept and collection.text_policy is TextPolicy.BOTH:
            self._add_kept(collection, found, live)
        return found

    def _add_kept(
        self,
        collection: Collection,
        found: dict[str, tuple[Entry, bytes] | VersoError],
        live: dict[str, Entry | VersoError],
    ) -> None:
        """Replace the errors of corrupt documents by their kept texts."""
        broken = [document for document, text in found.items() if isinstance(text, RecordCorrupt)]
        if not broken:
            return
        for document, text in self.documents.texts(collection.name, broken).items():
            entry = live[document]
            if isinstance(entry, Entry) and len(text) == entry.size_bytes:
                found[document] = (entry, text)


def join(entry: Entry, parts: Sequence[bytes | VersoError]) -> bytes | VersoError:
    """Join the chunks of an entry; return its text, or the first error."""
    texts = []
    for part in parts:
        if isinstance(part, VersoError):
            return part
        texts.append(part)
    text = b"".join(texts)
    if len(text) != entry.size_bytes:
        return RecordCorrupt(f"expected {entry.size_bytes} bytes of text, got {len(text)}")
    return text
