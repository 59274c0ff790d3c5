"""Fetch a collection's labelled records by jobs of kind ``rows``, which the workers execute.

The worker owns the stores, so the trainer asks it through the ledger, as any client does. The rows
are the stored vectors, which the classifier will read when it serves; nothing is decoded. For a
classifier that reads tokens the rows are the reconstructed texts of the documents.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from verso_core import tracing
from verso_core.errors import AttemptsExhausted, from_body
from verso_core.heads import Portion
from verso_core.jobs import Collection, Kind, Queue, Result, Status, cut
from verso_core.jobs.train import Rows, RowsItem, RowsParams
from verso_ledger import Accepted, JobRecord, NewJob
from verso_training.service.process import Stopped

TENANT = "verso"
_RANGES = 16
_SPARE = 1.5
_FEWEST = 64
_POLL_S = 0.25
_KEEP_S = 600


class Jobs(Protocol):
    """The methods of the ledger that an export uses."""

    def accept(self, job: NewJob) -> Accepted:
        """Accept a job."""

    def get(self, job_id: str) -> JobRecord:
        """Return the record of a job."""

    def result(self, job_id: str, number: int = 0) -> bytes | None:
        """Return the result frame of one slice."""


@dataclass(slots=True)
class ExportedRows:
    """Rows with the ids of their documents and their labels.

    Attributes:
        data: Vectors of shape (rows, dim), float32, little endian; or texts and labels as
            :func:`verso_core.jobs.train.pack_rows` writes them.
    """

    documents: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)


def fetch(
    jobs: Jobs,
    collection: Collection,
    *,
    name: str,
    label_key: str,
    chunk: Portion | None,
    texts: bool,
    limit: int,
    job_id: str,
    stopped: Callable[[], bool],
) -> ExportedRows:
    """Read up to ``limit`` records whose metadata has ``label_key``.

    Args:
        name: the collection's name in the API, which may be an alias.
        chunk: the chunks of a document that are its rows; None for all.
        texts: one row a document, its text.
        job_id: of the train job; a repeated export of the same job returns the same rows.

    Raises:
        VersoError: the workers could not read the records.
        Stopped: ``stopped`` returned True.
    """
    step = math.ceil(collection.buckets / _RANGES)
    most = max(_FEWEST, math.ceil(_SPARE * limit / _RANGES))
    items = [
        RowsItem(first, min(step, collection.buckets - first), most)
        for first in range(0, collection.buckets, step)
    ]
    params = RowsParams(collection=name, label_key=label_key, chunk=chunk, texts=texts)
    slices = list(cut(Kind.ROWS, params, items, max_items=1))
    accepted = jobs.accept(
        NewJob(
            kind=Kind.ROWS,
            queue=Queue.BULK,
            slices=slices,
            tenant=TENANT,
            idempotency=(f"rows-{job_id}", "rows"),
            keep_s=_KEEP_S,
            trace=tracing.current(),
            collection=name,
        )
    )
    _await(jobs, accepted.job_id, stopped)
    frames = [jobs.result(accepted.job_id, number) for number in range(len(slices))]
    return _joined(frames, row_bytes=None if texts else 4 * collection.dim, limit=limit)


def _joined(frames: Sequence[bytes | None], *, row_bytes: int | None, limit: int) -> ExportedRows:
    """Join the rows of all slices: ``row_bytes`` each, or one line each if None."""
    rows = ExportedRows()
    for frame in frames:
        found: Rows = Result.unpack(Kind.ROWS, frame or b"").only
        wanted = limit - len(rows.labels)
        rows.documents += found.ids[:wanted]
        rows.labels += found.labels[:wanted]
        if row_bytes is None:
            rows.data += b"".join(found.data.splitlines(keepends=True)[:wanted])
        else:
            rows.data += found.data[: wanted * row_bytes]
    return rows


def _await(jobs: Jobs, job_id: str, stopped: Callable[[], bool]) -> None:
    while not (record := jobs.get(job_id)).status.terminal:
        if stopped():
            raise Stopped
        time.sleep(_POLL_S)
    if record.status is not Status.SUCCEEDED:
        if record.error is not None:
            raise from_body(record.error)
        raise AttemptsExhausted(f"the rows could not be read: the job ended as {record.status}")
