"""Documents: upload them, read them back, list and delete them."""

from __future__ import annotations

import base64
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from verso_client.exchange import Call, Steps, path_of
from verso_client.operations.jobs import (
    answered,
    answered_one,
    checked,
    get_job,
    new_key,
    post,
    results,
    wait,
)
from verso_core.errors import (
    BodyTooLarge,
    DocumentsRefused,
    DocumentUnknown,
    FileUnreadable,
    IdInvalid,
    MetadataInvalid,
    NotInstalled,
    RequestInvalid,
    TextTooLarge,
)
from verso_core.jobs import Filter, ItemError, Status
from verso_core.jobs.documents import (
    Counted,
    CountRequest,
    DocumentPage,
    Facets,
    FacetsRequest,
    ListRequest,
    Updated,
)
from verso_core.jobs.ingest import Ingested, Intaken
from verso_core.jobs.job import Job
from verso_core.jobs.models import OpenModel
from verso_core.jobs.reconstruct import StoredText

UPLOAD_DOCUMENTS = 2048
UPLOAD_BYTES = 4 * 1024 * 1024
_OPEN_UPLOADS = 3
_NDJSON = "application/x-ndjson"
_OF_ONE_FILE = (
    FileUnreadable,
    NotInstalled,
    TextTooLarge,
    BodyTooLarge,
    IdInvalid,
    MetadataInvalid,
)
"""Errors of an upload that say something of its file, and nothing of the next one."""


