"""Documents: upload them, read them back, list and delete them."""

from __future__ import annotations

import base64
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from verso_client.exchange import Call, Steps, path_of
from verso_client.operations.jobs import (
    answered,
    answered_one,
    get_job,
    new_key,
    post,
    results,
    succeeded,
)
from verso_core.errors import RequestInvalid
from verso_core.jobs.admin import DocumentPage
from verso_core.jobs.ingest import Ingested
from verso_core.jobs.job import Job
from verso_core.jobs.models import OpenModel
from verso_core.jobs.reconstruct import StoredText
from verso_core.texts import Scalar

UPLOAD_DOCUMENTS = 2048
UPLOAD_BYTES = 4 * 1024 * 1024
_OPEN_UPLOADS = 3
_NDJSON = {"Content-Type": "application/x-ndjson"}


class IngestReport(OpenModel):
    """Result of one :meth:`Client.ingest`: counts, sizes, and the documents that failed."""

    jobs: tuple[str, ...]
    documents: int
    chunks: int
    bytes_text: int
    bytes_patches: int
    codecs: dict[str, int]
    failed: tuple[Ingested, ...]

    @classmethod
    def of(cls, jobs: Iterable[str], items: Iterable[Ingested]) -> IngestReport:
        """Sum the items of some ingest jobs."""
        ended = list(items)
        stored = [item for item in ended if item.error is None]
        codecs: Counter[str] = Counter()
        for item in stored:
            codecs.update(item.codecs)
        return cls(
            jobs=tuple(jobs),
            documents=len(stored),
            chunks=sum(item.chunks for item in stored),
            bytes_text=sum(item.bytes_text for item in stored),
            bytes_patches=sum(item.bytes_patch for item in stored),
            codecs=dict(codecs),
            failed=tuple(item for item in ended if item.error is not None),
        )


@dataclass(frozen=True, slots=True)
class Document:
    """A text to store.

    Attributes:
        text: a string, or any bytes; the platform returns exactly these bytes.
        id: 1..256 bytes of UTF-8; by default derived from the content, so that the same document
            sent twice is stored once.
        metadata: scalars that a search can filter by.
        time: Unix seconds, or an aware datetime.
    """

    text: str | bytes
    id: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    time: float | datetime | None = None

    def line(self) -> bytes:
        """Return the document as one line of NDJSON: ASCII, without a line end.

        A string with lone surrogates is sent unchanged: the platform answers with the error.

        Raises:
            RequestInvalid: ``time`` is a datetime without its offset from UTC.
        """
        row: dict[str, Any] = _text_field(self.text)
        if self.id is not None:
            row["id"] = self.id
        if self.metadata:
            row["metadata"] = dict(self.metadata)
        if self.time is not None:
            row["time"] = _unix_seconds(self.time)
        return json.dumps(row, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True)
class Upload:
    """Several documents as one request body."""

    body: bytes
    documents: int


def uploads(
    documents: Iterable[Document],
    *,
    max_documents: int = UPLOAD_DOCUMENTS,
    max_bytes: int = UPLOAD_BYTES,
) -> Iterator[Upload]:
    """Yield documents as uploads, in order; one larger than ``max_bytes`` goes alone."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        line = document.line()
        if lines and (len(lines) >= max_documents or size + len(line) > max_bytes):
            yield Upload(b"\n".join(lines), len(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield Upload(b"\n".join(lines), len(lines))


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an ingest: documents sent so far, and documents stored or failed."""

    sent: int
    done: int


def ingest(
    documents: Iterable[Document],
    *,
    collection: str,
    progress: Callable[[Progress], None] | None = None,
) -> Steps[IngestReport]:
    """Send documents in uploads, a few at a time, and wait until all have been stored.

    If the queue is full, each upload is retried for up to the client's patience. A document that
    is refused is in the report's ``failed``; the others are stored.
    """
    open_jobs: deque[str] = deque()
    jobs: list[str] = []
    items: list[Ingested] = []
    sent = 0

    def report(current: Job | None = None) -> None:
        if progress is not None:
            under_way = 0 if current is None else current.ok + current.failed
            progress(Progress(sent=sent, done=len(items) + under_way))

    for upload in uploads(documents):
        job = yield from _submit(upload.body, collection=collection)
        jobs.append(job)
        open_jobs.append(job)
        sent += upload.documents
        report()
        if len(open_jobs) >= _OPEN_UPLOADS:
            items += yield from _ingested(open_jobs.popleft(), on_progress=report)
            report()
    while open_jobs:
        items += yield from _ingested(open_jobs.popleft(), on_progress=report)
        report()
    return IngestReport.of(jobs, items)


def submit(documents: Iterable[Document], *, collection: str) -> Steps[list[Job]]:
    """Send documents and return the jobs that will store them, without waiting for the jobs."""
    jobs = []
    for upload in uploads(documents):
        job = yield from _submit(upload.body, collection=collection)
        jobs.append((yield from get_job(job)))
    return jobs


def get(document: str, *, collection: str) -> Steps[StoredText]:
    """Return the exact text of a document or record (``document#n``)."""
    reply = yield Call("GET", path_of("documents", document), params={"collection": collection})
    return StoredText.model_validate(reply.json())


def reconstruct(ids: Sequence[str], *, collection: str) -> Steps[list[StoredText]]:
    """Return the exact texts of many documents or records, each with its own error."""
    body = {"collection": collection, "ids": list(ids)}
    row = yield from answered(post(path_of("reconstruct"), body))
    return [
        StoredText.model_validate({"id": name, **item})
        for name, item in zip(ids, row["results"], strict=True)
    ]


def documents(name: str, *, after: str | None) -> Steps[DocumentPage]:
    """Return a page of a collection's documents.

    Raises:
        CollectionUnknown: no collection has this name.
    """
    params = {} if after is None else {"cursor": after}
    reply = yield Call("GET", path_of("collections", name, "documents"), params=params)
    return DocumentPage.model_validate(reply.json())


def delete(document: str, *, collection: str) -> Steps[None]:
    """Delete a document.

    Raises:
        DocumentUnknown: no document has this id; this call may have deleted it itself.
    """
    call = Call("DELETE", path_of("documents", document), params={"collection": collection})
    yield from answered_one(call)


def _submit(body: bytes, *, collection: str) -> Steps[str]:
    headers = {**_NDJSON, "Idempotency-Key": new_key(), "Prefer": "respond-async"}
    params = {"collection": collection}
    reply = yield Call("POST", path_of("ingest"), params=params, content=body, headers=headers)
    return str(reply.json()["id"])


def _ingested(job_id: str, *, on_progress: Callable[[Job], None]) -> Steps[list[Ingested]]:
    yield from succeeded(job_id, on_progress=on_progress)
    rows = yield from results(job_id)
    return [Ingested.model_validate(row) for row in rows]


def _unix_seconds(time: float | datetime) -> float:
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise RequestInvalid("expected a time with its offset from UTC, got a naive one")
    return time.timestamp()


def _text_field(text: str | bytes) -> dict[str, Any]:
    if isinstance(text, str):
        return {"text": text}
    try:
        return {"text": text.decode("utf-8")}
    except UnicodeDecodeError:
        return {"text_base64": base64.b64encode(text).decode("ascii")}
