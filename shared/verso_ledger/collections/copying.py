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
other keys of a collection are few; they are compared as a whole, and copied where they differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from verso_core.jobs.moves import Move
from verso_core.segments import Segment
from verso_ledger.codec import scalars
from verso_ledger.collections.moves import Moves, born
from verso_ledger.connection import translated
from verso_ledger.keys import key

_PUT_BYTES = 2 << 20
"""Most bytes that one step writes, unless a single key has more."""
_MARKED_AT_ONCE = 1000
_ABSENT = -2
"""What PTTL says of no key."""
_SERIALS = itertools.count(1)
"""Numbers of this process's calls: a move's holder is in one process."""
_OWN = ("tombs", "counts", "generations", "statements")
_OF_LINES = ("log", "streams", "shapes", "fitted", "segments", "arrivals")


class CopyRefused(Exception):
    """Raised when the other ledger lets another caller write the copy, or none."""


class _Key(NamedTuple):
    """A key of a collection: its name at either ledger."""

    here: str
    there: str


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

    def mark_all(self) -> int:
        """Mark every unit; return how many there are."""
        move = self._move
        units = [f"d:{bucket}" for bucket in range(move.buckets)]
        with translated():
            if move.lines:
                rows = cast(
                    "list[bytes]", self._here.zrange(key("segments", born(move.uid)), 0, -1)
                )
                places = map(Segment.unpack, rows)
                units += [f"s:{place.stream}:{place.first}" for place in places]
            number = self._here.hincrby(key("totals"), "marks", 1)
            for start in range(0, len(units), _MARKED_AT_ONCE):
                part = dict.fromkeys(units[start : start + _MARKED_AT_ONCE], number)
                self._here.zadd(self._marks, part)
        return len(units)

    def new_bytes(self) -> int:
        """Return how many bytes were copied since this was asked last."""
        found, self._bytes = self._bytes, 0
        return found

    def left(self) -> int:
        """Return how many units are marked."""
        with translated():
            return self._here.zcard(self._marks)

    def units(self, count: int) -> int:
        """Copy some units, those that changed first; return how many.

        Raises:
            CopyRefused: another caller writes the copy.
            LedgerUnavailable: a ledger does not answer, or is full.
        """
        with translated():
            rows = cast(
                "list[tuple[bytes, float]]",
                self._here.zrange(self._marks, 0, count - 1, withscores=True),
            )
        marks = {scalars.text(unit): f"{score:.0f}" for unit, score in rows}
        if not marks:
            return 0
        keys = self._keys_of([*marks])
        both = [one for own in keys.values() for one in own]
        self._put(both)
        same = self._same(both)
        struck: list[scalars.Arg] = [self._move.uid]
        for unit, own in keys.items():
            if same.issuperset(own):
                struck += [unit, marks[unit]]
        self._source.scripts.run("move_unmark", struck)
        return len(marks)

    def rest(self, periods: Sequence[tuple[str, str]]) -> int:
        """Copy the other keys that differ; return how many still do.

        Args:
            periods: kind and end of the keys for spans of time (:meth:`Moves.period_keys`).
        """
        keys = self._others(periods)
        same = self._same(keys)
        differ = [one for one in keys if one not in same]
        if not differ:
            return 0
        self._put(differ)
        return len(differ) - len(self._same(differ))

    def _others(self, periods: Sequence[tuple[str, str]]) -> list[_Key]:
        uid, to = self._move.uid, self._move.target_uid
        lines = born(uid)
        found = [_Key(key(kind, uid), key(kind, to)) for kind in _OWN]
        with translated():
            generations = cast("list[bytes]", self._here.hkeys(key("generations", uid)))
        found += [_Key(name, name) for one in generations for name in [_tables(one)]]
        if self._move.lines:
            found += [_Key(key(kind, lines), key(kind, to)) for kind in _OF_LINES]
            found += [_Key(key(kind, lines, end), key(kind, to, end)) for kind, end in periods]
        return found

    def _keys_of(self, units: Sequence[str]) -> dict[str, list[_Key]]:
        """Return the keys of units; of a bucket those that either ledger has."""
        uid, to = self._move.uid, self._move.target_uid
        buckets = [unit[2:] for unit in units if unit.startswith("d:")]
        beside = self._beside(self._source, uid, buckets) | self._beside(self._target, to, buckets)
        found: dict[str, list[_Key]] = {
            f"d:{bucket}": [_Key(key("docs", uid, bucket), key("docs", to, bucket))]
            for bucket in buckets
        }
        for bucket, kind, document in sorted(beside):
            found[f"d:{bucket}"].append(_Key(key(kind, uid, document), key(kind, to, document)))
        for unit in units:
            if unit.startswith("s:"):
                found[unit] = [
                    _Key(key(kind, born(uid), unit[2:]), key(kind, to, unit[2:]))
                    for kind in ("segment", "gone")
                ]
        return found

    def _beside(self, ledger: Moves, uid: str, buckets: Sequence[str]) -> set[tuple[str, str, str]]:
        """Return bucket, kind and document of the keys that documents have of their own."""
        if not buckets:
            return set()
        reply = ledger.scripts.run("move_units", [uid, int(self._move.texts), *buckets])
        rows = list(map(scalars.text, reply))
        return set(zip(rows[::3], rows[1::3], rows[2::3], strict=True))

    def _put(self, keys: Sequence[_Key]) -> None:
        """Write keys at the other ledger as they are here."""
        with translated(), self._here.pipeline(transaction=False) as pipe:
            for one in keys:
                pipe.pttl(one.here)
                pipe.dump(one.here)
            replies = pipe.execute()
        part: list[scalars.Arg] = []
        size = 0
        for one, ttl, dumped in zip(keys, replies[::2], replies[1::2], strict=True):
            if int(ttl) == _ABSENT:  # if it came meanwhile, for how long is not known: copied later
                dumped = None
            part += [one.there, max(0, int(ttl)), dumped or b""]
            size += len(dumped or b"")
            self._bytes += len(dumped or b"")
            if size >= _PUT_BYTES:
                self._write(part)
                size, part = 0, []
        if part:
            self._write(part)

    def _write(self, part: Sequence[scalars.Arg]) -> None:
        move = self._move
        serial = next(_SERIALS)
        args: list[scalars.Arg] = [move.own, move.target_uid, move.number, serial, *part]
        if self._target.scripts.run("move_put", args) != b"done":
            raise CopyRefused(f"the copy of {move.collection} is another's")

    def _same(self, keys: Sequence[_Key]) -> set[_Key]:
        """Return the keys whose content is the same at both ledgers."""
        here = self._source.scripts.run("move_digests", [one.here for one in keys])
        there = self._target.scripts.run("move_digests", [one.there for one in keys])
        return {
            one
            for one, left, right in zip(keys, _rows(here), _rows(there), strict=True)
            if left == right
        }


def _rows(reply: Any) -> Iterable[bytes]:
    return cast("Iterable[bytes]", reply)


def _tables(generation: bytes) -> str:
    return key("tables", scalars.text(generation))
