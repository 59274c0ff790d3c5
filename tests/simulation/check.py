"""Compares the whole state of a ledger with its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import redis
from tests.integration.verso_ledger.recount import recounted
from tests.simulation.model import Job, Model, Slice

from verso_core.jobs import Queue
from verso_core.record import Entry, Flag
from verso_ledger import Ledger
from verso_ledger.codec.scalars import text
from verso_ledger.keys import NAMES, key

COLLECTION, UID, LINES_UID, BUCKETS = "c", "1", "2", 4
_JOB = ("st", "slices", "done", "items", "ok", "err", "kind", "tenant")
_SLICE = ("st", "ph", "att", "q", "seq", "crash", "errs", "own")


def difference(client: redis.Redis, model: Model) -> str | None:
    """Return the first difference between a ledger and its model; None without one."""
    for name, found, expected in _pairs(client, model):
        if found != expected:
            return f"{name} is {_short(found, expected)}, expected {_short(expected, found)}"
    return None


def _short(one: Any, other: Any) -> str:
    """Return what is in one and not in the other, if both are tables."""
    if isinstance(one, dict) and isinstance(other, dict):
        one = {name: one.get(name) for name in one if one.get(name) != other.get(name, object())}
    return repr(one)[:600]


def _pairs(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is compared: its name, what the ledger has, and what it must have."""
    yield from _jobs(client, model)
    yield from _slices(client, model)
    yield from _queues(client, model)
    yield from _lists(client, model)
    yield from _documents(client, model)
    yield from _lines(client, model)
    yield from _rest(client, model)


def _rows(client: redis.Redis, kind: str, names: list[str], fields: tuple[str, ...]) -> Any:
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hmget(key(kind, name), *fields)
        return pipe.execute()


