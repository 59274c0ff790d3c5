"""``/v1/logs/volume``, ``/labels`` and ``/statements``: many lines of a log collection at once."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from starlette.responses import Response

from verso_core.jobs import Kind, NoItem
from verso_core.jobs.logs.views import (
    MAX_INTERVAL_S,
    MAX_STATEMENT_INTERVALS,
    STATEMENT_ID,
    LabelsAnswer,
    LabelsRequest,
    LinesWhere,
    StatementsAnswer,
    StatementsRequest,
    VolumeAnswer,
    VolumeRequest,
    WhereParams,
)
from verso_core.jobs.models import ItemResult
from verso_gateway import openapi, responses
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.job_service import Ended
from verso_gateway.partitions.logs import views
from verso_gateway.partitions.logs.spans import waiting_of
from verso_gateway.routes.logs import log_collection

router = guarded("logs")

Asked = TypeVar("Asked", bound=LinesWhere)

_NUMBER = re.compile(r"-?\d{1,19}(?:\.\d{1,30})?")

Collection = Annotated[str, Query(description="name of a collection of kind logs")]
From = Annotated[
    str | None,
    Query(alias="from", description="the first time, inclusive: Unix seconds or RFC 3339"),
]
To = Annotated[str | None, Query(description="the last time, exclusive, likewise")]
Where = Annotated[str | None, Query(description="a filter, as JSON")]


@router.get(
    "/v1/logs/volume",
    name="logs_volume",
    operation_id="logVolume",
    responses=openapi.job_responses(VolumeAnswer),
)
async def volume(
    request: Request,
    collection: Collection = "default",
    start: From = None,
    to: To = None,
    filter: Where = None,  # noqa: A002 - the API's own word
    contains: Annotated[
        str | None,
        Query(min_length=1, max_length=4096, description="only lines with this text in them"),
    ] = None,
    interval_s: Annotated[
        float | None,
        Query(ge=0.001, le=MAX_INTERVAL_S, description="default: some 60 intervals in all"),
    ] = None,
    by: Annotated[
        str | None, Query(min_length=1, max_length=512, description="a label: count by its values")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="values shown")] = 50,
) -> Response:
    """Count lines by time: how many there are in each interval, of all and by a label's values.

    Intervals are whole multiples of their length since 1970. Documents with ids of their own are
    not counted: they are no lines.
    """
    asked = _asked(
        request, VolumeRequest, collection, start, to, filter,
        {"contains": contains, "interval_s": interval_s, "by": by, "limit": limit},
    )  # fmt: skip
    return await _answered(request, Kind.VOLUME, asked, asked.params())


@router.get(
    "/v1/logs/labels",
    name="logs_labels",
    operation_id="logLabels",
    responses=openapi.job_responses(LabelsAnswer),
)
async def labels(
    request: Request,
    collection: Collection = "default",
    start: From = None,
    to: To = None,
    filter: Where = None,  # noqa: A002 - the API's own word
    name: Annotated[
        str | None, Query(min_length=1, max_length=512, description="a label: show its values")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="labels or values shown")] = 100,
) -> Response:
    """List the labels of lines, or the values of one, each with how many lines have it."""
    asked = _asked(
        request, LabelsRequest, collection, start, to, filter, {"name": name, "limit": limit}
    )
    return await _answered(request, Kind.LABELS, asked, asked.params())


@router.get(
    "/v1/logs/statements",
    name="logs_statements",
    operation_id="logStatements",
    responses=openapi.job_responses(StatementsAnswer),
)
async def statements(
    request: Request,
    collection: Collection = "default",
    start: From = None,
    to: To = None,
    filter: Where = None,  # noqa: A002 - the API's own word
    new_since: Annotated[
        str | None,
        Query(description="only statements none of whose lines that pass the filter is earlier"),
    ] = None,
    statement: Annotated[
        str | None, Query(pattern=STATEMENT_ID, description="only the statement of this id")
    ] = None,
    interval_s: Annotated[
        float | None,
        Query(
            ge=0.001,
            le=MAX_INTERVAL_S,
            description="count the lines of each by intervals, of which there may be "
            f"{MAX_STATEMENT_INTERVALS}",
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="statements shown")] = 100,
) -> Response:
    """List the statements of lines, the most frequent first, with their first and last times.

    ``id`` names a statement in ``POST /v1/logs/query``, which reads its lines. Intervals are whole
    multiples of their length since 1970, as those of ``/v1/logs/volume``.
    """
    asked = _asked(
        request, StatementsRequest, collection, start, to, filter,
        {"new_since": _time(new_since), "statement": statement, "interval_s": interval_s,
         "limit": limit},
    )  # fmt: skip
    return await _answered(request, Kind.STATEMENTS, asked, asked.params())


def _asked(
    request: Request,
    model: type[Asked],
    collection: str,
    start: str | None,
    to: str | None,
    where: str | None,
    options: dict[str, Any],
) -> Asked:
    """Return a query as its model.

    Raises:
        RequestInvalid: it does not fit the model.
    """
    given = {
        "collection": collection,
        "from": _time(start),
        "to": _time(to),
        "filter": None if where is None else reading.parse(where.encode("utf-8", "surrogatepass")),
        **options,
    }
    present = {name: value for name, value in given.items() if value is not None}
    try:
        return reading.validate(request, present, model=model)
    finally:
        request.state.pointer = None  # a pointer is into a body, and there is none


def _time(text: str | None) -> float | str | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text) else text


async def _answered(
    request: Request, kind: Kind, asked: LinesWhere, params: WhereParams
) -> Response:
    """Answer with a job's result, and how many accepted lines are not stored yet."""
    collection = await log_collection(request, asked.collection)
    waiting = await waiting_of(request, collection)
    if collection.parted is not None:
        whole: ItemResult = await views.found(request, collection, kind, params)
        return responses.json_response(whole.public() | {"waiting": waiting.public()})
    job = responses.job_of_one(request, kind, params, NoItem())

    def body(ended: Ended) -> dict[str, Any]:
        found: ItemResult = responses.sole(ended)
        return found.public() | {"waiting": waiting.public()}

    return await responses.respond(request, job, body=body)
