"""Fit a collection's codec to its own newest texts, as a job of the queue ``scrub``.

1. List the entries, newest first, and read their chunks back from the stores until there is as much
   text as fitted tables hold.
2. Fit in a process of its own, at low priority (:mod:`verso_worker.records.generation`).
3. Load what came out as every worker will, which decodes the golden samples in this process.
4. Store the tables and name them in the collection, in one step. They are a canary then
   (:mod:`verso_worker.rules.generations`).

Nothing is stored before the last step, so a fit that is interrupted leaves nothing behind and is
done again. The number of the fit keeps a second one from counting.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from verso_codecs.mixture import HISTORY_BYTES
from verso_core.errors import ArtifactInvalid, KindUnsupported, RequestInvalid
from verso_core.jobs import CodecPolicy, Collection, CollectionKind, Result, Slice
from verso_core.jobs.fitting import (
    FitItem,
    FitParams,
    Fitted,
    Generation,
    GenerationStage,
    artifact_of,
)
from verso_core.record import Entry, Record
from verso_worker.records import generation
from verso_worker.records.outputs import Trial, Wanted
from verso_worker.rules.ports.models import Fitter, Models, Tables
from verso_worker.rules.ports.outcome import OnProgress, SliceOutcome
from verso_worker.rules.ports.stores import Documents
from verso_worker.rules.reader import Chunk, Reader

MOST_LISTED = 50_000
"""Of a collection with more documents the entries of an even part of the buckets are listed."""

READ_S = 60.0
"""Reading ends after so many seconds, with what was read by then."""

_BATCH = 64
_BUCKETS = 64
_NUMBERS = re.compile(r"(\d+)")

Order = tuple[int, list[str | int]]


@dataclass(frozen=True, slots=True)
class _Read:
    """Chunks in the order in which they were written, and their records."""

    texts: list[bytes]
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Fit:
    """Fits tables to collections."""

    models: Models
    documents: Documents
    reader: Reader
    tables: Tables
    fitter: Fitter

    def run(
        self,
        work: Slice[FitParams, FitItem],
        collection: Collection,
        *,
        name: str,
        on_progress: OnProgress,
    ) -> SliceOutcome:
        """Fit a collection that users know as ``name``; store the tables if they pay.

        Raises:
            KindUnsupported, RequestInvalid: a caller requests it of a collection that reads no
                tables.
            VersoError: the texts cannot be read now, or the fit failed.
        """
        asked, number = work.only, work.params.number
        nothing = Fitted(collection=name)
        if number is None:
            _check_fits(collection, name)
            number = collection.fitting.number
        elif collection.fitting.number != number or collection.codec_policy is CodecPolicy.FAST:
            return SliceOutcome(Result([nothing]))
        chunks = asked.chunks or self.documents.holdings(collection.name).chunks
        model = self.models.writing(collection)
        read = self._read(collection, chunks, on_progress)
        serving = collection.fitting.find(GenerationStage.SERVING)
        kept = serving is not None and artifact_of(serving.id) == model.codec
        wanted = Wanted(
            texts=read.texts,
            stored=[(record.codec, len(record.payload)) for record in read.records],
            chunks=chunks,
            policy=collection.codec_policy,
            serving=self._packed(serving) if kept and serving is not None else None,
            force=asked.force,
        )
        trial, seconds = self.fitter.fit(model.codec, wanted, on_progress)
        made = self._store(collection, model.codec, trial, number=number, chunks=chunks)
        fitted = nothing.model_copy(
            update={
                "generation": made,
                "chunks": len(read.texts),
                "held_out": trial.held_out,
                "before": trial.before,
                "after": trial.after,
                "bytes": trial.size_bytes,
                "seconds": seconds,
            }
        )
        return SliceOutcome(Result([fitted]))

    def _store(
        self, collection: Collection, codec: str, trial: Trial, *, number: int, chunks: int
    ) -> str | None:
        """Store the tables of a trial, and return the generation's id; None if there are none."""
        if trial.packed is not None:
            name, stored = generation.name_of(codec, trial.packed), generation.closed(trial.packed)
            made = Generation(
                id=name,
                stage=GenerationStage.CANARY,
                bytes=len(stored),
                level=trial.after,
                fitted=time.time(),
            )
            self.models.check_tables(codec, trial.packed)
            if self.tables.add(collection.name, made, stored, number=number, chunks=chunks):
                return name
        self.tables.tried(collection.name, number=number, chunks=chunks)
        return None

    def _packed(self, serving: Generation) -> bytes | None:
        """Return the tables that write now; None if they are gone, or damaged: they will not."""
        stored = self.tables.tables(serving.id)
        try:
            return None if stored is None else generation.opened(serving.id, stored)
        except ArtifactInvalid:
            return None

    def _read(self, collection: Collection, chunks: int, on_progress: OnProgress) -> _Read:
        """Read the newest chunks back, at most as much text as tables hold, oldest first."""
        end = time.monotonic() + READ_S
        texts: list[bytes] = []
        records: list[Record] = []
        size = 0
        newest = self._newest(collection, chunks)
        for start in range(0, len(newest), _BATCH):
            if size >= HISTORY_BYTES or time.monotonic() > end:
                break
            on_progress("read", size, HISTORY_BYTES)
            part = newest[start : start + _BATCH]
            live = self.reader.whole(collection, self.reader.live(collection, part))
            wanted = [
                Chunk(document, entry, index)
                for document in part
                if isinstance(entry := live.get(document), Entry) and not entry.damaged
                for index in reversed(range(len(entry.records)))
            ]
            for chunk, text in zip(wanted, self.reader.chunks(collection, wanted), strict=True):
                if isinstance(text, bytes) and size + len(text) <= HISTORY_BYTES:
                    texts.append(text)
                    records.append(chunk.entry.records[chunk.index])
                    size += len(text)
        return _Read(texts[::-1], records[::-1])

    def _newest(self, collection: Collection, chunks: int) -> list[str]:
        """Return the newest documents, newest first: more than tables hold, if there are so many.

        They are ordered by the jobs that wrote them, and within a job by their ids with numbers
        compared as numbers, so that the lines of a file stay in order.
        """
        rows = (
            (_order(entry.seq, document), document, entry.size_bytes)
            for document, entry in self._listed(collection, chunks)
        )
        heap: list[tuple[Order, str, int]] = []
        size = 0
        for row in rows:
            heapq.heappush(heap, row)
            size += row[2]
            while size - heap[0][2] >= HISTORY_BYTES:
                size -= heapq.heappop(heap)[2]
        return [document for _, document, _ in sorted(heap, reverse=True)]

    def _listed(self, collection: Collection, chunks: int) -> Iterator[tuple[str, Entry]]:
        """Yield the live documents of all buckets, or of an even part of them."""
        step = max(1, -(-chunks // MOST_LISTED))
        for first in range(0, collection.buckets, _BUCKETS * step):
            yield from self.reader.scan(collection, first=first, count=_BUCKETS)


def _check_fits(collection: Collection, name: str) -> None:
    if collection.kind is CollectionKind.LOGS:
        raise KindUnsupported(
            f"expected a collection of kind documents: the lines of {name!r} are fitted to while "
            "they are written"
        )
    if collection.codec_policy is CodecPolicy.FAST:
        raise RequestInvalid(
            f"expected another codec policy than fast, which reads no tables: {name!r}"
        )


def _order(seq: int, document: str) -> Order:
    # The parts of an id alternate between words and numbers, so a word never meets a number.
    parts = _NUMBERS.split(document)
    return seq, [int(part) if at % 2 else part for at, part in enumerate(parts)]
