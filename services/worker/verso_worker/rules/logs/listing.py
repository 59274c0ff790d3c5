"""List the lines and the records of a log collection, as documents are listed.

By id the lines in blocks come first, stream by stream and by number, and behind them what is stored
as documents: records, and lines that are text. By time both are merged, and the lines of one stream
keep their order: a line that is earlier than the one before it in the list comes right behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import numpy as np

from verso_core.errors import RequestInvalid
from verso_core.jobs import Collection, Failed, NoItem, Result, Slice
from verso_core.jobs.documents import DocumentInfo, DocumentPage, ListParams, Order, PageEnd
from verso_core.jobs.logs.lines import LineOrder, LinesParams, line_id, line_place
from verso_core.segments import Segment
from verso_worker.records import line_arrays
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.counting import in_blocks
from verso_worker.rules.logs.query.lines import LineQuery, LinesRead
from verso_worker.rules.logs.reading import Line, LineReader
from verso_worker.rules.matching import Matching

_LINES = "lines\n"
"""Begins the name of a page's end among lines: no document's id has a control character."""


@dataclass(frozen=True, slots=True)
class LineList:
    """Lists lines beside documents."""

    store: LogStore
    lines: LineReader
    query: LineQuery
    documents: Matching

    def page(self, work: Slice[ListParams, NoItem], collection: Collection) -> Result[DocumentPage]:
        """Return a page of what the filter passes, or what has the given ids.

        Raises:
            RequestInvalid: the cursor is none of this list.
            RecordCorrupt: a block does not read back.
        """
        asked = work.params
        log = self.store.open(collection.name, dim=collection.dim)
        if asked.ids is not None:
            return Result([DocumentPage(documents=tuple(self._named(work, collection, log)))])
        if asked.order is Order.TIME:
            return Result([self._by_time(asked, collection, log)])
        return Result([self._by_id(asked, collection, log)])

    def _named(
        self, work: Slice[ListParams, NoItem], collection: Collection, log: LogCollection
    ) -> Iterator[DocumentInfo]:
        documents = self.documents.page(work, collection).only.documents
        yield from documents
        missing = {*(work.params.ids or ())} - {one.id for one in documents}
        for found in self.lines.texts(collection, sorted(missing)).values():
            place = line_place(found.id or "")
            if not isinstance(found, Failed) and place is not None:
                when = round((found.time or 0.0) * 1e9)
                yield _described(log, Line(*place, when, found.data))

    def _by_id(self, asked: ListParams, collection: Collection, log: LogCollection) -> DocumentPage:
        page_end = asked.page_end
        line = _read(page_end)
        among_lines, among_documents = line is not None, page_end is not None and line is None
        wanted = asked.limit + 1
        found: list[DocumentInfo] = []
        if not asked.descending and not among_documents:
            found += self._in_order(asked, collection, log, line, wanted)
        if len(found) < wanted and not (asked.descending and among_lines):
            start = page_end if among_documents else None
            rows = self.documents.matches(collection, asked, start)
            found += [one.described for one in rows[: wanted - len(found)]]
        if asked.descending and len(found) < wanted:
            found += self._in_order(asked, collection, log, line, wanted - len(found))
        page, more = tuple(found[: asked.limit]), len(found) > asked.limit
        return DocumentPage(documents=page, next_cursor=_after(page[-1], asked) if more else None)

    def _in_order(
        self,
        asked: ListParams,
        collection: Collection,
        log: LogCollection,
        behind: tuple[int, int] | None,
        wanted: int,
    ) -> list[DocumentInfo]:
        """Return lines of blocks by their ids, from behind one on."""
        condition = Condition.of(asked.filter)
        sign = -1 if asked.descending else 1
        segments: Sequence[Segment] = in_blocks(log)[::sign]

        def rows() -> Iterator[DocumentInfo]:
            for segment in segments:
                edge = segment.first if asked.descending else segment.end - 1
                if behind is not None and sign * _compared((segment.stream, edge), behind) <= 0:
                    continue
                if condition.of_segment(segment, log.source(segment.stream)) is False:
                    continue
                for batch in self.lines.batches(log, collection, segment, condition)[::sign]:
                    for at in np.flatnonzero(batch.passing)[::sign].tolist():
                        name = segment.stream, int(batch.numbers[at])
                        if behind is None or sign * _compared(name, behind) > 0:
                            [text] = line_arrays.rows(line_arrays.take(batch.lines, np.array([at])))
                            yield _described(log, Line(*name, int(batch.when[at]), text))

        return list(islice(rows(), wanted))

    def _by_time(
        self, asked: ListParams, collection: Collection, log: LogCollection
    ) -> DocumentPage:
        """Return a page of lines and documents, merged by time; those without one come last."""
        numbers, last = _read_both(asked.page_end)
        rows = self.documents.matches(collection, asked, last)
        documents = [one.described for one in rows]
        read = self._read(asked, collection, log, numbers, asked.limit + 1)
        lines = [_described(log, line) for line in read.lines]
        merged = _merged(lines, documents, sign=-1 if asked.descending else 1)
        page = merged[: asked.limit]
        if len(merged) <= asked.limit:
            return DocumentPage(documents=tuple(one for one, _ in page))
        taken = sum(is_line for _, is_line in page)  # they are the first that were read
        if taken:
            numbers = self._read(asked, collection, log, numbers, taken).places
        shown = [one for one, is_line in page if not is_line]
        if shown:
            last = PageEnd(shown[-1].id, shown[-1].time)
        name = _LINES + json.dumps(
            [sorted(numbers.items()), None if last is None else [last.id, last.time]]
        )
        return DocumentPage(
            documents=tuple(one for one, _ in page), next_cursor=PageEnd(name).cursor(asked)
        )

    def _read(
        self,
        asked: ListParams,
        collection: Collection,
        log: LogCollection,
        places: dict[int, int],
        limit: int,
    ) -> LinesRead:
        order = LineOrder.NEWEST if asked.descending else LineOrder.OLDEST
        params = LinesParams(
            collection=asked.collection, filter=asked.filter, order=order, limit=limit
        )
        return self.query.read(log, collection, params, places)


def _merged(
    lines: Sequence[DocumentInfo], documents: Sequence[DocumentInfo], *, sign: int
) -> list[tuple[DocumentInfo, bool]]:
    """Merge lines and documents by time, each in their order, and tell which are lines.

    Args:
        lines: as they were read.
        documents: by time; those without one come last.
        sign: -1 for the newest first.
    """
    keys = accumulate((sign * (one.time or 0.0) for one in lines), max)
    of_lines = [((False, key), one, True) for key, one in zip(keys, lines, strict=True)]
    of_documents = [((one.time is None, sign * (one.time or 0.0)), one, False) for one in documents]
    rows = sorted(of_lines + of_documents, key=lambda row: row[0])
    return [(one, is_line) for _, one, is_line in rows]


def _described(log: LogCollection, line: Line) -> DocumentInfo:
    state = log.state
    return DocumentInfo(
        id=line_id(line.stream, line.number),
        written=0,
        bytes=len(line.text),
        verified=state.verified >= state.lines - state.deleted,
        chunks=1,
        metadata=dict(log.labels(line.stream)),
        time=line.time_ns / 1e9,
    )


def _compared(one: tuple[int, int], other: tuple[int, int]) -> int:
    return (one > other) - (one < other)


def _after(row: DocumentInfo, asked: ListParams) -> str:
    """Return the cursor of a list by id behind a row; lines have no number of a job."""
    name = _LINES + row.id if row.written == 0 else row.id
    return PageEnd(name).cursor(asked)


def _read(page_end: PageEnd | None) -> tuple[int, int] | None:
    """Return the line that the end of a page by id names; None for one among documents."""
    if page_end is None or not page_end.id.startswith(_LINES):
        return None
    line = line_place(page_end.id.removeprefix(_LINES))
    if line is None:
        raise RequestInvalid("expected a cursor of this list")
    return line


def _read_both(page_end: PageEnd | None) -> tuple[dict[int, int], PageEnd | None]:
    """Read where a list by time stands: in each stream, and among the documents.

    Raises:
        RequestInvalid: the cursor is none of such a list.
    """
    if page_end is None:
        return {}, None
    try:
        numbers, last = json.loads(page_end.id.removeprefix(_LINES))
        places = {int(stream): int(number) for stream, number in numbers}
        return places, None if last is None else PageEnd(str(last[0]), last[1])
    except (ValueError, TypeError, IndexError) as exc:
        raise RequestInvalid("expected a cursor of this list") from exc
