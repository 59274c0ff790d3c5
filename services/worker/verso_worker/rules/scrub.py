"""Check stored documents against the stores, and repair those whose text can be proved.

For each document of a range of buckets:

1. Its entry is parsed and its CRC compared, every record is decoded, and the checksums and the
   text's size are compared.
2. Every point that a record names is read. Its vector must have the record's hash. Its payload must
   name the document and the chunk, and carry the metadata and time whose hash the entry holds. Its
   terms, in a collection that keeps them, must be those of the chunk's text. Otherwise a search
   would miss the chunk, rank it wrongly or return wrong metadata.
3. A collection with text policy ``both`` must hold the same text as the records.

A document with an error is read once more from the ledger. If it was written again meanwhile, it is
skipped: the verify of that write checks it. Otherwise it becomes

- **repaired** if its text is known: the records decode to it, or the kept text has the entry's size
  and cuts into chunks with exactly the records' checksums. Missing and altered points are put again
  if encoding gives vectors with the records' hashes. Otherwise the document is written again by a
  codec that needs no model, read back from the stores once, and swapped in under its sequence
  number.
- **damaged** otherwise. It is not changed; reading it fails with ``record_corrupt``.

Before the first bucket the collection's fitted tables are read as they are stored. Tables with one
flipped bit are written again, and count as repaired.

Metadata and time are stored only in the payloads of a document's points. One payload that agrees
with the entry, or does so with numbers next to its own, is enough to restore the others. If there
are payloads but none agrees, the document is damaged. If all points are missing, they are put again
without metadata, so that searches find the text. Unless the entry says that there was no metadata,
they are marked as having lost it, and the document counts as damaged until it is written again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np

from verso_core.errors import ObjectsUnavailable, PatchCorrupt, VectorsDamaged, VersoError
from verso_core.jobs import (
    SLICE_BYTES,
    SLICE_ITEMS,
    BucketRange,
    Collection,
    SearchMode,
    TextPolicy,
)
from verso_core.jobs.fitting import artifact_of
from verso_core.jobs.scrub import Scrubbed
from verso_core.record import Entry, Flag, checksum, point_ids, seq_of, vector_hash
from verso_worker.records.points import LOST, Point
from verso_worker.records.space import Space
from verso_worker.rules.cold.entries import ColdEntries, Moving
from verso_worker.rules.ingest import Ingest, Source, agrees, as_written
from verso_worker.rules.orphans import OrphanCollector
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.stores import Documents, Vectors
from verso_worker.rules.reader import Chunk, Reader, join

LISTED = 100
"""Most damaged documents that one result names."""
_PAGE_BUCKETS = 128
_VECTORS = "(vectors)"  # names the damage of all vectors of a collection
_log = logging.getLogger(__name__)

Stored = tuple[str, bytes]
"""A document's id and its entry as it is stored."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """What the stores hold of one document.

    chunks: its decoded records, an error for each that does not decode.
    text: the whole text; None unless all records decode.
    bad: indices of the points that are missing or wrong.
    payload: a payload that agrees with the entry; None if no point has one.
    altered: whether it has points, but none whose payload agrees with the entry.
    kept: the text that the collection keeps beside the records.
    keeps: whether the collection keeps texts.
    """

    document: str
    data: bytes
    entry: Entry | None
    chunks: list[bytes | VersoError]
    text: bytes | None
    bad: list[int]
    payload: dict[str, Any] | None
    altered: bool
    kept: bytes | None
    keeps: bool

    @property
    def lost(self) -> bool:
        """Whether the document's metadata and time are lost."""
        if self.payload is None:
            return bool(self.chunks) and not self.bare
        return LOST in self.payload

    @property
    def bare(self) -> bool:
        """Whether the entry says that there was neither metadata nor time."""
        return self.entry is not None and self.entry.about == b""

    @property
    def sound(self) -> bool:
        """Whether everything is as it was stored."""
        same = not self.keeps or self.kept == self.text
        whole = self.entry is not None and not self.entry.damaged
        return whole and self.text is not None and not self.bad and not self.lost and same

    @property
    def hopeless(self) -> bool:
        """Whether nothing proves what the document was.

        Any good point proves a damaged entry's sequence number: its id is made from the number.
        """
        if self.entry is None or self.altered:
            return True
        unproved = len(self.bad) == len(self.chunks) or bool(self.entry.flags & Flag.LONG)
        return self.entry.damaged and unproved


