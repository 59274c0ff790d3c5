"""Make, describe, change and delete collections of several partitions.

The home ledger notes what is done: a collection whose partitions are not all made, or are being
deleted, is not served, and the request may be repeated until it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from verso_core.errors import CollectionExists, CollectionUnknown, KindUnsupported
from verso_core.jobs import Collection, CollectionKind, CollectionRequest, Kind, NoItem
from verso_core.jobs.collections import (
    CodecShare,
    CollectionChangeParams,
    CollectionDeleted,
    CollectionInfo,
    CollectionName,
    CollectionParams,
    Kept,
    Partitioned,
    Stage,
    Statistics,
    partition_names,
)
from verso_gateway import responses
from verso_gateway.access import caller_of
from verso_gateway.context import DEFAULT, context_of
from verso_gateway.partitions import scatter
from verso_ledger import NewJob

_SUMS = (
    *("documents", "chunks", "verified", "unreadable", "points", "bytes_text", "bytes_vectors"),
    *("bytes_terms", "bytes_patches", "bytes_entries", "fits"),
)
_SHARED = "bytes_tables"


async def create(
    request: Request, checked: CollectionRequest, *, owner: str | None
) -> CollectionInfo:
    """Make a collection of several partitions, or find the same one made before.

    Raises:
        CollectionExists: there is one of this name with other settings, or one is being deleted.
        KindUnsupported: it was to keep log lines.
        NotReady: not all partitions were made in time; the request may be repeated.
    """
    name, context = checked.name, context_of(request)
    if checked.kind is CollectionKind.LOGS:
        raise KindUnsupported("expected a collection of documents: of log lines there is no id")
    if name == DEFAULT:
        raise CollectionExists(f"the workers make {name!r}, without partitions")
    state = await _claimed(request, name, checked.partitions, owner)
    names = partition_names(name, checked.partitions)
    await context.ledgers.place_apart(names)
    given = {one: getattr(checked, one) for one in checked.model_fields_set - {"partitions"}}

    def job(own: str) -> NewJob:
        params = CollectionParams(**{**given, "name": own}, owner=owner)
        return responses.job_of_one(request, Kind.COLLECTION_CREATE, params, NoItem())

    ended = await scatter.each(request, names, job)
    if state.stage is Stage.MAKING:
        live = state.model_copy(update={"stage": Stage.LIVE})
        await context.ledgers.home.placements.note(name, live)
        context.collections.forget(name)
    return _named(responses.sole(ended[0]), name, checked.partitions)


async def _claimed(request: Request, name: str, partitions: int, owner: str | None) -> Partitioned:
    """Note that a collection is being made, unless it is noted.

    Raises:
        CollectionExists: another one has the name.
    """
    context = context_of(request)
    known = {one.name: one for one in await context.collections.list()}
    if name in known and known[name].partitions == 1:
        raise CollectionExists(f"{name!r} exists without partitions")
    state = Partitioned(partitions=partitions, owner=owner)
    while not await context.ledgers.home.placements.note(name, state, new=True):
        await context.collections.list()
        found = context.ledgers.partitioned.get(name)
        if found is None:
            continue  # it has just been deleted
        check_noted(found, name)
        if (found.partitions, found.owner) != (partitions, owner):
            raise CollectionExists(
                f"{name!r} exists with {found.partitions} partitions, not {partitions}"
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
    request: Request, collection: Collection, params: CollectionChangeParams
) -> CollectionInfo:
    """Change the settings of all partitions."""

    def job(name: str) -> NewJob:
        own = params.model_copy(update={"name": name})
        return responses.job_of_one(request, Kind.COLLECTION_CHANGE, own, NoItem())

    ended = await scatter.every(request, collection, job)
    return _named(responses.sole(ended[0]), collection.name, collection.partitions)


async def delete(request: Request, name: str) -> CollectionDeleted | None:
    """Delete a collection with all its partitions; None if the name is not of such a one.

    Raises:
        CollectionUnknown: it is not for the caller to see.
        NotReady: not all partitions were deleted in time; the request may be repeated.
    """
    context = context_of(request)
    await context.collections.list()
    state = context.ledgers.partitioned.get(name)
    if state is None:
        return None
    if not caller_of(request).sees(name, owner=state.owner):
        raise CollectionUnknown(f"no collection {name!a}")
    placements = context.ledgers.home.placements
    if state.stage is not Stage.DELETING:
        await placements.note(name, state.model_copy(update={"stage": Stage.DELETING}))
        context.collections.forget(name)
    held = await context.ledgers.collections()
    names = partition_names(name, state.partitions)
    for one in names:
        if one not in held:  # deleted before, unless its ledger is away
            await context.ledgers.check_answers(one)

    def job(own: str) -> NewJob:
        params = CollectionName(name=own)
        return responses.job_of_one(request, Kind.COLLECTION_DELETE, params, NoItem())

    await scatter.each(request, [one for one in names if one in held], job)
    await placements.forget(name)
    await context.collections.list()
    return CollectionDeleted(name=name)


async def stats(request: Request, collection: Collection) -> Statistics:
    """Describe a collection with what all its partitions hold."""

    def job(name: str) -> NewJob:
        return responses.job_of_one(request, Kind.STATS, CollectionName(name=name), NoItem())

    ended = await scatter.every(request, collection, job)
    return joined_stats([responses.sole(one) for one in ended], collection)


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


def _named(info: CollectionInfo, name: str, partitions: int) -> CollectionInfo:
    return info.model_copy(update={"name": name, "partitions": partitions})
