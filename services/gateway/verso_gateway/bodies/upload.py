"""Slices of an ingest, cut while its documents are still arriving."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

from verso_core.errors import (
    BodyTooLarge,
    DocumentsRefused,
    RequestInvalid,
    TextTooLarge,
    VersoError,
)
from verso_core.jobs import (
    SLICE_BYTES,
    SLICE_ITEMS,
    AnyResult,
    IngestItem,
    IngestParams,
    Kind,
    Rejected,
    Result,
    SliceSpec,
    cut,
)
from verso_core.jobs.collections import partition_names, partition_of
from verso_core.jobs.ingest import Intaken
from verso_core.texts import MAX_TEXT_BYTES
from verso_gateway.bodies import reading
from verso_gateway.bodies.ids import NewId
from verso_gateway.bodies.intake import Intake

# a text whose every byte is written as \u00XX, its metadata and its id
LINE_BYTES = 6 * MAX_TEXT_BYTES + 64 * 1024
AHEAD_BYTES = 4 * 1024 * 1024
"""Lines are counted so far ahead of where they are read: an upload of too many short lines is
refused before the first is parsed."""
_FEW = 64  # documents that are taken at once
_INLINE = 2048  # a smaller chunk is read at once


class Upload:
    """Takes documents one by one and keeps only finished slices and one unfinished a partition.

    Args:
        collection: where the documents go.
        limit: most documents.
        beside_lines: the collection keeps lines of a log.
        partitions: how many the collection has.
        new_id: gives ids to documents without one.
    """

    def __init__(
        self,
        collection: str,
        *,
        limit: int,
        beside_lines: bool = False,
        partitions: int = 1,
        new_id: NewId | None = None,
    ) -> None:
        self.collection = collection
        self._limit = limit
        self._intake = Intake(beside_lines=beside_lines, new_id=new_id)
        names = [collection] if partitions == 1 else partition_names(collection, partitions)
        self._parts = [_Slices(name) for name in names]
        self._order = bytearray()

    async def read_documents(self, documents: list[Any]) -> None:
        """Take the documents of a JSON body out of their list, which is empty then.

        Many are taken in a thread, and each is freed there as soon as its slice has its text.

        Raises:
            BodyTooLarge: there are more than the limit.
        """
        self._check_count(len(documents))
        work = partial(self._take_documents, documents)
        await reading.off_loop(len(documents), work, above=_FEW)

    def _take_documents(self, documents: list[Any]) -> None:
        documents.reverse()
        for number in range(len(documents)):
            self._add(self._intake.take(documents.pop(), where=f"document {number}"))

    async def read_lines(self, chunks: AsyncIterator[bytes]) -> None:
        """Take an NDJSON body, a document a line; empty lines are skipped but counted.

        Each chunk is read in a thread, since it may hold thousands of lines. Its line ends are
        counted when it arrives, at a ten thousandth of that cost.

        Raises:
            BodyTooLarge: there are more than the limit; the body was read to its end, so that a
                client that still writes sees the answer.
        """
        lines, ahead = _Lines(), deque[bytes]()
        counted = ahead_bytes = 0
        async for chunk in chunks:
            counted += chunk.count(b"\n")
            if counted > self._limit:  # refused: the rest is only read to its end
                ahead.clear()
                for part in self._parts:
                    part.clear()
                continue
            ahead.append(chunk)
            ahead_bytes += len(chunk)
            while ahead_bytes > AHEAD_BYTES:
                first = ahead.popleft()
                ahead_bytes -= len(first)
                await self._read(lines, first)
        self._check_count(counted)
        for chunk in ahead:
            await self._read(lines, chunk)
        for line in lines.end():
            self._add_line(line, lines.number)
        self._check_count(lines.number)

    async def _read(self, lines: _Lines, chunk: bytes) -> None:
        await reading.off_loop(len(chunk), partial(self._take, lines, chunk), above=_INLINE)

    def _take(self, lines: _Lines, chunk: bytes) -> None:
        for line in lines.feed(chunk):
            self._add_line(line, lines.number)

    def _check_count(self, count: int) -> None:
        if count > self._limit:
            raise BodyTooLarge(
                f"expected <= {self._limit} documents in a request, got more: send them in several"
            )

    def finish(self) -> list[SliceSpec]:
        """Return all slices.

        Raises:
            RequestInvalid: there was no document.
            DocumentsRefused: every document was refused.
        """
        slices = [spec for part in self._parts for spec in part.finish()]
        if not slices:
            raise RequestInvalid("expected at least one document")
        intaken = self.intaken
        if not intaken.accepted:
            first = intaken.refusals[0].error
            raise DocumentsRefused(
                f"all {intaken.refused} documents were refused; {first.code}, {first.detail}",
                intaken=intaken.public(),
            )
        return slices

    @property
    def parts(self) -> dict[str, list[SliceSpec]]:
        """The slices of each partition that has some, by its name; none where there is one."""
        if len(self._parts) == 1:
            return {}
        return {part.collection: part.slices for part in self._parts if part.slices}

    def in_order(self, results: Sequence[AnyResult]) -> list[AnyResult]:
        """Return the results of the upload's job, which are by partition, as documents came."""
        if len(self._parts) == 1:
            return list(results)
        parts: list[deque[Any]] = [deque() for _ in self._parts]
        for result in results:
            for item in result.items:
                parts[place_of(item.id, len(parts))].append(item)
        items = [parts[number].popleft() for number in self._order]
        return [Result(items), *(Result([], result.timings_ms) for result in results)]

    @property
    def intaken(self) -> Intaken:
        """How many documents were accepted and refused so far, and the first reasons."""
        return self._intake.summary

    def _add_line(self, line: bytes | None, number: int) -> None:
        where = f"line {number}"
        if line is None:
            error: VersoError = TextTooLarge(f"expected a line of <= {LINE_BYTES} bytes")
            self._add(self._intake.refuse(error, where=where))
            return
        if not line.strip():
            return
        try:
            document = reading.parse_bounded(line, reading.LONGEST_ARRAY, what="a line")
        except RequestInvalid as error:
            self._add(self._intake.refuse(error, where=where))
        else:
            self._add(self._intake.take(document, where=where))

    def _add(self, item: IngestItem | Rejected) -> None:
        number = 0
        if len(self._parts) > 1:
            number = place_of(item.id, len(self._parts))
            self._order.append(number)
        self._parts[number].add(item)


