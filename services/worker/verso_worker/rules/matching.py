"""Documents by their metadata: list, count and facet what a filter passes, change it, delete it.

The vector store passes points: metadata lies in the payload of each. A document is counted by the
point of its first chunk, and only if the ledger's live entry names that point: points of documents
that were replaced or deleted, and of attempts that never committed, may still lie in the store.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np

from verso_core.errors import (
    CollectionBusy,
    DocumentChanged,
    DocumentUnknown,
    RecordCorrupt,
    RequestInvalid,
    VectorsUnavailable,
    VersoError,
)
from verso_core.jobs import Collection, Failed, Filter, NoItem, Result, Slice
from verso_core.jobs.documents import (
    MAX_FACET_DOCUMENTS,
    Counted,
    CountParams,
    DeletedMatching,
    DeleteMatchingParams,
    DocumentInfo,
    DocumentPage,
    Facets,
    FacetsParams,
    ListParams,
    Order,
    PageEnd,
    PartItem,
    Updated,
    UpdateItem,
    UpdateParams,
)
from verso_core.record import Entry, Flag, about_hash, point_ids, vector_hash
from verso_core.texts import Metadata, values_of
from verso_worker.records.numbers import alike
from verso_worker.records.points import Placed, Point
from verso_worker.records.space import Space
from verso_worker.rules import located
from verso_worker.rules.facets import FieldValues
from verso_worker.rules.ingest import Source, as_written
from verso_worker.rules.ports.outcome import Delete, OnProgress, SliceOutcome, Write, no_progress
from verso_worker.rules.ports.stores import Documents, Lexicon, Vectors
from verso_worker.rules.reader import Chunk, Reader

PAGE = 512
"""Points read together."""
LOOKED_AT = 20_000
"""Most documents that a count looks at one by one, where the store's own count may be wrong."""

