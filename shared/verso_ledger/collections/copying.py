"""Copies the keys of a collection from one ledger to another while it is written to.

A **unit** is a bucket of documents or a segment of lines, with all keys of it. The ledger that has
the collection gives a unit a new number when it changes (its **mark**), never the same again. A
unit is copied so:

1. Read its mark.
2. Read its keys (``DUMP``), write them at the other ledger (``RESTORE``), remove what is there and
   not here.
3. Compare a hash of each key's content on both sides.
4. Where they are equal, strike the unit off, if its mark is what it was.

So a unit without a mark was equal on both sides at some moment, and has not changed since. All
other keys of a collection are few; they are compared as a whole, and copied where they differ. A
large key is copied and compared in pages (:mod:`verso_ledger.collections.paging`); identities and
positions by :mod:`verso_ledger.collections.spans`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from verso_core.jobs.moves import Move
from verso_core.segments import Segment
from verso_ledger.codec import scalars
from verso_ledger.collections.moves import Moves, born
from verso_ledger.collections.paging import (
    MEMBERS,
    PAGE,
    CopiedKey,
    CopyRefused,
    PagedCopy,
    command,
)
from verso_ledger.collections.spans import SpanCopy
from verso_ledger.connection import translated
from verso_ledger.keys import key

LARGE_BYTES = 256 << 10
"""Memory of a key from which on it is copied in pages: some milliseconds of a server as a whole."""
_PART_BYTES = 512 << 10
"""Memory of the keys that one step writes or compares, unless it is one key, about."""
_PART_ENTRIES = 10_000
"""Documents of the buckets that one step looks through, unless it is one bucket."""
_MARKED_AT_ONCE = 1000
_SERIALS = itertools.count(1)
"""Numbers of this process's calls: a move's holder is in one process."""
_OWN = ("tombs", "counts", "generations", "statements")
_OF_LINES = ("log", "streams", "shapes", "fitted", "segments", "arrivals", "spans")
_PAGED = frozenset({b"list", *MEMBERS})
T = TypeVar("T")


class CollectionCopy:
    """The copy of one collection.

    Args:
        source: the ledger that has it.
        target: the one that gets it.
        move: holds the uid at each, and the number of the one that may write.
    """

    def __init__(self, source: Moves, target: Moves, move: Move) -> None:
        self._source = source
        self._target = target
        self._move = move
        self._here = source.scripts.client
        self._marks = key("marks", born(move.uid))
        self._bytes = 0
        self._paged = PagedCopy(source, target, self._write)
        self.spans = SpanCopy(source, target, move, self._paged)

    def mark_all(self) -> int:
        """Mark every unit; return how many there are."""
        move = self._move
        units = [f"d:{bucket}" for bucket in range(move.buckets)]
        with translated():
            if move.lines:
                units += [f"s:{place.stream}:{place.first}" for place in self._segments()]
            number = self._here.hincrby(key("totals"), "marks", 1)
            for start in range(0, len(units), _MARKED_AT_ONCE):
                part = dict.fromkeys(units[start : start + _MARKED_AT_ONCE], number)
                # repeated late, it must not take back the mark of a later change
                self._here.zadd(self._marks, part, gt=True)
        return len(units)

    def _segments(self) -> Iterator[Segment]:
        """Yield the segments of lines, a page at a time.

        Each has a greater number than those before: none is missed if others come or go meanwhile.
        """
        name = key("segments", born(self._move.uid))
        rows = [(b"", 0.0)]
        while rows:
            after = f"({rows[-1][1]:.0f}"
            rows = cast(
                "list[tuple[bytes, float]]",
                self._here.zrangebyscore(name, after, "+inf", 0, PAGE, withscores=True),
            )
            yield from (Segment.unpack(row) for row, _ in rows)

    def new_bytes(self) -> int:
        """Return how many bytes were copied since this was asked last."""
        found, self._bytes = self._bytes, 0
        return found

    def left(self) -> int:
        """Return how many units are marked, and pages of new identities and positions."""
        with translated():
            return self._here.zcard(self._marks) + self.spans.left()

    def some(self, count: int) -> int:
        """Copy some of what has changed, what changed first; return how many units.

        Args:
            count: of units at most.

        Raises:
            CopyRefused: another caller writes the copy.
            LedgerUnavailable: a ledger does not answer, or is full.
        """
        self.spans.copy_new()
        with translated():
            rows = cast(
                "list[tuple[bytes, float]]",
                self._here.zrange(self._marks, 0, count - 1, withscores=True),
            )
        marks = {scalars.text(unit): f"{score:.0f}" for unit, score in rows}
        keys = self._keys_of([*marks]) if marks else {}
        sizes = self._sizes([one for own in keys.values() for one in own])
        for part in _parts(keys, lambda unit: sum(sizes[one] for one in keys[unit]), _PART_BYTES):
            same = self._copied([one for unit in part for one in keys[unit]], sizes)
            struck: list[scalars.Arg] = ["marks", self._move.uid]
            for unit in part:
                if same.issuperset(keys[unit]):
                    struck += [unit, marks[unit]]
            self._source.scripts.run("move_unmark", struck)
        return len(marks)

    def rest(self) -> int:
        """Copy the other keys that differ; return how many still do."""
        keys = self._others()
        sizes = self._sizes(keys)
        small = [one for one in keys if sizes[one] < LARGE_BYTES]
        differ = self._differ(small)
        self._put(differ, sizes)
        left = len(self._differ(differ))
        return left + sum(not self._copied_in_pages(one) for one in keys if one not in small)

    def _others(self) -> list[CopiedKey]:
        uid, to = self._move.uid, self._move.target_uid
        lines = born(uid)
        found = [CopiedKey(key(kind, uid), key(kind, to)) for kind in _OWN]
        with translated():
            generations = cast("list[bytes]", self._here.hkeys(key("generations", uid)))
        found += [CopiedKey(name, name) for one in generations for name in [_tables(one)]]
        if self._move.lines:
            found += [CopiedKey(key(kind, lines), key(kind, to)) for kind in _OF_LINES]
        return found

    def _keys_of(self, units: Sequence[str]) -> dict[str, list[CopiedKey]]:
        """Return the keys of units; of a bucket those that either ledger has."""
        uid, to = self._move.uid, self._move.target_uid
        buckets = [unit[2:] for unit in units if unit.startswith("d:")]
        beside = self._beside(self._source, uid, buckets) | self._beside(self._target, to, buckets)
        found: dict[str, list[CopiedKey]] = {
            f"d:{bucket}": [CopiedKey(key("docs", uid, bucket), key("docs", to, bucket))]
            for bucket in buckets
        }
        for bucket, kind, document in sorted(beside):
            found[f"d:{bucket}"].append(
                CopiedKey(key(kind, uid, document), key(kind, to, document))
            )
        for unit in units:
            if unit.startswith("s:"):
                found[unit] = [
                    CopiedKey(key(kind, born(uid), unit[2:]), key(kind, to, unit[2:]))
                    for kind in ("segment", "gone")
                ]
        return found

    def _beside(self, ledger: Moves, uid: str, buckets: Sequence[str]) -> set[tuple[str, str, str]]:
        """Return bucket, kind and document of the keys that documents have of their own."""
        if not buckets:
            return set()
        with translated(), ledger.scripts.client.pipeline(transaction=False) as pipe:
            for bucket in buckets:
                pipe.hlen(key("docs", uid, bucket))
            held = dict(zip(buckets, cast("list[int]", pipe.execute()), strict=True))
        rows: list[str] = []
        for part in _parts(held, held.__getitem__, _PART_ENTRIES):
            reply = ledger.scripts.run("move_units", [uid, int(self._move.texts), *part])
            rows += map(scalars.text, reply)
        return set(zip(rows[::3], rows[1::3], rows[2::3], strict=True))

    def _sizes(self, keys: Sequence[CopiedKey]) -> Mapping[CopiedKey, int]:
        """Return about how much memory each key takes here."""
        with translated(), self._here.pipeline(transaction=False) as pipe:
            for one in keys:
                pipe.memory_usage(one.here)
            return {one: size or 0 for one, size in zip(keys, pipe.execute(), strict=True)}

    def _copied(self, keys: Sequence[CopiedKey], sizes: Mapping[CopiedKey, int]) -> set[CopiedKey]:
        """Copy keys; return those that are the same on both sides, if none changes meanwhile."""
        small = [one for one in keys if sizes[one] < LARGE_BYTES]
        self._put(small, sizes)
        same = {*small} - {*self._differ(small)}
        return same.union(one for one in keys if one not in small and self._copied_in_pages(one))

    def _copied_in_pages(self, one: CopiedKey) -> bool:
        """Copy a large key; return whether it is the same on both sides."""
        with translated():
            kind = cast("bytes", self._here.type(one.here))
        if kind in _PAGED:
            return self._paged.copy(one, kind)
        self._put([one], {one: LARGE_BYTES})
        return not self._differ([one])

    def _put(self, keys: Sequence[CopiedKey], sizes: Mapping[CopiedKey, int]) -> None:
        """Write keys at the other ledger as they are here; none of them expires."""
        for part in _parts(keys, sizes.__getitem__, _PART_BYTES):
            with translated(), self._here.pipeline(transaction=False) as pipe:
                for one in part:
                    pipe.dump(one.here)
                rows = cast("list[bytes | None]", pipe.execute())
            args: list[scalars.Arg] = []
            for one, dumped in zip(part, rows, strict=True):
                if dumped is None:
                    args += command("UNLINK", one.there)
                else:
                    args += command("RESTORE", one.there, 0, dumped, "REPLACE")
            self._write(args)

    def _write(self, commands: Sequence[scalars.Arg]) -> None:
        move = self._move
        self._bytes += sum(len(one) for one in commands if isinstance(one, bytes))
        args: list[scalars.Arg] = [move.own, move.target_uid, move.number, next(_SERIALS)]
        if self._target.scripts.run("move_put", [*args, *commands]) != b"done":
            raise CopyRefused(f"the copy of {move.collection} is another's")

    def _differ(self, keys: Sequence[CopiedKey]) -> list[CopiedKey]:
        """Return the keys whose content is not the same at both ledgers."""
        if not keys:
            return []
        here, there = (
            ledger.scripts.run("move_digests", [arg for name in names for arg in (name, 0, -1)])
            for ledger, names in (
                (self._source, [one.here for one in keys]),
                (self._target, [one.there for one in keys]),
            )
        )
        rows = zip(keys, cast("list[bytes]", here), cast("list[bytes]", there), strict=True)
        return [one for one, left, right in rows if left != right]


def _parts(of: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield what is given in parts of some size at most, or of one element."""
    part: list[T] = []
    held = 0
    for one in of:
        if part and held + size(one) > most:
            yield part
            part, held = [], 0
        part.append(one)
        held += size(one)
    if part:
        yield part


def _tables(generation: bytes) -> str:
    return key("tables", scalars.text(generation))
