"""Lines of log collections, as workers read and write them.

A line has a stream and a number in it. Lines lie in segments: values of up to 2,048 consecutive
lines, which this package does not look into. What a reader caches of a collection is valid as long
as its :class:`LogState` stays: lists only grow, and a segment is only ever replaced as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from verso_core.errors import CollectionUnknown, LedgerBehind, RequestInvalid
from verso_core.segments import LinesWrite, LogState, Memory, Reserved, Segment
from verso_ledger import codec
from verso_ledger.collections.documents import Locations
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts

MAX_STREAMS = 1_000_000
"""Most streams of a collection."""
_PAGE = 64
_MEASURED = 2_000
"""Segments whose memory is measured; that of more is estimated from as many."""

ListKind = Literal["shapes", "statements"]


def labels_key(labels: Mapping[str, str]) -> str:
    """Return labels as the ledger knows a stream by them."""
    return json.dumps(labels, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def reserve_args(collection: str, labels: Mapping[str, str], lines: int) -> list[codec.Arg]:
    """Return the arguments of ``reserve.lua``."""
    return [collection, labels_key(labels), lines, MAX_STREAMS]


def reserved(reply: Any) -> Reserved:
    """Read the reply of ``reserve.lua``.

    Raises:
        CollectionUnknown: there is no such collection.
        LedgerBehind: the ledger is read-only.
        RequestInvalid: the collection has as many streams as it may.
    """
    if isinstance(reply, bytes):
        match codec.text(reply):
            case "read_only":
                raise LedgerBehind
            case "crowded":
                raise RequestInvalid(f"expected <= {MAX_STREAMS} sets of labels in a collection")
            case _:
                raise CollectionUnknown("no collection of this name")
    uid, stream, first = reply
    return Reserved(codec.text(uid), int(stream), int(first))


def write_args(lines: LinesWrite) -> list[codec.Arg]:
    """Return the arguments that ``put_segments`` in ``segments.lua`` reads."""
    args: list[codec.Arg] = [len(lines.segments), lines.collection, lines.uid]
    for one in lines.segments:
        place = one.segment
        args += [place.stream, place.first, place.pack(), place.lines, one.text_bytes, one.data]
    return args


class Logs:
    """Lines of log collections, by the collection's own name or its uid."""

    def __init__(self, scripts: Scripts, locations: Locations) -> None:
        self._run = scripts.run
        self._redis = scripts.client
        self._locations = locations

    def reserve(self, collection: str, labels: Mapping[str, str], lines: int) -> Reserved:
        """Reserve numbers for lines; the collection by the name that users know."""
        return reserved(self._run("reserve", reserve_args(collection, labels, lines)))

    def state(self, collection: str) -> LogState:
        """Return what a collection holds now.

        Raises:
            CollectionUnknown: there is no collection of this name.
        """
        uid, _ = self._locations.find(collection, fresh=True)
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(key("log", uid))
            pipe.llen(key("shapes", uid))
            pipe.llen(key("statements", uid))
            row, shapes, statements = pipe.execute()
        number = {codec.text(name): int(value) for name, value in row.items()}
        return LogState(
            uid=uid,
            written=number.get("v", 0),
            removed=number.get("r", 0),
            shapes=shapes,
            statements=statements,
            lines=number.get("lines", 0),
            deleted=number.get("gone", 0),
            verified=number.get("verified", 0),
            text_bytes=number.get("text", 0),
            segment_bytes=number.get("bytes", 0),
        )

    def streams(self, uid: str) -> dict[int, dict[str, str]]:
        """Return the labels of each stream."""
        with translated():
            rows = cast("dict[bytes, bytes]", self._redis.hgetall(key("streams", uid)))
        return {int(value.split()[0]): json.loads(name) for name, value in rows.items()}

    def rows(self, uid: str, kind: ListKind, *, first: int = 0) -> list[bytes]:
        """Return the elements of a list from one on."""
        with translated():
            return cast("list[bytes]", self._redis.lrange(key(kind, uid), first, -1))

    def append(
        self, collection: str, uid: str, kind: ListKind, *, known: int, rows: Sequence[bytes]
    ) -> bool:
        """Append to a list if it still has ``known`` elements; return whether it had.

        Raises:
            CollectionUnknown: the collection is gone.
            LedgerBehind: the ledger is read-only.
        """
        return _checked(self._run("log_append", [collection, uid, kind, known, *rows])) == "done"

    def tables(self, uid: str) -> dict[int, bytes]:
        """Return the fitted tables by generation."""
        with translated():
            rows = cast("dict[bytes, bytes]", self._redis.hgetall(key("fitted", uid)))
        return {int(generation): packed for generation, packed in rows.items()}

    def put_tables(self, collection: str, uid: str, generation: int, packed: bytes) -> bytes:
        """Store the tables of a generation unless there are some; return those that are stored.

        Raises:
            CollectionUnknown: the collection is gone.
            LedgerBehind: the ledger is read-only.
        """
        reply = self._run("log_fitted", [collection, uid, generation, packed])
        _checked(reply if len(reply) < 16 else b"done")
        return cast("bytes", reply)

    def segments(self, uid: str, *, after: int = 0) -> list[bytes]:
        """Return the members of the segments written after segment number ``after``."""
        with translated():
            return cast(
                "list[bytes]", self._redis.zrangebyscore(key("segments", uid), f"({after}", "+inf")
            )

    def read(self, uid: str, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Return segments by stream and first number; None for one that is gone."""
        return self._values([key("segment", uid, *place) for place in places])

    def gone(self, uid: str, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Return the bitmaps of segments' deleted lines; None for one without any."""
        return self._values([key("gone", uid, *place) for place in places])

    def heads(self, uid: str, places: Sequence[tuple[int, int]], *, size: int) -> list[bytes]:
        """Return the first bytes of segments; empty for one that is gone."""
        found: list[bytes] = []
        with translated():
            for start in range(0, len(places), 512):
                with self._redis.pipeline(transaction=False) as pipe:
                    for stream, first in places[start : start + 512]:
                        pipe.getrange(key("segment", uid, stream, first), 0, size - 1)
                    found += pipe.execute()
        return found

    def swap(
        self,
        collection: str,
        uid: str,
        old: Sequence[tuple[Segment, bytes]],
        new: Sequence[tuple[Segment, bytes, bytes]],
    ) -> bool:
        """Replace segments by others of the same lines.

        Args:
            collection: own name.
            uid: of the collection.
            old: segments, and the bitmap of deleted lines of each.
            new: segments, their data and bitmaps.

        Returns:
            Whether they were replaced: False if one has changed meanwhile.
        """
        args: list[codec.Arg] = [collection, uid, len(old), len(new)]
        for one, bitmap in old:
            args += [one.stream, one.first, one.pack(), bitmap]
        for one, data, bitmap in new:
            args += [one.stream, one.first, one.pack(), data, bitmap]
        return _checked(self._run("segments_swap", args)) == "done"

    def delete(
        self, collection: str, uid: str, lines: Sequence[tuple[Segment, bytes]]
    ) -> int | None:
        """Delete the lines of bitmaps; return how many were there, None if a segment was replaced.

        Raises:
            LedgerBehind: the ledger is read-only.
        """
        args: list[codec.Arg] = [collection, uid]
        for one, bitmap in lines:
            args += [one.stream, one.first, one.pack(), one.lines, bitmap]
        reply = self._run("segments_delete", args)
        if isinstance(reply, int):
            return reply
        _checked(reply)
        return None

    def memory(self, uid: str) -> Memory:
        """Return what a collection's keys take in memory, those of many segments estimated."""
        members = self.segments(uid)
        step = max(1, len(members) // _MEASURED)
        sample = [Segment.unpack(member) for member in members[::step]]
        names = [
            key("shapes", uid), key("statements", uid), key("fitted", uid),
            key("log", uid), key("streams", uid), key("segments", uid),
        ]  # fmt: skip
        own = len(names)
        names += [key("segment", uid, one.stream, one.first) for one in sample]
        names += [key("gone", uid, one.stream, one.first) for one in sample]
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.memory_usage(name, samples=0)
            sizes = [size or 0 for size in pipe.execute()]
        segments = sum(sizes[own:]) * len(members) // max(1, len(sample))
        shapes, statements, tables = sizes[:3]
        return Memory(sum(sizes[:own]) + segments, shapes, statements, tables, segments)

    def _values(self, names: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        with translated():
            for start in range(0, len(names), _PAGE):
                part = names[start : start + _PAGE]
                found += cast("list[bytes | None]", self._redis.mget(part))
        return found


def _checked(reply: bytes) -> str:
    """Return the word of a reply.

    Raises:
        CollectionUnknown: the collection is gone.
        LedgerBehind: the ledger is read-only.
    """
    word = codec.text(reply)
    if word == "read_only":
        raise LedgerBehind
    if word == "gone":
        raise CollectionUnknown("the collection is gone")
    return word
