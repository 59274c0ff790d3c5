"""Take documents in, and verify from the stores that they can be given back.

The order of an ingest is the order of its promises:

1. Cut each text into chunks, encode them, round the vectors to what the store will give back.
   Where the collection is searched by words as well, count them now: the text will be gone.
2. Make a record of each chunk against *that* vector, and decode it
(:mod:`verso_worker.records.recorder`).
3. Put the vectors; the store has flushed them when it returns. Read them back, compare the bytes.
4. Give the entries to the ledger, which commits them and the result in one step. The raw text stays
   in the slice.
5. Later, in any worker, :meth:`Ingest.verify` reads everything from the stores, decodes it and
   compares it with the raw text. Only then does the ledger drop the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verso_core.errors import VectorInvalid, VectorsUnavailable
from verso_core.jobs import Collection, Item, Result, SearchMode, Slice, TextPolicy
from verso_core.record import (
    Entry,
    Flag,
    Record,
    about_hash,
    point_id,
    total_payload,
    written_by,
)
from verso_worker.records.outputs import Timings
from verso_worker.records.points import LOST, NO_TERMS, Point, Terms
from verso_worker.records.recorder import Stored
from verso_worker.records.space import Space
from verso_worker.rules.ports import (
    Documents,
    Lexicon,
    Model,
    Models,
    SliceOutcome,
    Vectors,
    Verdict,
    Write,
)
from verso_worker.rules.reader import Reader


@dataclass(frozen=True, slots=True)
class _Draft:
    """One document on its way in: where its item stands, and its chunks."""

    row: int
    item: Item
    text: bytes
    chunks: list[bytes]
    seq: int

    @property
    def document(self) -> str:
        name: str = self.item.header["id"]
        return name


@dataclass(frozen=True, slots=True)
class Ingest:
    """Writes documents into collections and verifies them."""

    models: Models
    vectors: Vectors
    documents: Documents
    reader: Reader
    lexicon: Lexicon

    def run(
        self, work: Slice, collection: Collection, *, seq: int, timings: Timings
    ) -> SliceOutcome:
        """Take the documents of a slice in, up to the point where the ledger can commit them.

        Raises:
            VectorsUnavailable: the store did not give back what was put.
        """
        model = self.models.writing(collection)
        slot = self.documents.collection_artifact(collection.name, model.codec)
        items: list[dict[str, Any]] = [{}] * len(work.items)
        drafts = []
        with timings.phase("tokenize"):
            for row, item in enumerate(work.items):
                if item.rejected is not None:
                    items[row] = {"ok": False, "id": item.header.get("id"), "error": item.rejected}
                else:
                    text = item.blob or b""
                    drafts.append(_Draft(row, item, text, model.cutter.cut(text), seq))
        if not drafts:
            return SliceOutcome(Result(items))
        chunks = [chunk for draft in drafts for chunk in draft.chunks]
        with timings.phase("infer"):
            stored, records = self._encode(chunks, collection, model, slot=slot, plain=False)
        with timings.phase("store"):
            self._put(collection, drafts, stored, records)
        writes, at = [], 0
        for draft in drafts:
            own = records[at : at + len(draft.chunks)]
            at += len(own)
            writes.append(_write(draft, own, collection))
            items[draft.row] = _describe(draft, own)
        return SliceOutcome(Result(items), writes=writes, collection=collection.name)

    def _encode(
        self,
        chunks: Sequence[bytes],
        collection: Collection,
        model: Model,
        *,
        slot: int,
        plain: bool,
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
            chunks, stored, precision=space, slot=slot, key=key, plain=plain
        )
        return stored, records

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
            payload = _payload(draft.item)
            for n in range(len(draft.chunks)):
                name = point_id(
                    collection.name,
                    draft.document,
                    seq=draft.seq,
                    chunk=n,
                    vector=records[at].vector_hash,
                )
                points[name] = Point(name, stored[at], payload | {"n": n}, terms[at])
                at += 1
        self.vectors.put(collection.name, list(points.values()))
        found = self.vectors.get(collection.name, list(points))
        for name, point in points.items():
            if name not in found or not np.array_equal(found[name], point.stored):
                raise VectorsUnavailable("the vector store gave back other bytes than it was given")

    def terms(self, collection: Collection, chunks: Sequence[bytes]) -> list[Terms]:
        """Return what a collection keeps of chunks' words: nothing, or their terms."""
        if collection.search is SearchMode.DENSE:
            return [NO_TERMS] * len(chunks)
        return self.lexicon.documents(chunks)

    def verify(self, work: Slice, collection: Collection, *, seq: int) -> Verdict:
        """Compare what the stores give back with the raw text of a slice, document by document.

        A document that was written again or deleted since is skipped: it is no longer this slice's.
        One that does not read back is coded anew with the codecs that need no model.
        """
        accepted = {item.header["id"]: item for item in work.items if item.rejected is None}
        texts = self.reader.texts(collection, list(accepted), mend=False)
        live = self.reader.live(collection, accepted)
        sound, broken = [], []
        for document, item in accepted.items():
            entry = live.get(document)
            if entry is None or (isinstance(entry, Entry) and _newer(entry, seq)):
                continue
            found = texts[document]
            whole = isinstance(entry, Entry) and not entry.damaged and entry.seq == seq
            if whole and isinstance(found, tuple) and found[1] == (item.blob or b""):
                sound.append(document)
            else:
                broken.append(item)
        own = self._own(broken, collection, seq=seq)
        rewritten = []
        for item in broken:
            write = self.rewrite(item, collection, seq=seq)
            rewritten.append(replace(write, over=own.get(write.document, b"")))
        return Verdict(sound, rewritten, collection.name)

    def _own(self, broken: Sequence[Item], collection: Collection, *, seq: int) -> dict[str, bytes]:
        """Return the stored entries that are these items' own but for a damaged sequence number.

        Such a one may seem to be of a later write, which must not be touched.
        """
        sizes = {str(item.header["id"]): len(item.blob or b"") for item in broken}
        found = {}
        for document, data in self.documents.entry(collection.name, list(sizes)).items():
            # the mark of a long entry whose head is damaged; what it heads has its own CRC
            stored = bytes([data[0] & ~Flag.LONG]) + data[1:] if data else data
            entry = written_by(stored, seq)
            if entry is not None and entry.size_bytes == sizes[document]:
                found[document] = stored
        return found

    def rewrite(self, item: Item, collection: Collection, *, seq: int) -> Write:
        """Store a document again by a codec that asks no model, under the number it had."""
        model = self.models.writing(collection)
        [write] = self.place([(item, seq)], collection, model=model, plain=True)
        return write

    def place(
        self,
        items: Sequence[tuple[Item, int]],
        collection: Collection,
        *,
        model: Model,
        plain: bool = False,
    ) -> list[Write]:
        """Store documents by a model under numbers of their own; the ledger knows nothing yet.

        Args:
            items: documents with their sequence numbers.
            collection: where they go; in the model's space.
            model: what encodes and codes them.
            plain: use a codec that asks no model.
        """
        slot = self.documents.collection_artifact(collection.name, model.codec)
        drafts = []
        for row, (item, seq) in enumerate(items):
            text = item.blob or b""
            drafts.append(_Draft(row, item, text, model.cutter.cut(text), seq))
        chunks = [chunk for draft in drafts for chunk in draft.chunks]
        records: list[Record] = []
        if chunks:
            stored, records = self._encode(chunks, collection, model, slot=slot, plain=plain)
            self._put(collection, drafts, stored, records)
        writes, at = [], 0
        for draft in drafts:
            own = records[at : at + len(draft.chunks)]
            at += len(own)
            writes.append(_write(draft, own, collection))
        return writes


