"""``python -m verso_keeper``: twelve duties, each on a thread of its own, until SIGTERM.

reap      every second   take back slices whose lease ran out, expire jobs, tidy
wake      every second   send a wake-up for every queue with due work
probe     every second   submit a text to embed when none was embedded lately
drop      every second   delete verified raw texts, sweep deleted collections
sweep     every second   remove large results of expired jobs, a part at a time
webhooks  5 a second     send the webhook messages of ended jobs
scrub     every second   submit jobs that read stored records again, a few buckets at a time
migrate   every second   submit the next jobs of migrations
count     every second   recount what collections hold, after each pass of the scrub
rewrite   every minute   have the ledger's file rewritten where that was not done lately
fit       5 s apart      have codecs fitted to the texts of their collections
retain    every second   have documents deleted that their collection keeps no longer
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from verso_core import telemetry, tracing
from verso_core.errors import DurabilityMissing
from verso_core.result_files import ResultFiles
from verso_core.webhooks import networks
from verso_keeper.collector import LedgerCollector
from verso_keeper.fitter import Fitter
from verso_keeper.migrator import Migrator
from verso_keeper.periodic import Periodic, Prober, ResultSweeper
from verso_keeper.retention import Retention
from verso_keeper.scrubber import Recounter, Scrubber
from verso_keeper.settings import KeeperSettings
from verso_keeper.wakeup import Reaper, WakeupSender
from verso_keeper.webhooks import WebhookSender
from verso_ledger import Ledger, await_ledger
from verso_ledger.connection import connect
from verso_ledger.durability import ask_server

_EVERY_S = 1.0
_FIT_EVERY_S = 5.0
_WEBHOOKS_EVERY_S = 0.2  # a round takes at most two messages of each webhook
_REWRITE_CHECK_S = 60.0
_STOP_S = 5.0
_DROP_BATCH = 500
_log = logging.getLogger("verso_keeper")


def main() -> int:
    """Run the duties until a signal; return the exit status."""
    settings = KeeperSettings()
    telemetry.configure("keeper", level=settings.log_level)
    tracing.configure("keeper")
    over = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: over.set())
    try:
        with connect(settings.redis_url, timeout_s=5.0, retries=0) as client:
            await_ledger(client, over)
    except DurabilityMissing as error:
        _log.error("keeper failed to start: %s", error.detail, extra={"code": error.code})
        return 1
    if not over.is_set():
        with keeping(settings):
            _log.info("started")
            over.wait()
    _log.info("stopped")
    return 0


@contextmanager
def keeping(settings: KeeperSettings) -> Iterator[None]:
    """Start the duties, and end them in the opposite order."""
    with ExitStack() as stack:
        client = connect(settings.redis_url, timeout_s=5.0, retries=1)
        ledger = Ledger(client, replicas=settings.ledger_replicas)
        stack.callback(ledger.close)
        wakeups = WakeupSender(settings.broker_url)
        stack.callback(wakeups.close)
        if settings.metrics_port:
            _serve_metrics(settings, stack)
        # Workers send three heartbeats in a lease, and one may itself be slow to arrive.
        reaper = Reaper(ledger, grace_s=settings.lease_s / 3 + 1.0)
        prober = Prober(ledger, after_s=settings.probe_after_s)
        scrubber = Scrubber(
            ledger,
            share=settings.scrub_share,
            every_s=settings.scrub_every_s,
            pass_s=settings.scrub_pass_s,
        )
        migrator = Migrator(ledger, clock=time.time)
        recounter = Recounter(ledger)
        fitter = Fitter(ledger, after_chunks=settings.fit_after_chunks, growth=settings.fit_growth)
        retention = Retention(ledger, every_s=settings.retention_every_s)
        sweeper = ResultSweeper(ResultFiles(settings.results), ledger.jobs.known)
        webhooks = WebhookSender(ledger.webhooks, allowed=networks(settings.webhook_allow))
        stack.callback(webhooks.close)

        def touch() -> None:
            if settings.heartbeat_file is not None:
                settings.heartbeat_file.touch()

        for duty in (
            Periodic("reap", reaper.step, every_s=_EVERY_S, after_round=touch),
            Periodic("wake", lambda: wakeups.notify(reaper.due), every_s=_EVERY_S),
            Periodic("probe", prober.step, every_s=_EVERY_S),
            Periodic("drop", lambda: drop(ledger), every_s=_EVERY_S),
            Periodic("sweep", sweeper.step, every_s=_EVERY_S),
            Periodic("webhooks", webhooks.step, every_s=_WEBHOOKS_EVERY_S),
            Periodic("scrub", scrubber.step, every_s=_EVERY_S),
            Periodic("migrate", migrator.step, every_s=_EVERY_S),
            Periodic("count", recounter.step, every_s=_EVERY_S),
            Periodic(
                "rewrite",
                lambda: ledger.maintenance.rewrite_file(every_s=settings.rewrite_every_s),
                every_s=_REWRITE_CHECK_S,
            ),
            Periodic("fit", fitter.step, every_s=_FIT_EVERY_S),
            Periodic("retain", retention.step, every_s=_EVERY_S),
        ):
            duty.start()
            stack.callback(duty.stop, timeout_s=_STOP_S)
        yield


def drop(ledger: Ledger) -> None:
    """Delete all verified raw texts that are due, a batch at a time."""
    while ledger.maintenance.drop_due(_DROP_BATCH) == _DROP_BATCH:
        pass


def _serve_metrics(settings: KeeperSettings, stack: ExitStack) -> None:
    # A client of its own that gives up soon: a scrape must not wait for an unavailable ledger.
    client = connect(settings.redis_url, timeout_s=2.0, retries=0)
    counts = Ledger(client)
    stack.callback(counts.close)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(LedgerCollector(counts, server=lambda: ask_server(client)))
    pages, thread = start_http_server(settings.metrics_port, registry=registry)
    stack.callback(pages.server_close)
    stack.callback(thread.join)
    stack.callback(pages.shutdown)


if __name__ == "__main__":
    sys.exit(main())
