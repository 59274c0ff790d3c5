"""Read how much work waits, and which services live."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verso_core.jobs import Queue
from verso_ledger.codec.scalars import counters, text
from verso_ledger.keys import key
from verso_ledger.models import Backlog, Depth, Health

SERVING_S = 60.0
"""A worker without a heartbeat for longer than this, seconds, serves nothing."""


def depths(rows: Iterable[Sequence[Any]]) -> dict[Queue, Depth]:
    """Read the reply of ``depths.lua``."""
    return {
        Queue(text(name)): Depth(
            queued=due, delayed=waiting - due, running=running, oldest_s=oldest_ms / 1000
        )
        for name, due, waiting, running, oldest_ms in rows
    }


def ask_backlog(pipe: Any) -> None:
    """Add the commands whose replies :func:`backlog` reads to a pipeline."""
    pipe.zcard(key("dead"))
    pipe.hmget(key("load"), "unverified:slices", "unverified:bytes", "staged:bytes")
    pipe.zcard(key("drop"))
    pipe.zcard(key("gc"))
    pipe.hgetall(key("totals"))
    pipe.zcard(key("hooks"))
    pipe.exists(key("halted"))
    pipe.zcard(key("orphans"))


def backlog(replies: Sequence[Any]) -> Backlog:
    """Read the replies to the commands of :func:`ask_backlog`."""
    dead, unverified, to_drop, to_collect, totals, to_send, read_only, orphans = replies
    return Backlog(
        dead=dead,
        unverified=int(unverified[0] or 0),
        unverified_bytes=int(unverified[1] or 0),
        staged_bytes=int(unverified[2] or 0),
        to_drop=to_drop,
        to_collect=to_collect,
        totals=counters(totals),
        to_send=to_send,
        read_only=bool(read_only),
        orphans=orphans,
    )


def health(rows: Mapping[bytes, bytes], now_s: float) -> Health:
    """Read heartbeats and the time of the last embed."""
    beats = [int(value) for name, value in rows.items() if name.startswith(b"beat:")]
    trainers = [int(value) for name, value in rows.items() if name.startswith(b"trainer:")]
    embed = rows.get(b"embed")
    return Health(
        last_embed_age_s=None if embed is None else max(0.0, now_s - int(embed) / 1000),
        worker_beat_age_s=None if not beats else max(0.0, now_s - max(beats) / 1000),
        trainer_beat_age_s=None if not trainers else max(0.0, now_s - max(trainers) / 1000),
    )


def serving(
    rows: Mapping[bytes, bytes], signs: Mapping[bytes, bytes], now_s: float
) -> dict[str, dict[str, Any]]:
    """Read what the workers with a recent heartbeat serve."""
    found = {}
    for name, row in sorted(rows.items()):
        beat = signs.get(b"beat:" + name)
        if beat is not None and now_s - int(beat) / 1000 < SERVING_S:
            found[text(name)] = json.loads(row)
    return found
