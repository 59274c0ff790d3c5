"""``python -m verso_worker``: stores, engine and Celery consumer, started in that order.

Nothing is consumed before the artifact has passed its golden samples and the ledger was found to be
as new as the worker's mark. On SIGTERM the dispatcher claims no more slices and Celery finishes the
running ones. Slices that are not finished after ``VERSO_DRAIN_S`` are released, and the process
ends.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from celery.signals import worker_shutting_down
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from verso_core import telemetry, tracing
from verso_core.backup import KEPT_NAMES
from verso_core.errors import ArtifactInvalid, RequestInvalid, VersoError
from verso_core.interpreter import freeze_loaded, share_interpreter, yield_cores
from verso_core.jobs import Queue
from verso_core.settings import read_settings
from verso_worker.app import create_app
from verso_worker.jobs.dispatcher import Dispatcher
from verso_worker.jobs.sources import Connected, Ledgers
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.file_scrub import FileScrub
from verso_worker.models.tables import TableCache
from verso_worker.resource_metrics import ResourceMetrics
from verso_worker.rules.ports.stores import Vectors
from verso_worker.served import Pipelines, Served
from verso_worker.settings import WorkerSettings
from verso_worker.stores.edge.client import EdgeVectors, shard_child
from verso_worker.stores.qdrant.replication import ReplicationReport, ReplicationWatch

_IDLE_POLL_S = 5.0
_KEPT = {Queue.BULK: 1}  # a person's grouping waits for no ingest, also of the same key
_QUEUES = tuple(queue for queue in Queue if queue.takes_wakeups)
_LISTENED = (Queue.INTERACTIVE, Queue.BULK)
_log = logging.getLogger("verso_worker")


@contextmanager
def working(settings: WorkerSettings) -> Iterator[Dispatcher]:
    """Start everything that a worker needs, yield its dispatcher, and stop it in reverse order."""
    registry = CollectorRegistry()
    owner = f"{settings.worker_name}-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        run = _run_folder(settings, stack)
        ledgers = _ledgers(settings, stack)
        artifacts = _artifacts(settings, run, stack, ledgers)
        metrics = Metrics(registry)
        _scrub_files(settings, metrics, stack)
        report = ReplicationReport()
        served = Served.of(settings, artifacts, ledgers, metrics, owner=owner, report=report)
        with ThreadPoolExecutor(1) as other:  # the two kinds of child processes start side by side
            opened = other.submit(served.watcher.open)
            vectors = stack.enter_context(_vectors(settings, run, report))
            opened.result()
        _follow_registry(served, stack)
        dispatcher = Dispatcher(
            [], slots=_slots(settings), kept=_KEPT, idle_listen_s=settings.idle_listen_s
        )
        pipelines = Pipelines.of(served, vectors)

        def add(one: Connected) -> None:
            dispatcher.add(pipelines.source(one, stack, queues=_LISTENED))

        ledgers.add(add)
        if settings.metrics_port:
            resources = ResourceMetrics(
                dispatcher, artifacts, data=settings.data, floor_mib=settings.free_floor_mib
            )
            _serve_metrics(settings.metrics_port, registry, stack, resources=resources)
        yield dispatcher


def _follow_registry(served: Served, stack: ExitStack) -> None:
    """Serve what the registry names from now on, and check the codecs in the background."""
    served.watcher.step()
    served.watcher.start()
    stack.callback(served.watcher.stop)
    served.heads.start()
    stack.callback(served.heads.stop)
    threading.Thread(
        target=_end_unless_passed, args=(served.artifacts,), name="golden", daemon=True
    ).start()


def _slots(settings: WorkerSettings) -> dict[Queue, int]:
    """Return how many slices of each queue run at once."""
    return {
        Queue.INTERACTIVE: settings.interactive_slices,
        Queue.BULK: settings.bulk_slices + _KEPT[Queue.BULK],
        Queue.SCRUB: settings.scrub_slices,
        Queue.FIT: 1,  # it takes a core for half a minute: verifies do not wait for it
    }


def _run_folder(settings: WorkerSettings, stack: ExitStack) -> Path:
    made = tempfile.TemporaryDirectory
    run = settings.run or Path(stack.enter_context(made(prefix="verso-")))
    run.mkdir(parents=True, exist_ok=True)
    return run


def _artifacts(
    settings: WorkerSettings, run: Path, stack: ExitStack, ledgers: Ledgers
) -> ArtifactStore:
    artifacts = ArtifactStore(
        settings.data / "artifacts",
        run,
        threads=settings.threads,
        device=settings.device,
        precision=settings.encoder_precision,
        tables=TableCache(ledgers.tables, limit_bytes=settings.fitted_tables_mib << 20),
    )
    stack.callback(artifacts.close)
    return artifacts


def _ledgers(settings: WorkerSettings, stack: ExitStack) -> Ledgers:
    """Connect to the ledgers, and wait until one answers that is not older than its mark."""
    addresses = settings.ledger_addresses
    ledgers = Ledgers(
        [
            Connected(
                address,
                folder=settings.data,
                replicas=settings.ledger_replicas,
                several=len(addresses) > 1,
            )
            for address in addresses
        ]
    )
    stack.callback(ledgers.close)
    ledgers.await_first()  # a signal ends the process before it has started
    return ledgers


def _scrub_files(settings: WorkerSettings, metrics: Metrics, stack: ExitStack) -> None:
    """Start the periodic check of the files of artifacts and heads."""
    files = FileScrub(
        [settings.data / name for name in KEPT_NAMES],
        [settings.models],
        counts=metrics,
        every_s=settings.files_every_s,
    )
    files.start()
    stack.callback(files.stop)


def _serve_metrics(
    port: int, registry: CollectorRegistry, stack: ExitStack, *, resources: ResourceMetrics
) -> None:
    ProcessCollector(registry=registry)
    registry.register(resources)
    server, thread = start_http_server(port, registry=registry)
    stack.callback(server.server_close)
    stack.callback(thread.join)
    stack.callback(server.shutdown)


@contextmanager
def _vectors(settings: WorkerSettings, run: Path, report: ReplicationReport) -> Iterator[Vectors]:
    if settings.qdrant_url is not None:
        # Qdrant's client takes a second to load, which a worker with its own store saves.
        from verso_worker.stores.qdrant.store import QdrantVectors

        server = QdrantVectors.server(
            settings.qdrant_url,
            api_key=settings.qdrant_api_key,
            replication=settings.replication,
        )
        watch = ReplicationWatch(server, report)
        with closing(server):
            if settings.replication.of_collections:
                watch.start()
            try:
                yield server
            finally:
                watch.stop()
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


def _poll(dispatcher: Dispatcher, over: threading.Event) -> None:
    """Run the queues from time to time without a wake-up, until the worker closes."""
    while not over.wait(_IDLE_POLL_S):
        for queue in _QUEUES:
            try:
                dispatcher.run_queue(queue)
            except VersoError as error:
                _log.warning("poll failed: %s: %s", queue, error.detail)


def main() -> int:
    """Run a worker until SIGTERM; return the exit status, 2 for invalid settings."""
    try:
        settings = read_settings(WorkerSettings)
    except RequestInvalid as error:
        telemetry.configure("worker")
        _log.error("worker failed to start: %s", error.detail, extra={"code": error.code})
        return 2
    telemetry.configure("worker", level=settings.log_level)
    share_interpreter()
    yield_cores()  # a gateway's or ledger's step is a millisecond, a slice is many
    tracing.configure("worker")
    try:
        with working(settings) as dispatcher:
            freeze_loaded()
            _consume(settings, dispatcher)
    except VersoError as error:
        _log.error("worker failed to start: %s", error.detail, extra={"code": error.code})
        return 1
    return 0


def _end_unless_passed(artifacts: ArtifactStore) -> None:
    """End the process if the codecs fail their first check on this machine.

    The next start runs the whole check before anything is served: it refuses the artifact and
    serves the one before it.
    """
    try:
        artifacts.await_passed()
    except ArtifactInvalid as error:
        _log.error("worker ends: %s", error.detail, extra={"code": error.code})
        logging.shutdown()
        os._exit(1)
    except VersoError as error:
        _log.warning("engine ended during its first check: %s", error.detail)


def _exit(dispatcher: Dispatcher) -> None:
    """Release the unfinished slices and end the process at once.

    A running thread cannot be stopped, so ``main`` cannot return. The kernel ends the child
    processes with their parent; all that they have acknowledged is on the disk.
    """
    try:
        count = dispatcher.release_all()
    except VersoError as error:
        _log.warning("leases not released, they will expire: %s", error.detail)
    else:
        _log.warning("slices not finished in time, released", extra={"slices": count})
    logging.shutdown()
    os._exit(0)


def _consume(settings: WorkerSettings, dispatcher: Dispatcher) -> None:
    """Run the Celery consumer until SIGTERM."""
    over = threading.Event()

    def close(**_: Any) -> None:
        if not over.is_set():
            over.set()
            dispatcher.close()
            limit = threading.Timer(settings.drain_s, _exit, args=(dispatcher,))
            limit.daemon = True
            limit.start()

    worker_shutting_down.connect(close, weak=False)
    idle = threading.Thread(target=_poll, args=(dispatcher, over), name="idle", daemon=True)
    idle.start()
    slots = sum(_slots(settings).values())
    app = create_app(settings.broker_url, dispatcher)
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
