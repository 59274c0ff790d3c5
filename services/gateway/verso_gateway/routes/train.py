"""``POST /v1/train``: train a head on labelled rows, or on records that carry a label."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from verso_core.errors import BodyTooLarge, RequestInvalid, TrainerUnavailable
from verso_core.jobs import Item, Kind, Queue
from verso_core.training import MAX_ROWS_BYTES, Labelled, TrainRequest, check_rows, pack_rows
from verso_gateway import answers, bodies, labelled, openapi, views
from verso_gateway.context import context_of
from verso_gateway.labelled import CSV, Columns
from verso_gateway.limits import NDJSON
from verso_gateway.schemas import BatchView

router = APIRouter(tags=["training"])

ALIVE_S = 30.0
"""A trainer whose last beat is older is gone, seconds."""
_Setting = Annotated[str | None, Query(description="for rows as lines or CSV")]


@router.post(
    "/v1/train",
    name="train",
    operation_id="train",
    responses=openapi.job_responses(BatchView),
    openapi_extra=openapi.body(TrainRequest, ndjson=True),
)
async def train(
    request: Request,
    head: _Setting = None,
    text_column: _Setting = None,
    label_column: _Setting = None,
    settings: Annotated[
        str | None, Query(description="for lines or CSV: the rest of the JSON body, as JSON")
    ] = None,
) -> Response:
    """Train a head and publish it as a canary.

    Rows come in the JSON body, or the body is NDJSON or CSV and what the JSON body would say of
    the head is in the query. The answer is 202: follow the job for its progress.
    """
    columns = Columns(text_column or "text", label_column or "label")
    match bodies.media_type(request):
        case kind if kind in (NDJSON, CSV):
            read = labelled.from_lines if kind == NDJSON else labelled.from_csv
            rows: list[Labelled] | None = read(await request.body(), columns)
            checked = _from_query(request, head, settings)
        case _:
            checked, rows = await _from_body(request)
    if rows is None:
        await context_of(request).catalogue.get(str(checked.source.collection))
        item = Item({"rows": None})
    else:
        check_rows(rows)
        item = Item({"rows": len(rows)}, _packed(rows))
    await _trainer(request)
    params = checked.model_dump(mode="json")
    params["source"] = {k: v for k, v in params["source"].items() if k != "rows"}
    slices = answers.one_slice(Kind.TRAIN, params, [item])
    order = answers.order_of(request, Kind.TRAIN, slices=slices, queue=Queue.TRAIN)
    return await answers.respond(
        request,
        await answers.repeatable(request, order),
        body=lambda ended: views.batch(Kind.TRAIN, ended),
        wait_default_s=0.0,
    )


async def _from_body(request: Request) -> tuple[TrainRequest, list[Labelled] | None]:
    value = await bodies.read_object(request)
    source = value.get("source")
    if not isinstance(source, dict) or source.get("rows") is None:
        return bodies.validate(request, value, model=TrainRequest), None
    # a bad row is named by its place; the model of the whole body would only say that one is bad
    rows = labelled.of_json(source["rows"])
    head = {**value, "source": {**source, "rows": []}}
    return bodies.validate(request, head, model=TrainRequest), rows


def _from_query(request: Request, head: str | None, settings: str | None) -> TrainRequest:
    value: dict[str, Any] = {}
    if settings is not None:
        parsed = bodies.parse(settings.encode("utf-8", "surrogatepass"))
        if not isinstance(parsed, dict):
            raise RequestInvalid("expected a JSON object as settings")
        value |= parsed
    if head is not None:
        value["head"] = head
    return bodies.validate(request, {**value, "source": {"rows": []}}, model=TrainRequest)


def _packed(rows: list[Labelled]) -> bytes:
    data = pack_rows(rows)
    if len(data) > MAX_ROWS_BYTES:
        raise BodyTooLarge(f"expected rows of <= {MAX_ROWS_BYTES} bytes, got {len(data)}")
    return data


async def _trainer(request: Request) -> None:
    """Refuse what nobody would ever do.

    Raises:
        TrainerUnavailable: no trainer has beaten lately.
    """
    health = await context_of(request).ledger.health()
    age_s = health.trainer_beat_age_s
    if age_s is None or age_s > ALIVE_S:
        seen = "none was ever seen" if age_s is None else f"the last was seen {age_s:.0f} s ago"
        raise TrainerUnavailable(f"expected a trainer that runs, but {seen}")
