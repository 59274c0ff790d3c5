"""``POST /v1/cluster``: group a collection's records."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.jobs import Kind, NoItem, Queue
from verso_core.jobs.cluster import Clustered, ClusterRequest
from verso_gateway import bodies, openapi, responses
from verso_gateway.context import context_of

router = APIRouter(tags=["search"])


@router.post(
    "/v1/cluster",
    name="cluster",
    operation_id="cluster",
    responses=openapi.job_responses(Clustered),
    openapi_extra=openapi.body(ClusterRequest),
)
async def cluster(request: Request) -> Response:
    """Group the records of a collection, by their vectors or by the template of their texts.

    A job: without ``Prefer: wait=N`` the answer is 202, and its result is read from the job.
    """
    value = await bodies.read_object(request)
    checked = bodies.validate(request, value, model=ClusterRequest)
    await context_of(request).collections.get(checked.collection)
    slices = responses.one_slice(Kind.CLUSTER, checked.params(), [NoItem()])
    order = responses.order_of(request, Kind.CLUSTER, slices=slices, queue=Queue.BULK)
    return await responses.respond(
        request,
        await responses.repeatable(request, order),
        body=responses.sole,
        wait_default_s=0.0,
    )
