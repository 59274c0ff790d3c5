"""Maintenance: expired leases, garbage, heartbeats, and counts of what waits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from verso_core.jobs import Queue
from verso_ledger.codec import gauges, scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.models import Backlog, Depth, Discarded, Health
from verso_ledger.scripts import Scripts


class Maintenance:
    """What the keeper does from time to time, and what it counts."""

    def __init__(self, scripts: Scripts) -> None:
        self._run = scripts.run
        self._redis = scripts.client

    def reap(self, n: int = 1000) -> dict[Queue, int]:
        """Take back slices whose lease ran out, expire jobs past their deadline, tidy.

        Any number of processes may call this.

        Returns:
            The number of due slices of each queue.
        """
        counts = scalars.pairs(self._run("reap", [n, *Queue]))
        return {Queue(name): count for name, count in counts.items()}

    def drop_due(self, n: int = 1000) -> int:
        """Delete verified raw texts whose retention is over, and sweep deleted collections.

        Returns:
            The number of payloads deleted.
        """
        return int(self._run("drop", [n]))

    def gc_take(self, n: int = 256, *, lease_s: float = 60.0) -> list[Discarded]:
        """Take entries whose points may be removed; what is not reported done comes again."""
        rows = self._run("gc_take", [n, round(lease_s * 1000)])
        return [
            Discarded(scalars.text(token), scalars.text(name), scalars.text(document), entry)
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

    def rewrite_file(self, *, every_s: float) -> bool:
        """Have the server rewrite its append-only file, unless that was done within ``every_s``.

        The file holds every value that was ever set, in clear, until it is rewritten. The server
        rewrites it by itself only once the file has doubled.

        Returns:
            Whether a rewrite was started.
        """
        with translated():
            due = self._redis.set(key("rewritten"), b"", nx=True, ex=max(1, round(every_s)))
            if due:
                self._redis.bgrewriteaof()
        return bool(due)

    def depths(self) -> dict[Queue, Depth]:
        """Return what waits and runs in each queue."""
        return gauges.depths(self._run("depths", list(Queue)))

    def backlog(self) -> Backlog:
        """Return what waits outside the queues."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            gauges.ask_backlog(pipe)
            return gauges.backlog(pipe.execute())


class Liveness:
    """Heartbeats of workers and trainers, and what workers serve."""

    def __init__(self, scripts: Scripts) -> None:
        self._run = scripts.run
        self._redis = scripts.client

    def note_embed(self) -> None:
        """Record that a real embed has just succeeded."""
        self._note("embed")

    def note_worker(self, worker: str) -> None:
        """Record that a worker is alive and can reach the ledger."""
        self._note(f"beat:{worker}")

    def forget_worker(self, worker: str) -> None:
        """Remove a worker that stopped in good order from the heartbeats."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hdel(key("health"), f"beat:{worker}")
            pipe.hdel(key("serving"), worker)
            pipe.execute()

    def note_serving(self, worker: str, state: Mapping[str, Any]) -> None:
        """Record what a worker serves, for requests that ask which models are served."""
        with translated():
            self._redis.hset(key("serving"), worker, json.dumps(state))

    def note_trainer(self, trainer: str) -> None:
        """Record that a trainer is alive and can reach the ledger."""
        self._note(f"trainer:{trainer}")

    def forget_trainer(self, trainer: str) -> None:
        """Remove a trainer that stopped in good order from the heartbeats."""
        with translated():
            self._redis.hdel(key("health"), f"trainer:{trainer}")

    def health(self) -> Health:
        """Return the age of the newest heartbeats and of the newest embed."""
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(key("health"))
            pipe.time()
            rows, clock = pipe.execute()
        return gauges.health(rows, scalars.server_seconds(clock))

    def _note(self, field: str) -> None:
        self._run("note", [field])
