"""``POST /v1/ingest``: take documents in, as a JSON body, a stream of lines, or a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.responses import Response

from verso_core.errors import KindUnsupported, PartitionedUnsupported, RequestInvalid
from verso_core.jobs import Collection, CollectionKind, Kind, Queue
from verso_core.jobs.ingest import IngestAccepted, IngestBatch, IngestRequest
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded, made_of
from verso_gateway.bodies import reading
from verso_gateway.bodies.files import FileFields, documents_of, file_fields
from verso_gateway.bodies.ids import ids_of_key
from verso_gateway.bodies.limits import NDJSON, PLAIN
from verso_gateway.bodies.lines import (
    LineUpload,
    TimesRead,
    labels_of,
    lines_in,
    slices_of,
    texts_of,
    times_read,
)
from verso_gateway.bodies.upload import Upload
from verso_gateway.context import context_of
from verso_gateway.extract.formats import MEDIA_TYPES
from verso_gateway.extract.pool import File
from verso_gateway.feed.source import SourcePart, source_part
from verso_gateway.headers import Fingerprint, key_of
from verso_gateway.job_service import Ended
from verso_gateway.partitions import writing
from verso_gateway.partitions.scatter import check_no_webhook
from verso_gateway.routes.feed.mapped import NamedFields, ingest_records
from verso_ledger import AsyncLedger
from verso_ledger.names import new_job_id

router = guarded("documents")


@router.post(
    "/v1/ingest",
    name="ingest",
    operation_id="ingest",
    responses=openapi.job_responses(IngestBatch, accepted=IngestAccepted),
    openapi_extra=openapi.body(
        IngestRequest,
        also={
            NDJSON: "one document a line",
            PLAIN: "log lines, for a collection of kind logs",
            **dict.fromkeys(sorted(MEDIA_TYPES), "a file, whose text is a document"),
        },
    ),
)
async def ingest(
    request: Request,
    collection: Annotated[
        str | None, Query(description="for NDJSON, plain lines and files; default 'default'")
    ] = None,
    label: Annotated[
        list[str] | None,
        Query(description="key=value, of plain lines: lines with the same labels are one stream"),
    ] = None,
    text_field: Annotated[
        str | None, Query(description="of NDJSON for a log collection: the text of each row")
    ] = None,
    time_field: Annotated[
        str | None, Query(description="of NDJSON for a log collection: the time of each row")
    ] = None,
    labels: Annotated[
        str | None,
        Query(description="of NDJSON for a log collection: fields that are labels, with commas"),
    ] = None,
    source: Annotated[SourcePart | None, Depends(source_part)] = None,
    *,
    times: Annotated[TimesRead, Depends(times_read)],
    file: Annotated[FileFields, Depends(file_fields)],
) -> Response:
    """Take documents in: each is stored as a vector and a patch and its text is dropped.

    The text is dropped only after a decode of the stored bytes has given it back. Send JSON, or
    NDJSON with one document a line and the collection in the query. The answer is 202 unless
    ``Prefer: wait=N`` asks to wait; it counts the documents that were refused at once and says why.
    If every document was refused, the answer is 422. A document without an id gets a new one.

    A collection of kind ``logs`` takes plain lines as ``text/plain``, whatever bytes they are: each
    gets the id ``stream:number``, and they are read back in this order. With ``text_field``,
    ``time_field`` or ``labels`` the rows of NDJSON are log records with any fields; a text that is
    not UTF-8 may be in the field of the text's name and ``_base64``. Lines and records that are a
    part of a ``source`` are accepted if all before them was, and refused as ``source_moved``, with
    the place to go on from, if they were accepted before.

    A body of the media type of a file, such as ``application/pdf``, is one file: its text becomes a
    document, or that of each page with ``pages``. What it says of itself goes to metadata:
    ``source``, ``title``, ``media_type``, ``pages``, ``page``. The file is not kept.
    """
    if reading.media_type(request) == PLAIN:
        return await _ingest_lines(
            request, collection or "default", label or [], times=times, source=source
        )
    named = NamedFields(text_field, time_field, labels)
    if named and reading.media_type(request) == NDJSON:
        return await ingest_records(
            request,
            collection or "default",
            named,
            labels=labels_of(label or []),
            offset_s=times.offset_s,
            source=source,
        )
    if reading.media_type(request) in MEDIA_TYPES and source is None:
        return await _ingest_file(request, collection or "default", file)
    if source is not None:
        raise RequestInvalid("expected plain lines or log records of a source, got documents")
    if reading.media_type(request) == NDJSON:
        return await _ingest_rows(request, collection or "default", label or [], times=times)
    return await _ingest_documents(request, collection)


async def _ingest_rows(
    request: Request, name: str, label: list[str], *, times: TimesRead
) -> Response:
    """Take NDJSON in; rows of nothing but a text are lines of a log collection."""
    fingerprint = Fingerprint(request)
    found = await collection_of(request, name, partitioned=True)
    await context_of(request).room.check()
    is_log = found.kind is CollectionKind.LOGS
    upload = _upload(request, found)
    chunks = _hashed(request.stream(), fingerprint)
    if is_log:
        rows = LineUpload()
        await rows.read(chunks)
        parts = rows.finish()
        texts: list[bytes | None] = await reading.off_loop(
            sum(map(len, parts)), lambda: [texts_of(part) for part in parts]
        )
        lines = [part for part in texts if part]
        if lines and None not in texts:
            return await _respond_lines(request, found, label, lines, fingerprint, times=times)
        chunks = _each(parts)
    await upload.read_lines(chunks)
    return await _respond_documents(request, upload, fingerprint)


async def _ingest_documents(request: Request, collection: str | None) -> Response:
    """Take the documents of a JSON body in; ``collection`` is that of the query."""
    fingerprint = Fingerprint(request)
    value = await reading.read_object(request, most_values=reading.MOST_LISTED)
    data = await request.body()
    await reading.off_loop(len(data), partial(fingerprint.update, data))
    # the documents are judged one by one: a bad one must not fail its neighbours
    documents = value.get("documents")
    if not isinstance(documents, list):
        raise RequestInvalid("/documents: expected an array")
    head = reading.validate(request, {**value, "documents": []}, model=IngestRequest)
    if collection is not None and "collection" in value and collection != head.collection:
        raise RequestInvalid("the collection in the query and in the body differ")
    name = head.collection if collection is None else collection
    found = await collection_of(request, name, partitioned=True)
    await context_of(request).room.check()
    upload = _upload(request, found)
    await upload.read_documents(documents)
    return await _respond_documents(request, upload, fingerprint)


async def _ingest_file(request: Request, name: str, fields: FileFields) -> Response:
    """Take the text of a file in."""
    fingerprint = Fingerprint(request)
    found = await collection_of(request, name, partitioned=True)
    context = context_of(request)
    await context.room.check()
    data = await request.body()
    await reading.off_loop(len(data), partial(fingerprint.update, data))
    content = await context.extractors.read(File(data, reading.media_type(request), fields.name))
    upload = _upload(request, found)
    await upload.read_documents(documents_of(content, fields))
    return await _respond_documents(request, upload, fingerprint)


def _upload(request: Request, collection: Collection) -> Upload:
    limit = context_of(request).settings.upload_limit_documents
    if collection.kind is CollectionKind.LOGS and collection.parted is not None:
        raise PartitionedUnsupported(
            f"expected lines, or records of a log, for {collection.name!a}: of partitions by time"
        )
    key = None if collection.parted is None else key_of(request)
    return Upload(
        collection.name,
        limit=limit,
        beside_lines=collection.kind is CollectionKind.LOGS,
        partitions=collection.partitions,
        new_id=None if key is None else ids_of_key(request.state.tenant, key),
    )


async def _respond_documents(
    request: Request, upload: Upload, fingerprint: Fingerprint
) -> Response:
    key = key_of(request)
    job = responses.job_of(
        request, Kind.INGEST, upload.finish(), queue=Queue.BULK, collection=upload.collection
    )
    if key is not None:
        job = replace(job, idempotency=(key, fingerprint.hex()))
    if upload.parts:
        check_no_webhook(request)
        job = replace(job, parts=upload.parts)
    about = upload.intaken.public()

    def body(ended: Ended) -> dict[str, Any]:
        in_order = replace(ended, results=upload.in_order(ended.results))
        return {**views.batch(in_order), **about}

    return await responses.respond(request, job, body=body, wait_default_s=0.0, accepted_with=about)


async def _ingest_lines(
    request: Request, name: str, label: list[str], *, times: TimesRead, source: SourcePart | None
) -> Response:
    """Take lines in: they are cut at line ends, and their numbers are reserved."""
    found = await collection_of(request, name, partitioned=True)
    if found.kind is not CollectionKind.LOGS:
        raise KindUnsupported(
            f"expected a collection of kind logs for {PLAIN}, got {name!a}: of documents"
        )
    await context_of(request).room.check()
    fingerprint = Fingerprint(request)
    upload = LineUpload()
    await upload.read(_hashed(request.stream(), fingerprint))
    return await _respond_lines(
        request, found, label, upload.finish(), fingerprint, times=times, source=source
    )


async def _respond_lines(
    request: Request,
    collection: Collection,
    label: list[str],
    parts: list[bytes],
    fingerprint: Fingerprint,
    *,
    times: TimesRead,
    source: SourcePart | None = None,
) -> Response:
    labels = labels_of(label)

    async def at(ledger: AsyncLedger, name: str) -> Response:
        return await _respond_at(
            request, ledger, name, labels, parts, fingerprint, times=times, source=source
        )

    return await writing.written(request, collection, at)


async def _respond_at(
    request: Request,
    ledger: AsyncLedger,
    name: str,
    labels: dict[str, str],
    parts: list[bytes],
    fingerprint: Fingerprint,
    *,
    times: TimesRead,
    source: SourcePart | None,
) -> Response:
    """Take lines in at the ledger of their collection, or of the partition that takes them.

    Raises:
        CollectionBusy: it moves to another one, or has rolled over.
    """
    count = sum(map(lines_in, parts))
    await writing.check_source(request, ledger, name, source)
    place = await ledger.reserve(name, labels, count, made=made_of(request, name))
    slices = await reading.off_loop(
        sum(map(len, parts)),
        partial(
            slices_of,
            parts,
            collection=name,
            uid=place.uid,
            stream=place.stream,
            first=place.first,
            labels=labels,
            times=times,
        ),
    )
    job = responses.job_of(request, Kind.INGEST_LINES, slices, queue=Queue.BULK, collection=name)
    job = replace(job, job_id=new_job_id(ledger.name))  # the numbers are that ledger's
    key = key_of(request)
    if key is not None:
        job = replace(job, idempotency=(key, fingerprint.hex()))
    if source is not None:
        job = replace(job, moved=source.moved(job.tenant, place.uid))
    about = {"accepted": count, "stream": place.stream, "first": place.first}

    def body(ended: Ended) -> dict[str, Any]:
        return {**views.batch(ended), **about}

    return await responses.respond(
        request,
        job,
        body=body,
        wait_default_s=0.0,
        accepted_with=about,
        keep_s=None if source is None else context_of(request).settings.feed_keep_s,
    )


async def _each(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def _hashed(chunks: AsyncIterator[bytes], fingerprint: Fingerprint) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        fingerprint.update(chunk)
        yield chunk
