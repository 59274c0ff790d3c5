"""Read stored texts back exactly, guess the texts of bare vectors, and describe stored records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from verso_core.errors import DocumentUnknown, VectorInvalid, VersoError
from verso_core.jobs import Collection, Failed, ItemError, Result, Slice
from verso_core.jobs.models import text_field
from verso_core.jobs.reconstruct import (
    MAX_TOKENS,
    Correction,
    Draft,
    Guess,
    ReconstructItem,
    ReconstructParams,
    RecordsItem,
    RecordsParams,
    StoredRecord,
    StoredRecords,
    StoredText,
)
from verso_core.record import Entry, Flag, point_ids
from verso_worker.records.outputs import Predicted, Timings
from verso_worker.records.recorder import Guess as Guessed
from verso_worker.records.space import Space, Stored, read_unit
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.stores import Vectors
from verso_worker.rules.reader import Chunk, Reader


@dataclass(frozen=True, slots=True)
class Reconstruct:
    """Reads documents and records back."""

    models: Models
    vectors: Vectors
    reader: Reader

    def run(
        self,
        work: Slice[ReconstructParams, ReconstructItem],
        collection: Collection | None,
        *,
        timings: Timings,
    ) -> Result[StoredText | Guess]:
        """Read a slice's documents and records, and guess from its bare vectors.

        Args:
            work: the slice.
            collection: the collection of its documents; None if it names no documents.
            timings: added to.
        """
        named = {index: item for index, item in work.accepted.items() if not item.vector}
        found: dict[int, StoredText | Guess | Failed] = {}
        with timings.phase("restore"):
            if named and collection is not None:
                found |= self._stored(collection, named)
            for index, item in work.accepted.items():
                if item.vector:
                    found[index] = self._guess(item)
        items: list[StoredText | Guess | Failed] = work.answered(found)
        return Result(items)

    def _stored(
        self, collection: Collection, items: Mapping[int, ReconstructItem]
    ) -> dict[int, StoredText | Failed]:
        """Read documents, or single chunks of them, exactly."""
        whole = [index for index, item in items.items() if item.chunk is None]
        texts = self.reader.texts(collection, [items[index].id for index in whole])
        single = {index: item for index, item in items.items() if item.chunk is not None}
        chunks = self._single_chunks(collection, list(single.values()))
        found: dict[int, tuple[Entry, bytes] | VersoError] = {
            index: texts[items[index].id] for index in whole
        }
        found |= dict(zip(single, chunks, strict=True))
        payloads = self._first_payloads(collection, items, found)
        return {
            index: _described(items[index], text, payloads.get(index, {}))
            for index, text in found.items()
        }

    def _single_chunks(
        self, collection: Collection, items: Sequence[ReconstructItem]
    ) -> list[tuple[Entry, bytes] | VersoError]:
        live = self.reader.live(collection, [item.id for item in items])
        found: list[tuple[Entry, bytes] | VersoError] = []
        wanted: list[tuple[int, Chunk]] = []
        for index, item in enumerate(items):
            document, chunk = item.id, item.chunk or 0
            entry = live.get(document)
            if isinstance(entry, VersoError):
                found.append(entry)
            elif entry is None or chunk >= len(entry.records):
                found.append(DocumentUnknown(f"no record {document}#{chunk}"))
            else:
                found.append(DocumentUnknown("not read"))
                wanted.append((index, Chunk(document, entry, chunk)))
        texts = self.reader.chunks(collection, [chunk for _, chunk in wanted])
        for (index, chunk_of), text in zip(wanted, texts, strict=True):
            found[index] = text if isinstance(text, VersoError) else (chunk_of.entry, text)
        return found

    def _first_payloads(
        self,
        collection: Collection,
        items: Mapping[int, ReconstructItem],
        found: dict[int, tuple[Entry, bytes] | VersoError],
    ) -> dict[int, dict[str, Any]]:
        """Return the payload of each found document's first point: its metadata and time."""
        points = {}
        for index, text in found.items():
            if not isinstance(text, VersoError) and text[0].records:
                points[index] = point_ids(collection.name, items[index].id, text[0])[0]
        payloads = self.vectors.payloads(collection.name, list(points.values())) if points else {}
        return {index: payloads[point] for index, point in points.items() if point in payloads}

    def _guess(self, item: ReconstructItem) -> Guess | Failed:
        model = self.models.current()
        try:
            vector = read_unit(item.data or b"", dim=model.dim)
        except VectorInvalid as error:
            return Failed.of(error)
        [guess] = model.recorder.engine.guess(
            vector[None], beam=item.beam or 1, max_tokens=item.max_tokens or MAX_TOKENS
        )
        return Guess.model_validate(
            {
                "exact": False,
                "confidence": guess.confidence,
                "log_probability": guess.log_probability,
                "cosine": guess.cosine,
                **text_field(guess.text),
            }
        )


