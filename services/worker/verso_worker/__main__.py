"""``python -m verso_worker``: stores, engine and Celery consumer, started in that order.

Nothing is consumed before the artifact has passed its golden samples and the ledger has shown that
it keeps what it acknowledges. On SIGTERM the desk claims nothing more and Celery finishes what is
in hand; what is not finished after ``VERSO_DRAIN_S`` goes back to the queue, and the process ends.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from celery.signals import worker_shutting_down
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from redis import Redis

from verso_core import telemetry, tracing
from verso_core.backup import KEPT_NAMES
from verso_core.errors import VersoError
from verso_core.jobs import Queue
from verso_core.result_files import ResultFiles
from verso_ledger import Ledger, WorkSubscriber, await_ledger
from verso_ledger.epoch import Guard
from verso_ledger.sync_client import connect
from verso_worker.app import create_app
from verso_worker.jobs.dispatcher import Dispatcher
from verso_worker.jobs.leases import LeaseRenewer
from verso_worker.jobs.ledger_watch import HighWaterMark
from verso_worker.metrics import Metrics, Usage
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.canary import ArtifactCanary
from verso_worker.models.file_scrub import FileScrub
from verso_worker.models.heads import HeadStore
from verso_worker.models.rollout import RegistryWatcher
from verso_worker.rules.models import ModelOperations
from verso_worker.rules.pipeline import DEFAULT_COLLECTION, Pipeline
from verso_worker.rules.ports import Vectors
from verso_worker.rules.text_cache import TextCache
from verso_worker.settings import WorkerSettings
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors, shard_child
from verso_worker.stores.qdrant.store import QdrantVectors

_IDLE_POLL_S = 5.0
_QUEUES = tuple(queue for queue in Queue if queue.rung)
_log = logging.getLogger("verso_worker")


@contextmanager
def working(settings: WorkerSettings) -> Iterator[Dispatcher]:
    """Start everything a worker needs, give its desk, and end it all in the opposite order."""
    registry = CollectorRegistry()
    owner = f"{settings.worker_name}-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        run = _run_folder(settings, stack)
        client = connect(settings.redis_url)
        ledger = _ledger(settings, client, stack)
        vectors = stack.enter_context(_vectors(settings, run))
        shelf = _shelf(settings, run, stack)
        metrics = Metrics(registry)
        _scrub_files(settings, metrics, stack)
        heads = HeadStore(settings.models, shelf, tell=metrics.compared)
        follower = RegistryWatcher(
            settings.models,
            shelf,
            metrics,
            tell=partial(ledger.note_serving, owner),
            heads=heads,
        )
        follower.open()
        make = partial(
            Pipeline,
            vectors=vectors,
            documents=ledger,
            lexicon=Bm25(),
            releases=ModelOperations(settings.models),
            heads=heads,
            hot=TextCache(settings.text_cache_mib << 20, tell=metrics.hot),
        )
        pipeline = make(shelf)
        pipeline.create_collection({"name": DEFAULT_COLLECTION})
        heart = LeaseRenewer(
            ledger, owner=owner, lease_s=settings.lease_s, heartbeat_file=settings.heartbeat_file
        )
        heart.renew()
        heart.start()
        stack.callback(heart.stop)
        follower.step()
        follower.start()
        stack.callback(follower.stop)
        heads.start()
        stack.callback(heads.stop)
        trials = ArtifactCanary(shelf, metrics, make=make, withdraw=follower.withdraw)
        desk = _desk(
            settings,
            client,
            ledger=ledger,
            pipeline=pipeline,
            heart=heart,
            metrics=metrics,
            owner=owner,
            trials=trials,
        )
        if settings.metrics_port:
            usage = Usage(desk, shelf, data=settings.data, floor_mib=settings.free_floor_mib)
            _serve_metrics(settings.metrics_port, registry, stack, usage=usage)
        yield desk


def _run_folder(settings: WorkerSettings, stack: ExitStack) -> Path:
    made = tempfile.TemporaryDirectory
    run = settings.run or Path(stack.enter_context(made(prefix="verso-")))
    run.mkdir(parents=True, exist_ok=True)
    return run


def _shelf(settings: WorkerSettings, run: Path, stack: ExitStack) -> ArtifactStore:
    shelf = ArtifactStore(
        settings.data / "artifacts",
        run,
        threads=settings.threads,
        device=settings.device,
        precision=settings.encoder_precision,
    )
    stack.callback(shelf.close)
    return shelf


def _ledger(settings: WorkerSettings, client: Redis, stack: ExitStack) -> Ledger:
    """Open the ledger once it is there, and see to it that it has not gone back."""
    ledger = Ledger(client)
    stack.callback(ledger.close)
    await_ledger(client, threading.Event())  # nobody waits for its end yet: a signal ends it all
    mark = HighWaterMark(settings.data, Guard(client), unclean=ledger.scrub_recent)
    mark.look()
    mark.start()
    stack.callback(mark.stop)
    return ledger


def _scrub_files(settings: WorkerSettings, metrics: Metrics, stack: ExitStack) -> None:
    """Have the files of artifacts and heads hashed again and again."""
    files = FileScrub(
        [settings.data / name for name in KEPT_NAMES],
        [settings.models],
        counts=metrics,
        every_s=settings.files_every_s,
    )
    files.start()
    stack.callback(files.stop)


def _desk(
    settings: WorkerSettings,
    client: Redis,
    *,
    ledger: Ledger,
    pipeline: Pipeline,
    heart: LeaseRenewer,
    metrics: Metrics,
    owner: str,
    trials: ArtifactCanary,
) -> Dispatcher:
    return Dispatcher(
        ledger,
        pipeline,
        heart,
        metrics,
        owner=owner,
        slots={
            Queue.INTERACTIVE: settings.interactive_slices,
            Queue.BULK: settings.bulk_slices,
            Queue.SCRUB: settings.scrub_slices,
        },
        lease_s=settings.lease_s,
        verify_delay_s=settings.verify_delay_s,
        raw_text_retention_s=settings.raw_text_retention_s,
        results=ResultFiles(
            settings.results,
            inline_bytes=settings.result_inline_bytes,
            floor_bytes=settings.free_floor_mib << 20,
        ),
        subscribers={
            queue: WorkSubscriber(client, queue) for queue in (Queue.INTERACTIVE, Queue.BULK)
        },
        idle_listen_s=settings.idle_listen_s,
        canary=trials,
    )


def _serve_metrics(
    port: int, registry: CollectorRegistry, stack: ExitStack, *, usage: Usage
) -> None:
    ProcessCollector(registry=registry)
    registry.register(usage)
    server, thread = start_http_server(port, registry=registry)
    stack.callback(server.server_close)
    stack.callback(thread.join)
    stack.callback(server.shutdown)


@contextmanager
def _vectors(settings: WorkerSettings, run: Path) -> Iterator[Vectors]:
    store: EdgeVectors | QdrantVectors
    if settings.qdrant_url is not None:
        store = QdrantVectors.server(settings.qdrant_url, api_key=settings.qdrant_api_key)
        with closing(store):
            yield store
        return
    socket = run / "vectors.sock"
    child = shard_child(
        settings.data / "vectors", socket_path=socket, floor_mib=settings.free_floor_mib
    )
    child.start()
    try:
        with closing(EdgeVectors(socket)) as store:
            yield store
    finally:
        child.stop()


def _poll(desk: Dispatcher, over: threading.Event) -> None:
    """Run the queues from time to time without a wake-up, until the worker closes."""
    while not over.wait(_IDLE_POLL_S):
        for queue in _QUEUES:
            try:
                desk.run_queue(queue)
            except VersoError as error:
                _log.warning("poll failed: %s: %s", queue, error.detail)


def main() -> int:
    """Run a worker until it is told to stop."""
    settings = WorkerSettings()
    telemetry.configure("worker", level=settings.log_level)
    tracing.configure("worker")
    try:
        with working(settings) as desk:
            _consume(settings, desk)
    except VersoError as error:
        _log.error("cannot work: %s", error.detail, extra={"code": error.code})
        return 1
    return 0


def _leave(desk: Dispatcher) -> None:
    """End the process, whatever it is doing, and leave nothing of it to wait for.

    A thread cannot be stopped from outside, so this is no return from ``main``. The kernel ends the
    children with their parent, and nothing that was acknowledged is only in their memory.
    """
    try:
        count = desk.release_all()
    except VersoError as error:
        _log.warning("leases are left to run out: %s", error.detail)
    else:
        _log.warning("not finished in time, given back", extra={"slices": count})
    logging.shutdown()
    os._exit(0)


def _consume(settings: WorkerSettings, desk: Dispatcher) -> None:
    over = threading.Event()

    def close(**_: Any) -> None:
        if not over.is_set():
            over.set()
            desk.close()
            limit = threading.Timer(settings.drain_s, _leave, args=(desk,))
            limit.daemon = True
            limit.start()

    worker_shutting_down.connect(close, weak=False)
    idle = threading.Thread(target=_poll, args=(desk, over), name="idle", daemon=True)
    idle.start()
    slots = settings.bulk_slices + settings.interactive_slices + settings.scrub_slices
    app = create_app(settings.broker_url, desk)
    worker = app.Worker(
        pool="threads",
        # One thread more for each queue: a wake-up that finds all slots active returns at once.
        concurrency=slots + len(_QUEUES),
        queues=[queue.celery_name for queue in _QUEUES],
        hostname=f"verso@{settings.worker_name}",
        loglevel=settings.log_level,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    try:
        worker.start()
    finally:
        close()
        idle.join(settings.drain_s)


if __name__ == "__main__":
    sys.exit(main())