_IDS = 1 << 128
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """Finds and changes the documents of a collection by their metadata."""

    vectors: Vectors
    documents: Documents
    reader: Reader
    lexicon: Lexicon

    def page(self, work: Slice[ListParams, NoItem], collection: Collection) -> Result[DocumentPage]:
        """Return a page of the documents that the filter passes, or those of the given ids.

        Raises:
            RequestInvalid: the cursor is none of this list.
        """
        asked = work.params
        if asked.ids is not None:
            return Result([DocumentPage(documents=tuple(self._named(collection, asked.ids)))])
        found = self.matches(collection, asked, asked.page_end)
        page, more = found[: asked.limit], len(found) > asked.limit
        cursor = page[-1].page_end(asked).cursor(asked) if more else None
        rows = tuple(one.described for one in page)
        return Result([DocumentPage(documents=rows, next_cursor=cursor)])

    def matches(
        self, collection: Collection, asked: ListParams, page_end: PageEnd | None
    ) -> list[Match]:
        """Return the documents behind a page of a list, one more than its limit if there are."""
        return _Pages(self, collection, asked).after(page_end)

    def count(
        self, work: Slice[CountParams, NoItem], collection: Collection, *, on_progress: OnProgress
    ) -> Result[Counted]:
        """Count the documents that the filter passes.

        The store's own count is exact when it holds no point beside those of live documents.
        """
        where = work.params.filter
        held = self.documents.holdings(collection.name)
        if where is None:
            return Result([Counted(documents=held.documents)])
        several = held.chunks != held.documents or located.may_have(collection)
        passed = self._passed(collection, where, first=several)
        if self.vectors.count(collection.name) == held.chunks:
            return Result([Counted(documents=passed)])
        if passed > LOOKED_AT:
            return Result([Counted(documents=passed, exact=False)])
        pages = self.scan(collection, where, on_progress=on_progress)
        return Result([Counted(documents=sum(map(len, pages)))])

    def _passed(self, collection: Collection, where: Filter | None, *, first: bool) -> int:
        apart = sum(1 for _ in located.passing(self.reader, collection, where))
        return apart + self.vectors.count(collection.name, where=where, first=first)

    def facets(
        self,
        work: Slice[FacetsParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
        besides: Sequence[tuple[Metadata, int]] = (),
    ) -> Result[Facets]:
        """Count the values of fields over the documents that the filter passes.

        Args:
            work: the slice.
            collection: whose documents.
            on_progress: may end it.
            besides: metadata of what else is counted, and how many have it.

        Raises:
            RequestInvalid: it passes more than ``MAX_FACET_DOCUMENTS``.
        """
        asked = work.params
        passed = self._passed(collection, asked.filter, first=True)
        if passed > MAX_FACET_DOCUMENTS:
            raise RequestInvalid(
                f"expected a filter that <= {MAX_FACET_DOCUMENTS} documents pass, got {passed}"
            )
        counts = [FieldValues(field) for field in asked.fields]
        documents = sum(times for _, times in besides)
        for metadata, times in besides:
            for count in counts:
                count.add(values_of(metadata), times=times)
        for page in self.scan(collection, asked.filter, on_progress=on_progress):
            documents += len(page)
            for one in page:
                values = values_of(one.payload["m"])
                for count in counts:
                    count.add(values)
        described = tuple(count.described(asked.limit) for count in counts)
        return Result([Facets(documents=documents, facets=described)])

    def delete(
        self,
        work: Slice[DeleteMatchingParams, PartItem],
        collection: Collection,
        *,
        seq: int,
        on_progress: OnProgress,
    ) -> SliceOutcome:
        """Delete the documents of parts that the filter passes and that are older than this."""
        deletes: list[Delete] = []
        results: dict[int, DeletedMatching] = {}
        for index, part in work.accepted.items():
            low, high = (n * _IDS // part.parts for n in (part.part, part.part + 1))
            pages = self.scan(
                collection, work.params.filter, low=low, high=high, on_progress=on_progress
            )
            older = [one for page in pages for one in page if one.entry.seq < seq]
            deletes += [Delete(one.id, replaces=one.entry.seq) for one in older]
            results[index] = DeletedMatching(deleted=len(older))
        return SliceOutcome(
            Result(work.answered(results)), deletes=deletes, collection=collection.name
        )

    def update(
        self, work: Slice[UpdateParams, UpdateItem], collection: Collection, *, seq: int
    ) -> SliceOutcome:
        """Change the metadata and time of documents; records and vectors are copied as they are.

        Raises:
            CollectionBusy: the text of one is not verified yet, and its verify must find it.
            ObjectsUnavailable: one is in cold storage, which did not answer.
            VectorsUnavailable: the store did not give back what was put.
        """
        items = work.accepted
        live = self.reader.live(collection, [item.id for item in items.values()])
        live = self.reader.whole(collection, live)  # what is written is not in cold storage
        results: dict[int, Updated | Failed] = {}
        writes: list[Write] = []
        for index, item in items.items():
            try:
                writes.append(self._updated(collection, item, live.get(item.id), seq=seq))
                results[index] = Updated(id=item.id, written=seq)
            except (DocumentUnknown, DocumentChanged, RecordCorrupt) as error:
                results[index] = Failed.of(error, id=item.id)
        outcome: Result[Updated] = Result(work.answered(results))
        return SliceOutcome(outcome, writes=writes, collection=collection.name)

    def _updated(
        self,
        collection: Collection,
        item: UpdateItem,
        entry: Entry | VersoError | None,
        *,
        seq: int,
    ) -> Write:
        """Put points with the new metadata beside the old ones, and return the entry of both."""
        if entry is None:
            raise DocumentUnknown(f"no document {item.id!a}")
        if isinstance(entry, VersoError) or entry.damaged:
            raise RecordCorrupt(f"the entry of {item.id!a} is damaged")
        if entry.seq != item.written or entry.seq >= seq:
            raise DocumentChanged(f"{item.id!a} was written by job {entry.seq} since it was read")
        if not entry.flags & Flag.VERIFIED:
            raise CollectionBusy(f"the text of {item.id!a} is not verified yet; try again")
        old = point_ids(collection.name, item.id, entry)
        new = replace(
            entry,
            seq=seq,
            flags=Flag.VERIFIED,
            located=entry.located and not item.metadata and item.time is None,
            about=about_hash(item.metadata, item.time, key=bytes.fromhex(collection.checksum_key)),
        )
        stored = self.vectors.get(collection.name, old)
        chunks = {point: Chunk(item.id, entry, n) for n, point in enumerate(old)}
        terms = self.reader.terms(collection, chunks, self.lexicon)
        space = Space.of(collection)
        source = Source(item.id, b"", item.metadata, item.time)
        points = []
        for n, (was, name) in enumerate(
            zip(old, point_ids(collection.name, item.id, new), strict=True)
        ):
            row = stored.get(was)
            if row is None or vector_hash(space.raw(row)) != entry.records[n].vector_hash:
                raise RecordCorrupt(f"the vector of {item.id!a}, chunk {n}, is not what was stored")
            words = terms[was]
            if isinstance(words, VersoError):
                if words.retryable:
                    raise words
                raise RecordCorrupt(f"the text of {item.id!a}, chunk {n}, cannot be read")
            payload = source.payload(n, located=new.located)
            points.append(Point(name, row, payload, words))
        self._put(collection, points)
        return Write(item.id, new.pack(), replaces=entry.seq)

    def _put(self, collection: Collection, points: Sequence[Point]) -> None:
        self.vectors.put(collection.name, points)
        found = self.vectors.get(collection.name, [point.id for point in points])
        for point in points:
            if point.id not in found or not np.array_equal(found[point.id], point.stored):
                raise VectorsUnavailable("the vector store gave back other bytes than it was given")

    def _named(self, collection: Collection, ids: Sequence[str]) -> Iterator[DocumentInfo]:
        live = self.reader.live(collection, ids)
        entries = {name: entry for name, entry in live.items() if isinstance(entry, Entry)}
        points = {_first_point(collection, name, entry): name for name, entry in entries.items()}
        payloads = self.vectors.payloads(collection.name, list(points)) if points else {}
        for point, name in points.items():
            if point in payloads:
                yield Match(name, point, payloads[point], entries[name]).described

    def scan(
        self,
        collection: Collection,
        where: Filter | None,
        *,
        low: int = 0,
        high: int = _IDS,
        on_progress: OnProgress = no_progress,
    ) -> Iterator[list[Match]]:
        """Yield the documents that a filter passes, some at a time.

        ``low`` and ``high`` bound the points' ids. ``on_progress`` may end it.
        """
        for number, page in enumerate(self.points(collection, where, low=low, high=high)):
            if number:  # a short one needs no event
                on_progress("scan", number, number + 1)
            yield self.live(collection, page)

    def points(
        self, collection: Collection, where: Filter | None, *, low: int = 0, high: int = _IDS
    ) -> Iterator[list[Placed]]:
        """Yield the first chunks that pass a filter, some at a time.

        They are ordered by their ids, but that those without payload come last, in any order.
        """
        at = low
        while at < high:
            page = self.vectors.page(
                collection.name, UUID(int=at), limit=PAGE, where=where, first=True
            )
            yield [row for row in page if row[0].int < high]
            if len(page) < PAGE:
                break
            at = page[-1][0].int + 1
        apart = (
            (_first_point(collection, document, entry), {"d": document, "m": {}})
            for document, entry in located.passing(
                self.reader, collection, where, low=low, high=high
            )
        )
        inside = (row for row in apart if low <= row[0].int < high)
        yield from located.parts(inside, PAGE)

    def live(self, collection: Collection, page: Sequence[Placed]) -> list[Match]:
        """Return those of some points that live documents begin with."""
        live = self.reader.live(collection, [str(payload.get("d")) for _, payload in page])
        found = []
        for point, payload in page:
            name = str(payload.get("d"))
            entry = live.get(name)
            if isinstance(entry, Entry) and _first_point(collection, name, entry) == point:
                found.append(Match(name, point, payload, entry))
        return found


@dataclass(frozen=True, slots=True)
class Match:
    """A live document that a filter passes."""

    id: str
    point: UUID
    payload: Mapping[str, Any]
    entry: Entry

    @property
    def time(self) -> float | None:
        """Its time, Unix seconds."""
        time: float | None = self.payload.get("t")
        return time

    @property
    def described(self) -> DocumentInfo:
        """The document as a list shows it."""
        return DocumentInfo(
            id=self.id,
            written=self.entry.seq,
            bytes=self.entry.size_bytes,
            verified=bool(self.entry.flags & Flag.VERIFIED),
            chunks=len(self.entry.records),
            metadata=dict(self.payload["m"]),
            time=self.time,
        )

    def page_end(self, asked: ListParams) -> PageEnd:
        """Return where a list goes on behind it."""
        return PageEnd(self.id, self.time if asked.order is Order.TIME else None)


class _Pages:
    """One list: what it passes, in its order, from the end of a page on.

    By id the smallest ids of all points are looked for; a page costs a look at each. By time the
    store's index leads to the next points; documents of one time are ordered by id, so all points
    of the last time are read. Documents without a time come behind the others.
    """

    def __init__(self, matching: Matching, collection: Collection, asked: ListParams) -> None:
        self._matching = matching
        self._collection = collection
        self._asked = asked
        self._wanted = asked.limit + 1
        self._sign = -1 if asked.descending else 1

    def after(self, page_end: PageEnd | None) -> list[Match]:
        """Return the documents behind a page, one more than its limit if there are."""
        if self._asked.order is Order.ID:
            return self._by_id(self._asked.filter, page_end, self._wanted)
        found: list[Match] = []
        if page_end is None or page_end.time is not None:
            found = self._by_time(page_end)
        untimed = _both(self._asked.filter, Filter(field="time", exists=False))
        left = self._wanted - len(found)
        if left > 0:
            behind = page_end if page_end is not None and page_end.time is None else None
            found += self._by_id(untimed, behind, left)
        return found

    def _by_id(self, where: Filter | None, page_end: PageEnd | None, wanted: int) -> list[Match]:
        found: list[Match] = []
        # behind every point of the document itself
        after = None if page_end is None else (page_end.id, self._sign * _IDS)
        while len(found) < wanted:
            fetch = wanted - len(found) + PAGE
            rows = (
                row
                for page in self._matching.points(self._collection, where)
                for row in page
                if after is None or self._behind(_by_name(row), after)
            )
            choose = heapq.nlargest if self._asked.descending else heapq.nsmallest
            nearest = choose(fetch, rows, key=_by_name)
            found += self._matching.live(self._collection, nearest)
            if len(nearest) < fetch:
                break
            after = _by_name(nearest[-1])
        return found[:wanted]

    def _by_time(self, page_end: PageEnd | None) -> list[Match]:
        found: list[Match] = []
        edge: tuple[float, float] | None = None
        if page_end is not None:  # documents of the same time may come behind it
            end = page_end.time or 0.0
            edge = alike(end)
            here = self._of_times(*edge)
            found += [one for one in here if self._behind(_by_time(one), (end, page_end.id))]
        while len(found) < self._wanted:
            start, beyond = self._beyond(edge)
            fetch = self._wanted - len(found) + PAGE
            rows = self._matching.vectors.by_time(
                self._collection.name,
                start,
                descending=self._asked.descending,
                limit=fetch,
                where=beyond,
            )
            whole = self._as_written(self._matching.live(self._collection, rows))
            if len(rows) < fetch:
                found += self._sorted(whole)
                break
            low, above = edge = alike(rows[-1][1]["t"])
            found += self._sorted([one for one in whole if not low <= (one.time or 0.0) < above])
            known = {one.id for one in found}
            found += [one for one in self._of_times(low, above) if one.id not in known]
        return found[: self._wanted]

    def _of_times(self, low: float, above: float) -> list[Match]:
        between = Filter(field="time", gte=low, lt=above)
        pages = self._matching.scan(self._collection, _both(self._asked.filter, between))
        return self._sorted([one for page in pages for one in self._as_written(page)])

    def _as_written(self, rows: Sequence[Match]) -> list[Match]:
        """Return rows with the times that were given, where the store gives back others."""
        key = bytes.fromhex(self._collection.checksum_key)
        written = (as_written(dict(one.payload), one.entry, key=key) for one in rows)
        return [
            replace(one, payload=payload or one.payload)
            for one, payload in zip(rows, written, strict=True)
        ]

    def _sorted(self, rows: list[Match]) -> list[Match]:
        return sorted(rows, key=_by_time, reverse=self._asked.descending)

    def _beyond(self, edge: tuple[float, float] | None) -> tuple[float | None, Filter | None]:
        """Return where the store goes on behind such times, and what passes there."""
        where = self._asked.filter
        if edge is None:
            return None, where
        if self._asked.descending:
            return edge[0], _both(where, Filter(field="time", lt=edge[0]))
        return edge[1], _both(where, Filter(field="time", gte=edge[1]))

    def _behind(self, key: _Key, other: _Key) -> bool:
        return key < other if self._asked.descending else key > other


def _both(where: Filter | None, other: Filter) -> Filter:
    return other if where is None else where & other


def _by_time(row: Match) -> tuple[float, str]:
    return row.time or 0.0, row.id


def _by_name(row: Placed) -> tuple[str, int]:
    return str(row[1].get("d")), row[0].int


def _first_point(collection: Collection, document: str, entry: Entry) -> UUID:
    """Return the point of a document's first chunk, which every document has."""
    [point] = point_ids(collection.name, document, replace(entry, records=entry.records[:1]))
    return point
