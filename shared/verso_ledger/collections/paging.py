"""Copies large keys from one ledger to another in pages: a server does nothing else in a step.

The members of a page are read here, compared with what the other ledger has of them, and written
where they differ. A key that does not change meanwhile is the same on both sides if all members
that are here are there, and there are no more of them. Lists, and sorted sets before that, are
compared by a hash of each range of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from verso_ledger.codec.scalars import Arg
from verso_ledger.collections.moves import Moves
from verso_ledger.connection import translated

PAGE = 2000
"""Members of a page: about a millisecond of a server."""
_LIST_PAGE = 500
"""Elements of a page of a list: vectors of statements have up to a kilobyte."""

Member = bytes
Value = bytes
Put = Callable[[Sequence[Arg]], None]
"""Writes commands at the other ledger (``move_put.lua``)."""


class CopiedKey(NamedTuple):
    """A key of a collection: its name at either ledger."""

    here: str
    there: str


def command(name: str, *args: Arg) -> list[Arg]:
    """Return a command as ``move_put.lua`` reads it."""
    return [name, len(args), *args]


class Members(ABC):
    """How members of one type of key are read and written."""

    @abstractmethod
    def page(self, redis: Any, name: str, cursor: int) -> tuple[int, dict[Member, Value]]:
        """Return where the next page begins, 0 behind the last one, and members with values."""

    @abstractmethod
    def values(self, redis: Any, name: str, members: Sequence[Member]) -> list[Value | None]:
        """Return the values of members; None of those that are not there."""

    @abstractmethod
    def size(self, redis: Any, name: str) -> int:
        """Return how many members there are."""

    @abstractmethod
    def put(self, name: str, members: Mapping[Member, Value]) -> list[Arg]:
        """Return the command that writes members."""

    @abstractmethod
    def remove(self, name: str, members: Sequence[Member]) -> list[Arg]:
        """Return the command that removes members."""


class HashMembers(Members):
    """Fields of a hash."""

    def page(self, redis: Any, name: str, cursor: int) -> tuple[int, dict[Member, Value]]:
        """Return a page."""
        after, rows = redis.hscan(name, cursor, count=PAGE)
        return int(after), rows

    def values(self, redis: Any, name: str, members: Sequence[Member]) -> list[Value | None]:
        """Return values."""
        return cast("list[Value | None]", redis.hmget(name, list(members)))

    def size(self, redis: Any, name: str) -> int:
        """Return how many fields there are."""
        return int(redis.hlen(name))

    def put(self, name: str, members: Mapping[Member, Value]) -> list[Arg]:
        """Return HSET."""
        return command("HSET", name, *(part for row in members.items() for part in row))

    def remove(self, name: str, members: Sequence[Member]) -> list[Arg]:
        """Return HDEL."""
        return command("HDEL", name, *members)


class SetMembers(Members):
    """Members of a set: the value of each is empty."""

    def page(self, redis: Any, name: str, cursor: int) -> tuple[int, dict[Member, Value]]:
        """Return a page."""
        after, rows = redis.sscan(name, cursor, count=PAGE)
        return int(after), dict.fromkeys(rows, b"")

    def values(self, redis: Any, name: str, members: Sequence[Member]) -> list[Value | None]:
        """Return an empty value for each that is there."""
        return [b"" if there else None for there in redis.smismember(name, list(members))]

    def size(self, redis: Any, name: str) -> int:
        """Return how many members there are."""
        return int(redis.scard(name))

    def put(self, name: str, members: Mapping[Member, Value]) -> list[Arg]:
        """Return SADD."""
        return command("SADD", name, *members)

    def remove(self, name: str, members: Sequence[Member]) -> list[Arg]:
        """Return SREM."""
        return command("SREM", name, *members)


class ScoredMembers(Members):
    """Members of a sorted set: the value of each is its score."""

    def page(self, redis: Any, name: str, cursor: int) -> tuple[int, dict[Member, Value]]:
        """Return a page."""
        after, rows = redis.zscan(name, cursor, count=PAGE)
        return int(after), {member: _score(score) for member, score in rows}

    def values(self, redis: Any, name: str, members: Sequence[Member]) -> list[Value | None]:
        """Return scores."""
        found = redis.zmscore(name, list(members))
        return [None if score is None else _score(score) for score in found]

    def size(self, redis: Any, name: str) -> int:
        """Return how many members there are."""
        return int(redis.zcard(name))

    def put(self, name: str, members: Mapping[Member, Value]) -> list[Arg]:
        """Return ZADD."""
        rows = (part for member, score in members.items() for part in (score, member))
        return command("ZADD", name, *rows)

    def remove(self, name: str, members: Sequence[Member]) -> list[Arg]:
        """Return ZREM."""
        return command("ZREM", name, *members)


def _score(score: float) -> bytes:
    return b"%.17g" % score


MEMBERS: Mapping[bytes, Members] = {
    b"hash": HashMembers(),
    b"set": SetMembers(),
    b"zset": ScoredMembers(),
}
"""By the type of a key, as a server names it."""


class PagedCopy:
    """Copies large keys of any type that has members or elements."""

    def __init__(self, source: Moves, target: Moves, put: Put) -> None:
        self._source = source
        self._target = target
        self._here = source.scripts.client
        self._there = target.scripts.client
        self._put = put

    def copy(self, one: CopiedKey, kind: bytes) -> bool:
        """Copy a key; return whether it is the same on both sides now, if it does not change.

        Args:
            one: the key.
            kind: its type, as the server names it.
        """
        with translated():
            if kind == b"list":
                return self._copy_list(one)
            members, servers = MEMBERS[kind], self._servers()
            if kind == b"zset" and self._sizes(one, members) and not self._differing_ranges(one):
                return True
            self.bring_all(one, members)
            if not self._sizes(one, members):
                self._remove_others(one, members)
            # a cursor of one server means nothing to its replica, or after a restart
            return self._sizes(one, members) and self._servers() == servers

    def bring_all(self, one: CopiedKey, members: Members) -> None:
        """Copy all members that are not there."""
        cursor = 0
        while True:
            cursor, page = members.page(self._here, one.here, cursor)
            self.bring(one, members, page)
            if not cursor:
                return

    def bring(
        self, one: CopiedKey, members: Members, page: Mapping[Member, Value], ttl_ms: int = 0
    ) -> None:
        """Copy those of some members that the other ledger has not, and read them back.

        Args:
            one: the key.
            members: how they are written.
            page: members and their values.
            ttl_ms: when the key expires; 0 never.

        Raises:
            CopyRefused: another caller writes the copy, or it does not read back.
        """
        listed = list(page)
        for start in range(0, len(listed), PAGE):  # a small key is one page, of any size
            part = {name: page[name] for name in listed[start : start + PAGE]}
            there = members.values(self._there, one.there, list(part))
            differ = {
                name: value
                for (name, value), other in zip(part.items(), there, strict=True)
                if other != value
            }
            if not differ:
                continue
            args = members.put(one.there, differ)
            self._put(args + (command("PEXPIRE", one.there, ttl_ms) if ttl_ms else []))
            back = members.values(self._there, one.there, list(differ))
            if back != list(differ.values()):
                raise CopyRefused(f"{one.there} does not read back as it was written")

    def _servers(self) -> list[object]:
        return [one.info("server")["run_id"] for one in (self._here, self._there)]

    def _sizes(self, one: CopiedKey, members: Members) -> bool:
        return members.size(self._here, one.here) == members.size(self._there, one.there)

    def _remove_others(self, one: CopiedKey, members: Members) -> None:
        """Remove what the other ledger has and this one has not."""
        cursor = 0
        while True:
            cursor, page = members.page(self._there, one.there, cursor)
            listed = list(page)
            for start in range(0, len(listed), PAGE):
                part = listed[start : start + PAGE]
                here = members.values(self._here, one.here, part)
                gone = [name for name, value in zip(part, here, strict=True) if value is None]
                if gone:
                    self._put(members.remove(one.there, gone))
            if not cursor:
                return

    def _differing_ranges(self, one: CopiedKey) -> list[int]:
        """Return where the ranges begin that differ, of a list or a sorted set."""
        is_list = self._here.type(one.here) == b"list"
        size = self._here.llen(one.here) if is_list else self._here.zcard(one.here)
        found = []
        step = _LIST_PAGE if is_list else PAGE
        for first in range(0, size, step):
            here, there = (
                ledger.scripts.run("move_digests", [name, first, first + step - 1])
                for ledger, name in zip((self._source, self._target), one, strict=True)
            )
            if here != there:
                found.append(first)
        return found

    def _copy_list(self, one: CopiedKey) -> bool:
        """Copy the ranges of a list that differ, in order; return whether it is the same then."""
        size = self._here.llen(one.here)
        if self._there.llen(one.there) > size:
            self._put(command("LTRIM", one.there, 0, size - 1))
        for first in self._differing_ranges(one):
            last = first + _LIST_PAGE - 1
            rows = cast("list[bytes]", self._here.lrange(one.here, first, last))
            there = cast("list[bytes]", self._there.lrange(one.there, first, last))
            args: list[Arg] = []
            for n, (row, other) in enumerate(zip(rows, there, strict=False)):
                if row != other:
                    args += command("LSET", one.there, first + n, row)
            if len(rows) > len(there):
                args += command("RPUSH", one.there, *rows[len(there) :])
            if args:
                self._put(args)
        return not self._differing_ranges(one)


class CopyRefused(Exception):
    """Raised when the other ledger lets another caller write the copy, or none."""
