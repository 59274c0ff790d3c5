"""The ledger's upkeep: what is done from time to time, and what is counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from verso_core.jobs import Queue
from verso_ledger import codec, scrub
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import Backlog, Depth, Discarded, Health
from verso_ledger.scrub import Move, Scrub
from verso_ledger.steps import Steps


class Maintenance(Steps):
    """The keeper's side of :class:`verso_ledger.sync_client.Ledger`."""

    def reap(self, n: int = 1000) -> dict[Queue, int]:
        """Take back slices whose lease ran out, expire jobs past their deadline, tidy.

        Gives the number of due slices of each queue. Any number of processes may call this.
        """
        counts = codec.pairs(self._run("reap", [n, *Queue]))
        return {Queue(name): count for name, count in counts.items()}

    def drop_due(self, n: int = 1000) -> int:
        """Delete verified raw texts whose grace is over, and sweep deleted collections.

        Gives the number of payloads deleted.
        """
        return int(self._run("drop", [n]))

    def known_jobs(self, jobs: Sequence[str]) -> set[str]:
        """Return those of some jobs that have not expired."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            for job in jobs:
                pipe.exists(key("job", job))
            found = pipe.execute()
        return {job for job, there in zip(jobs, found, strict=True) if there}

    def gc_take(self, n: int = 256, *, lease_s: float = 60.0) -> list[Discarded]:
        """Take entries whose points may be removed; what is not reported done comes again."""
        rows = self._run("gc_take", [n, round(lease_s * 1000)])
        return [
            Discarded(codec.text(token), codec.text(name), codec.text(document), entry)
            for token, name, document, entry in rows
        ]

    def gc_done(self, tokens: Sequence[str]) -> None:
        """Report that the points of these discarded entries are gone."""
        if not tokens:
            return
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.zrem(key("gc"), *tokens)
            pipe.unlink(*(key("gcitem", token) for token in tokens))
            pipe.execute()

    def note_embed(self) -> None:
        """Record that a real embed has just succeeded."""
        self._note("embed")

    def note_beat(self, worker: str) -> None:
        """Record that a worker is alive and can reach the ledger."""
        self._note(f"beat:{worker}")

    def forget_worker(self, worker: str) -> None:
        """Remove a worker that stopped in good order from the signs of life."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hdel(key("health"), f"beat:{worker}")
            pipe.hdel(key("serving"), worker)
            pipe.execute()

    def note_serving(self, worker: str, state: Mapping[str, Any]) -> None:
        """Record what a worker serves, for whoever asks which models do."""
        with translated():
            self._redis.hset(key("serving"), worker, json.dumps(state))

    def note_trainer(self, trainer: str) -> None:
        """Record that a trainer is alive and can reach the ledger."""
        self._note(f"trainer:{trainer}")

    def forget_trainer(self, trainer: str) -> None:
        """Remove a trainer that stopped in good order from the signs of life."""
        with translated():
            self._redis.hdel(key("health"), f"trainer:{trainer}")

    def health(self) -> Health:
        """Return the signs of life."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(key("health"))
            pipe.time()
            rows, clock = pipe.execute()
        return codec.health(rows, codec.server_seconds(clock))

    def depths(self) -> dict[Queue, Depth]:
        """Return what waits and runs in each queue."""
        return codec.depths(self._run("depths", list(Queue)))

    def backlog(self) -> Backlog:
        """Return what waits outside the queues."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.zcard(key("dead"))
            pipe.hmget(key("load"), "unverified:slices", "unverified:bytes")
            pipe.zcard(key("drop"))
            pipe.zcard(key("gc"))
            pipe.hgetall(key("totals"))
            pipe.zcard(key("hooks"))
            pipe.exists(key("halted"))
            pipe.zcard(key("orphans"))
            dead, unverified, to_drop, to_collect, totals, to_tell, halted, orphans = pipe.execute()
        return Backlog(
            dead=dead,
            unverified=int(unverified[0] or 0),
            unverified_bytes=int(unverified[1] or 0),
            to_drop=to_drop,
            to_collect=to_collect,
            totals=codec.counters(totals),
            to_tell=to_tell,
            halted=bool(halted),
            orphans=orphans,
        )

    def scrub(self) -> Scrub:
        """Tell where the scrub stands."""
        with translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(key("scrub"))
            pipe.lrange(key("damaged"), 0, -1)
            pipe.time()
            rows, listed, clock = pipe.execute()
        return scrub.read(rows, listed, now=codec.server_seconds(clock))

    def scrub_move(self, turn: int, move: Move) -> bool:
        """Move the scrub on from ``turn``; tell whether it was this call that did."""
        return bool(self._run("scrub_move", scrub.move_args(turn, move)))

    def scrub_ask(self) -> None:
        """Ask for a pass at once, or as soon as the one under way has ended."""
        self._run("scrub_ask", [])

    def scrub_recent(self, since: int) -> None:
        """Ask for the documents written after a sequence number to be read before all others."""
        self._run("scrub_recent", [since])

    def _note(self, field: str) -> None:
        self._run("note", [field])
