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

from verso_core import telemetry
from verso_core.errors import LedgerUnavailable, VersoError
from verso_core.jobs import Queue
from verso_core.ledger import Ear, Ledger
from verso_core.ledger.work import connect
from verso_training.service.desk import Trainer
from verso_training.service.settings import TrainerSettings

_LISTEN_S = 2.0
_log = logging.getLogger("verso_training.service")


def main() -> int:
    """Serve until told to stop."""
    settings = TrainerSettings()
    telemetry.configure("trainer", level=settings.log_level)
    over = threading.Event()
    client = connect(settings.redis_url)
    ledger = Ledger(client)
    owner = f"{settings.trainer_name}-{uuid.uuid4().hex[:8]}"
    trainer = Trainer(
        ledger,
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
    _serve(trainer, Ear(client, Queue.TRAIN), over)
    try:
        ledger.forget_trainer(owner)
    except VersoError as error:
        _log.warning("not signed off: %s", error.detail)
    ledger.close()
    _log.info("stopped")
    return 0


def _serve(trainer: Trainer, ear: Ear, over: threading.Event) -> None:
    listening = False
    while not over.is_set():
        try:
            trainer.beat()
            if not listening:
                ear.enter()
                listening = True
            if not trainer.step():
                ear.hear(_LISTEN_S)
        except LedgerUnavailable as error:
            _log.warning("no look at the queue: %s", error.detail)
            over.wait(_LISTEN_S)
    if listening:
        ear.leave()


if __name__ == "__main__":
    sys.exit(main())
