"""Ingest documents, and verify from the stores that their texts can be read back.

The order of the steps makes sure that no text is dropped before it can be read back:

1. Cut each text into chunks, encode them, and round the vectors to what the store will return. For
   a collection that is also searched by words, compute the terms now: the text will be dropped.
2. Make a record of each chunk against the rounded vector, and decode it
   (:mod:`verso_worker.records.recorder`).
3. Put the vectors; the store has flushed them when it returns. Read them back, compare the bytes.
4. Give the entries to the ledger, which commits them and the result in one step. The raw text stays
   in the slice.
5. Later, in any worker, :meth:`Ingest.verify` reads everything from the stores, decodes it and
   compares it with the raw text. Only then does the ledger drop the text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Any

import numpy as np

from verso_core.errors import VectorInvalid, VectorsUnavailable
from verso_core.jobs import (
    CodecPolicy,
    Collection,
    Failed,
    IngestItem,
    IngestParams,
    Rejected,
    Result,
    SearchMode,
    Slice,
    TextPolicy,
)
from verso_core.jobs.ingest import Ingested
from verso_core.record import (
    Entry,
    Flag,
    Record,
    about_hash,
    locating_id,
    point_id,
    total_payload,
    written_by,
)
from verso_worker.records.cache import Cache
from verso_worker.records.numbers import neighbours
from verso_worker.records.outputs import Timings
from verso_worker.records.points import LOST, NO_TERMS, Point, Terms
from verso_worker.records.space import Space, Stored
from verso_worker.rules import located
from verso_worker.rules.generations import Generations
from verso_worker.rules.ports.models import Model, Models
from verso_worker.rules.ports.outcome import SliceOutcome, Verdict, Write
from verso_worker.rules.ports.stores import Documents, Lexicon, Vectors
from verso_worker.rules.reader import Reader

_CODED_BYTES = 400  # of the objects and their hashes, about


@dataclass(frozen=True, slots=True)
class Source:
    """A document to store. ``lost``: its metadata and time are lost, and its points say so."""

    id: str
    text: bytes
    metadata: Mapping[str, Any] = field(default_factory=dict)
    time: float | None = None
    lost: bool = False

    @classmethod
    def of(cls, item: IngestItem) -> Source:
        """Return the document that an item holds."""
        return cls(item.id, item.text, item.metadata, item.time)

    @classmethod
    def stored(cls, document: str, payload: Mapping[str, Any], text: bytes) -> Source:
        """Return a stored document, from its text and the payload of one of its points."""
        return cls(document, text, payload.get("m") or {}, payload.get("t"), lost=LOST in payload)

    def located(self, collection: Collection) -> bool:
        """Whether its points are stored without payload."""
        bare = not self.metadata and self.time is None and not self.lost
        return bare and located.may_have(collection)

    def payload(self, chunk: int, *, located: bool) -> dict[str, Any]:
        """Return the payload of a point of the document."""
        if located:
            return {}
        payload: dict[str, Any] = {"d": self.id, "n": chunk}
        if self.time is not None:
            payload["t"] = self.time
        if self.metadata:
            payload["m"] = self.metadata
        return payload | {LOST: 1} if self.lost else payload


@dataclass(frozen=True, slots=True)
class _Draft:
    """A document that is being written, with its chunks and its job's sequence number."""

    source: Source
    chunks: list[bytes]
    seq: int


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A chunk that was encoded and coded: its rounded vector, shape (dim,), and its record."""

    stored: Stored
    record: Record

    def __len__(self) -> int:
        """Return about the memory that it takes, bytes."""
        return self.stored.nbytes + len(self.record.payload) + _CODED_BYTES


@dataclass(frozen=True, slots=True)
class Ingest:
    """Writes documents into collections and verifies them.

    cache: chunks that were coded lately; a verify, a scrub and a rewrite do not use it.
    generations: the tables fitted to collections.
    """

    models: Models
    vectors: Vectors
    documents: Documents
    reader: Reader
    lexicon: Lexicon
    cache: Cache[Coded]
    generations: Generations

    def run(
        self,
        work: Slice[IngestParams, IngestItem],
        collection: Collection,
        *,
        seq: int,
        timings: Timings,
    ) -> SliceOutcome:
        """Write the documents of a slice to the vector store, ready to be committed.

        Raises:
            VectorsUnavailable: the store returned other vectors than were put.
        """
        model = self.generations.writing(collection, seq=seq)
        slot = self.documents.collection_artifact(collection.name, model.codec)
        with timings.phase("tokenize"):
            drafts = [
                _Draft(Source.of(item), model.cutter.cut(item.text), seq)
                for item in work.accepted.values()
            ]
        if not drafts:
            return SliceOutcome(Result(_answered(work, [])))
        chunks = [chunk for draft in drafts for chunk in draft.chunks]
        with timings.phase("infer"):
            stored, records = self._encode(chunks, collection, model, slot=slot, plain=False)
        with timings.phase("store"):
            self._put(collection, drafts, stored, records)
        own = _by_draft(drafts, records)
        return SliceOutcome(
            Result(_answered(work, list(map(_describe, drafts, own)))),
            writes=[_write(*pair, collection) for pair in zip(drafts, own, strict=True)],
            collection=collection.name,
        )

    def _encode(
        self,
        chunks: Sequence[bytes],
        collection: Collection,
        model: Model,
        *,
        slot: int,
        plain: bool,
    ) -> tuple[Stored, list[Record]]:
        """Encode and code chunks; a text that was coded lately, or twice here, is coded once."""
        if plain or not chunks:
            return self._code(chunks, collection, model, slot=slot, policy=CodecPolicy.FAST)
        policy = collection.codec_policy
        names = [_name_of(chunk, collection, model) for chunk in chunks]
        distinct = dict(zip(names, chunks, strict=True))
        found = self.cache.find(list(distinct))
        new = {name: chunk for name, chunk in distinct.items() if name not in found}
        if new:
            stored, records = self._code(
                list(new.values()), collection, model, slot=slot, policy=policy
            )
            fresh = {
                name: Coded(row.copy(), record)
                for name, row, record in zip(new, stored, records, strict=True)
            }
            self.cache.keep(fresh)
            found |= fresh
        coded = [found[name] for name in names]
        return np.stack([one.stored for one in coded]), [one.record for one in coded]

    def _code(
        self,
        chunks: Sequence[bytes],
        collection: Collection,
        model: Model,
        *,
        slot: int,
        policy: CodecPolicy,
    ) -> tuple[Stored, list[Record]]:
        space = Space.of(collection)
        vectors = model.recorder.engine.encode(chunks).vectors
        if vectors.shape != (len(chunks), collection.dim) or not np.isfinite(vectors).all():
            raise VectorInvalid(
                f"expected finite vectors ({len(chunks)}, {collection.dim}), got {vectors.shape}"
            )
        stored = space.round(vectors)
        key = bytes.fromhex(collection.checksum_key)
        records = model.recorder.write(
            chunks, stored, precision=space, slot=slot, key=key, policy=policy
        )
        return stored, records

    def code(
        self, work: Slice[IngestParams, IngestItem], collection: Collection, *, most: int
    ) -> int:
        """Encode and code a slice's first chunks as an ingest does, and store nothing.

        Args:
            work: the slice.
            collection: the collection, of whose codecs the payloads are.
            most: how many chunks are coded at the most.

        Returns:
            How many were.
        """
        model = self.models.writing(collection)
        texts = (item.text for item in work.accepted.values())
        chunks = list(islice((chunk for text in texts for chunk in model.cutter.cut(text)), most))
        if chunks:
            self._code(chunks, collection, model, slot=0, policy=collection.codec_policy)
        return len(chunks)

    def _put(
        self,
        collection: Collection,
        drafts: Sequence[_Draft],
        stored: Stored,
        records: Sequence[Record],
    ) -> None:
        points: dict[Any, Point] = {}
        terms = self.terms(collection, [chunk for draft in drafts for chunk in draft.chunks])
        at = 0
        for draft in drafts:
            source = draft.source
            apart = source.located(collection)
            id_of = locating_id if apart else point_id
            for n in range(len(draft.chunks)):
                vector = records[at].vector_hash
                name = id_of(collection.name, source.id, seq=draft.seq, chunk=n, vector=vector)
                payload = source.payload(n, located=apart)
                points[name] = Point(name, stored[at], payload, terms[at])
                at += 1
        self.vectors.put(collection.name, list(points.values()))
        found = self.vectors.get(collection.name, list(points))
        for name, point in points.items():
            if name not in found or not np.array_equal(found[name], point.stored):
                raise VectorsUnavailable("the vector store gave back other bytes than it was given")

    def terms(self, collection: Collection, chunks: Sequence[bytes]) -> list[Terms]:
        """Return the terms that a collection keeps of chunks; a dense one keeps none."""
        if collection.search is SearchMode.DENSE:
            return [NO_TERMS] * len(chunks)
        return self.lexicon.documents(chunks)

    def verify(
        self, work: Slice[IngestParams, IngestItem], collection: Collection, *, seq: int
    ) -> Verdict:
        """Compare the texts that the stores return with a slice's raw texts, document by document.

        A document that was written again or deleted since is skipped. A document that does not read
        back is coded again with the codecs that need no model.
        """
        given = {item.id: item for item in work.accepted.values()}
        texts = self.reader.texts(collection, list(given), use_kept=False)
        live = self.reader.live(collection, given)
        sound, broken = [], []
        read: list[Entry] = []
        unread: list[Entry] = []
        written_by: dict[str, str] = {}
        for document, item in given.items():
            entry = live.get(document)
            if entry is None or (isinstance(entry, Entry) and _newer(entry, seq)):
                continue
            found = texts[document]
            whole = isinstance(entry, Entry) and not entry.damaged and entry.seq == seq
            sink = unread
            if whole and isinstance(found, tuple) and found[1] == item.text:
                sound.append(document)
                sink = read
            else:
                broken.append(Source.of(item))
            if isinstance(entry, Entry) and whole:
                sink.append(entry)
                written_by[document] = writer_of(entry, collection)
        self.generations.verified(collection, read, unread)
        own = self._own(broken, collection, seq=seq)
        rewritten = []
        for source in broken:
            write = self.rewrite(source, collection, seq=seq)
            rewritten.append(replace(write, over=own.get(write.document, b"")))
        return Verdict(sound, rewritten, collection.name, written_by=written_by)

    def _own(
        self, broken: Sequence[Source], collection: Collection, *, seq: int
    ) -> dict[str, bytes]:
        """Return stored entries that this slice wrote, though their sequence number is damaged.

        With the damaged number such an entry looks like a later write, which must not be replaced.
        """
        sizes = {source.id: len(source.text) for source in broken}
        found = {}
        for document, data in self.documents.entry(collection.name, list(sizes)).items():
            # without the flag of a long entry, whose head is damaged; its body has a CRC of its own
            stored = bytes([data[0] & ~Flag.LONG]) + data[1:] if data else data
            entry = written_by(stored, seq)
            if entry is not None and entry.size_bytes == sizes[document]:
                found[document] = stored
        return found

    def rewrite(self, source: Source, collection: Collection, *, seq: int) -> Write:
        """Store a document again with a codec that needs no model, under its sequence number."""
        model = self.models.writing(collection)
        [write] = self.store([(source, seq)], collection, model=model, plain=True)
        return write

    def store(
        self,
        sources: Sequence[tuple[Source, int]],
        collection: Collection,
        *,
        model: Model,
        plain: bool = False,
    ) -> list[Write]:
        """Store documents in the vector store; the caller commits the returned writes.

        Args:
            sources: documents with their sequence numbers.
            collection: the collection, which is of the model's space.
            model: encodes and codes the texts.
            plain: use a codec that needs no model.
        """
        slot = self.documents.collection_artifact(collection.name, model.codec)
        drafts = [_Draft(source, model.cutter.cut(source.text), seq) for source, seq in sources]
        chunks = [chunk for draft in drafts for chunk in draft.chunks]
        records: list[Record] = []
        if chunks:
            stored, records = self._encode(chunks, collection, model, slot=slot, plain=plain)
            self._put(collection, drafts, stored, records)
        own = _by_draft(drafts, records)
        return [_write(*pair, collection) for pair in zip(drafts, own, strict=True)]


def _name_of(chunk: bytes, collection: Collection, model: Model) -> bytes:
    """Return the key of a coded chunk: a hash of everything that determines vector and record.

    The collection's own key stands for its precision and its slots, the codec id for the model.
    """
    digest = hashlib.blake2b(digest_size=16, key=bytes.fromhex(collection.checksum_key))
    for part in (model.codec.encode(), collection.codec_policy.encode(), chunk):
        digest.update(len(part).to_bytes(4, "little") + part)
    return digest.digest()


def _answered(
    work: Slice[IngestParams, IngestItem], found: Sequence[Ingested]
) -> list[Ingested | Failed]:
    rest = iter(found)
    return [
        Failed.of(item.error, id=item.id) if isinstance(item, Rejected) else next(rest)
        for item in work.items
    ]


def _by_draft(drafts: Sequence[_Draft], records: Sequence[Record]) -> list[Sequence[Record]]:
    """Return the records of each document."""
    ends = accumulate(len(draft.chunks) for draft in drafts)
    return [records[end - len(draft.chunks) : end] for draft, end in zip(drafts, ends, strict=True)]


def _newer(entry: Entry, seq: int) -> bool:
    """Whether an entry is of a later write."""
    return entry.seq > seq and not entry.damaged


def writer_of(entry: Entry, collection: Collection) -> str:
    """Return the codec of the artifact that wrote an entry's records; empty if it is not known."""
    slot = entry.records[0].slot
    return collection.artifacts[slot] if collection.uses_slot(slot) else ""


