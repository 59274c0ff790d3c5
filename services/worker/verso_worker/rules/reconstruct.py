"""Return stored texts back exactly, and guess the texts of bare vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verso_core.errors import DocumentUnknown, VectorInvalid, VersoError, error_body
from verso_core.jobs import Collection, Item, Result, Slice
from verso_core.record import Entry, point_ids
from verso_worker.records.outputs import Timings
from verso_worker.rules.items import is_accepted, read_vector
from verso_worker.rules.ports import Models, Vectors
from verso_worker.rules.reader import Chunk, Reader


@dataclass(frozen=True, slots=True)
class Reconstruct:
    """Reads documents and records back."""

    models: Models
    vectors: Vectors
    reader: Reader

    def run(self, work: Slice, collection: Collection | None, *, timings: Timings) -> Result:
        """Read a slice's documents and records, and guess from its bare vectors.

        Args:
            work: the slice.
            collection: where its documents are; None where it names none.
            timings: added to.
        """
        items: list[dict[str, Any]] = [{} for _ in work.items]
        result = Result(items)
        rows = [row for row, item in enumerate(work.items) if is_accepted(item, items, row)]
        bare = [row for row in rows if work.items[row].header.get("vector")]
        named = [row for row in rows if not work.items[row].header.get("vector")]
        with timings.phase("restore"):
            if named and collection is not None:
                self._restore(work, collection, named, result)
            for row in bare:
                items[row] = self._guess(work.items[row], result)
        return result

    def _restore(
        self, work: Slice, collection: Collection, rows: Sequence[int], result: Result
    ) -> None:
        """Read documents, or single chunks of them, exactly."""
        whole = [row for row in rows if work.items[row].header.get("chunk") is None]
        texts = self.reader.texts(collection, [work.items[row].header["id"] for row in whole])
        single = [row for row in rows if work.items[row].header.get("chunk") is not None]
        chunks = self._single_chunks(collection, [work.items[row] for row in single])
        found: dict[int, tuple[Entry, bytes] | VersoError] = {
            row: texts[work.items[row].header["id"]] for row in whole
        }
        found |= dict(zip(single, chunks, strict=True))
        payloads = self._first_payloads(collection, work, found)
        for row, text in found.items():
            header = work.items[row].header
            about = {"id": header["id"], "chunk": header.get("chunk")}
            if isinstance(text, VersoError):
                result.items[row] = {"ok": False, "error": error_body(text)} | about
                continue
            payload = payloads.get(row, {})
            result.items[row] = about | {
                "ok": True,
                "exact": True,
                "chunks": len(text[0].records),
                "blob": result.add_blob(text[1]),
                "metadata": payload.get("m", {}),
                "time": payload.get("t"),
            }

    def _single_chunks(
        self, collection: Collection, items: Sequence[Item]
    ) -> list[tuple[Entry, bytes] | VersoError]:
        live = self.reader.live(collection, [item.header["id"] for item in items])
        found: list[tuple[Entry, bytes] | VersoError] = []
        wanted: list[tuple[int, Chunk]] = []
        for place, item in enumerate(items):
            document, chunk = item.header["id"], int(item.header["chunk"])
            entry = live.get(document)
            if isinstance(entry, VersoError):
                found.append(entry)
            elif entry is None or chunk >= len(entry.records):
                found.append(DocumentUnknown(f"no record {document}#{chunk}"))
            else:
                found.append(DocumentUnknown("not read"))
                wanted.append((place, Chunk(document, entry, chunk)))
        texts = self.reader.chunks(collection, [chunk for _, chunk in wanted])
        for (place, chunk_of), text in zip(wanted, texts, strict=True):
            found[place] = text if isinstance(text, VersoError) else (chunk_of.entry, text)
        return found

    def _first_payloads(
        self,
        collection: Collection,
        work: Slice,
        found: dict[int, tuple[Entry, bytes] | VersoError],
    ) -> dict[int, dict[str, Any]]:
        """Return what was stored beside each found document: its metadata and time."""
        points = {}
        for row, text in found.items():
            if not isinstance(text, VersoError) and text[0].records:
                document = work.items[row].header["id"]
                points[row] = point_ids(collection.name, document, text[0])[0]
        payloads = self.vectors.payloads(collection.name, list(points.values())) if points else {}
        return {row: payloads[point] for row, point in points.items() if point in payloads}

    def _guess(self, item: Item, result: Result) -> dict[str, Any]:
        model = self.models.current()
        try:
            vector = read_vector(item.blob or b"", dim=model.dim)
        except VectorInvalid as error:
            return {"ok": False, "error": error_body(error)}
        [guess] = model.recorder.engine.guess(
            vector[None], beam=int(item.header["beam"]), max_tokens=int(item.header["max_tokens"])
        )
        return {
            "ok": True,
            "exact": False,
            "blob": result.add_blob(guess.text),
            "confidence": guess.confidence,
            "log_probability": guess.log_probability,
        }
