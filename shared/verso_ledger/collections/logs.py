"""Lines of log collections, as workers read and write them.

A line has a stream and a number in it. Lines lie in segments: values of up to 2,048 consecutive
lines, which this package does not look into. What a reader caches of a collection is valid as long
as its :class:`LogState` stays: lists only grow, and a segment is only ever replaced as a whole.

Every value has a check, so that one flipped bit is corrected where it is read: streams that of
:func:`stream_value`, the counters by counting again (:meth:`Logs.put_counts`), all others one that
the workers write and know.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from verso_core.crc import flipped
from verso_core.errors import (
    CollectionBusy,
    CollectionUnknown,
    LedgerBehind,
    RecordCorrupt,
    RequestInvalid,
)
from verso_core.jobs.collections import STREAMS, collection_of_partition
from verso_core.segments import (
    Basis,
    LinesDelete,
    LinesWrite,
    LogState,
    LogValue,
    Memory,
    Reserved,
    Segment,
)
from verso_ledger.codec import scalars
from verso_ledger.codec.admission import ROLLED
from verso_ledger.collections.locations import Locations
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import CollectionReplaced, PartitionRolled
from verso_ledger.scripts import Scripts

MAX_STREAMS = 1_000_000
"""Most streams of a collection."""
_PAGE = 64
_MEASURED = 2_000
"""Segments whose memory is measured; that of more is estimated from as many."""

_STREAM = re.compile(rb"[0-9a-f]+ (([0-9]+) [0-9]+)")

ListKind = Literal["shapes", "statements"]


def labels_key(labels: Mapping[str, str]) -> str:
    """Return labels as the ledger knows a stream by them."""
    return json.dumps(labels, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def reserve_args(
    collection: str, labels: Mapping[str, str], lines: int, *, made: str = ""
) -> list[scalars.Arg]:
    """Return the arguments of ``reserve.lua``."""
    most = MAX_STREAMS if collection_of_partition(collection) is None else STREAMS
    return [collection, labels_key(labels), lines, most, made]


def stream_value(labels: bytes, row: bytes) -> bytes:
    """Return a stream as it is stored: a check, then its number and that of its next line."""
    check = hashlib.sha1(labels + b" " + row, usedforsecurity=False).hexdigest()
    return check[:8].encode() + b" " + row


def correct_stream(labels: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """Return a stream's labels and value as they were stored; None if more than a bit is wrong."""
    if _is_stream(labels, value):
        return labels, value
    near = ((labels, flipped(value, place)) for place in range(8 * len(value)))
    other = ((flipped(labels, place), value) for place in range(8 * len(labels)))
    return next((row for rows in (near, other) for row in rows if _is_stream(*row)), None)


def _is_stream(labels: bytes, value: bytes) -> bool:
    found = _STREAM.fullmatch(value)
    return found is not None and stream_value(labels, found[1]) == value


def reserved(reply: Any) -> Reserved:
    """Read the reply of ``reserve.lua``.

    Raises:
        CollectionBusy: it is being moved to another ledger, or has moved.
        CollectionUnknown: there is no such collection.
        CollectionReplaced: it was made at another time than the one that the caller has seen.
        LedgerBehind: the ledger is read-only.
        PartitionRolled: it is a partition by time that takes no more lines.
        RecordCorrupt: which number comes next in the stream is not known any more.
        RequestInvalid: the collection has as many streams as it may.
    """
    if isinstance(reply, bytes):
        match scalars.text(reply):
            case "read_only":
                raise LedgerBehind
            case "moving":
                raise CollectionBusy("the collection is being moved to another ledger")
            case "replaced":
                raise CollectionReplaced
            case "rolled":
                raise PartitionRolled(ROLLED)
            case "damaged":
                raise RecordCorrupt("expected the numbers of a stream, got other bytes")
            case "crowded":
                raise RequestInvalid(
                    f"expected <= {MAX_STREAMS} sets of labels in a collection, "
                    f"{STREAMS} in a partition"
                )
            case _:
                raise CollectionUnknown("no collection of this name")
    uid, stream, first = reply
    return Reserved(scalars.text(uid), int(stream), int(first))


def write_args(lines: LinesWrite) -> list[scalars.Arg]:
    """Return the arguments that ``put_segments`` in ``segments.lua`` reads."""
    args = [len(lines.segments), lines.collection, lines.uid, *_basis_args(lines.basis)]
    for one in lines.segments:
        place = one.segment
        args += [place.stream, place.first, place.pack(), place.lines, one.text_bytes, one.data]
    return args


