"""Read stored texts back exactly, and guess the texts of bare vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verso_core.errors import DocumentUnknown, VectorInvalid, VersoError
from verso_core.jobs import Collection, Failed, Result, Slice
from verso_core.jobs.models import text_field
from verso_core.jobs.reconstruct import (
    MAX_TOKENS,
    Guess,
    ReconstructItem,
    ReconstructParams,
    StoredText,
)
from verso_core.record import Entry, point_ids
from verso_worker.records.outputs import Timings
from verso_worker.records.space import read_unit
from verso_worker.rules.ports import Models, Vectors
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
                **text_field(guess.text),
            }
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
