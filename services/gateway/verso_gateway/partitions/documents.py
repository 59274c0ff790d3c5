"""List, count and facet the documents of a collection of several partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
from verso_gateway.context import context_of
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
    if collection.kind is CollectionKind.LOGS and params.order is Order.ID:
        return (await _by_line(request, collection, params)).model_copy(update=missing)
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
    ledgers = context_of(request).ledgers
    found = await ledgers.at(name, lambda one: one.documents(name, after=after, limit=limit))
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
