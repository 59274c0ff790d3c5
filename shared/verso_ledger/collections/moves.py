"""Moves of collections to other ledgers, as one ledger takes part in them.

The ledger that has the collection keeps the state of the move; every change of it is one step that
names the state seen (``move_step.lua``). The other one lets one caller write the copy
(``move_take.lua``, ``move_put.lua``) and makes it a collection of its own (``move_publish.lua``).
What must hold, and why it does: ``docs/adr/0046-collections-move-between-ledgers.md``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from redis.asyncio import Redis

from verso_core.errors import (
    CollectionBusy,
    CollectionUnknown,
    LedgerBehind,
    MigrationRefused,
)
from verso_core.jobs import Collection, CollectionKind, TextPolicy
from verso_core.jobs.collections import Partitioned
from verso_core.jobs.moves import Move, MoveStage
from verso_ledger.codec import collection_rows, scalars
from verso_ledger.collections.open_slices import OpenSlices
from verso_ledger.connection import translated
from verso_ledger.keys import PREFIX, key
from verso_ledger.models import CollectionReplaced
from verso_ledger.scripts import AsyncScripts, Scripts

REMEMBERED_S = 24 * 3600
"""How long a ledger that a collection has left is asked for idempotency keys, as long as it keeps
them, seconds."""
_PAGE = 512
_SCANNED = 1000


@dataclass(frozen=True, slots=True)
class Earlier:
    """A ledger that had a collection, until ``left`` (Unix seconds), and the uid it had there."""

    ledger: str
    uid: str
    left: float


@dataclass(frozen=True, slots=True)
class Listed:
    """The collections that a ledger lists.

    Attributes:
        collections: by the name that users know.
        moved: those that another ledger has by now, or gets at this moment.
        fenced: those whose writes wait, as they are about to move.
        came: where collections were before they came here, by name.
        partitioned: collections of several partitions; the home ledger lists those of all ledgers.
        ahead_s: the server's clock, less the monotonic one of this process.
    """

    collections: Mapping[str, Collection]
    moved: frozenset[str] = frozenset()
    fenced: frozenset[str] = frozenset()
    came: Mapping[str, Sequence[Earlier]] = field(default_factory=dict)
    partitioned: Mapping[str, Partitioned] = field(default_factory=dict)
    ahead_s: float = 0.0

    def now(self) -> float:
        """Return the time by the server's clock, Unix seconds: a machine's own may be wrong."""
        return time.monotonic() + self.ahead_s


def earlier(row: bytes | None) -> list[Earlier]:
    """Read where a collection was before."""
    return [] if row is None else [Earlier(*one) for one in json.loads(row)]


class Moves:
    """The part of one ledger in moves; blocking calls."""

    def __init__(self, scripts: Scripts, *, ledger: str) -> None:
        self.scripts = scripts
        self.ledger = ledger
        self._run = scripts.run
        self._redis = scripts.client
        self.open_slices = OpenSlices(scripts)

    def all(self) -> dict[str, Move]:
        """Return the newest move of each collection that is or was here."""
        with translated():
            rows = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("moves")))
        return {scalars.text(name): Move.model_validate_json(row) for name, row in rows.items()}

    def begin(self, name: str, own: str, target: str) -> Move:
        """Start a move of a collection that is not being moved.

        Raises:
            CollectionBusy: it is changed by others at this moment, or is gone.
            LedgerBehind: the ledger is read-only.
            MigrationRefused: it is being migrated.
        """
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(key("uids"), own)
            pipe.hget(key("collections"), own)
            pipe.hget(key("moves"), name)
            uid, row, seen = pipe.execute()
        if uid is None:
            raise CollectionUnknown(f"no collection {name!a}")
        found = collection_rows.load(row)
        move = new_move(name, own, scalars.text(uid), found, source=self.ledger, target=target)
        args: list[scalars.Arg] = [name, own, move.uid, seen or b"", move.model_dump_json()]
        return started_or_refused(scalars.text(self._run("move_begin", args)), move)

    def step(
        self,
        seen: Move,
        new: Move | None,
        what: str = "none",
        *,
        with_: str | int = "",
        count: Mapping[str, int] | None = None,
    ) -> bool:
        """Take a move on from where it was seen; None forgets it. Return whether this call did.

        Args:
            seen: where the caller saw it.
            new: where it is then.
            what: goes with it in the same step; see ``move_step.lua``.
            with_: for how long in ms, or to which ledger.
            count: counters of the ledger, and by how much they grow with it.
        """
        with translated():
            row = cast("bytes | None", self._redis.hget(key("moves"), seen.collection))
        args = step_args(seen, new, what, row=row, with_=with_, count=count)
        return bool(self._run("move_step", args))

    def has(self, move: Move) -> bool:
        """Whether the ledger still has the collection that is to move."""
        with translated():
            uid = cast("bytes | None", self._redis.hget(key("uids"), move.own))
        return uid == move.uid.encode()

    def settings(self, move: Move) -> tuple[Collection, str]:
        """Return the collection's settings, and its newest migration as JSON ('' for none).

        Raises:
            CollectionUnknown: it is gone.
        """
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(key("collections"), move.own)
            pipe.hget(key("migrations"), move.collection)
            row, migration = pipe.execute()
        if row is None:
            raise CollectionUnknown(f"no collection is named {move.own!r}")
        return collection_rows.load(row), scalars.text(migration or b"")

    def seq(self) -> int:
        """Return the newest sequence number."""
        with translated():
            return int(cast("bytes | None", self._redis.get(key("seq"))) or 0)

    def has_left(self, name: str) -> bool:
        """Whether a collection, as users know it, has moved to another ledger."""
        with translated():
            state = cast("bytes | None", self._redis.hget(key("shut"), f"n:{name}"))
        return scalars.has_moved(state)

    def migrating(self, move: Move) -> bool:
        """Whether the collection is being migrated, or keeps the old side of a migration."""
        with translated():
            row = cast("bytes | None", self._redis.hget(key("migrations"), move.collection))
        return migrating(row)

    def has_cold(self, move: Move) -> bool:
        """Whether lines or documents of the collection are in cold storage."""
        while self._run("count", [move.own, move.uid, move.buckets, ""]) == b"more":
            pass
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(key("log", born(move.uid)), "cold")
            pipe.hget(key("counts", move.uid), "cold")
            return any(int(row or 0) for row in pipe.execute())

    def came(self, name: str) -> list[Earlier]:
        """Return where a collection was before it came here."""
        with translated():
            return earlier(cast("bytes | None", self._redis.hget(key("came"), name)))

    def came_by(self, move: Move) -> bool:
        """Whether a collection came here by a move, whatever became of it since."""
        known = [(one.ledger, one.uid) for one in self.came(move.collection)]
        return (move.source, move.uid) in known

    def has_garbage(self, own: str) -> bool:
        """Whether points of entries that were replaced here are still to be removed."""
        with translated():
            tokens = [
                scalars.text(token)
                for token in cast("Iterable[bytes]", self._redis.zrange(key("gc"), 0, -1))
            ]
            for start in range(0, len(tokens), _PAGE):
                with self._redis.pipeline(transaction=False) as pipe:
                    for token in tokens[start : start + _PAGE]:
                        pipe.hget(key("gcitem", token), "c")
                    if own.encode() in pipe.execute():
                        return True
        return False

    def spans(self, uid: str, *, search: bool = False) -> set[str]:
        """Return kind and period of each key that a collection has for a span of time.

        Args:
            uid: of its lines.
            search: look through all keys of the server for those that are not listed, while there
                may be any: an earlier version wrote them, and they have not expired.
        """
        with translated():
            listed = cast("set[bytes]", self._redis.smembers(key("spans", uid)))
            found = {scalars.text(span) for span in listed}
            if not search:
                return found
            now_s, _ = self._redis.time()
            since = cast("bytes | None", self._redis.hget(key("totals"), "spans_since"))
            if since is not None and int(since) / 1000 < now_s - 2 * self.scripts.policy.position_s:
                return found
            kinds = {key(kind, uid, ""): kind for kind in ("identities", "positions")}
            for name in self._redis.scan_iter(match=f"{PREFIX}[ip]*s:{uid}:*", count=_SCANNED):
                prefix, _, period = scalars.text(name).rpartition(":")
                if (kind := kinds.get(f"{prefix}:")) is not None:
                    found.add(f"{kind}:{period}")
        return found

    # what follows is asked of the ledger that gets the collection

    def take(self, move: Move, *, seq: int) -> str:
        """Let a move's holder write the copy; return its uid, or why not.

        Args:
            move: its ``number`` is the holder's.
            seq: newest sequence number of the ledger that has the collection.
        """
        args: list[scalars.Arg] = [move.own, move.collection, move.number, seq]
        return scalars.text(self._run("move_take", args))

    def publish(self, move: Move, collection: Collection, migration: str, was: str) -> str:
        """Make the copy a collection of this ledger; return ``done``, or why not."""
        args: list[scalars.Arg] = [
            move.own, move.collection, move.target_uid, collection_rows.dump(collection),
            migration, was,
        ]  # fmt: skip
        return scalars.text(self._run("move_publish", args))

    def release(self, move: Move) -> None:
        """Let points that the collection's entries do not name any more be removed."""
        self._run("move_release", [move.own])

    def forget(self, move: Move) -> None:
        """Remove the copy, unless it is a collection by now."""
        self._run("move_forget", [move.own, move.buckets])

    def place(self, name: str, ledger: str) -> None:
        """Note, on the home ledger, which ledger a collection is on."""
        replicas = self.scripts.replicas
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hset(key("placements"), name, ledger)
            replicas.ask(pipe)
            replicas.check(pipe.execute())


