"""What a client can ask of the platform, as steps without input or output of their own.

Each function is a generator of :class:`~verso_client.exchange.Call` and ``Pause`` steps that ends
by giving its result; :mod:`verso_client.client` and :mod:`verso_client.async_client` carry the
steps out. Shared here, once:

    1. Every request that makes a job carries an Idempotency-Key, so that repeating it after a
       broken connection finds the job that the first attempt made.
    2. An answer of 202 means that the job goes on: it is followed to its end, then its results are
       read.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from verso_client.answers import (
    Clustered,
    Embedded,
    Found,
    Guess,
    Ingested,
    IngestReport,
    Job,
    StoredText,
)
from verso_client.documents import Document, uploads
from verso_client.exchange import Call, Reply, Steps
from verso_client.retries import Retries, perform
from verso_core.errors import NotReady, Unavailable, VectorInvalid, from_body
from verso_core.jobs import (
    RERANK_SHARE,
    Filter,
    SearchMode,
    Status,
)
from verso_core.jobs.cluster import ClusterRequest

_OPEN_UPLOADS = 3
_LONGEST_WAIT_S = 20.0
_JSON = {"Content-Type": "application/json"}
_NDJSON = {"Content-Type": "application/x-ndjson"}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an ingest is: documents sent so far, and documents done, well or not."""

    sent: int
    done: int


@dataclass(frozen=True, slots=True)
class Query:
    """A search: exactly one of ``text``, ``vector`` and ``id`` says what is looked for."""

    text: str | None = None
    vector: Sequence[float] | None = None
    id: str | None = None
    collection: str = "default"
    limit: int = 10
    mode: SearchMode | None = None
    filter: Filter | None = None
    with_text: bool = True
    rerank: str | None = None
    rerank_from: int = 30
    rerank_share: float = RERANK_SHARE

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        body: dict[str, Any] = {
            "collection": self.collection,
            "limit": self.limit,
            "with_text": self.with_text,
        }
        if self.text is not None:
            body["query"] = self.text
        if self.vector is not None:
            body["vector"] = [float(value) for value in self.vector]
        if self.id is not None:
            body["id"] = self.id
        if self.mode is not None:
            body["mode"] = self.mode.value
        if self.filter is not None:
            body["filter"] = self.filter.model_dump(exclude_none=True)
        if self.rerank is not None:
            body |= {
                "rerank": self.rerank,
                "rerank_from": self.rerank_from,
                "rerank_share": self.rerank_share,
            }
        return body


def ingest(
    documents: Iterable[Document],
    retries: Retries,
    *,
    collection: str,
    progress: Callable[[Progress], None] | None = None,
) -> Steps[IngestReport]:
    """Send documents in uploads, a few at a time, and wait until all have been stored.

    A full queue makes it wait, up to the patience of ``retries`` for each upload. A document that
    cannot be taken is in the report's ``failed``; its neighbours are not held up by it.
    """
    open_jobs: deque[str] = deque()
    jobs: list[str] = []
    items: list[Ingested] = []
    sent = 0

    def tell(current: Job | None = None) -> None:
        if progress is not None:
            under_way = 0 if current is None else current.ok + current.failed
            progress(Progress(sent=sent, done=len(items) + under_way))

    for upload in uploads(documents):
        job = yield from _submit(upload.body, retries, collection=collection)
        jobs.append(job)
        open_jobs.append(job)
        sent += upload.documents
        tell()
        if len(open_jobs) >= _OPEN_UPLOADS:
            items += yield from _ingested(open_jobs.popleft(), retries, tell=tell)
            tell()
    while open_jobs:
        items += yield from _ingested(open_jobs.popleft(), retries, tell=tell)
        tell()
    return IngestReport.of(jobs, items)


