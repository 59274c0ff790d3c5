"""A dispatcher with real stores and a real (tiny) model, and ways to damage what they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import redis
from prometheus_client import CollectorRegistry
from tests.wire import Item, Result, cut

from verso_core.jobs import Kind, Queue, Status
from verso_core.record import Entry, Flag, Record, bucket_of, point_ids
from verso_ledger import Ledger, NewJob, WorkSubscriber
from verso_worker.jobs.dispatcher import Dispatcher
from verso_worker.jobs.executor import Executor
from verso_worker.jobs.leases import LeaseRenewer
from verso_worker.jobs.sources import Source
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.canary import ArtifactCanary
from verso_worker.models.fitter import FitProcess
from verso_worker.models.heads import HeadStore
from verso_worker.rules.cold.storage import ColdStorage
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.models import ModelOperations
from verso_worker.rules.pipeline import Pipeline
from verso_worker.rules.ports.models import Models
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors
from verso_worker.stores.objects import ObjectStorage

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
TEXTS = {
    "short": b"open failed",
    "empty": b"",
    "long": b"Jan 12 10:00:01 host sshd[4242]: Failed password for root\n" * 40,
    "binary": bytes(range(256)),
    "unicode": "Ünïcödé 👩‍👩‍👧 e\u0301 \r\n\ttabs".encode(),
    "nul": b"a\0b\0",
}
BUCKETS = 16
NO_COLD_STORAGE = ColdStorage(ObjectStorage("file:///nowhere", "home"))


def make_pipeline(
    artifacts: ArtifactStore,
    vectors: EdgeVectors,
    ledger: Ledger,
    *,
    serving: Models | None = None,
    cold: ColdStorage | None = None,
    **others: Any,
) -> Pipeline:
    """Return a pipeline over real stores, of a models folder that is empty.

    ``serving``: the artifacts as some jobs see them; None as all others do.
    """
    models = artifacts._launcher.run
    return Pipeline(
        artifacts if serving is None else serving,
        vectors,
        ledger.documents,
        logs=LogStore(ledger.logs, cold or NO_COLD_STORAGE),
        migrations=ledger.migrations,
        lexicon=Bm25(),
        registry=ModelOperations(models),
        heads=HeadStore(models, artifacts),
        feedback=ledger.feedback,
        tables=ledger.generations,
        fitter=FitProcess(artifacts.folder),
        **others,
    )


class Bench:
    """The dispatcher, and what a gateway would do around it."""

    def __init__(
        self,
        ledger: Ledger,
        pipeline: Pipeline,
        vectors: EdgeVectors,
        *,
        canary: ArtifactCanary | None = None,
    ) -> None:
        self.ledger = ledger
        self.pipeline = pipeline
        self.vectors = vectors
        self.subscribers = {
            queue: WorkSubscriber(ledger._redis, queue) for queue in (Queue.INTERACTIVE, Queue.BULK)
        }
        leases = LeaseRenewer(ledger, owner="worker", lease_s=10.0)
        executor = Executor(
            ledger,
            pipeline,
            leases,
            Metrics(CollectorRegistry()),
            verify_delay_s=0.0,
            raw_text_retention_s=0.0,
            canary=canary,
        )
        self.dispatcher = Dispatcher(
            [Source(ledger, executor, leases, self.subscribers)],
            slots=dict.fromkeys((Queue.INTERACTIVE, Queue.BULK, Queue.SCRUB, Queue.FIT), 1),
            idle_listen_s=20.0,
        )

    def do(
        self,
        kind: Kind,
        params: dict[str, Any],
        items: Sequence[Item],
        *,
        queue: Queue = Queue.BULK,
    ) -> tuple[Status, list[Result]]:
        """Accept a job, drain its queue, and return its state and results."""
        slices = list(cut(kind, params, items))
        accepted = self.ledger.jobs.accept(NewJob(kind=kind, queue=queue, slices=slices))
        self.dispatcher.run_queue(queue)
        raw = (self.ledger.jobs.result(accepted.job_id, n) for n in range(len(slices)))
        results = [Result.unpack(frame) for frame in raw if frame is not None]
        return self.ledger.jobs.get(accepted.job_id).status, results

    def ingest(self, texts: dict[str, bytes], collection: str = "default") -> Status:
        items = [Item({"id": name, "metadata": {"n": name}}, t) for name, t in texts.items()]
        return self.do(Kind.INGEST, {"collection": collection}, items)[0]

    def read(self, *names: str, collection: str = "default") -> list[bytes | str]:
        """Return each document's text, or the code of its error."""
        items = [Item({"id": name}) for name in names]
        _, [result] = self.do(Kind.RECONSTRUCT, {"collection": collection}, items)
        return [
            result.blobs[item["blob"]] if item["ok"] else item["error"]["code"]
            for item in result.items
        ]

    def entry(self, name: str) -> Entry:
        return Entry.unpack(self.ledger.documents.entry("default", [name])[name])