class AsyncMoves:
    """Starts moves and shows them, as the gateway does."""

    def __init__(self, client: Redis, scripts: AsyncScripts, *, ledger: str) -> None:
        self._redis = client
        self._run = scripts.run
        self._ledger = ledger

    async def all(self) -> list[Move]:
        """Return the newest move of each collection that is or was on this ledger."""
        with translated():
            rows = await cast("Any", self._redis.hgetall(key("moves")))
        return [Move.model_validate_json(row) for row in rows.values()]

    async def sizes(self) -> dict[str, int]:
        """Return about how many bytes each collection takes of the ledger, by users' names."""
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(key("uids"))
                pipe.hgetall(key("aliases"))
                uids, aliases = await pipe.execute()
            known = {own: name for name, own in aliases.items()}
            async with self._redis.pipeline(transaction=False) as pipe:
                for row in uids.values():
                    uid = scalars.text(row)
                    pipe.hget(key("counts", uid), "bytes_entries")
                    pipe.hget(key("log", born(uid)), "bytes")
                rows = await pipe.execute()
        sizes = zip(rows[::2], rows[1::2], strict=True)
        return {
            scalars.text(known.get(own, own)): int(entries or 0) + int(segments or 0)
            for own, (entries, segments) in zip(uids, sizes, strict=True)
        }

    async def begin(self, name: str, target: str, *, made: str = "") -> Move:
        """Start a move, or return the one that is under way.

        ``made``: when the collection that the caller has seen was made; empty for any.

        Raises:
            CollectionReplaced: there is one that was made at another time.
            CollectionUnknown: the ledger has no such collection.
            CollectionBusy: it is changed by others at this moment, or a copy is being removed.
            LedgerBehind: the ledger is read-only.
            MigrationRefused: it is being moved elsewhere, or migrated.
        """
        with translated():
            own = scalars.text(await cast("Any", self._redis.hget(key("aliases"), name)) or name)
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hget(key("uids"), own)
                pipe.hget(key("collections"), own)
                pipe.hget(key("moves"), name)
                uid, row, seen = await pipe.execute()
        if uid is None or row is None:
            raise CollectionUnknown(f"no collection {name!a}")
        found = collection_rows.load(row)
        if made not in ("", found.made):
            raise CollectionReplaced
        before = None if seen is None else Move.model_validate_json(seen)
        if before is not None and before.running:
            if before.stage is MoveStage.CANCELLED:
                raise CollectionBusy(f"the copy of {name!a} is still being removed; try again")
            if before.target != target:
                raise MigrationRefused(f"{name!r} is being moved to {before.target}")
            return before
        move = new_move(name, own, scalars.text(uid), found, source=self._ledger, target=target)
        args: list[scalars.Arg] = [name, own, move.uid, seen or b"", move.model_dump_json()]
        return started_or_refused(scalars.text(await self._run("move_begin", args)), move)

    async def cancel(self, move: Move) -> bool:
        """Cancel a move, if it still stands as seen; the keeper removes what was copied."""
        after = move.model_copy(update={"stage": MoveStage.CANCELLED, "reason": None, "due": 0.0})
        count = fence_ended(move, time.time(), "opened")
        with translated():
            row = await cast("Any", self._redis.hget(key("moves"), move.collection))
        args = step_args(move, after, "open", row=row, count=count)
        return bool(await self._run("move_step", args))

    async def reopen(self, name: str) -> None:
        """Let a name be made here again whose collection has moved away, and is nowhere now."""
        with translated():
            row = await cast("Any", self._redis.hget(key("moves"), name))
            if row is None or not Move.model_validate_json(row).running:
                await cast("Any", self._redis.hdel(key("shut"), f"n:{name}"))

    async def job_of_key(self, tenant: str, idempotency_key: str) -> tuple[str, str] | None:
        """Return the job that an idempotency key made here, and the hash of its request."""
        with translated():
            name = key("idem", f"{tenant}:{idempotency_key}")
            job, digest = await cast("Any", self._redis.hmget(name, "job", "hash"))
            if job is None or not await self._redis.exists(key("job", scalars.text(job))):
                return None
        return scalars.text(job), scalars.text(digest)

    async def earlier_uids(self, name: str) -> set[str]:
        """Return the uids that a collection's lines had on the ledgers that it came from."""
        with translated():
            row = await cast("Any", self._redis.hget(key("came"), name))
        return {born(one.uid) for one in earlier(row)}


