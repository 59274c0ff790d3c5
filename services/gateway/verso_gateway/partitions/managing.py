"""Make, describe, change and delete collections of several partitions.

The home ledger notes what is done: a collection whose partitions are not all made, or are being
deleted, is not served, and the request may be repeated until it has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request

from verso_core.errors import (
    CollectionBusy,
    CollectionExists,
    CollectionUnknown,
    KindUnsupported,
    NotReady,
)
from verso_core.jobs import Collection, CollectionKind, CollectionRequest, Kind, NoItem
from verso_core.jobs.collections import (
    CollectionChangeParams,
    CollectionDeleted,
    CollectionInfo,
    CollectionName,
    CollectionParams,
    Partitioned,
    Stage,
    TimePart,
    number_of_partition,
    partition_name,
)
from verso_core.jobs.statistics import CodecShare, Kept, LineStatistics, Statistics
from verso_gateway import responses
from verso_gateway.access import caller_of, collection_of, seen_by
from verso_gateway.context import DEFAULT, context_of
from verso_gateway.partitions import scatter
from verso_gateway.partitions.missing import left_out
from verso_ledger import NewJob
from verso_ledger.models import Seen

_SUMS = (
    *("documents", "chunks", "verified", "unreadable", "points", "bytes_text", "bytes_vectors"),
    *("bytes_terms", "bytes_patches", "bytes_entries", "fits"),
)
_SHARED = "bytes_tables"
_MAKING_S = 10.0
_AGAIN_S = 0.1


async def create(
    request: Request, checked: CollectionRequest, *, owner: str | None
) -> CollectionInfo:
    """Make a collection of several partitions, or find the same one made before.

    Raises:
        CollectionExists: there is one of this name with other settings, or one is being deleted.
        CollectionUnknown: it was deleted meanwhile.
        KindUnsupported: it was to keep log lines.
        NotReady: not all partitions were made in time; the request may be repeated.
    """
    name, context = checked.name, context_of(request)
    _check_kind(checked)
    scatter.check_no_webhook(request)
    if name == DEFAULT:
        raise CollectionExists(f"the workers make {name!r}, without partitions")
    kept = checked.model_fields_set - {"partitions", "rollover"}
    given = {one: getattr(checked, one) for one in kept}

    def job(own: str) -> NewJob:
        params = CollectionParams(**{**given, "name": own}, owner=owner)
        return responses.job_of_one(request, Kind.COLLECTION_CREATE, params, NoItem())

    await _check_not_deleted(request, await responses.repeatable(request, job(name)))
    state = await _claimed(request, checked, owner)
    await context.job_service.note(await responses.repeatable(request, job(name)))
    names = [partition_name(name, number) for number in state.every_number]
    if state.rollover is not None:
        names = [partition_name(name, state.writing)]
    await context.ledgers.place_apart(names)
    ended = await scatter.each(request, names, job)
    if state.stage is Stage.MAKING:
        state = await _served(request, name, state)
        context.collections.forget(name)
    return _named(responses.sole(ended[0]), name, state)


async def _check_not_deleted(request: Request, job: NewJob) -> None:
    """Check that a request which is sent again does not make again what was deleted since.

    Raises:
        CollectionUnknown: it would.
        IdempotencyConflict: its key belongs to another request.
    """
    context, ledgers, name = context_of(request), context_of(request).ledgers, job.collection or ""
    if await context.job_service.is_noted(job):
        await ledgers.collections()
        if name not in ledgers.partitioned:
            raise CollectionUnknown(f"{name!r} was made by this request, and is deleted")


async def _served(request: Request, name: str, state: Partitioned) -> Partitioned:
    """Let a collection be served whose partitions are made; return its state.

    Raises:
        CollectionExists: one without partitions was made meanwhile; the partitions are deleted.
        CollectionUnknown: it was deleted meanwhile. What was made since then is deleted as well.
    """
    ledgers = context_of(request).ledgers
    deleting = state.model_copy(update={"stage": Stage.DELETING})
    if name in await ledgers.collections():
        if await ledgers.home.placements.step(name, state, deleting):
            await _delete_noted(request, name, deleting)
        raise CollectionExists(f"{name!r} exists without partitions")
    live = state.model_copy(update={"stage": Stage.LIVE})
    if state.rollover is not None:
        live = live.changed(0, stage=Stage.LIVE, since=time.time())
    placements = ledgers.home.placements
    if await placements.step(name, state, live):
        return live
    await ledgers.collections()
    now = ledgers.partitioned.get(name)
    if now is None:
        now = deleting if await placements.note(name, deleting, new=True) else None
    if now is not None and now.stage is not Stage.DELETING:
        return now  # the same request was sent twice
    if now is not None:
        await _delete_noted(request, name, now)
    raise CollectionUnknown(f"{name!r} was deleted while it was made")


def _check_kind(checked: CollectionRequest) -> None:
    """Check that documents are spread by their ids, and log lines by time.

    Raises:
        KindUnsupported: it is the other way round.
    """
    logs = checked.kind is CollectionKind.LOGS
    if logs and checked.partitions > 1:
        raise KindUnsupported("expected rollover for a collection of kind logs: lines have no ids")
    if not logs and checked.rollover is not None:
        raise KindUnsupported("expected partitions for a collection of documents, not rollover")


async def _claimed(request: Request, checked: CollectionRequest, owner: str | None) -> Partitioned:
    """Note that a collection is being made, unless it is noted.

    Raises:
        CollectionExists: another one has the name.
    """
    context, name = context_of(request), checked.name
    known = {one.name: one for one in await context.collections.list()}
    if name in known and known[name].parted is None:
        raise CollectionExists(f"{name!r} exists without partitions")
    rule = None if checked.rollover is None else checked.rollover.rule
    first = () if rule is None else (TimePart(number=0, since=time.time()),)
    state = Partitioned(partitions=checked.partitions, owner=owner, rollover=rule, parts=first)
    while not await context.ledgers.home.placements.note(name, state, new=True):
        await context.collections.list()
        found = context.ledgers.partitioned.get(name)
        if found is None:
            continue  # it has just been deleted
        check_noted(found, name)
        there = found.partitions, found.rollover, found.owner
        if there != (checked.partitions, rule, owner):
            raise CollectionExists(
                f"{name!r} exists with other partitions: {found.rollover or found.partitions}"
            )
        return found
    return state


def check_noted(found: Partitioned | None, name: str) -> None:
    """Check that a name may be made a collection.

    Raises:
        CollectionExists: its partitions are being deleted.
    """
    if found is not None and found.stage is Stage.DELETING:
        raise CollectionExists(f"{name!r} is being deleted: repeat that until it has ended")


async def change(
    request: Request, collection: Collection, params: CollectionChangeParams, *, job: NewJob
) -> CollectionInfo:
    """Change the settings of all partitions, and of those that are made meanwhile.

    A request that is sent again goes on with those that it has not changed.

    Args:
        request: the request.
        collection: the one of several partitions.
        params: what changes.
        job: of the request, with its idempotency key.

    Raises:
        CollectionBusy: a partition is being made, and that did not end in time.
        CollectionUnknown: the collection has been deleted meanwhile.
    """
    scatter.check_no_webhook(request)
    context, name, whole = context_of(request), collection.name, completed(job)
    done: set[str] = set()
    infos: list[CollectionInfo] = []
    until = time.monotonic() + _MAKING_S
    while (state := collection.parted) is not None:
        making = any(one.stage is Stage.MAKING for one in state.parts)
        names = [one for one in scatter.names_of(collection) if one not in done]
        if making and time.monotonic() > until:
            raise CollectionBusy("a partition is being made; repeat the change")
        if not (making or names):
            await context.job_service.note(whole)
            return _named(newest(infos), name, state)
        if making:
            await asyncio.sleep(_AGAIN_S)
        else:
            ended = await responses.finish(request, _of_partitions(request, job, names, params))
            infos += responses.all_items(ended)
            # A key may find a change of fewer; later partitions are no part of it.
            done.update(names if job.idempotency is None else (one.name for one in infos))
            job = replace(job, idempotency=None)
        context.collections.forget(name)
        collection = await collection_of(request, name, partitioned=True)
    raise CollectionUnknown(f"no collection {name!a} that was there when this was asked")


def completed(job: NewJob) -> NewJob:
    """Return a job whose key says that a change has reached all partitions there were.

    The key of the request itself finds the change of those that were there when it was asked.
    """
    if job.idempotency is None:
        return job
    key, digest = job.idempotency  # no key of a caller has a line feed
    return replace(job, idempotency=(f"{key}\nall", digest))


def _of_partitions(
    request: Request, job: NewJob, names: Sequence[str], params: CollectionChangeParams
) -> NewJob:
    """Return a request's job with the change of each of some partitions as its work."""
    parts = {}
    for own in names:
        of_it = params.model_copy(update={"name": own})
        parts[own] = responses.job_of_one(request, job.kind, of_it, NoItem()).slices
    slices = [spec for own in parts.values() for spec in own]
    return replace(job, slices=slices, parts=parts, seen=seen_by(request))


