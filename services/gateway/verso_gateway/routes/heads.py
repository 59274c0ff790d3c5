"""``/v1/heads``: what can be asked of classify, answer and score."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.errors import HeadUnknown
from verso_core.jobs import Item, Kind
from verso_core.registry import Channel
from verso_gateway import answers, openapi
from verso_gateway.head_views import HeadList, HeadReportView, HeadView
from verso_gateway.submit import Ended

router = APIRouter(tags=["heads"])

MARKDOWN = "text/markdown"


@router.get(
    "/v1/heads", name="heads", operation_id="listHeads", responses=openapi.job_responses(HeadList)
)
async def list_all(request: Request) -> Response:
    """List the heads: what each channel serves, its labels, and how good it was measured to be."""
    return await _heads(request, lambda ended: answers.sole(Kind.HEADS, ended))


@router.get(
    "/v1/heads/{name}",
    name="head",
    operation_id="getHead",
    responses=openapi.job_responses(HeadView),
)
async def describe(request: Request, name: str) -> Response:
    """Describe one head."""

    def body(ended: Ended) -> dict[str, Any]:
        found: list[dict[str, Any]] = answers.sole(Kind.HEADS, ended)["heads"]
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
    """Give the report that a head was published with: its data, and how good it was measured to be.

    For a head that classifies: every confidence signal side by side, risk against coverage, and
    what each accepted error rate came to on rows that were not trained on.
    ``Accept: text/markdown`` gives the page itself.
    """
    slices = answers.one_slice(Kind.HEADS, {"report": name, "channel": channel}, [Item({})])
    ended = await answers.finish(request, answers.order_of(request, Kind.HEADS, slices=slices))
    [result] = ended.results
    [item] = result.items
    text = result.blobs[item["blob"]]
    headers = {"Vary": "Accept"}
    if MARKDOWN in request.headers.get("accept", ""):
        return Response(text, media_type=MARKDOWN, headers=headers)
    view = {"head": name, "version": item["version"], "report": text.decode()}
    return answers.json_response(view, headers=headers)


async def _heads(request: Request, body: answers.Body) -> Response:
    slices = answers.one_slice(Kind.HEADS, {}, [Item({})])
    order = answers.order_of(request, Kind.HEADS, slices=slices)
    return await answers.respond(request, order, body=body)
