"""``/v1/heads``: what can be asked of classify, answer and score."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.errors import HeadUnknown
from verso_core.jobs import Item, Kind
from verso_core.registry import Channel
from verso_gateway import openapi, responses
from verso_gateway.head_views import HeadList, HeadReportView, HeadView
from verso_gateway.job_service import Ended

router = APIRouter(tags=["heads"])

MARKDOWN = "text/markdown"


@router.get(
    "/v1/heads", name="heads", operation_id="listHeads", responses=openapi.job_responses(HeadList)
)
async def list_all(request: Request) -> Response:
    """List the heads: what each channel serves, its labels, and how good it was measured to be."""
    return await _heads(request, lambda ended: responses.sole(Kind.HEADS, ended))


@router.get(
    "/v1/heads/{name}",
    name="head",
    operation_id="getHead",
    responses=openapi.job_responses(HeadView),
)
async def describe(request: Request, name: str) -> Response:
    """Describe one head."""

    def body(ended: Ended) -> dict[str, Any]:
        found: list[dict[str, Any]] = responses.sole(Kind.HEADS, ended)["heads"]
        for head in found:
            if head["name"] == name:
                return head
        raise HeadUnknown(f"no head {name!a}; there are {[head['name'] for head in found]}")

    return await _heads(request, body)


@router.get(
    "/v1/heads/{name}/report",
    name="head_report",
    operation_id="getHeadReport",
    responses=openapi.responses(HeadReportView, also=[MARKDOWN]),
)
async def report(request: Request, name: str, channel: Channel = Channel.STABLE) -> Response:
    """Return the report that a head was published with: its data, and how good it was measured to
    be.

    For a head that classifies: every confidence signal side by side, risk against coverage, and
    what each accepted error rate came to on rows that were not trained on.
    ``Accept: text/markdown`` gives the page itself.
    """
    slices = responses.one_slice(Kind.HEADS, {"report": name, "channel": channel}, [Item({})])
    ended = await responses.finish(request, responses.order_of(request, Kind.HEADS, slices=slices))
    [result] = ended.results
    [item] = result.items
    text = result.blobs[item["blob"]]
    headers = {"Vary": "Accept"}
    if MARKDOWN in request.headers.get("accept", ""):
        return Response(text, media_type=MARKDOWN, headers=headers)
    view = {"head": name, "version": item["version"], "report": text.decode()}
    return responses.json_response(view, headers=headers)


async def _heads(request: Request, body: responses.Body) -> Response:
    slices = responses.one_slice(Kind.HEADS, {}, [Item({})])
    order = responses.order_of(request, Kind.HEADS, slices=slices)
    return await responses.respond(request, order, body=body)
