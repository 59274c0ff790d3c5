"""``POST /v1/search``, ``/v1/cluster``, ``/v1/project``: find records; group or draw all."""

from __future__ import annotations

from functools import partial

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import KindUnsupported, RequestInvalid
from verso_core.jobs import (
    Collection,
    CollectionKind,
    Kind,
    NoItem,
    Queue,
    SearchItem,
    SearchMode,
    SearchRequest,
)
from verso_core.jobs.cluster import (
    Clustered,
    ClusterRequest,
    Colour,
    Projected,
    ProjectRequest,
)
from verso_core.jobs.search import Found, Hits
from verso_core.texts import split_record_id, text_bytes
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded
from verso_gateway.bodies import reading
from verso_gateway.job_service import Ended
from verso_gateway.partitions import search as partitioned

router = guarded("search")


@router.post(
    "/v1/search",
    name="search",
    operation_id="search",
    responses=openapi.job_responses(Found),
    openapi_extra=openapi.body(SearchRequest),
)
async def search(request: Request) -> Response:
    """Find the records nearest to a text, a vector, or a stored document or record.

    ``mode`` says what is compared: ``dense`` vectors, ``sparse`` the words of the text (BM25), or
    ``hybrid`` both. The last two need a collection with ``search: hybrid``, where ``hybrid`` is
    the default.

    ``rerank`` names a head that scores pairs: it reads the query with each sentence of the nearest
    ``rerank_from`` records, and these are ordered again by their best sentence's score and by the
    search's, mixed as ``rerank_share`` says.

    With ``with_text`` every hit carries its text, decoded from what is stored and checked; a hit
    whose stored bytes are damaged carries an error instead, never another text.
    """
    checked = await reading.read(request, SearchRequest)
    item = _item(checked)
    collection = await collection_of(request, checked.collection, partitioned=True)
    params = checked.params(_mode(checked, collection))
    if collection.parted is not None:
        found = await partitioned.found(request, collection, params, item)
        return responses.json_response(found)
    job = responses.job_of_one(request, Kind.SEARCH, params, item)
    job = await responses.repeatable(request, job)
    body = partial(_found, collection=checked.collection)
    return await responses.respond(request, job, body=body)


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
    checked = await reading.read(request, ClusterRequest)
    await collection_of(request, checked.collection)
    params = checked.params()
    job = responses.job_of_one(request, Kind.CLUSTER, params, NoItem(), queue=Queue.BULK)
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=responses.sole, wait_default_s=0.0)


@router.post(
    "/v1/project",
    name="project",
    operation_id="project",
    responses=openapi.job_responses(Projected),
    openapi_extra=openapi.body(ProjectRequest),
)
async def project(request: Request) -> Response:
    """Draw a sample of a collection's records as a map: their vectors in two dimensions, by PCA.

    A job: without ``Prefer: wait=N`` the answer is 202, and its result is read from the job. Of a
    log collection the points are statements, the most frequent ones.
    """
    checked = await reading.read(request, ProjectRequest)
    collection = await collection_of(request, checked.collection)
    if collection.kind is CollectionKind.LOGS and checked.colour is Colour.LABEL:
        raise KindUnsupported("expected colour group or none: a statement has many labels")
    job = responses.job_of_one(request, Kind.PROJECT, checked.params(), NoItem(), queue=Queue.BULK)
    job = await responses.repeatable(request, job)
    return await responses.respond(request, job, body=responses.sole, wait_default_s=0.0)


def _mode(checked: SearchRequest, collection: Collection) -> SearchMode:
    """Return what is compared: what was asked for, else what the collection is made for.

    Raises:
        RequestInvalid: words were asked for where there are none to compare.
    """
    if checked.mode in (None, SearchMode.DENSE):
        by_words = checked.mode is None and checked.query is not None
        return collection.search if by_words else SearchMode.DENSE
    if collection.search is SearchMode.DENSE:
        raise RequestInvalid(
            f"expected mode dense, got {checked.mode}: collection {collection.name} keeps no words "
            "(a migration to search: hybrid adds them)"
        )
    if checked.query is None:
        raise RequestInvalid(f"expected query with mode {checked.mode}: a vector has no words")
    return checked.mode


def _item(checked: SearchRequest) -> SearchItem:
    if checked.query is not None:
        return SearchItem(text_bytes(checked.query))
    if checked.vector is not None:
        return SearchItem(reading.vector_bytes(checked.vector), vector=True)
    document, chunk = split_record_id(checked.id or "")
    return SearchItem(id=document, chunk=chunk)


def _found(ended: Ended, *, collection: str) -> Found:
    found: Hits = responses.sole(ended)
    return Found(
        job_id=ended.record.job_id,
        collection=collection,
        hits=found.hits,
        timings_ms=views.total_timings(ended.results),
    )