@dataclass(frozen=True, slots=True)
class Scrub:
    """Checks and repairs the documents of a collection."""

    models: Models
    vectors: Vectors
    documents: Documents
    reader: Reader
    ingest: Ingest
    orphans: OrphanCollector
    cold: ColdEntries

    def run(self, collection: Collection, asked: BucketRange) -> Scrubbed:
        """Scrub a range of buckets and return the counts.

        With ``since`` only documents with a greater sequence number are checked, and no orphans.

        It ends after ``count`` buckets, or sooner after ``spend_s`` seconds or at a bucket that
        cannot be checked now. ``buckets`` of the result counts the checked ones, at least one.

        Raises:
            VersoError: the first bucket cannot be checked now.
        """
        found: Counter[str] = Counter()
        names: list[str] = []
        end = time.monotonic() + asked.spend_s
        first, since = asked.first, asked.since
        at, page = first, 1
        last = min(first + asked.count, collection.buckets)
        moving = self.cold.moving(collection)
        if first == 0 and since is None:  # what many documents need
            tables = self.ingest.generations.correct(collection)
            found.update({"documents": tables, "repaired": tables})
        while at < last and (at == first or time.monotonic() < end):
            width = min(page, last - at)
            try:
                entries = self.documents.entries(collection.name, first=at, count=width)
                if since is None:
                    seen = self._check(collection, entries, names=names, moving=moving)
                    seen["orphans"] = self.orphans.run(collection, first=at, count=width)
                else:
                    recent = (row for row in entries if seq_of(row[1]) > since)
                    seen = self._check(collection, recent, names=names)
            except VectorsDamaged as error:  # none of its documents can be checked
                about = {"collection": collection.name, "code": error.code}
                _log.error("not scrubbed: %s", error.detail, extra=about)
                found.update({"documents": 1, "damaged": 1})
                return Scrubbed.of(last - first, found, [*names, _VECTORS])
            except VersoError:
                if at == first:
                    raise
                break  # the next job starts with these buckets, and may fail at them
            page = next_page(page, width=width, documents=seen["documents"])
            found += seen
            at += width
        moving.end()
        if at >= collection.buckets and not since:
            chunks = self.documents.holdings(collection.name).chunks
            whole = first == 0 or since == 0
            self.vectors.note_scrubbed(collection.name, chunks=chunks, whole=whole)
        if first == 0 and since is None:
            self._sweep(collection)
        return Scrubbed.of(max(1, at - first), found, names)

    def copy(self, collection: Collection, asked: BucketRange) -> Scrubbed:
        """Copy the objects of a collection that moves to another ledger."""
        parts = self.cold.storage.copy(self.documents.uid(collection.name), asked)
        return Scrubbed(buckets=0, parts=parts)

    def _sweep(self, collection: Collection) -> None:
        """Remove objects of cold storage that nothing names."""
        try:
            self.cold.sweep(collection)
        except ObjectsUnavailable as error:
            _log.warning("cold storage is not swept: %s", error.detail)

    def _check(
        self,
        collection: Collection,
        entries: Iterable[Stored],
        *,
        names: list[str],
        moving: Moving | None = None,
    ) -> Counter[str]:
        """Check documents and repair what can be; return the counts, and add the damaged names.

        What is sound and due is moved to cold storage.
        """
        found: Counter[str] = Counter()
        damaged: list[str] = []
        for batch in batches(entries):
            findings = self._read(collection, batch)
            unsound = [one.document for one in findings if not one.sound]
            now = self.documents.entry(collection.name, unsound) if unsound else {}
            for one in findings:
                status = "sound"
                if not one.sound:
                    if now.get(one.document) != one.data:
                        continue  # written again or deleted since it was read
                    status = self._repair(collection, one)
                found.update({"documents": 1, status: 1, "bytes": len(one.text or b"")})
                if status == "damaged":
                    damaged.append(one.document)
                elif status == "sound" and moving is not None and one.entry is not None:
                    moving.offer(one.document, one.data, one.entry)
        names += damaged[: LISTED - len(names)]
        return found

    def _read(self, collection: Collection, batch: Sequence[Stored]) -> list[_Finding]:
        """Read everything that the stores hold of some documents."""
        entries, faults = self._entries(collection, batch)
        chunks = [
            Chunk(document, entry, index, faults.get(document))
            for (document, _), entry in zip(batch, entries, strict=True)
            if entry is not None
            for index in range(len(entry.records))
        ]
        texts = self.reader.chunks(collection, chunks)
        points = [
            [] if entry is None else point_ids(collection.name, document, entry)
            for (document, _), entry in zip(batch, entries, strict=True)
        ]
        every = [point for own in points for point in own]
        self.documents.orphans_forget(collection.name, every)
        vectors = self.vectors.get(collection.name, every) if every else {}
        payloads = self.vectors.payloads(collection.name, every) if every else {}
        keeps = collection.text_policy is TextPolicy.BOTH
        names = [document for document, _ in batch]
        kept = self.documents.texts(collection.name, names) if keeps else {}
        space = Space.of(collection)
        key = bytes.fromhex(collection.checksum_key)
        hashes = {point: vector_hash(space.raw(stored)) for point, stored in vectors.items()}
        read = [_unless_retryable(text) for text in texts]
        wordless = self._wordless(collection, every, read)
        decoded_of = iter(read)
        findings = []
        for (document, data), entry, own in zip(batch, entries, points, strict=True):
            records = () if entry is None else entry.records
            decoded = [next(decoded_of) for _ in records]
            # one without a name is of a located point, or what a store returns of a lost one
            carried = [payloads[point] for point in own if "d" in payloads.get(point, {})]
            told = (as_written(payload, entry, key=key) for payload in carried)
            right = [payload for payload in told if payload is not None]
            findings.append(
                _Finding(
                    document=document,
                    data=data,
                    entry=entry,
                    chunks=decoded,
                    text=_text(entry, decoded),
                    bad=[
                        n
                        for n, point in enumerate(own)
                        if hashes.get(point) != records[n].vector_hash
                        or not _names(payloads.get(point), document, n, entry)
                        or not agrees(payloads[point], entry, key=key)
                        or point in wordless
                    ],
                    payload=min(right, key=lambda payload: LOST in payload, default=None),
                    altered=bool(carried) and not right,
                    kept=kept.get(document),
                    keeps=keeps,
                )
            )
        return findings

    def _entries(
        self, collection: Collection, batch: Sequence[Stored]
    ) -> tuple[list[Entry | None], dict[str, VersoError]]:
        """Return entries as they were written, and the errors of those in cold storage.

        An entry that is damaged there is returned as the ledger has it, without records' payloads.
        """
        parsed = {document: _parsed(data) for document, data in batch}
        known = {name: entry for name, entry in parsed.items() if entry is not None}
        read = self.reader.whole(collection, known)
        faults = {name: one for name, one in read.items() if isinstance(one, VersoError)}
        return [
            found if isinstance(found := read.get(name), Entry) else parsed[name]
            for name, _ in batch
        ], faults

    def _wordless(
        self, collection: Collection, points: Sequence[UUID], texts: Sequence[bytes | VersoError]
    ) -> set[UUID]:
        """Return the points that do not have the terms of their texts, of those that were read."""
        read = {p: text for p, text in zip(points, texts, strict=True) if isinstance(text, bytes)}
        if collection.search is SearchMode.DENSE or not read:
            return set()
        terms = self.ingest.terms(collection, list(read.values()))
        return self.vectors.differing(collection.name, dict(zip(read, terms, strict=True)))

    def _repair(self, collection: Collection, one: _Finding) -> str:
        """Repair a document if its text is known; return ``repaired`` or ``damaged``."""
        entry, text = one.entry, one.text
        # A document that is not verified yet still has its raw text, which its verify will use.
        if entry is None or one.hopeless or not entry.flags & Flag.VERIFIED:
            return "damaged"
        if text is None:
            text = self._proved(collection, entry, one.kept)
        if text is None:
            return "damaged"
        if one.text is not None and (not one.bad or self._restore(collection, one, entry)):
            if entry.damaged or (one.keeps and one.kept != text):
                proved = replace(entry, damaged=False).pack() if entry.damaged else one.data
                self._swap(collection, one, proved, text if one.keeps else None)
        elif not self._rewrite(collection, one, entry, text):
            return "damaged"
        return "damaged" if one.lost else "repaired"

    def _proved(self, collection: Collection, entry: Entry, kept: bytes | None) -> bytes | None:
        """Return a kept text if it has the entry's size and all its records' checksums."""
        slots = Counter(record.slot for record in entry.records)
        if kept is None or len(kept) != entry.size_bytes or not slots:
            return None
        [(slot, _)] = slots.most_common(1)
        if not collection.uses_slot(slot):
            return None
        chunks = self.models.get(artifact_of(collection.artifacts[slot])).cutter.cut(kept)
        key = bytes.fromhex(collection.checksum_key)
        sums = [checksum(chunk, key=key) for chunk in chunks]
        return kept if sums == [record.checksum for record in entry.records] else None

    def _restore(self, collection: Collection, one: _Finding, entry: Entry) -> bool:
        """Put bad points again, if encoding gives vectors with their records' hashes."""
        texts = [chunk for n in one.bad if isinstance(chunk := one.chunks[n], bytes)]
        engine = self.models.writing(collection).recorder.engine
        space = Space.of(collection)
        stored = space.round(engine.encode(texts).vectors)
        ids = point_ids(collection.name, one.document, entry)
        terms = self.ingest.terms(collection, texts)
        points = []
        for n, row, words in zip(one.bad, stored, terms, strict=True):
            if vector_hash(space.raw(row)) != entry.records[n].vector_hash:
                return False
            own = {} if entry.located else {"d": one.document, "n": n}
            payload = _payload(one) | own
            points.append(Point(ids[n], row, payload, words))
        self.vectors.put(collection.name, points)
        found = self.vectors.get(collection.name, [point.id for point in points])
        return all(
            point.id in found and np.array_equal(found[point.id], point.stored) for point in points
        )

    def _rewrite(self, collection: Collection, one: _Finding, entry: Entry, text: bytes) -> bool:
        """Write a document again, and swap it in if the stores return its text."""
        source = Source.stored(one.document, _payload(one), text)
        write = self.ingest.rewrite(source, collection, seq=entry.seq)
        new = Entry.unpack(write.entry)
        parts = self.reader.chunks(
            collection, [Chunk(one.document, new, n) for n in range(len(new.records))]
        )
        if join(new, parts) != text:
            self.orphans.discard(collection.name, one.document, write.entry)
            return False
        proved = replace(new, flags=Flag.VERIFIED).pack()
        self._swap(collection, one, proved, write.text)
        return True

    def _swap(
        self, collection: Collection, one: _Finding, entry: bytes, text: bytes | None
    ) -> None:
        swapped = self.documents.repair(
            collection.name, one.document, old=one.data, entry=entry, text=text
        )
        if not swapped:  # it was written again meanwhile: no entry names these points
            self.orphans.discard(collection.name, one.document, entry)