class _Slices:
    """Cuts the documents of one collection into slices as they come.

    Args:
        collection: its name.
    """

    def __init__(self, collection: str) -> None:
        self.collection = collection
        self.slices: list[SliceSpec] = []
        self._params = IngestParams(collection=collection)
        self._pending: list[IngestItem | Rejected] = []
        self._pending_bytes = 0

    def add(self, item: IngestItem | Rejected) -> None:
        """Take a document."""
        self._pending.append(item)
        self._pending_bytes += _size(item)
        if len(self._pending) > 4 * SLICE_ITEMS or self._pending_bytes > 4 * SLICE_BYTES:
            self._cut(final=False)

    def finish(self) -> list[SliceSpec]:
        """Return all slices."""
        self._cut(final=True)
        return self.slices

    def clear(self) -> None:
        """Forget what was taken."""
        self.slices.clear()
        self._pending.clear()

    def _cut(self, *, final: bool) -> None:
        specs = list(cut(Kind.INGEST, self._params, self._pending))
        rest = [] if final or not specs else self._pending[-specs.pop().items :]
        self.slices += specs
        self._pending = rest
        self._pending_bytes = sum(map(_size, rest))


def place_of(document: str | None, partitions: int) -> int:
    """Return the partition of a document of a request; one that has no id goes to the first."""
    return 0 if document is None else partition_of(document, partitions)


def _size(item: IngestItem | Rejected) -> int:
    return len(item.text) if isinstance(item, IngestItem) else 0


class _Lines:
    """Cuts arriving bytes into lines; a line beyond the bound is dropped and shown as None."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self.number = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            yield from self.end(always=True)
        self._keep(rest)

    def end(self, *, always: bool = False) -> Iterator[bytes | None]:
        """Yield the line collected so far, if there is one."""
        if not (self._parts or self._size or always):
            return
        self.number += 1
        yield b"".join(self._parts) if self._size <= LINE_BYTES else None
        self._parts, self._size = [], 0

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= LINE_BYTES:
            if part:
                self._parts.append(part)
        else:
            self._parts = []