class IngestReport(OpenModel):
    """Result of one :meth:`Client.ingest`: counts, sizes, and the documents that failed."""

    jobs: tuple[str, ...]
    documents: int
    chunks: int
    bytes_text: int
    bytes_patches: int
    codecs: dict[str, int]
    failed: tuple[Ingested, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A text to store.

    Attributes:
        text: a string, or any bytes; the platform returns exactly these bytes.
        id: 1..256 bytes of UTF-8; a document that has this id is replaced. By default the platform
            makes a new one, so that equal texts stay documents of their own.
        metadata: what filters can ask for: scalars, null, lists of scalars, nested objects.
        time: Unix seconds, or an aware datetime.
    """

    text: str | bytes
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    time: float | datetime | None = None

    def line(self) -> bytes:
        """Return the document as one line of NDJSON: ASCII, without a line end.

        A string with lone surrogates is sent unchanged: the platform answers with the error.

        Raises:
            RequestInvalid: ``time`` is a datetime without its offset from UTC.
            MetadataInvalid: metadata holds what JSON does not.
        """
        row: dict[str, Any] = _text_field(self.text)
        if self.id is not None:
            row["id"] = self.id
        if self.metadata:
            row["metadata"] = dict(self.metadata)
        if self.time is not None:
            row["time"] = _unix_seconds(self.time)
        return _json(row).encode("ascii")


@dataclass(frozen=True, slots=True)
class File:
    """A file whose text is to be stored: PDF, HTML, Markdown, office, e-mail.

    The platform reads the text and keeps that, exactly; it does not keep the file. What the file
    says of itself goes to metadata: ``source``, ``title``, ``media_type``, ``pages``.

    Attributes:
        data: its bytes.
        name: its name; with the bytes it says what format the file has.
        id: of the document; by default the platform makes a new one.
        metadata: added to what the file says of itself.
        time: Unix seconds, or an aware datetime; by default that of an e-mail, else none.
        pages: each page is a document: ``id/1`` and so on, with ``page`` in metadata.
        media_type: its format where neither name nor bytes say it, such as ``text/html``.
    """

    data: bytes
    name: str = ""
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    time: float | datetime | None = None
    pages: bool = False
    media_type: str = "application/octet-stream"

    def upload(self) -> Upload:
        """Return the file as a request body.

        Raises:
            RequestInvalid: ``time`` is a datetime without its offset from UTC.
            MetadataInvalid: metadata holds what JSON does not.
        """
        given = {
            "name": self.name,
            "id": self.id,
            "metadata": _json(dict(self.metadata)) if self.metadata else None,
            "time": None if self.time is None else str(_unix_seconds(self.time)),
            "pages": "true" if self.pages else None,
        }
        params = {key: value for key, value in given.items() if value}
        return Upload(self.data, 1, media_type=self.media_type, params=params)


@dataclass(frozen=True, slots=True)
class Upload:
    """Several documents, or one file, as one request body.

    Attributes:
        body: the bytes.
        documents: how many there are; of a file with pages it is not known before.
        media_type: of the body.
        params: of the query, besides the collection.
    """

    body: bytes
    documents: int
    media_type: str = _NDJSON
    params: Mapping[str, str] = field(default_factory=dict)


def uploads(
    documents: Iterable[Document | File | None],
    *,
    max_documents: int = UPLOAD_DOCUMENTS,
    max_bytes: int = UPLOAD_BYTES,
) -> Iterator[Upload]:
    """Yield documents as uploads, in order; a file, and what has ``max_bytes``, goes alone.

    None among the documents ends an upload early: what came before it is sent at once.
    """
    lines: list[bytes] = []
    size = 0
    for document in documents:
        line = document.line() if isinstance(document, Document) else b""
        full = len(lines) >= max_documents or size + len(line) > max_bytes
        if lines and (full or not isinstance(document, Document)):
            yield Upload(b"\n".join(lines), len(lines))
            lines, size = [], 0
        if isinstance(document, File):
            yield document.upload()
        elif document is not None:
            lines.append(line)
            size += len(line) + 1
    if lines:
        yield Upload(b"\n".join(lines), len(lines))


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an ingest: documents sent so far, and documents stored or failed."""

    sent: int
    done: int


@dataclass(slots=True)
class _Tally:
    """What became of the documents so far: an endless ingest must not keep each one's result."""

    sent: int = 0
    done: int = 0
    jobs: list[str] = field(default_factory=list)
    failed: list[Ingested] = field(default_factory=list)
    chunks: int = 0
    bytes_text: int = 0
    bytes_patches: int = 0
    codecs: Counter[str] = field(default_factory=Counter)

    def add(self, items: Iterable[Ingested]) -> None:
        for item in items:
            self.done += 1
            if item.error is not None:
                self.failed.append(item)
                continue
            self.chunks += item.chunks
            self.bytes_text += item.bytes_text
            self.bytes_patches += item.bytes_patch
            self.codecs.update(item.codecs)

    def report(self) -> IngestReport:
        return IngestReport(
            jobs=tuple(self.jobs),
            documents=self.done - len(self.failed),
            chunks=self.chunks,
            bytes_text=self.bytes_text,
            bytes_patches=self.bytes_patches,
            codecs=dict(self.codecs),
            failed=tuple(self.failed),
        )


def ingest(
    documents: Iterable[Document | File | None],
    *,
    collection: str,
    progress: Callable[[Progress], None] | None = None,
) -> Steps[IngestReport]:
    """Send documents in uploads, a few at a time, and wait until all have been stored.

    If the queue is full, each upload is retried for up to the client's patience. A document or file
    that is refused is in the report's ``failed``; the others are stored.
    """
    open_jobs: deque[str] = deque()
    tally = _Tally()

    def report(current: Job | None = None) -> None:
        if progress is not None:
            under_way = 0 if current is None else current.ok + current.failed
            progress(Progress(sent=tally.sent, done=tally.done + under_way))

    def ended() -> Steps[None]:
        tally.add((yield from _ingested(open_jobs.popleft(), on_progress=report)))
        report()

    for upload in uploads(documents):
        tally.sent += upload.documents
        try:
            job, accepted = yield from _submit(upload, collection=collection)
        except DocumentsRefused as error:
            tally.add(_refused(error, upload.documents))
        except _OF_ONE_FILE as error:
            if upload.media_type == _NDJSON:
                raise
            name = upload.params.get("id") or upload.params.get("name")
            tally.add([Ingested(id=name, error=ItemError.of(error))])
        else:
            tally.sent += max(0, accepted - upload.documents)  # a file of several pages
            tally.jobs.append(job)
            open_jobs.append(job)
        report()
        if len(open_jobs) >= _OPEN_UPLOADS:
            yield from ended()
    while open_jobs:
        yield from ended()
    return tally.report()


def submit(documents: Iterable[Document | File | None], *, collection: str) -> Steps[list[Job]]:
    """Send documents and return the jobs that will store them, without waiting for the jobs."""
    jobs = []
    for upload in uploads(documents):
        job, _ = yield from _submit(upload, collection=collection)
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


def query(name: str, request: ListRequest) -> Steps[DocumentPage]:
    """Return a page of the documents that a filter passes, in order, with metadata and time."""
    row = yield from answered_one(post(path_of("collections", name, "documents", "query"), request))
    return DocumentPage.model_validate(row)


def count(name: str, request: CountRequest) -> Steps[Counted]:
    """Count the documents that a filter passes."""
    row = yield from answered_one(post(path_of("collections", name, "documents", "count"), request))
    return Counted.model_validate(row)


def facets(name: str, request: FacetsRequest) -> Steps[Facets]:
    """Count the values of metadata fields."""
    row = yield from answered_one(post(path_of("collections", name, "facets"), request))
    return Facets.model_validate(row)


def delete_matching(name: str, where: Filter) -> Steps[int]:
    """Delete the documents that a filter passes; return how many."""
    body = {"filter": where.model_dump(mode="json")}
    row = yield from answered(post(path_of("collections", name, "documents", "delete"), body))
    if "results" not in row:
        return int(row["deleted"])
    return sum(checked(item)["deleted"] for item in row["results"])


def update(document: str, change: Mapping[str, Any], *, collection: str) -> Steps[Updated]:
    """Change a document's metadata or time.

    Raises:
        DocumentUnknown: no document has this id.
        DocumentChanged: another change came between.
        MetadataInvalid: metadata holds what JSON does not.
        RequestInvalid: ``time`` is a datetime without its offset from UTC.
    """
    if "metadata" in change:
        _json(change["metadata"], allow_nan=False)
    if "time" in change:
        change = {**change, "time": _unix_seconds(change["time"])}
    call = post(path_of("documents", document), change)
    call = replace(call, method="PATCH", params={"collection": collection})
    return Updated.model_validate((yield from answered_one(call)))


def delete(document: str, *, collection: str) -> Steps[None]:
    """Delete a document.

    Raises:
        DocumentUnknown: no document has this id.
    """
    key, params = {"Idempotency-Key": new_key()}, {"collection": collection}
    call = Call("DELETE", path_of("documents", document), params=params, headers=key)
    if not (yield from answered_one(call)).get("deleted", True):
        raise DocumentUnknown(f"no document {document!a}")


def _submit(upload: Upload, *, collection: str) -> Steps[tuple[str, int]]:
    """Send an upload; return the id of its job, and how many documents were accepted."""
    headers = {
        "Content-Type": upload.media_type,
        "Idempotency-Key": new_key(),
        "Prefer": "respond-async",
    }
    params = {"collection": collection, **upload.params}
    call = Call("POST", path_of("ingest"), params=params, content=upload.body, headers=headers)
    row = (yield call).json()
    return str(row["id"]), int(row.get("accepted", 0))


def _ingested(job_id: str, *, on_progress: Callable[[Job], None]) -> Steps[list[Ingested]]:
    """Wait until an ingest ends and return its items, also if each of them failed."""
    job = yield from wait(job_id, on_progress=on_progress)
    if job.status is not Status.SUCCEEDED and job.ok + job.failed < job.items:
        raise job.exception()
    rows = yield from results(job_id)
    return [Ingested.model_validate(row) for row in rows]


def _refused(error: DocumentsRefused, documents: int) -> list[Ingested]:
    """Return an item for each document of an upload that was refused as a whole."""
    shown = Intaken.model_validate({"accepted": 0, "refused": 0, "refusals": [], **error.intaken})
    items = [Ingested(id=one.id, error=one.error) for one in shown.refusals]
    rest = ItemError(code=error.code, detail=error.detail)
    return items + [Ingested(error=rest)] * (documents - len(items))


def _json(row: Any, *, allow_nan: bool = True) -> str:
    try:
        return json.dumps(row, separators=(",", ":"), allow_nan=allow_nan)
    except (TypeError, ValueError) as exc:
        raise MetadataInvalid(f"expected values that JSON has: {exc}") from exc


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
