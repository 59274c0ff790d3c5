"""``python -m verso_training.service``: do train jobs until told to stop.

On SIGTERM a training under way is ended and its job given back; another trainer, or this one when
it is started again, begins it anew from the rows it has.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from verso_core import telemetry, tracing
from verso_core.errors import LedgerUnavailable, VersoError
from verso_core.jobs import Queue
from verso_ledger import Ledger, WorkSubscriber
from verso_ledger.connection import connect
from verso_training.service.metrics import Metrics
from verso_training.service.settings import TrainerSettings
from verso_training.service.trainer import Trainer

_LISTEN_S = 2.0
_log = logging.getLogger("verso_training.service")


def main() -> int:
    """Serve until told to stop."""
    settings = TrainerSettings()
    telemetry.configure("trainer", level=settings.log_level)
    tracing.configure("trainer")
    over = threading.Event()
    client = connect(settings.redis_url)
    ledger = Ledger(client)
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
    )

    def stop(*_: object) -> None:
        over.set()
        trainer.close()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    _log.info("training")
    with _metrics(settings.metrics_port, registry):
        _serve(trainer, WorkSubscriber(client, Queue.TRAIN), over)
    try:
        ledger.liveness.forget_trainer(owner)
    except VersoError as error:
        _log.warning("not signed off: %s", error.detail)
    ledger.close()
    _log.info("stopped")
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


def _serve(trainer: Trainer, ear: WorkSubscriber, over: threading.Event) -> None:
    while not over.is_set():
        try:
            trainer.beat()
            # Entered anew each time: an ear whose connection was lost hears nothing, and at once.
            ear.open()
            try:
                if not trainer.step():
                    ear.receive(_LISTEN_S)
            finally:
                ear.close()
        except LedgerUnavailable as error:
            _log.warning("no look at the queue: %s", error.detail)
            over.wait(_LISTEN_S)


if __name__ == "__main__":
    sys.exit(main())