class Stores(Bench):
    """A dispatcher with the collections ``default`` and ``both``, and ways to damage them."""

    @property
    def redis(self) -> redis.Redis:
        return self.ledger._redis

    def fill(self, texts: dict[str, bytes], collection: str = "default") -> None:
        """Take texts in, and verify them."""
        assert self.ingest(texts, collection) is Status.SUCCEEDED
        self.dispatcher.run_queue(Queue.SCRUB)

    def scrub(self, collection: str = "default", **limits: float) -> dict[str, Any]:
        """Scrub a collection in one job, and return what was found."""
        header = {"first": 0, "count": BUCKETS, "spend_s": 60.0} | limits
        status, [result] = self.do(
            Kind.SCRUB, {"collection": collection}, [Item(header)], queue=Queue.SCRUB
        )
        assert status is Status.SUCCEEDED
        return result.items[0]

    def stored(self, name: str, collection: str = "default") -> Entry:
        return Entry.unpack(self.ledger.documents.entry(collection, [name])[name])

    def points(self, name: str, collection: str = "default") -> list[UUID]:
        return point_ids(collection, name, self.stored(name, collection))

    def alter(
        self, name: str, change: Callable[[bytes], bytes], collection: str = "default"
    ) -> None:
        """Change the bytes of an entry where they lie."""
        client, uid = self.redis, self.uid(collection)
        key = f"verso:docs:{uid}:{bucket_of(name, buckets=BUCKETS)}"
        old = client.hget(key, name)
        assert isinstance(old, bytes)
        if not old[0] & Flag.LONG:
            client.hset(key, name, change(old))
            return
        long = client.get(f"verso:long:{uid}:{name}")
        assert isinstance(long, bytes)
        client.set(f"verso:long:{uid}:{name}", change(long))

    def uid(self, collection: str) -> str:
        uid = self.redis.hget("verso:uids", collection)
        assert isinstance(uid, bytes)
        return uid.decode()

    def hits(self, text: bytes, collection: str = "default") -> list[dict[str, Any]]:
        params = {"collection": collection, "limit": 5, "filter": None, "with_text": False}
        _, [result] = self.do(Kind.SEARCH, params, [Item({}, text)])
        found: list[dict[str, Any]] = result.items[0]["hits"]
        return found


def _last(data: bytes, change: Callable[[Record], Record]) -> bytes:
    entry = Entry.unpack(data)
    *rest, last = entry.records
    return replace(entry, records=(*rest, change(last))).pack()


def flip(data: bytes) -> bytes:
    """Flip one bit of the last record's checksum. (In a payload a bit may carry nothing.)"""
    return _last(data, lambda r: replace(r, checksum=bytes([r.checksum[0] ^ 1]) + r.checksum[1:]))


def garble(data: bytes) -> bytes:
    """Flip every bit of the last record's payload."""
    return _last(data, lambda r: replace(r, payload=bytes(byte ^ 0xFF for byte in r.payload)))


def counts(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["sound"], found["repaired"], found["damaged"]
