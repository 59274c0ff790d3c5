"""Copies identities of log records and positions of their sources, which only ever come or move on.

They are kept by spans of time, in keys that expire, and may be millions. So they are copied while
the collection is written to, and behind the fence only what is new is left:

1. From the start of the move the ledger lists what is new (``fresh``).
2. Each span is walked through once, a page at a time; each page is read back.
3. What is new meanwhile is copied, read back, and struck off if it has not changed since.

A member that the walk has passed and that is not listed as new is the same on both sides. As none
is ever removed, equal sizes show in the end that none was missed, as a walk may do when the server
is replaced by its replica. If too much is new, the ledger says so, and all is walked through again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from verso_core.jobs.moves import Move
from verso_ledger.codec import scalars
from verso_ledger.collections.moves import Moves, born
from verso_ledger.collections.paging import (
    PAGE,
    CopiedKey,
    HashMembers,
    Member,
    Members,
    PagedCopy,
    SetMembers,
    Value,
)
from verso_ledger.connection import translated
from verso_ledger.keys import key

WALKED = -1
"""Where a walk stands that has ended."""
_ALL = b"all"
"""Stands for too many new ones: see ``note_new`` in ``segments.lua``."""
_GONE = -2
"""What PTTL says of no key."""
_KINDS: dict[str, Members] = {"identities": SetMembers(), "positions": HashMembers()}


class SpanCopy:
    """The copy of the identities and positions of one collection.

    Attributes:
        walks: where the walk through each span stands: a cursor of the server, or ``WALKED``.
    """

    def __init__(self, source: Moves, target: Moves, move: Move, paged: PagedCopy) -> None:
        self._source = source
        self._here: Any = source.scripts.client
        self._there: Any = target.scripts.client
        self._move = move
        self._paged = paged
        self._uid = born(move.uid)
        self._fresh = key("fresh", self._uid)
        self.walks = dict(move.spans)

    def start(self) -> None:
        """Begin to walk through all spans that there are."""
        self.walks = dict.fromkeys(self._source.spans(self._uid, search=True), 0)

    @property
    def walked(self) -> bool:
        """Whether every span was walked through."""
        return all(cursor == WALKED for cursor in self.walks.values())

    def left(self) -> int:
        """Return how many pages of new members are to be copied."""
        with translated():
            return -(-int(self._here.zcard(self._fresh)) // PAGE)

    def walk(self) -> None:
        """Copy the next page of the walk, if there is one."""
        span = next((one for one, cursor in self.walks.items() if cursor != WALKED), None)
        if span is None:
            return
        one, members = self._key(span), self._members(span)
        with translated():
            cursor, page = members.page(self._here, one.here, self.walks[span])
            self._bring(one, members, page)
        self.walks[span] = cursor or WALKED

    def too_much_is_new(self) -> bool:
        """Whether so much is new that all must be walked through again."""
        with translated():
            return self._here.zscore(self._fresh, _ALL) is not None

    def walk_again(self) -> None:
        """Begin again. What is new is listed again once :meth:`restarted` is called."""
        self.walks = dict.fromkeys({*self.walks, *self._source.spans(self._uid)}, 0)

    def restarted(self) -> None:
        """Have the ledger list what is new again, once the new walks are noted in the move."""
        with translated():
            score = self._here.zscore(self._fresh, _ALL)
        if score is not None:
            self._strike([(_ALL, score)])

    def copy_new(self) -> None:
        """Copy a page of what is new."""
        with translated():
            rows = cast(
                "list[tuple[bytes, float]]",
                self._here.zrange(self._fresh, 0, PAGE - 1, withscores=True),
            )
            rows = [row for row in rows if row[0] != _ALL]
            spans: dict[str, list[Member]] = {}
            for row, _ in rows:
                name, _, member = row.partition(b" ")
                spans.setdefault(scalars.text(name), []).append(member)
            for span, new in spans.items():
                one, members = self._key(span), self._members(span)
                values = members.values(self._here, one.here, new)
                found = {
                    name: value
                    for name, value in zip(new, values, strict=True)
                    if value is not None
                }
                self._bring(one, members, found)
        if rows:
            self._strike(rows)

    def differ(self) -> list[str]:
        """Return the spans that are larger at one ledger than at the other."""
        found = []
        with translated():
            for span in {*self.walks, *self._source.spans(self._uid)}:
                one, members = self._key(span), self._members(span)
                here = members.size(self._here, one.here)
                if here and here != members.size(self._there, one.there):
                    found.append(span)
        return found

    def _bring(self, one: CopiedKey, members: Members, page: Mapping[Member, Value]) -> None:
        """Copy members that were just read, with the time that their key has."""
        ttl_ms = int(self._here.pttl(one.here))
        if ttl_ms != _GONE:  # or else it has just expired, and none of it is needed
            self._paged.bring(one, members, page, max(0, ttl_ms))

    def _strike(self, rows: Sequence[tuple[bytes, float]]) -> None:
        struck: list[scalars.Arg] = ["fresh", self._uid]
        for member, score in rows:
            struck += [member, f"{score:.0f}"]
        self._source.scripts.run("move_unmark", struck)

    def _key(self, span: str) -> CopiedKey:
        kind, _, period = span.partition(":")
        return CopiedKey(key(kind, self._uid, period), key(kind, self._move.target_uid, period))

    @staticmethod
    def _members(span: str) -> Members:
        return _KINDS[span.partition(":")[0]]
