"""Partitions by time, as the keeper makes, ends and removes them; blocking calls.

The home ledger notes which partitions a collection has (:class:`Partitioned`); every change of that
is one step that names the state seen. The ledger of a partition says whether it takes lines: once
it has **rolled**, its steps refuse all that is not accepted yet (``log_roll.lua``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from verso_core.jobs.collections import Partitioned
from verso_core.jobs.moves import Move
from verso_core.segments import MISSING, Segment
from verso_ledger.codec import scalars
from verso_ledger.collections.logs import Logs
from verso_ledger.collections.placement import noted
from verso_ledger.connection import translated
from verso_ledger.durability import Server, ask_server
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts

_SECOND_NS = 1e9


@dataclass(frozen=True, slots=True)
class PartitionLines:
    """What a partition by time holds.

    Attributes:
        uid: of its lines.
        streams: that it has; numbers were reserved for lines of each.
        memory_bytes: about what it takes of its ledger.
        rolled: whether it takes no more lines.
    """

    uid: str
    streams: int
    memory_bytes: int
    rolled: bool


class Partitions:
    """Partitions by time of one ledger; of the home ledger also which there are."""

    def __init__(self, scripts: Scripts, logs: Logs) -> None:
        self._redis = scripts.client
        self._replicas = scripts.replicas
        self._run = scripts.run
        self._logs = logs

    def all(self) -> dict[str, Partitioned]:
        """Return the collections of partitions, on the home ledger."""
        with translated():
            rows = cast("Mapping[bytes, bytes]", self._redis.hgetall(key("partitioned")))
        return {
            scalars.text(name): Partitioned.model_validate_json(row) for name, row in rows.items()
        }

    def step(self, name: str, seen: Partitioned, new: Partitioned) -> bool:
        """Note what is done with a collection, if it stands as seen; return whether it was."""
        with translated():
            row = cast("bytes | None", self._redis.hget(key("partitioned"), name))
        if row is None or Partitioned.model_validate_json(row) != seen:
            return False
        args: list[scalars.Arg] = [key("partitioned"), name, row, new.model_dump_json()]
        return noted(self._run("partitions_note", args))

    def drained(self) -> frozenset[str]:
        """Return the names of the ledgers that get no new collection, on the home ledger."""
        with translated():
            rows = cast("Iterable[bytes]", self._redis.smembers(key("draining")))
        return frozenset(map(scalars.text, rows))

    def placed(self, name: str) -> str | None:
        """Return the ledger that a partition is placed on, on the home ledger."""
        with translated():
            found = cast("bytes | None", self._redis.hget(key("placements"), name))
        return None if found is None else scalars.text(found)

    def place(self, name: str, ledger: str) -> str:
        """Place a partition, unless it is placed; return its ledger. On the home ledger."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hsetnx(key("placements"), name, ledger)
            pipe.hget(key("placements"), name)
            self._replicas.ask(pipe)
            replies = self._replicas.check(pipe.execute())
        return scalars.text(replies[1])

    def unplace(self, name: str) -> None:
        """Forget where a partition was placed that is gone: its name is never used again."""
        with translated():
            self._redis.hdel(key("placements"), name)

    def forget_moves(self, name: str) -> None:
        """Forget moves of a partition that is gone, but one that has not ended."""
        with translated():
            row = cast("bytes | None", self._redis.hget(key("moves"), name))
            move = None if row is None else Move.model_validate_json(row)
            if move is not None and move.running:
                return
            own = name if move is None else move.own
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.hdel(key("moves"), name)
                pipe.hdel(key("came"), name)
                pipe.hdel(key("shut"), f"n:{name}", f"o:{own}")
                pipe.execute()

    def server(self) -> Server:
        """Return the state of the ledger's server."""
        return ask_server(self._redis)

    def held(self, own: str) -> PartitionLines:
        """Return what a partition holds, by its own name.

        Raises:
            CollectionUnknown: it is gone.
        """
        state = self._logs.state(own)
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hlen(key("streams", state.uid))
            pipe.hget(key("counts", state.vectors), "bytes_entries")
            pipe.hexists(key("log", state.uid), "rolled")
            streams, entries, rolled = pipe.execute()
        size_bytes = state.segment_bytes + int(entries or 0)
        return PartitionLines(state.uid, streams, size_bytes, bool(rolled))

    def roll(self, name: str, uid: str) -> bool:
        """Let a partition take no more lines; return whether it takes none."""
        return bool(self._run("log_roll", [name, uid]))

    def span(self, uid: str) -> tuple[float | None, float | None]:
        """Return the first and the last time of lines, Unix seconds; None for one not known.

        Where a line has no time the first is not known. Without lines neither is.
        """
        segments = [Segment.unpack(member) for member in self._logs.segments(uid)]
        timed = [one for one in segments if one.latest != MISSING]
        if not timed:
            return None, None
        first = min(one.earliest for one in timed) / _SECOND_NS
        last = max(one.latest for one in timed) / _SECOND_NS
        return (first if len(timed) == len(segments) else None), last