def _jobs(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    names = list(model.jobs)
    rows = _rows(client, "job", names, _JOB)
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.xlen(key("events", name))
            pipe.hgetall(key("result", name))
        extra = pipe.execute()
    for number, name in enumerate(names):
        job = model.jobs[name]
        yield f"job {name}", tuple(map(_text, rows[number])), _job(job)
        yield f"events of {name}", extra[2 * number], job.events
        results = {int(at): data for at, data in extra[2 * number + 1].items()}
        yield f"results of {name}", results, job.results


def _job(job: Job) -> tuple[str | None, ...]:
    counts = (len(job.slices), job.done, job.items, job.ok, job.err)
    return (job.st, *map(str, counts), job.kind, job.tenant)


def _slices(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    names = list(model.slices)
    rows = _rows(client, "slice", names, _SLICE)
    for name, row in zip(names, rows, strict=True):
        one = model.slices[name]
        found = tuple(map(_text, row))
        found = (*found[:5], found[5] or "0", found[6] or "0", found[7] or "")
        yield f"slice {name}", found, _slice(one)
    with client.pipeline(transaction=False) as pipe:
        for name in model.payloads:
            pipe.get(key("payload", name))
        payloads = dict(zip(model.payloads, pipe.execute(), strict=True))
    yield "payloads", payloads, model.payloads


def _slice(one: Slice) -> tuple[str, ...]:
    numbers = (one.crashes, one.errors)
    return (
        one.st, one.ph, str(one.fence), one.waits_in, str(one.seq), *map(str, numbers), one.owner,
    )  # fmt: skip


def _queues(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    for queue in Queue:
        leased = {one.sid: one.until for one in model.at("leased", queue).values()}
        yield f"leases of {queue}", _scores(client, key("leased", queue)), leased
        ready = {one.sid: one.until for one in model.at("ready", queue).values()}
        yield f"delayed in {queue}", _scores(client, key("ready", queue)), ready
        turns = client.zrange(key("turns", queue), 0, -1, withscores=True)
        found = [(text(name), at) for name, at in cast("Any", turns)]
        expected = sorted(model.turns[queue].items(), key=lambda row: (row[1], row[0]))
        yield f"turns of {queue}", found, expected
        for tenant in model.turns[queue]:
            lane = cast("Any", client.zrange(key("lane", queue, tenant), 0, -1))
            order = [one.sid for one in model.lane(queue, tenant)]
            yield f"lane {queue} {tenant}", [text(name) for name in lane], order
    yield "load", _load(client), _expected_load(model)


def _load(client: redis.Redis) -> dict[str, int]:
    rows = cast("Mapping[bytes, bytes]", client.hgetall(key("load")))
    counts = {text(name): value for name, value in rows.items()}
    return {
        name: int(value)
        for name, value in counts.items()
        if name.endswith((":slices", ":bytes")) and value != b"0"
    }


def _expected_load(model: Model) -> dict[str, int]:
    rows: dict[str, tuple[int, int]] = {}
    for queue in Queue:
        rows[queue] = model.unfinished(queue)
        for tenant in ("a", "b", "c"):
            rows[f"{queue}:{tenant}"] = model.unfinished(queue, tenant)
    verify = [one.size for one in model.slices.values() if one.ph == "verify"]
    rows["unverified"] = (len(verify), sum(verify))
    staged = list(model.staged.values())
    rows["staged"] = (len(staged) and sum(x[0] for x in staged), sum(x[1] for x in staged))
    found: dict[str, int] = {}
    for name, (slices, size) in rows.items():
        found |= {f"{name}:slices": slices, f"{name}:bytes": size}
    return {name: count for name, count in found.items() if count}


def _lists(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    yield "pending", _scores(client, key("pending")), model.pending()
    yield "dead letters", _scores(client, key("dead")), model.died
    yield "deadlines", _scores(client, key("deadlines")), model.deadlines
    yield "texts to drop", _scores(client, key("drop")), model.drops
    staged = {
        f"{job} {slices} {size}": until for job, (slices, size, until) in model.staged.items()
    }
    yield "staged", _scores(client, key("staged")), staged
    for tenant in ("a", "b", "c"):
        listed = _scores(client, key("jobs", tenant))
        mine = {
            job.job_id: job.seq
            for job in model.jobs.values()
            if job.tenant == tenant and not job.brief_s
        }
        yield f"jobs of {tenant}", {k: listed.get(k) for k in mine}, mine
        reads = {name: seq for seq, name in model.reads.get(tenant, [])}
        yield f"reads of {tenant}", _scores(client, key("reads", tenant)), reads


def _documents(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    documents = model.documents
    ledger = Ledger(client)
    stored = dict(ledger.documents.entries(COLLECTION))
    found = {name: _entry(data) for name, data in stored.items()}
    expected = {
        name: (*_entry(one.entry)[:2], one.verified) for name, one in documents.stored.items()
    }
    yield "documents", found, expected
    texts = {
        name: client.get(key("text", UID, name)) for name in documents.stored
    }  # fmt: skip
    yield "kept texts", texts, {name: one.text for name, one in documents.stored.items()}
    yield "deleted", _scores(client, key("tombs", UID)), documents.tombs
    yield "counts", ledger.documents.holdings(COLLECTION), recounted(stored.items())
    garbage = {str(token): due for token, (due, _, _) in documents.garbage.items()}
    yield "garbage", _scores(client, key("gc")), garbage


def _entry(data: bytes) -> tuple[int, Any, bool]:
    entry = Entry.unpack(data)
    return entry.seq, entry.records, bool(entry.flags & Flag.VERIFIED)


def _lines(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    lines = model.lines
    row = cast("Mapping[bytes, bytes]", client.hgetall(key("log", LINES_UID)))
    counted = {text(name): int(value) for name, value in row.items()}
    total = sum(lines.segments.values())
    yield "lines", counted.get("lines", 0), total
    yield "verified lines", counted.get("verified", 0), lines.verified
    yield "segments", client.zcard(key("segments", LINES_UID)), len(lines.segments)
    arrived = cast("Any", client.xrevrange(key("arrivals", LINES_UID), count=10))
    found = [
        (int(text(place).partition("-")[0]), text(f[b"slice"]), int(f[b"lines"]))
        for place, f in arrived
    ]
    yield "arrivals", found, lines.arrived[::-1]


def _rest(client: redis.Redis, model: Model) -> Iterator[tuple[str, Any, Any]]:
    yield "sequence number", int(cast("bytes", client.get(key("seq")) or b"0")), model.seq
    row = cast("Mapping[bytes, bytes]", client.hgetall(key("scrub")))
    scrub = {text(name): int(value) for name, value in row.items() if value.isdigit()}
    kept = {name: scrub[name] for name in model.scrub.row if name in scrub}
    yield (
        "scrub",
        kept | {"turn": scrub.get("turn", 0)},
        model.scrub.row | {"turn": model.scrub.turn},
    )
    yield "scrubbed", scrub.get("documents", 0), model.scrub.counts.get("documents", 0)
    totals = cast("Mapping[bytes, bytes]", client.hgetall(key("totals")))
    counted = {text(name): int(value) for name, value in totals.items()}
    yield "totals", {name: counted.get(name, 0) for name in model.totals}, dict(model.totals)


def leftovers(client: redis.Redis, model: Model) -> list[str]:
    """Return keys of jobs and slices that the model does not know: they would stay for ever."""
    known: dict[str, Mapping[str, object]] = {
        "job": model.jobs, "events": model.jobs, "result": model.jobs,
        "slice": model.slices, "payload": model.payloads, "claim": model.claims,
    }  # fmt: skip
    found = []
    for kind, names in known.items():
        prefix = NAMES[kind]
        names_there = map(text, client.scan_iter(f"{prefix}*", count=1000))
        lost = (name for name in names_there if name[len(prefix) :] not in names)
        found += [name for name in lost if client.exists(name)]
    return found


def _scores(client: redis.Redis, name: str) -> dict[str, int]:
    rows = cast("Any", client.zrange(name, 0, -1, withscores=True))
    return {text(member): int(score) for member, score in rows}


def _text(value: bytes | None) -> str | None:
    return None if value is None else text(value)