def _basis_args(basis: Basis) -> list[scalars.Arg]:
    """Return the arguments that ``has_basis`` in ``segments.lua`` reads."""
    return [basis.shapes, basis.last, basis.generation, basis.tables]


class Logs:
    """Lines of log collections, by the collection's own name or the uid of its lines.

    Vectors of statements are kept under the uid of the collection itself.
    """

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
        for fresh in (False, True):
            own, _ = self._locations.find(collection, fresh=fresh)
            uid = own.partition(".")[0]  # a migration gives its target the uid and a fraction
            with translated(), self._redis.pipeline(transaction=True) as pipe:
                pipe.hget(key("uids"), collection)
                pipe.hgetall(key("log", uid))
                pipe.zrange(key("segments", uid), -1, -1, withscores=True)
                pipe.llen(key("shapes", uid))
                pipe.llen(key("statements", own))
                now, row, newest, shapes, statements = pipe.execute()
            if now is not None and scalars.text(now) == own:
                break
        else:
            raise CollectionUnknown(f"no collection is named {collection[:64]!r}")
        number = {scalars.text(name): _number(value) for name, value in row.items()}
        return LogState(
            uid=uid,
            written=int(newest[0][1]) if newest else 0,
            removed=number.get("r", 0),
            shapes=shapes,
            statements=statements,
            lines=number.get("lines", 0),
            deleted=number.get("gone", 0),
            bitmaps=number.get("masks", 0),
            verified=number.get("verified", 0),
            text_bytes=number.get("text", 0),
            segment_bytes=number.get("bytes", 0),
            cold_bytes=number.get("cold", 0),
            vectors=own,
            newest=newest[0][0] if newest else b"",
        )

    def streams(self, uid: str) -> dict[int, dict[str, str]]:
        """Return the labels of each stream, but for damaged ones."""
        rows = (correct_stream(*row) for row in self.stored_streams(uid).items())
        return {int(row[1].split()[1]): json.loads(row[0]) for row in rows if row is not None}

    def correct_stream(self, labels: bytes, value: bytes) -> tuple[bytes, bytes] | None:
        """Return a stream's labels and value as they were stored; None if they are not known."""
        return correct_stream(labels, value)

    def stored_streams(self, uid: str) -> dict[bytes, bytes]:
        """Return labels and value of each stream as they are stored."""
        with translated():
            return cast("dict[bytes, bytes]", self._redis.hgetall(key("streams", uid)))

    def rows(self, uid: str, kind: ListKind, *, first: int = 0) -> list[bytes]:
        """Return the elements of a list from one on."""
        with translated():
            return cast("list[bytes]", self._redis.lrange(key(kind, uid), first, -1))

    def append(
        self,
        collection: str,
        uid: str,
        kind: ListKind,
        *,
        known: int,
        last: bytes = b"",
        rows: Sequence[bytes],
    ) -> bool:
        """Append to a list if it still has ``known`` elements; return whether it had.

        ``last``: how the last of them ends.

        Raises:
            CollectionUnknown: the collection is gone.
            LedgerBehind: the ledger is read-only.
        """
        args: list[scalars.Arg] = [collection, uid, kind, known, last, *rows]
        return _checked(self._run("log_append", args)) == "done"

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

    def listed(self, uid: str) -> tuple[int, int, list[bytes]]:
        """Return of one moment: lines and removals as they are counted, and all members."""
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(key("log", uid), "lines", "r")
            pipe.zrange(key("segments", uid), 0, -1)
            counts, members = pipe.execute()
        lines, removed = (_number(value or b"0") for value in counts)
        return lines, removed, members

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

    def uids(self) -> set[str]:
        """Return the uids of all collections, and of those that are copied here."""
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hvals(key("uids"))
            pipe.hvals(key("receiving"))  # uid and two numbers
            uids, copied = pipe.execute()
        return {scalars.text(row).partition(" ")[0] for row in (*uids, *copied)}

    def removal_paused(self) -> bool:
        """Whether nothing is to be removed from the stores.

        A backup copies them, or this ledger is older than what it had acknowledged: the newer one
        that is put in its place names what this one does not know.
        """
        with translated():
            return bool(self._redis.exists(key("frozen"), key("halted")))

    def swap(
        self,
        collection: str,
        uid: str,
        old: Sequence[tuple[Segment, bytes]],
        new: Sequence[tuple[Segment, bytes, bytes]],
        *,
        basis: Basis,
    ) -> bool | None:
        """Replace segments by others of the same lines.

        Args:
            collection: own name.
            uid: of the collection.
            old: segments, and the bitmap of deleted lines of each.
            new: segments, their data and bitmaps.
            basis: what the new ones were coded by.

        Returns:
            Whether they were replaced: False if one has changed meanwhile, None if the ledger lacks
            what the new ones were coded by.
        """
        args: list[scalars.Arg] = [collection, uid, len(old), len(new), *_basis_args(basis)]
        for one, bitmap in old:
            args += [one.stream, one.first, one.pack(), bitmap]
        for one, data, bitmap in new:
            args += [one.stream, one.first, one.pack(), data, bitmap]
        word = _checked(self._run("segments_swap", args))
        return None if word == "behind" else word == "done"

    def delete(self, collection: str, uid: str, lines: Sequence[LinesDelete]) -> int | None:
        """Delete lines; return how many, None if a segment or a bitmap was replaced meanwhile.

        Raises:
            LedgerBehind: the ledger is read-only.
        """
        args: list[scalars.Arg] = [collection, uid]
        for one in lines:
            place = one.segment
            args += [place.stream, place.first, place.pack(), place.lines]
            args += [one.old, one.new, one.before, one.after, one.text_bytes]
        reply = self._run("segments_delete", args)
        if isinstance(reply, int):
            return reply
        _checked(reply)
        return None

    def now(self) -> float:
        """Return the server's time, Unix seconds."""
        with translated():
            return scalars.server_seconds(self._redis.time())

    def correct(
        self,
        collection: str,
        uid: str,
        kind: LogValue,
        *,
        where: scalars.Arg = "",
        old: bytes,
        new: bytes,
        labels: bytes = b"",
        until: float | None = None,
    ) -> bool:
        """Replace a value by another that says the same; return whether it was replaced.

        It is replaced if it has not changed: a damaged one by what it was, a segment by one whose
        blocks are in cold storage, or the other way round.

        Args:
            collection: own name.
            uid: of the collection.
            kind: of the key.
            where: index in a list, field of a hash, ``stream:first`` of a segment.
            old: the value as it is stored.
            new: the value as it was written.
            labels: right labels of a stream.
            until: the server's time after which nothing is replaced, Unix seconds; None: always.

        Raises:
            CollectionUnknown: the collection is gone.
            LedgerBehind: the ledger is read-only.
        """
        last = "" if until is None else round(until * 1000)
        args = [collection, uid, kind, where, old, new, labels, last]
        return _checked(self._run("log_correct", args)) == "done"

    def put_counts(self, collection: str, state: LogState, counts: Mapping[str, int]) -> bool:
        """Set counters to what was counted; return whether the state is still the one given.

        Raises:
            CollectionUnknown: the collection is gone.
            LedgerBehind: the ledger is read-only.
        """
        args: list[scalars.Arg] = [collection, state.uid, state.written, state.removed]
        for name, count in counts.items():
            args += [name, count]
        return _checked(self._run("log_count", args)) == "done"

    def sizes(self, uid: str, places: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Yield the bytes of segments; 0 for one that is gone."""
        for start in range(0, len(places), 512):
            with translated(), self._redis.pipeline(transaction=False) as pipe:
                for place in places[start : start + 512]:
                    pipe.strlen(key("segment", uid, *place))
                sizes = pipe.execute()
            yield from sizes

    def memory(self, uid: str, *, vectors: str) -> Memory:
        """Return what a collection's keys take in memory, those of many segments estimated.

        Args:
            uid: of its lines.
            vectors: uid that its statements' vectors are kept under.
        """
        members = self.segments(uid)
        step = max(1, len(members) // _MEASURED)
        sample = [Segment.unpack(member) for member in members[::step]]
        names = [
            key("shapes", uid), key("statements", vectors), key("fitted", uid),
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


def _number(value: bytes) -> int:
    """Return a counter; 0 for a damaged one, which the scrub counts again."""
    try:
        return int(value)
    except ValueError:
        return 0


def _checked(reply: bytes) -> str:
    """Return the word of a reply.

    Raises:
        CollectionBusy: the collection is being moved to another ledger.
        CollectionUnknown: the collection is gone.
        LedgerBehind: the ledger is read-only.
    """
    word = scalars.text(reply)
    if word == "read_only":
        raise LedgerBehind
    if word == "busy":
        raise CollectionBusy("the collection is being moved to another ledger")
    if word == "gone":
        raise CollectionUnknown("the collection is gone")
    return word