def newest(infos: Sequence[CollectionInfo]) -> CollectionInfo:
    """Return that partition of some which was made last."""
    return max(infos, key=lambda one: number_of_partition(one.name))


async def changed_before(request: Request, job: NewJob) -> CollectionInfo:
    """Return what a request that is sent again was answered when it changed all partitions.

    Raises:
        NotReady: they have not all changed yet.
    """
    infos = responses.all_items(await responses.finish(request, job))
    name, found = job.collection or "", newest(infos)
    if (state := context_of(request).ledgers.partitioned.get(name)) is not None:
        found = _named(found, name, state)
    return found.model_copy(update={"name": name, "partitions": len(infos)})


async def delete(
    request: Request, name: str, *, job: NewJob, repeated: bool
) -> CollectionDeleted | None:
    """Delete a collection with all its partitions; None if the name is not of such a one.

    The idempotency key is noted once the collection is not served any more. So a key that is known
    never deletes another collection of the name; what it has left is deleted.

    Args:
        request: the request.
        name: of the collection.
        job: of the request, with its idempotency key.
        repeated: whether the key is known. None is returned as well where nothing is left then.

    Raises:
        CollectionUnknown: it is not for the caller to see.
        NotReady: not all partitions were deleted in time; the request may be repeated.
    """
    context = context_of(request)
    await context.collections.list()
    state = context.ledgers.partitioned.get(name)
    if state is None or (repeated and state.stage is not Stage.DELETING):
        return None
    scatter.check_no_webhook(request)
    if not caller_of(request).sees(name, owner=state.owner):
        raise CollectionUnknown(f"no collection {name!a}")
    placements = context.ledgers.home.placements
    while state.stage is not Stage.DELETING:
        deleting = state.model_copy(update={"stage": Stage.DELETING})
        if await placements.step(name, state, deleting):
            state = deleting
            break
        await context.ledgers.collections()  # the keeper has changed it
        now = context.ledgers.partitioned.get(name)
        if now is None:  # another request has just deleted it
            await context.job_service.note(job)
            return CollectionDeleted(name=name)
        state = now
    context.collections.forget(name)
    if not repeated:
        await context.job_service.note(job)
    await _delete_noted(request, name, state)
    await context.collections.list()
    return CollectionDeleted(name=name)