def next_page(page: int, *, width: int, documents: int) -> int:
    """Return how many buckets to read next, after ``width`` buckets held so many documents.

    They hold about one batch of documents: with more a step could exceed its time, with fewer there
    would be too many calls of the stores.
    """
    fit = width * SLICE_ITEMS // max(1, documents)
    return max(1, min(fit, 2 * page, _PAGE_BUCKETS))


def batches(entries: Iterable[Stored], *, weight: int = 1) -> Iterator[list[Stored]]:
    """Cut entries into batches whose vectors fit into one reply of the store.

    Args:
        entries: what is cut.
        weight: bytes that are counted for each byte of an entry.
    """
    batch: list[Stored] = []
    size = 0
    for row in entries:
        batch.append(row)
        size += weight * _size(row[1])
        if len(batch) >= SLICE_ITEMS or size >= SLICE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(data: bytes) -> int:
    """Return the size of an entry, of one in cold storage that which it has there, bytes."""
    entry = _parsed(data)
    return len(data) if entry is None or entry.cold is None else entry.cold.size_bytes


def _parsed(data: bytes) -> Entry | None:
    try:
        return Entry.unpack(data)
    except PatchCorrupt:
        return None


def _unless_retryable(text: bytes | VersoError) -> bytes | VersoError:
    """Return a chunk or its error.

    Raises:
        VersoError: the error, if trying again may help: the record cannot be checked now.
    """
    if isinstance(text, VersoError) and text.retryable:
        raise text
    return text


def _text(entry: Entry | None, chunks: Sequence[bytes | VersoError]) -> bytes | None:
    """Return a document's text; None if a chunk has an error or the size is another."""
    if entry is None or entry.flags & Flag.DELETED:  # a deleted document leaves no entry
        return None
    text = join(entry, chunks)
    return text if isinstance(text, bytes) else None


def _names(payload: dict[str, Any] | None, document: str, chunk: int, entry: Entry | None) -> bool:
    """Whether a point is there and its payload is its chunk's; a located one has none."""
    if payload is None:
        return False
    named = (None, None) if entry is not None and entry.located else (document, chunk)
    return (payload.get("d"), payload.get("n")) == named


def _payload(one: _Finding) -> dict[str, Any]:
    if one.payload is not None:
        return one.payload
    return {} if one.bare else {LOST: 1}