def new_move(
    name: str, own: str, uid: str, collection: Collection, *, source: str, target: str
) -> Move:
    """Return the state in which a move starts."""
    return Move(
        collection=name,
        own=own,
        uid=uid,
        buckets=collection.buckets,
        texts=collection.text_policy is TextPolicy.BOTH,
        lines=collection.kind is CollectionKind.LOGS,
        source=source,
        target=target,
        started=(now := time.time()),
        progressed=now,
    )


def step_args(
    seen: Move,
    new: Move | None,
    what: str,
    *,
    row: bytes | None,
    with_: str | int = "",
    count: Mapping[str, int] | None = None,
) -> list[scalars.Arg]:
    """Return the arguments of ``move_step.lua``.

    ``row``: the state as it is stored. An earlier release writes fewer fields.
    """
    after = "" if new is None else new.model_dump_json()
    same = row is not None and Move.model_validate_json(row) == seen
    stored = row if row is not None and same else seen.model_dump_json()
    counters = [part for pair in (count or {}).items() for part in pair]
    return [seen.collection, stored, after, seen.own, seen.uid, what, with_, *counters]


def fence_ended(move: Move, now: float, how: str) -> dict[str, int]:
    """Return what is counted where a fence ends: ``switched`` or ``opened``; nothing without one.

    Args:
        move: as it stood behind the fence.
        now: Unix seconds.
        how: it ended.
    """
    if move.stage is not MoveStage.FENCE:
        return {}
    held_ms = round(max(0.0, min(now, move.held_until) - move.fenced) * 1000)
    return {f"moves:fences:{how}": 1, "moves:fence_ms": held_ms}


def started_or_refused(reply: str, move: Move) -> Move:
    """Read the reply of ``move_begin.lua``.

    Raises:
        CollectionBusy: the collection is changed by others at this moment.
        LedgerBehind: the ledger is read-only.
        MigrationRefused: the collection is being migrated.
    """
    match reply:
        case "read_only":
            raise LedgerBehind
        case "migrating":
            raise MigrationRefused(
                f"{move.collection!r} is being migrated, or keeps the old side of a migration"
            )
        case "done":
            return move
    raise CollectionBusy(f"{move.collection!r} is changed by others; try again")


def migrating(row: bytes | None) -> bool:
    """Whether a migration runs or its old side is kept."""
    if row is None:
        return False
    state = json.loads(row)
    return state["stage"] != "done" or not (
        state["old_removed"] or state["source"] == state["target"]
    )


def born(uid: str) -> str:
    """Return the part of a uid that names the keys of lines."""
    return uid.partition(".")[0]
