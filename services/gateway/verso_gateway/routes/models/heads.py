"""``/v1/heads``: what can be asked of classify, answer and score."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import HeadUnknown
from verso_core.jobs import Kind, NoItem
from verso_core.jobs.heads.listing import HeadInfo, HeadList, HeadsParams
from verso_core.jobs.heads.report import HeadReport, HeadReportView
from verso_core.registry import Channel
from verso_gateway import openapi, responses
from verso_gateway.access import guarded
from verso_gateway.job_service import Ended

router = guarded("heads")

MARKDOWN = "text/markdown"


@router.get(
    "/v1/heads", name="heads", operation_id="listHeads", responses=openapi.job_responses(HeadList)
)
async def list_all(request: Request) -> Response:
    """List the heads: what each channel serves, its labels, and how good it was measured to be."""
    return await _heads(request, responses.sole)


@router.get(
    "/v1/heads/{name}",
    name="head",
    operation_id="getHead",
    responses=openapi.job_responses(HeadInfo),
)
async def describe(request: Request, name: str) -> Response:
    """Describe one head, by its name or by a task, such as ``relevance``."""

    def body(ended: Ended) -> HeadInfo:
        found: HeadList = responses.sole(ended)
        for head in found.heads:
            if name in (head.name, *head.tasks):
                return head
        raise HeadUnknown(f"no head {name!a}; there are {[head.name for head in found.heads]}")

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
    what each accepted error rate came to on rows that were not trained on. ``figures`` has the
    same for programs that draw it. ``Accept: text/markdown`` gives the page itself.
    """
    params = HeadsParams(report=name, channel=channel)
    job = responses.job_of_one(request, Kind.HEADS, params, NoItem())
    ended = await responses.finish(request, job)
    found: HeadReport = responses.sole(ended)
    headers = {"Vary": "Accept"}
    if MARKDOWN in request.headers.get("accept", ""):
        return Response(found.data, media_type=MARKDOWN, headers=headers)
    view = HeadReportView(
        head=name, version=found.version, report=found.data.decode(), figures=found.figures
    )
    return responses.json_response(view, headers=headers)


async def _heads(request: Request, body: responses.Body) -> Response:
    job = responses.job_of_one(request, Kind.HEADS, HeadsParams(), NoItem())
    return await responses.respond(request, job, body=body)
