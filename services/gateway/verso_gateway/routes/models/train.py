"""``POST /v1/train``: train a head on labelled texts or records, questions, pairs, or groups."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from verso_core.errors import BodyTooLarge, RequestInvalid, TrainerUnavailable
from verso_core.heads import Task
from verso_core.jobs import Kind, Queue
from verso_core.jobs.job import Batch
from verso_core.jobs.train import MAX_ROWS_BYTES, TrainItem, TrainRequest
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded
from verso_gateway.bodies import examples, reading
from verso_gateway.bodies.examples import Examples
from verso_gateway.bodies.labelled import CSV, Columns
from verso_gateway.bodies.limits import NDJSON
from verso_gateway.context import context_of

router = guarded("training")

ALIVE_S = 30.0
"""A trainer whose last heartbeat is older is gone, seconds."""
_ROWS = "one row, pair or group a line"
_Setting = Annotated[str | None, Query(description="for rows as lines or CSV")]


@router.post(
    "/v1/train",
    name="train",
    operation_id="train",
    responses=openapi.job_responses(Batch),
    openapi_extra=openapi.body(TrainRequest, also={NDJSON: _ROWS, CSV: _ROWS}),
)
async def train(
    request: Request,
    head: _Setting = None,
    task: _Setting = None,
    text_column: _Setting = None,
    label_column: _Setting = None,
    settings: Annotated[
        str | None, Query(description="for lines or CSV: the rest of the JSON body, as JSON")
    ] = None,
) -> Response:
    """Train a head and publish it as a canary.

    Examples come in the JSON body, or the body is NDJSON or CSV (rows of a head that classifies,
    pairs of one that scores; groups as NDJSON) and what the JSON body would say of the head is in
    the query. The answer is 202: follow the job for its progress.
    """
    columns = Columns(text_column or "text", label_column or "label")
    found: Examples | None
    if reading.media_type(request) in (NDJSON, CSV):
        checked = _from_query(request, {"head": head, "task": task}, settings)
        found = await examples.from_rows(request, columns, task=checked.task)
    else:
        checked, found = await examples.from_body(request)
    created = None
    if found is None:
        collection = await collection_of(request, str(checked.source.collection))
        item, created = TrainItem(None), collection.created
    else:
        if len(found.packed) > MAX_ROWS_BYTES:
            raise BodyTooLarge(
                f"expected examples of <= {MAX_ROWS_BYTES} bytes, got {len(found.packed)}"
            )
        item = TrainItem(found.count, found.packed)
    request.state.target = checked.head  # for the audit log
    params = checked.params(created)
    job = responses.job_of_one(request, Kind.TRAIN, params, item, queue=Queue.TRAIN)
    job = await responses.repeatable(request, job)
    if await context_of(request).job_service.find(job) is None:
        await _trainer(request)
    return await responses.respond(request, job, body=views.batch, wait_default_s=0.0)


def _from_query(
    request: Request, query: dict[str, str | None], settings: str | None
) -> TrainRequest:
    value: dict[str, Any] = {}
    if settings is not None:
        parsed = reading.parse(settings.encode("utf-8", "surrogatepass"))
        if not isinstance(parsed, dict):
            raise RequestInvalid("expected a JSON object as settings")
        value |= parsed
    value |= {name: given for name, given in query.items() if given is not None}
    # Lines and records are rows, pairs or groups; a file of questions comes in a JSON body.
    name = "pairs" if value.get("task") == Task.SCORE else "rows"
    return reading.validate(request, {**value, "source": {name: []}}, model=TrainRequest)


async def _trainer(request: Request) -> None:
    """Refuse a training that no trainer would start.

    Raises:
        TrainerUnavailable: no trainer has sent a heartbeat lately.
    """
    health = await context_of(request).ledgers.home.health()
    age_s = health.trainer_beat_age_s
    if age_s is None or age_s > ALIVE_S:
        seen = "none was ever seen" if age_s is None else f"the last was seen {age_s:.0f} s ago"
        raise TrainerUnavailable(f"expected a trainer that runs, but {seen}")
