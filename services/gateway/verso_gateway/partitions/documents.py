"""List, count and facet the documents of a collection of several partitions."""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fastapi import Request

from verso_core.errors import RequestInvalid
from verso_core.jobs import Collection, CollectionKind, Kind, NoItem
from verso_core.jobs.collections import partition_name
from verso_core.jobs.documents import (
    MAX_FACET_DOCUMENTS,
    Counted,
    CountParams,
    DocumentInfo,
    DocumentPage,
    Facet,
    Facets,
    FacetsParams,
    FacetValue,
    ListParams,
    Order,
    PageEnd,
)
from verso_core.jobs.models import Params
from verso_core.texts import Scalar
from verso_gateway import responses, views
from verso_gateway.access import read_of
from verso_gateway.partitions import scatter
from verso_gateway.partitions.missing import left_out
from verso_ledger import NewJob


async def listed(request: Request, collection: Collection, params: ListParams) -> DocumentPage:
    """Return a page of the documents of all partitions, in the order that is asked for.

    Raises:
        PartitionMissing: one is missing, and the caller prefers an error.
        RequestInvalid: the cursor is none of a list in this order.
    """
    missing = left_out(request, collection)
    if collection.kind is CollectionKind.LOGS:
        by = _by_line if params.order is Order.ID else _by_time
        return (await by(request, collection, params)).model_copy(update=missing)
    _ = params.page_end  # raises before any partition is asked
    ended = await scatter.every(request, collection, _job(request, Kind.LIST, params))
    return joined_pages([responses.sole(one) for one in ended], params).model_copy(update=missing)


async def _by_line(request: Request, collection: Collection, params: ListParams) -> DocumentPage:
    """Return a page of lines by id: of one partition after the other, as lines are numbered.

    Raises:
        RequestInvalid: the cursor is none of this list.
    """
    state = collection.parted
    assert state is not None
    order = sorted(state.numbers, reverse=params.descending)
    number, place = scatter.place_in(params.cursor or f"{order[0]}.")
    behind = [one for one in order if (one <= number if params.descending else one >= number)]
    if not behind:
        return DocumentPage(documents=(), next_cursor=None)
    own = params.model_copy(
        update={
            "collection": partition_name(collection.name, behind[0]),
            "cursor": place if behind[0] == number else None,
        }
    )
    _ = own.page_end
    job = responses.job_of_one(request, Kind.LIST, own, NoItem())
    page: DocumentPage = responses.sole(await responses.finish(request, job))
    if page.next_cursor is not None:
        return page.model_copy(update={"next_cursor": f"{behind[0]}.{page.next_cursor}"})
    following = f"{behind[1]}." if len(behind) > 1 else None
    return page.model_copy(update={"next_cursor": following})


async def _by_time(request: Request, collection: Collection, params: ListParams) -> DocumentPage:
    """Return a page of lines by time: each partition's own list goes on where it stopped.

    A cursor holds the place in each of them, since lines of one stream keep their order, whatever
    their times.

    Raises:
        RequestInvalid: the cursor is none of this list.
    """
    state = collection.parted
    assert state is not None
    ended, places = _places(params)
    names = {
        number: partition_name(collection.name, number)
        for number in sorted(state.numbers, reverse=params.descending)
        if number not in ended
    }

    async def pages(limits: dict[int, int]) -> dict[int, DocumentPage]:
        jobs = {}
        for number, limit in limits.items():
            change = {"limit": limit, "cursor": places.get(number), "collection": names[number]}
            own = params.model_copy(update=change)
            jobs[names[number]] = responses.job_of_one(request, Kind.LIST, own, NoItem())
        found = await scatter.each(request, list(jobs), jobs.__getitem__)
        return dict(zip(limits, map(responses.sole, found), strict=True))

    found = await pages(dict.fromkeys(names, params.limit))
    shown = taken(found, params)
    # A place is known behind the last line of a page only.
    parts = {n: count for n, count in shown.items() if 0 < count < len(found[n].documents)}
    found |= await pages(parts)
    for number, count in shown.items():
        place = found[number].next_cursor
        if place is not None and count:
            places[number] = place
        elif place is None and count == len(found[number].documents):
            places.pop(number, None)
            ended.append(number)
    rows = merged({n: found[n].documents[:count] for n, count in shown.items()}, params)
    more = len(names) > sum(number in ended for number in names)
    cursor = PageEnd(json.dumps([ended, sorted(places.items())])).cursor(params) if more else None
    return DocumentPage(documents=tuple(row for _, row in rows), next_cursor=cursor)


