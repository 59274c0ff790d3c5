"""The records of one request as lines of streams."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from verso_core.errors import VersoError
from verso_core.jobs import SliceSpec, cut_lines
from verso_core.jobs.logs.lines import LINES_BYTES, IngestLinesParams, LinesItem
from verso_core.jobs.logs.records import LineRecord, TimeFrom, marked, write_line
from verso_core.segments import Reserved
from verso_gateway.feed.records import LogRecord
from verso_ledger import AsyncLedger
from verso_ledger.collections.logs import labels_key

_HASH_BYTES = 16


class StreamKey(NamedTuple):
    """What lines of a request are written to.

    Attributes:
        collection: its name.
        labels: as the ledger knows a stream by them.
        made: when the collection that the sender may write to was made; empty if that is not known.
    """

    collection: str
    labels: str
    made: str = ""


@dataclass(slots=True)
class StreamLines:
    """Lines of one stream, in order.

    Attributes:
        labels: of the stream, with the mark of records.
        lines: without line ends.
        positions: of each in its request.
        hashes: of each identity; empty for a record without one.
    """

    labels: dict[str, str]
    lines: list[bytes] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)

    def chosen(self, numbers: Sequence[int]) -> StreamLines:
        """Return some of the lines."""
        return StreamLines(
            self.labels,
            [self.lines[n] for n in numbers],
            [self.positions[n] for n in numbers],
            [self.hashes[n] for n in numbers],
        )

    def extend(self, other: StreamLines) -> None:
        """Add the lines of another request of the same stream."""
        self.lines += other.lines
        self.positions += other.positions
        self.hashes += other.hashes


@dataclass(slots=True)
class Batch:
    """The lines of one request by their streams.

    Attributes:
        streams: the lines.
        size_bytes: of all lines.
        identified: whether a record has an identity.
        repeated: positions whose identity stands earlier in the request, and where that is first;
            they are no lines.
    """

    streams: dict[StreamKey, StreamLines] = field(default_factory=dict)
    size_bytes: int = 0
    identified: bool = False
    repeated: dict[int, int] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str], made: Mapping[str, str]) -> Batch:
        """Return the lines with other names of their collections, where there is one.

        Streams that have one name then are one.

        Args:
            names: the new ones, by the old.
            made: when each of the new ones was made, where that is known.
        """
        streams: dict[StreamKey, StreamLines] = {}
        for key, one in self.streams.items():
            renamed = key
            if (name := names.get(key.collection)) is not None:
                renamed = StreamKey(name, key.labels, made.get(name, ""))
            streams.setdefault(renamed, StreamLines(one.labels)).extend(one)
        return Batch(streams, self.size_bytes, self.identified, self.repeated)

    def without(self, keys: Collection[StreamKey]) -> Batch:
        """Return the lines of the other streams."""
        streams = {key: one for key, one in self.streams.items() if key not in keys}
        size = sum(len(line) + 1 for one in streams.values() for line in one.lines)
        return Batch(streams, size, self.identified, self.repeated)

    def split(self, most: int) -> list[Batch]:
        """Return the lines as batches of at most so many streams."""
        found, rows = [], list(self.streams.items())
        for start in range(0, len(rows), most):
            streams = dict(rows[start : start + most])
            size = sum(len(line) + 1 for one in streams.values() for line in one.lines)
            found.append(Batch(streams, size, self.identified))
        return found

    def parted(self, ledgers: Mapping[str, AsyncLedger]) -> dict[str, Batch]:
        """Return the lines by the name of the ledger that takes them in.

        Args:
            ledgers: of each collection.
        """
        found: dict[str, Batch] = {}
        for stream_key, stream in self.streams.items():
            part = found.setdefault(ledgers[stream_key[0]].name, Batch())
            part.streams[stream_key] = stream
            part.size_bytes += sum(len(line) + 1 for line in stream.lines)
            part.identified = self.identified
        return found


def batch_of(
    records: Iterable[tuple[int, LogRecord]],
    collections: Mapping[str, str],
    *,
    arrived_ns: int,
    made: Mapping[str, str] | None = None,
    by_content: bool = False,
) -> Batch:
    """Return records as lines.

    Args:
        records: with their positions in the request.
        collections: name of the collection by the source of a record; others are left out.
        arrived_ns: time of records that have none, Unix nanoseconds.
        made: when each collection was made, by its name, where that is known.
        by_content: whether records without an identity have one made of all that they say.
    """
    batch = Batch()
    known: dict[tuple[object, ...], StreamLines] = {}  # a key is made once for equal labels
    seen: dict[tuple[str, bytes], int] = {}
    for position, record in records:
        collection = collections.get(record.source)
        if collection is None:
            continue
        hashed = _identity(record, by_content=by_content)
        if hashed:
            first = seen.setdefault((collection, hashed), position)
            if first != position:
                batch.repeated[position] = first
                continue
        pairs = (collection, *record.labels.items())
        stream = known.get(pairs)
        if stream is None:
            labels = marked(record.labels)
            key = StreamKey(collection, labels_key(labels), (made or {}).get(collection, ""))
            stream = batch.streams.setdefault(key, StreamLines(labels))
            known[pairs] = stream
        line = _line(record, arrived_ns)
        batch.size_bytes += len(line) + 1
        stream.lines.append(line)
        stream.positions.append(position)
        stream.hashes.append(hashed)
    batch.identified = bool(seen)
    return batch


def _identity(record: LogRecord, *, by_content: bool) -> bytes:
    """Return the hash by which a repeat of a record is recognised; empty if none is."""
    if record.identity is not None:
        return hashlib.blake2b(record.identity.encode(), digest_size=_HASH_BYTES).digest()
    if not by_content:
        return b""
    said = hashlib.blake2b(digest_size=_HASH_BYTES, person=b"content")
    labels = labels_key(dict(record.labels)).encode()
    for part in (labels, str(record.time_ns).encode(), record.attributes, record.text):
        said.update(b"%d " % len(part) + part)
    return said.digest()


async def reserve_all(
    ledger: AsyncLedger, streams: Sequence[tuple[StreamKey, StreamLines]]
) -> list[Reserved | VersoError]:
    """Reserve numbers for streams of collections; return the places, or why there is none.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    asked = [(key.collection, one.labels, len(one.lines), key.made) for key, one in streams]
    return await ledger.reserve_each(asked)


def slices_of(collection: str, stream: StreamLines, place: Reserved) -> list[SliceSpec]:
    """Return the slices of a stream's lines, each of about ``LINES_BYTES``."""
    params = IngestLinesParams(
        collection=collection,
        uid=place.uid,
        stream=place.stream,
        labels=stream.labels,
        arrived=time.time_ns(),
    )
    found: list[SliceSpec] = []
    begin = size = 0
    for end, line in enumerate(stream.lines, 1):
        size += len(line) + 1
        if size >= LINES_BYTES or end == len(stream.lines):
            text = b"\n".join([*stream.lines[begin:end], b""])
            item = LinesItem(place.first + begin, end - begin, text)
            found.append(cut_lines(params, item))
            begin, size = end, 0
    return found


def _line(record: LogRecord, arrived_ns: int) -> bytes:
    if record.time_ns is None:
        return write_line(LineRecord(record.text, TimeFrom.ARRIVAL, record.attributes), arrived_ns)
    return write_line(LineRecord(record.text, record.time_from, record.attributes), record.time_ns)
