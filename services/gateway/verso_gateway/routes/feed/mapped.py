"""NDJSON whose rows are log records, as ``POST /v1/ingest`` takes it with the names of fields."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import (
    BodyTooLarge,
    DocumentsRefused,
    KindUnsupported,
    VersoError,
    error_body,
)
from verso_core.jobs import CollectionKind, ItemError, Kind, Queue
from verso_core.jobs.ingest import MAX_REFUSALS, Intaken, Refusal
from verso_gateway import responses, views
from verso_gateway.access import collection_of, made_of
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.feed import mapping
from verso_gateway.feed.batch import StreamKey, StreamLines, batch_of, reserve_all, slices_of
from verso_gateway.feed.records import Decoded, FieldMap, LogRecord
from verso_gateway.feed.source import SourcePart
from verso_gateway.headers import Fingerprint, key_of
from verso_gateway.job_service import Ended
from verso_gateway.partitions import writing
from verso_ledger import AsyncLedger, NewJob
from verso_ledger.names import new_job_id


@dataclass(frozen=True, slots=True)
class NamedFields:
    """The fields that a request names; None for what it does not.

    Attributes:
        text: field of a record's text.
        time: field of its time.
        labels: fields that become labels, with commas.
    """

    text: str | None
    time: str | None
    labels: str | None

    def __bool__(self) -> bool:
        """Whether any field is named."""
        return not (self.text is None and self.time is None and self.labels is None)

    def over(self, base: FieldMap, *, offset_s: int) -> FieldMap:
        """Return the fields of records where others are ``base``'s."""
        labels = [name.strip() for name in (self.labels or "").split(",") if name.strip()]
        found = mapping.field_map(self.text, self.time, labels, base=base)
        return replace(found, offset_s=offset_s, encoded=self.text is not None)


async def ingest_records(
    request: Request,
    name: str,
    named: NamedFields,
    *,
    labels: Mapping[str, str],
    offset_s: int,
    source: SourcePart | None,
) -> Response:
    """Take the rows of NDJSON in as log records.

    Args:
        request: the request.
        name: of the collection.
        named: the fields that the request names.
        labels: that every record has.
        offset_s: zone of times without one, seconds east of UTC.
        source: what the records are a part of.

    Raises:
        KindUnsupported: the collection keeps documents.
        BodyTooLarge: there are more rows than the limit.
        DocumentsRefused: no row is a record.
    """
    context = context_of(request)
    found = await collection_of(request, name, partitioned=True)
    if found.kind is not CollectionKind.LOGS:
        raise KindUnsupported(f"expected a collection of kind logs, got {name!a}: of documents")
    await context.room.check()
    body = await request.body()
    most = context.settings.upload_limit_documents
    if body.count(b"\n") > most:
        raise BodyTooLarge(f"expected <= {most} rows in a request, got more")
    fields = named.over(context.feed.fields, offset_s=offset_s)
    decode = partial(_decoded, body, fields, labels)
    decoded = await reading.off_loop(len(body), decode)
    about = _intaken(decoded)
    records = [(n, one) for n, one in enumerate(decoded) if isinstance(one, LogRecord)]
    if not records:
        raise DocumentsRefused("expected at least one record", intaken=about.public())
    make = partial(batch_of, records, {"": name}, arrived_ns=time.time_ns())
    streams = (await reading.off_loop(len(body), make)).streams
    key, fingerprint = key_of(request), Fingerprint(request)
    if key is not None:
        await reading.off_loop(len(body), partial(fingerprint.update, body))

    def answer(ended: Ended) -> dict[str, Any]:
        return {**views.batch(ended), **about.public()}

    async def at(ledger: AsyncLedger, own: str) -> Response:
        job = await _job(request, ledger, own, streams, source)
        if key is not None:
            job = replace(job, idempotency=(key, fingerprint.hex()))
        return await responses.respond(
            request,
            job,
            body=answer,
            wait_default_s=0.0,
            accepted_with=about.public(),
            keep_s=None if source is None else context.settings.feed_keep_s,
        )

    return await writing.written(request, found, at)


async def _job(
    request: Request,
    ledger: AsyncLedger,
    name: str,
    streams: Mapping[StreamKey, StreamLines],
    source: SourcePart | None,
) -> NewJob:
    """Return the job that stores streams, each at a place that the ledger has reserved.

    Raises:
        CollectionBusy: the collection moves to another ledger, or has rolled over.
    """
    await writing.check_source(request, ledger, name, source)
    places = []
    made = made_of(request, name)
    keyed = [(key._replace(collection=name, made=made), one) for key, one in streams.items()]
    for place in await reserve_all(ledger, keyed):
        if isinstance(place, VersoError):
            raise place
        places.append(place)
    slices = [
        spec
        for stream, place in zip(streams.values(), places, strict=True)
        for spec in slices_of(name, stream, place)
    ]
    job = responses.job_of(request, Kind.INGEST_LINES, slices, queue=Queue.BULK, collection=name)
    job = replace(job, job_id=new_job_id(ledger.name))  # the numbers are that ledger's
    if source is None:
        return job
    return replace(job, moved=source.moved(job.tenant, places[0].uid))


def _decoded(body: bytes, fields: FieldMap, labels: Mapping[str, str]) -> list[Decoded]:
    """Return the records of a body, each with labels that the request gives all of them."""
    decoded = mapping.decode(body, fields)
    if not labels:
        return decoded
    return [
        replace(one, labels={**one.labels, **labels}) if isinstance(one, LogRecord) else one
        for one in decoded
    ]


def _intaken(decoded: list[Decoded]) -> Intaken:
    """Return how many rows are records, and why the first others are not."""
    refusals = []
    for number, one in enumerate(decoded, 1):
        if not isinstance(one, LogRecord):
            body = error_body(one)
            body["detail"] = f"row {number}: {body['detail']}"
            refusals.append(Refusal(error=ItemError(**body)))
    return Intaken(
        accepted=len(decoded) - len(refusals),
        refused=len(refusals),
        refusals=tuple(refusals[:MAX_REFUSALS]),
    )