@dataclass(frozen=True, slots=True)
class DescribeRecords:
    """Describes how documents are stored, and what the decoder makes of their vectors."""

    models: Models
    vectors: Vectors
    reader: Reader

    def run(
        self, work: Slice[RecordsParams, RecordsItem], collection: Collection, *, timings: Timings
    ) -> Result[StoredRecords]:
        """Describe the records of a slice's documents."""
        live = self.reader.live(collection, [item.id for item in work.accepted.values()])
        live = self.reader.whole(collection, live)
        found: dict[int, StoredRecords | Failed] = {}
        for index, item in work.accepted.items():
            entry = live.get(item.id)
            if entry is None or (isinstance(entry, Entry) and not _holds(entry, item)):
                name = item.id if item.chunk is None else f"{item.id}#{item.chunk}"
                entry = DocumentUnknown(f"no document or record {name}")
            if isinstance(entry, VersoError):
                found[index] = Failed.of(entry, id=item.id, chunk=item.chunk)
            else:
                found[index] = self._document(collection, item, entry, work.params, timings)
        return Result(work.answered(found))

    def _document(
        self,
        collection: Collection,
        item: RecordsItem,
        entry: Entry,
        asked: RecordsParams,
        timings: Timings,
    ) -> StoredRecords:
        first = 0 if item.chunk is None else item.chunk
        last = len(entry.records) if item.chunk is None else item.chunk + 1
        chunks = [Chunk(item.id, entry, n) for n in range(first, min(last, first + asked.limit))]
        with timings.phase("restore"):
            texts = self.reader.chunks(collection, chunks)
        points = point_ids(collection.name, item.id, entry)
        with timings.phase("store"):
            stored = self.vectors.get(collection.name, [points[one.index] for one in chunks])
        rows = {n: stored[point] for n, point in enumerate(points) if point in stored}
        drafts: dict[int, Draft] = {}
        if asked.draft:
            readable = {
                one.index: text
                for one, text in zip(chunks, texts, strict=True)
                if isinstance(text, bytes) and one.index in rows
            }
            with timings.phase("infer"):
                drafts = self._drafts(collection, readable, rows)
        return StoredRecords(
            id=item.id,
            chunks=len(entry.records),
            written=entry.seq,
            verified=bool(entry.flags & Flag.VERIFIED),
            bytes_text=entry.size_bytes,
            bytes_entry=len(self.reader.documents.entry(collection.name, [item.id])[item.id]),
            records=tuple(
                _record(
                    collection,
                    one,
                    text,
                    row=rows.get(one.index),
                    with_vector=asked.vector,
                    draft=drafts.get(one.index),
                )
                for one, text in zip(chunks, texts, strict=True)
            ),
        )

    def _drafts(
        self, collection: Collection, texts: Mapping[int, bytes], rows: Mapping[int, Stored]
    ) -> dict[int, Draft]:
        """Return what the decoder makes of the vectors of some chunks."""
        if not texts:
            return {}
        model = self.models.writing(collection)
        vectors = Space.of(collection).widen(np.stack([rows[n] for n in texts]))
        guesses = model.recorder.engine.guess(vectors, beam=1, max_tokens=MAX_TOKENS)
        pieces = [model.recorder.segmenter.segments(text) for text in texts.values()]
        flat = [piece for own in pieces for piece in own]
        repeated = np.repeat(vectors, [len(own) for own in pieces], axis=0)
        predicted = iter(model.heads.predict(flat, repeated))
        return {
            n: _draft(text, guess, list(zip(own, predicted, strict=False)))
            for (n, text), guess, own in zip(texts.items(), guesses, pieces, strict=True)
        }


def _holds(entry: Entry, item: RecordsItem) -> bool:
    return item.chunk is None or item.chunk < len(entry.records)


def _record(
    collection: Collection,
    chunk: Chunk,
    text: bytes | VersoError,
    *,
    row: Stored | None,
    with_vector: bool,
    draft: Draft | None,
) -> StoredRecord:
    record, space = chunk.entry.records[chunk.index], Space.of(collection)
    slot, known = record.slot, collection.artifacts
    more: dict[str, Any] = {}
    if isinstance(text, bytes):
        more["bytes_text"] = len(text)
    else:
        more["error"] = ItemError.of(text)
    if with_vector and row is not None:
        more["vector"] = tuple(space.widen(row[None])[0].tolist())
    if draft is not None:
        more["draft"] = draft
    return StoredRecord(
        id=f"{chunk.document}#{chunk.index}",
        codec=record.codec.name.lower(),
        artifact=known[slot] if slot < len(known) else "",
        bytes_patch=1 + len(record.payload),
        bytes_vector=0 if row is None else len(space.raw(row)),
        vector_hash=record.vector_hash.hex(),
        **more,
    )


def _draft(
    text: bytes, guess: Guessed, segments: Sequence[tuple[bytes, list[Predicted] | None]]
) -> Draft:
    corrections: list[Correction] = []
    starts = [byte & 0xC0 != 0x80 for byte in text]  # of characters; others continue one
    before = [0, *accumulate(starts)]  # characters that start before each byte
    at = tokens = right = 0
    for segment, predicted in segments:
        place = at
        for one in predicted or ():
            end = place + len(one.token)
            tokens += 1
            if one.guess == one.token:
                right += 1
            else:
                corrections.append(
                    Correction(
                        start=before[place + 1] - 1,
                        end=before[end],
                        start_byte=place,
                        end_byte=end,
                        guess=one.guess.decode("utf-8", "replace"),
                    )
                )
            place = end
        at += len(segment)
    return Draft(
        guess=guess.text.decode("utf-8", "replace"),
        confidence=guess.confidence,
        log_probability=guess.log_probability,
        tokens=tokens,
        right=right,
        corrections=tuple(corrections),
    )


def _described(
    item: ReconstructItem, text: tuple[Entry, bytes] | VersoError, payload: Mapping[str, Any]
) -> StoredText | Failed:
    if isinstance(text, VersoError):
        return Failed.of(text, id=item.id, chunk=item.chunk)
    entry, data = text
    return StoredText.model_validate(
        {
            "id": item.id,
            "chunk": item.chunk,
            "exact": True,
            "chunks": len(entry.records),
            "metadata": payload.get("m", {}),
            "time": payload.get("t"),
            **text_field(data),
        }
    )