def submit(documents: Iterable[Document], retries: Retries, *, collection: str) -> Steps[list[Job]]:
    """Send documents and give the jobs that will take them in, without waiting for them."""
    jobs = []
    for upload in uploads(documents):
        job = yield from _submit(upload.body, retries, collection=collection)
        jobs.append((yield from get_job(job, retries)))
    return jobs


def search(query: Query, retries: Retries) -> Steps[Found]:
    """Find the records nearest to a text, a vector or a stored record."""
    row = yield from answered(post("/v1/search", query.body()), retries)
    if "results" in row:
        row = {**row, **sole(row["results"])}
    return Found.model_validate(row)


def cluster(request: ClusterRequest, retries: Retries) -> Steps[Clustered]:
    """Group the records of a collection, and wait for the groups."""
    row = yield from answered(post("/v1/cluster", request.model_dump(mode="json")), retries)
    if "results" in row:
        row = sole(row["results"])
    return Clustered.model_validate(row)


def get(document: str, retries: Retries, *, collection: str) -> Steps[StoredText]:
    """Read one document or record (``document#n``) back, every byte."""
    path = f"/v1/documents/{quote(document, safe='')}"
    reply = yield from perform(Call("GET", path, params={"collection": collection}), retries)
    return StoredText.model_validate(reply.json())


def reconstruct(
    ids: Sequence[str], retries: Retries, *, collection: str
) -> Steps[list[StoredText]]:
    """Read many documents or records back; each carries its own error where it has one."""
    body = {"collection": collection, "ids": list(ids)}
    row = yield from answered(post("/v1/reconstruct", body), retries)
    return [
        StoredText.model_validate({"id": name, **item})
        for name, item in zip(ids, row["results"], strict=True)
    ]


def guess(
    vectors: Sequence[Sequence[float]], retries: Retries, *, beam: int, max_tokens: int
) -> Steps[list[Guess]]:
    """Guess the texts of bare vectors; a guess is never exact."""
    body = {
        "vectors": [[float(value) for value in vector] for vector in vectors],
        "beam": beam,
        "max_tokens": max_tokens,
    }
    row = yield from answered(post("/v1/reconstruct", body), retries)
    return [Guess.model_validate(item) for item in row["results"]]


def embed(texts: Sequence[str], retries: Retries) -> Steps[list[Embedded]]:
    """Turn texts into vectors of unit length."""
    row = yield from answered(post("/v1/embed", {"texts": list(texts)}), retries)
    return [Embedded.model_validate(item) for item in row["results"]]


def delete(document: str, retries: Retries, *, collection: str) -> Steps[None]:
    """Delete a document.

    Raises:
        DocumentUnknown: there is none; also when an earlier attempt of this call deleted it.
    """
    path = f"/v1/documents/{quote(document, safe='')}"
    call = Call("DELETE", path, params={"collection": collection})
    row = yield from answered(call, retries)
    if "results" in row:
        sole(row["results"])


def get_job(job_id: str, retries: Retries, *, wait_s: float = 0.0) -> Steps[Job]:
    """Look at a job; with ``wait_s`` the answer comes when it ends, at latest after so long."""
    call = _job_call(job_id, params={"limit": "0"}, wait_s=wait_s)
    reply = yield from perform(call, retries)
    return Job.model_validate(reply.json())