def _payload(item: Item) -> dict[str, Any]:
    payload: dict[str, Any] = {"d": item.header["id"]}
    if item.header.get("time") is not None:
        payload["t"] = item.header["time"]
    if item.header.get("metadata"):
        payload["m"] = item.header["metadata"]
    if LOST in item.header:
        payload[LOST] = item.header[LOST]
    return payload


def _newer(entry: Entry, seq: int) -> bool:
    """Whether a later write stands here; an earlier one never does, unless it is damaged."""
    return entry.seq > seq and not entry.damaged


def agrees(payload: Mapping[str, Any], entry: Entry | None, *, key: bytes) -> bool:
    """Whether a point carries the metadata and time that were stored, as far as is known.

    An entry of format 1 does not say, and of what was lost there is nothing to compare.
    """
    if entry is None or entry.about is None or LOST in payload:
        return True
    return about_hash(payload.get("m"), payload.get("t"), key=key) == entry.about


def header_of(document: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the item header from which a document's points get this payload."""
    header = {"id": document, "metadata": payload.get("m"), "time": payload.get("t")}
    return header | {LOST: payload[LOST]} if LOST in payload else header


def _write(draft: _Draft, records: Sequence[Record], collection: Collection) -> Write:
    header = draft.item.header
    about = about_hash(
        header.get("metadata"), header.get("time"), key=bytes.fromhex(collection.checksum_key)
    )
    entry = Entry(draft.seq, len(draft.text), tuple(records), about=about)
    keep = collection.text_policy is TextPolicy.BOTH
    return Write(draft.document, entry.pack(), draft.text if keep else None)


def _describe(draft: _Draft, records: Sequence[Record]) -> dict[str, Any]:
    return {
        "ok": True,
        "id": draft.document,
        "chunks": len(records),
        "bytes_text": len(draft.text),
        "bytes_patch": total_payload(records),
        "codecs": dict(Counter(record.codec.name.lower() for record in records)),
    }
