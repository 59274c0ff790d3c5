"""``python -m verso_training.service``: run train jobs until SIGTERM.

On SIGTERM the running training is ended and its job released. The next trainer that claims the job
starts the training again from the rows in its folder.
"""

from __future__ import annotations

import logging
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from verso_core import telemetry, tracing
from verso_core.errors import LedgerUnavailable, RequestInvalid, VersoError
from verso_core.jobs import Queue
from verso_core.settings import read_settings
from verso_ledger import Ledger, WorkSubscriber
from verso_ledger.connection import connect
from verso_ledger.ledgers.index import LedgerIndex
from verso_training.service.metrics import Metrics
from verso_training.service.settings import TrainerSettings
from verso_training.service.trainer import Trainer

_LISTEN_S = 2.0
_log = logging.getLogger("verso_training.service")


def main() -> int:
    """Serve until SIGTERM; return the exit status, 2 for invalid settings."""
    try:
        settings = read_settings(TrainerSettings)
    except RequestInvalid as error:
        telemetry.configure("trainer")
        _log.error("trainer failed to start: %s", error.detail, extra={"code": error.code})
        return 2
    telemetry.configure("trainer", level=settings.log_level)
    tracing.configure("trainer")
    stopping = threading.Event()
    client = connect(settings.redis_url)
    ledger = Ledger(client, replicas=settings.ledger_replicas)
    others = {
        one.name: Ledger.from_url(one.url, name=one.name) for one in settings.ledger_addresses[1:]
    }
    owner = f"{settings.trainer_name}-{uuid.uuid4().hex[:8]}"
    registry = CollectorRegistry()
    trainer = Trainer(
        ledger,
        Metrics(registry),
        models=settings.models,
        work=settings.data / "training",
        owner=owner,
        lease_s=settings.lease_s,
        threads=settings.threads,
        heartbeat_file=settings.heartbeat_file,
        index=LedgerIndex({ledger.name: ledger} | others),
    )

    def stop(*_: object) -> None:
        stopping.set()
        trainer.close()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    _log.info("trainer started")
    with _metrics(settings.metrics_port, registry):
        _serve(trainer, WorkSubscriber(client, Queue.TRAIN), stopping)
    try:
        ledger.liveness.forget_trainer(owner)
    except VersoError as error:
        _log.warning("trainer not removed from the ledger: %s", error.detail)
    for one in (ledger, *others.values()):
        one.close()
    _log.info("trainer stopped")
    return 0


@contextmanager
def _metrics(port: int, registry: CollectorRegistry) -> Iterator[None]:
    if not port:
        yield
        return
    ProcessCollector(registry=registry)
    server, thread = start_http_server(port, registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _serve(trainer: Trainer, subscriber: WorkSubscriber, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            trainer.heartbeat()
            # Opened each time: a subscriber that lost its connection returns at once, without a
            # signal.
            subscriber.open()
            try:
                if not trainer.step():
                    subscriber.receive(_LISTEN_S)
            finally:
                subscriber.close()
        except LedgerUnavailable as error:
            _log.warning("poll failed: %s", error.detail)
            stopping.wait(_LISTEN_S)