async def _delete_noted(request: Request, name: str, state: Partitioned) -> None:
    """Delete what there is of a collection that is noted as being deleted, then the note."""
    await _made(request, name, state)
    await _delete_held(request, name, state)
    await context_of(request).ledgers.home.placements.step(name, state, None)


async def _delete_held(request: Request, name: str, state: Partitioned) -> None:
    """Delete the partitions that there are of a collection which is being deleted.

    Another request may do the same, and a collection of the name be made behind it: its partitions
    stay, as those that are deleted were seen while the collection stood as it does.
    """
    ledgers = context_of(request).ledgers
    names = [partition_name(name, number) for number in state.every_number]
    held = await ledgers.collections()
    for one in names:
        if one not in held:  # deleted before, unless its ledger is away
            await ledgers.check_answers(one)
    if not await ledgers.home.placements.step(name, state, state):
        await ledgers.collections()
        if name in ledgers.partitioned:
            return  # with no note of the name, what is left was made after its delete

    def job(own: str) -> NewJob:
        params = CollectionName(name=own)
        found = responses.job_of_one(request, Kind.COLLECTION_DELETE, params, NoItem())
        return replace(found, seen={own: Seen.of(held[own])})

    try:
        await scatter.each(request, [one for one in names if one in held], job)
    except CollectionUnknown:  # another request has deleted one
        left = await ledgers.collections()
        if any(one in left and left[one].made == held[one].made for one in names if one in held):
            raise NotReady("a partition is still being deleted; repeat the request") from None