def wait(
    job_id: str,
    retries: Retries,
    *,
    timeout_s: float = math.inf,
    tell: Callable[[Job], None] | None = None,
) -> Steps[Job]:
    """Wait until a job ends.

    Raises:
        NotReady: it did not end within ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    # Someone who watches the progress is told of it every second.
    longest_s = 1.0 if tell is not None else _LONGEST_WAIT_S
    while True:
        left_s = deadline - time.monotonic()
        job = yield from get_job(job_id, retries, wait_s=min(max(left_s, 0.0), longest_s))
        if tell is not None:
            tell(job)
        if job.status.terminal:
            return job
        if left_s <= 0:
            raise NotReady(f"expected job {job_id} to end within {timeout_s:g} s")


def results(job_id: str, retries: Retries) -> Steps[list[dict[str, Any]]]:
    """Read the results of a job that ended, one object for each item, in order."""
    items: list[dict[str, Any]] = []
    cursor: str | None = "0"
    while cursor is not None:
        reply = yield from perform(_job_call(job_id, params={"cursor": cursor}), retries)
        page = reply.json()
        items += page["results"]
        cursor = page["next_cursor"]
    return items


def cancel(job_id: str, retries: Retries) -> Steps[Job]:
    """Cancel a job; one that has ended stays as it is."""
    reply = yield from perform(Call("DELETE", f"/v1/jobs/{quote(job_id, safe='')}"), retries)
    return Job.model_validate(reply.json())


def replay(job_id: str, retries: Retries) -> Steps[Job]:
    """Yield a dead job a new budget of attempts."""
    path = f"/v1/jobs/{quote(job_id, safe='')}/replay"
    reply = yield from perform(Call("POST", path), retries)
    return Job.model_validate(reply.json())


def ready(retries: Retries) -> Steps[bool]:
    """Ask whether the platform can do work now."""
    try:
        yield from perform(Call("GET", "/readyz"), retries)
    except Unavailable:
        return False
    return True


def ask(path: str, body: Mapping[str, Any], retries: Retries) -> Steps[dict[str, Any]]:
    """Post a request that makes a job and give its answer, or ``results`` where that took long."""
    row: dict[str, Any] = yield from answered(post(path, body), retries)
    return row


def _submit(body: bytes, retries: Retries, *, collection: str) -> Steps[str]:
    headers = {**_NDJSON, "Idempotency-Key": _new_key(), "Prefer": "respond-async"}
    call = Call(
        "POST", "/v1/ingest", params={"collection": collection}, content=body, headers=headers
    )
    reply = yield from perform(call, retries)
    return str(reply.json()["id"])


def _ingested(
    job_id: str, retries: Retries, *, tell: Callable[[Job], None]
) -> Steps[list[Ingested]]:
    yield from _ended_well(job_id, retries, tell=tell)
    rows = yield from results(job_id, retries)
    return [Ingested.model_validate(row) for row in rows]


def _ended_well(
    job_id: str, retries: Retries, *, tell: Callable[[Job], None] | None = None
) -> Steps[Job]:
    """Wait for a job's end and raise its error if it has one."""
    job = yield from wait(job_id, retries, tell=tell)
    if job.status is not Status.SUCCEEDED:
        raise job.exception()
    return job


def answered(call: Call, retries: Retries) -> Steps[dict[str, Any]]:
    """Make a call; where its job outlasts the answer (202), give the job's results instead."""
    reply: Reply = yield from perform(call, retries)
    row: dict[str, Any] = reply.json()
    if reply.status != 202:
        return row
    job_id = str(row["id"])
    yield from _ended_well(job_id, retries)
    return {"id": job_id, "results": (yield from results(job_id, retries))}


def sole(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the one item of a job's results, or raise its error."""
    [item] = items
    if item.get("error") is not None:
        raise from_body(item["error"])
    return item


def post(path: str, body: Mapping[str, Any]) -> Call:
    """Make a call that starts a job and may be repeated."""
    try:
        content = json.dumps(body, allow_nan=False).encode("ascii")
    except ValueError as exc:
        raise VectorInvalid("expected finite numbers, got NaN or infinity") from exc
    return Call("POST", path, content=content, headers={**_JSON, "Idempotency-Key": _new_key()})


def _job_call(job_id: str, *, params: Mapping[str, str], wait_s: float = 0.0) -> Call:
    headers = {"Prefer": f"wait={math.ceil(wait_s)}"} if wait_s > 0 else {}
    return Call("GET", f"/v1/jobs/{quote(job_id, safe='')}", params=params, headers=headers)


def _new_key() -> str:
    """Make an idempotency key, quoted as the header's draft has it."""
    return f'"{uuid.uuid4()}"'
