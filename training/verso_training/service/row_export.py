"""Fetch a collection's labelled records: jobs of kind ``rows``, done by the workers.

The worker owns the stores, so the trainer asks it as everybody does, through the ledger. What comes
back are the vectors as stored, which is what a classifier will read, and nothing is decoded; for a
classifier that reads tokens it is the documents' texts, rebuilt.
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
from verso_core.jobs import Collection, Item, Kind, Queue, Result, Status, cut
from verso_ledger import Accepted, JobRecord, NewJob
from verso_training.service.process import Stopped

TENANT = "verso"
_RANGES = 16
_SPARE = 1.5
_FEWEST = 64
_LOOK_S = 0.25
_KEEP_S = 600


class Book(Protocol):
    """What this needs of the ledger."""

    def accept(self, job: NewJob) -> Accepted:
        """Take a job in."""

    def get(self, job_id: str) -> JobRecord:
        """Return what is known of a job."""

    def result(self, job_id: str, number: int = 0) -> bytes | None:
        """Return the result frame of one slice."""


@dataclass(slots=True)
class Harvest:
    """Rows: whose they are, labels, and what the workers gave of them.

    Attributes:
        data: Vectors of shape (rows, dim), float32, little endian; or texts and labels as
            :func:`verso_core.jobs.train.pack_rows` writes them.
    """

    documents: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)


def fetch(
    ledger: Book,
    collection: Collection,
    *,
    name: str,
    label_key: str,
    chunk: Portion | None,
    texts: bool,
    limit: int,
    job_id: str,
    stopped: Callable[[], bool],
) -> Harvest:
    """Read up to ``limit`` records whose metadata has ``label_key``.

    Args:
        name: of the collection, as users know it: its own name may be another one.
        chunk: which chunks of a document are its rows; None for all.
        texts: a document is one row, its text.
        job_id: of the train job; whoever asks again for it finds the same answer.

    Raises:
        VersoError: the workers could not read them.
        Stopped: the training is no longer wanted.
    """
    step = math.ceil(collection.buckets / _RANGES)
    most = max(_FEWEST, math.ceil(_SPARE * limit / _RANGES))
    items = [
        Item({"first": first, "count": min(step, collection.buckets - first), "most": most})
        for first in range(0, collection.buckets, step)
    ]
    params = {
        "collection": name,
        "label_key": label_key,
        "chunk": chunk,
        "texts": texts,
    }
    slices = list(cut(Kind.ROWS, params, items, max_items=1))
    accepted = ledger.accept(
        NewJob(
            kind=Kind.ROWS,
            queue=Queue.BULK,
            slices=slices,
            tenant=TENANT,
            idempotency=(f"rows-{job_id}", "rows"),
            keep_s=_KEEP_S,
            trace=tracing.current(),
        )
    )
    _await(ledger, accepted.job_id, stopped)
    frames = [ledger.result(accepted.job_id, number) for number in range(len(slices))]
    return _joined(frames, row_bytes=None if texts else 4 * collection.dim, limit=limit)


def _joined(frames: Sequence[bytes | None], *, row_bytes: int | None, limit: int) -> Harvest:
    """Put the slices' rows together: of ``row_bytes`` each, or a line each."""
    harvest = Harvest()
    for frame in frames:
        result = Result.unpack(frame or b"")
        [item] = result.items
        wanted = limit - len(harvest.labels)
        harvest.documents += item["ids"][:wanted]
        harvest.labels += item["labels"][:wanted]
        blob = result.blobs[item["blob"]]
        if row_bytes is None:
            harvest.data += b"".join(blob.splitlines(keepends=True)[:wanted])
        else:
            harvest.data += blob[: wanted * row_bytes]
    return harvest


def _await(ledger: Book, job_id: str, stopped: Callable[[], bool]) -> None:
    while not (record := ledger.get(job_id)).status.terminal:
        if stopped():
            raise Stopped
        time.sleep(_LOOK_S)
    if record.status is not Status.SUCCEEDED:
        if record.error is not None:
            raise from_body(record.error)
        raise AttemptsExhausted(f"the rows could not be read: the job ended as {record.status}")