async def _made(request: Request, name: str, state: Partitioned) -> None:
    """Have partitions made that the keeper has asked for: what is made later would be left over."""
    making = [one.number for one in state.parts if one.stage is Stage.MAKING]

    def job(own: str) -> NewJob:
        params = CollectionParams(name=own, kind=CollectionKind.LOGS, owner=state.owner)
        return responses.job_of_one(request, Kind.COLLECTION_CREATE, params, NoItem())

    await scatter.each(request, [partition_name(name, number) for number in making], job)


async def stats(request: Request, collection: Collection) -> Statistics:
    """Describe a collection with what all its partitions hold.

    Raises:
        PartitionMissing: one is missing, and the caller prefers an error.
    """
    missing = left_out(request, collection)

    def job(name: str) -> NewJob:
        return responses.job_of_one(request, Kind.STATS, CollectionName(name=name), NoItem())

    ended = await scatter.every(request, collection, job)
    whole = joined_stats([responses.sole(one) for one in ended], collection)
    return whole.model_copy(update=missing)


def joined_stats(parts: Sequence[Statistics], collection: Collection) -> Statistics:
    """Add up what partitions hold."""
    codecs: dict[str, CodecShare] = {}
    for part in parts:
        for codec, share in part.codecs.items():
            before = codecs.get(codec, CodecShare(records=0, bytes=0))
            codecs[codec] = CodecShare(
                records=before.records + share.records, bytes=before.bytes + share.bytes
            )
    update: dict[str, Any] = {name: sum(getattr(one, name) for one in parts) for name in _SUMS}
    update["codecs"] = codecs
    update["generations"] = tuple(one for part in parts for one in part.generations)
    update["kept"] = _kept([part.kept for part in parts if part.kept is not None])
    update |= {"name": collection.name, "partitions": collection.partitions}
    if any(part.lines is not None for part in parts):
        held = [part.lines or LineStatistics(lines=0) for part in parts]
        sums = {one: sum(getattr(row, one) for row in held) for one in LineStatistics.model_fields}
        update["lines"] = LineStatistics(**sums)
    if collection.parted is not None and collection.parted.rollover is not None:
        update["rollover"] = collection.parted.rollover
    return parts[0].model_copy(update=update)


def _kept(parts: Sequence[Kept]) -> Kept | None:
    if not parts:
        return None
    rows: list[Mapping[str, int | None]] = [part.model_dump() for part in parts]
    total: dict[str, int | None] = {}
    for name in rows[0]:
        sizes = [row[name] for row in rows]
        known = [size for size in sizes if size is not None]
        total[name] = sum(known) if len(known) == len(sizes) else None
    total[_SHARED] = max(row[_SHARED] or 0 for row in rows)
    return Kept(**total)


def _named(info: CollectionInfo, name: str, state: Partitioned) -> CollectionInfo:
    update: dict[str, Any] = {"name": name, "partitions": len(state.numbers)}
    if state.rollover is not None:
        update["rollover"] = state.rollover
    return info.model_copy(update=update)