def agrees(payload: Mapping[str, Any], entry: Entry | None, *, key: bytes) -> bool:
    """Whether a point's payload has the metadata and time whose hash its entry holds.

    True if there is nothing to compare: an entry of format 1, or lost metadata.
    """
    if entry is None or entry.about is None or LOST in payload:
        return True
    return about_hash(payload.get("m"), payload.get("t"), key=key) == entry.about


def as_written(
    payload: dict[str, Any], entry: Entry | None, *, key: bytes
) -> dict[str, Any] | None:
    """Return a point's payload as its entry's hash says that it was written; None if not known.

    The engine may have given back other numbers than it was given.
    """
    if agrees(payload, entry, key=key):
        return payload
    return next((one for one in neighbours(payload) if agrees(one, entry, key=key)), None)


def _write(draft: _Draft, records: Sequence[Record], collection: Collection) -> Write:
    source = draft.source
    about = about_hash(source.metadata, source.time, key=bytes.fromhex(collection.checksum_key))
    entry = Entry(
        draft.seq,
        len(source.text),
        tuple(records),
        about=about,
        located=source.located(collection),
    )
    keep = collection.text_policy is TextPolicy.BOTH
    return Write(source.id, entry.pack(), source.text if keep else None)


def _describe(draft: _Draft, records: Sequence[Record]) -> Ingested:
    return Ingested(
        id=draft.source.id,
        chunks=len(records),
        bytes_text=len(draft.source.text),
        bytes_patch=total_payload(records),
        codecs=dict(Counter(record.codec.name.lower() for record in records)),
    )
