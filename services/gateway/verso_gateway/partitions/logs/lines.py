"""Lines in order: of one partition after the other.

A cursor says the partition, and where its own list goes on.
"""

from __future__ import annotations

from fastapi import Request

from verso_core.errors import PartitionedUnsupported
from verso_core.jobs import Collection, Kind, NoItem
from verso_core.jobs.collections import partition_name
from verso_core.jobs.logs.lines import (
    LineOrder,
    LinesPage,
    LinesParams,
    LinesRequest,
    read_cursor,
)
from verso_gateway import headers, responses
from verso_gateway.partitions.logs.spans import numbers_in, template_of
from verso_gateway.partitions.missing import left_out
from verso_gateway.partitions.scatter import check_there, place_in


async def asked(request: Request, collection: Collection, checked: LinesRequest) -> LinesParams:
    """Return the params of the first page.

    Raises:
        PartitionedUnsupported: lines nearest to a question are asked for.
        RequestInvalid: the cursor is none of this list.
    """
    if checked.question is not None:
        raise PartitionedUnsupported(
            "expected no question of lines in partitions: /v1/search with lines finds them"
        )
    if checked.cursor is not None:
        _, place = place_in(checked.cursor)
        if place is not None:
            read_cursor(place, checked.order)
    params = checked.params()
    if checked.statement is None:
        return params
    template = await template_of(request, collection, checked.statement)
    return params.model_copy(update={"statement": None, "template": template or ""})


def left_out_of(
    request: Request, collection: Collection, params: LinesParams
) -> dict[str, tuple[str, ...]]:
    """Return the field of the row behind the lines that names the partitions a list leaves out.

    Raises:
        PartitionMissing: they were to be left out as damaged, and the caller prefers an error.
    """
    if not _leaves_out(request, params):
        return {}
    return left_out(request, collection, params.start_ns, params.end_ns)


def _leaves_out(request: Request, params: LinesParams) -> bool:
    """Whether a list leaves out partitions that are missing, as it does what is damaged."""
    return params.skip_damaged or headers.preference_of(request).handling == headers.LENIENT


async def page(request: Request, collection: Collection, params: LinesParams) -> LinesPage:
    """Return the page behind a cursor: of one partition, with the place where the next begins.

    Raises:
        PartitionMissing: the ledger of that partition no longer has it, and it is not left out.
    """
    told = not _leaves_out(request, params)
    order = numbers_in(collection, params.start_ns, params.end_ns, missing=told)
    if params.order is LineOrder.NEWEST:
        order.reverse()
    number, place = order[0], None
    if params.cursor is not None:
        number, place = place_in(params.cursor)
    if number not in order:  # dropped since, or none: the list goes on behind it
        place = None
        behind = [one for one in order if (one < number) is (params.order is LineOrder.NEWEST)]
        if not behind:
            return LinesPage(lines=0)
        number = behind[0]
    check_there(collection, number)
    name = partition_name(collection.name, number)
    own = params.model_copy(update={"collection": name, "cursor": place})
    job = responses.job_of_one(request, Kind.LINES, own, NoItem())
    found: LinesPage = responses.sole(await responses.finish(request, job))
    if found.next_cursor is not None:
        return found.model_copy(update={"next_cursor": f"{number}.{found.next_cursor}"})
    following = order[order.index(number) + 1 :]
    if not following:
        return found
    return found.model_copy(update={"next_cursor": f"{following[0]}."})