def _places(params: ListParams) -> tuple[list[int], dict[int, str]]:
    """Read which partitions a list by time has ended in, and where it goes on in others.

    Raises:
        RequestInvalid: the cursor is none of such a list.
    """
    if (page_end := params.page_end) is None:
        return [], {}
    try:
        ended, places = json.loads(page_end.id)
        return [int(number) for number in ended], {int(n): str(place) for n, place in places}
    except (ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise RequestInvalid("expected a cursor of this list") from exc


def taken(pages: Mapping[int, DocumentPage], params: ListParams) -> dict[int, int]:
    """Return how many rows of each partition's page are on the page of all."""
    rows = merged({number: page.documents for number, page in pages.items()}, params)
    count = Counter(number for number, _ in rows[: params.limit])
    return {number: count[number] for number in pages}


def merged(
    parts: Mapping[int, Sequence[DocumentInfo]], params: ListParams
) -> list[tuple[int, DocumentInfo]]:
    """Merge rows of partitions by time, each in its order; those without a time come last.

    A line that is earlier than the one before it comes right behind it.
    """
    sign = -1 if params.descending else 1

    def keyed(number: int) -> Iterator[tuple[tuple[bool, float], int, DocumentInfo]]:
        key = (False, -math.inf)
        for row in parts[number]:
            key = max(key, (row.time is None, sign * (row.time or 0.0)))
            yield key, number, row

    rows = heapq.merge(*map(keyed, parts), key=lambda row: row[0])
    return [(number, row) for _, number, row in rows]


def joined_pages(parts: Sequence[DocumentPage], params: ListParams) -> DocumentPage:
    """Join the pages of partitions that begin at the same place."""
    rows = in_order([row for part in parts for row in part.documents], params)
    page = rows[: params.limit]
    if len(rows) == len(page) and all(part.next_cursor is None for part in parts):
        return DocumentPage(documents=tuple(page), next_cursor=None)
    last = page[-1]
    end = PageEnd(last.id, last.time if params.order is Order.TIME else None)
    return DocumentPage(documents=tuple(page), next_cursor=end.cursor(params))


def in_order(rows: Sequence[DocumentInfo], params: ListParams) -> list[DocumentInfo]:
    """Return documents in the order of a list; by time those without one come last."""
    by_id = sorted(rows, key=lambda row: row.id, reverse=params.descending)
    if params.order is Order.ID:
        return by_id
    timed = [row for row in by_id if row.time is not None]
    timed.sort(key=lambda row: row.time or 0.0, reverse=params.descending)
    return [*timed, *(row for row in by_id if row.time is None)]


async def page(
    request: Request, collection: Collection, *, cursor: str | None, limit: int
) -> DocumentPage:
    """Return a page of the list without an order: of one partition after the other.

    Raises:
        RequestInvalid: the cursor is none of this list.
    """
    number, after = scatter.place_in(cursor or "0.")
    if number >= collection.partitions:
        raise RequestInvalid("expected a cursor of this list")
    name = scatter.names_of(collection)[number]
    found = await read_of(request, name, lambda one: one.documents(name, after=after, limit=limit))
    following = number + (found.cursor is None)
    more = following < collection.partitions
    return DocumentPage(
        documents=tuple(map(views.document, found.rows)),
        next_cursor=f"{following}.{found.cursor or ''}" if more else None,
    )


async def counted(request: Request, collection: Collection, params: CountParams) -> Counted:
    """Count the documents of all partitions that a filter passes.

    Raises:
        PartitionMissing: one is missing, and the caller prefers an error.
    """
    missing = left_out(request, collection)
    ended = await scatter.every(request, collection, _job(request, Kind.COUNT, params))
    counts: list[Counted] = [responses.sole(one) for one in ended]
    total = sum(one.documents for one in counts)
    exact = {} if all(one.exact for one in counts) else {"exact": False}
    return Counted(documents=total).model_copy(update=exact | missing)


async def facets(request: Request, collection: Collection, params: FacetsParams) -> Facets:
    """Count the values of fields over all partitions; each tells all of its values.

    Raises:
        PartitionMissing: one is missing, and the caller prefers an error.
    """
    missing = left_out(request, collection)
    asked = params.model_copy(update={"limit": MAX_FACET_DOCUMENTS})
    ended = await scatter.every(request, collection, _job(request, Kind.FACETS, asked))
    whole = joined_facets([responses.sole(one) for one in ended], limit=params.limit)
    return whole.model_copy(update=missing)


def joined_facets(parts: Sequence[Facets], *, limit: int) -> Facets:
    """Join facets that have all of their values."""
    described = []
    for fields in zip(*(part.facets for part in parts), strict=True):
        counts: Counter[tuple[str, Scalar]] = Counter()
        for one in fields:
            counts.update({_typed(row.value): row.documents for row in one.values})
        best = sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:limit]
        facet = Facet(
            field=fields[0].field,
            values=tuple(FacetValue(value=value, documents=n) for (_, value), n in best),
            distinct=len(counts),
            missing=sum(one.missing for one in fields),
        )
        described.append(facet)
    return Facets(documents=sum(part.documents for part in parts), facets=tuple(described))


def _typed(value: Scalar) -> tuple[str, Scalar]:
    """Return a value with its type, as a worker orders values: to Python 1 and true are equal."""
    return type(value).__name__ if isinstance(value, bool | str) else "number", value


def _job(request: Request, kind: Kind, params: Params) -> scatter.ByName:
    def job(name: str) -> NewJob:
        own = params.model_copy(update={"collection": name})
        return responses.job_of_one(request, kind, own, NoItem())

    return job
