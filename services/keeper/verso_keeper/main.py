"""``python -m verso_keeper``: fourteen duties, each on a thread of its own, until SIGTERM.

Where a platform has several ledgers, each has these duties, but for ``sweep`` and ``roll``, which
ask them all.

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
move      every second   move collections to other ledgers; of a platform that has several
retain    every second   have documents deleted that their collection keeps no longer
roll      every second   give log collections new partitions, and drop expired ones
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from redis import Redis

from verso_core import telemetry, tracing
from verso_core.errors import DurabilityMissing, RequestInvalid, VersoError
from verso_core.result_files import ResultFiles
from verso_core.settings import LedgerAddress, read_settings
from verso_core.webhooks import networks
from verso_keeper.collector import LedgerCollector, LedgersCollector
from verso_keeper.fitter import Fitter
from verso_keeper.migrator import Migrator
from verso_keeper.mover import Mover
from verso_keeper.periodic import Periodic, Prober, ResultSweeper
from verso_keeper.retention import Retention
from verso_keeper.rollover import Rollover
from verso_keeper.scrubber import Recounter, Scrubber
from verso_keeper.settings import KeeperSettings
from verso_keeper.wakeup import Reaper, WakeupSender
from verso_keeper.webhooks import WebhookSender
from verso_ledger import Ledger, await_ledger
from verso_ledger.connection import connect
from verso_ledger.durability import ask_server
from verso_ledger.ledgers.index import LedgerIndex

_EVERY_S = 1.0
_FIT_EVERY_S = 5.0
_WEBHOOKS_EVERY_S = 0.2  # a round takes at most two messages of each webhook
_REWRITE_CHECK_S = 60.0
_STOP_S = 5.0
_AGAIN_S = 5.0
_DROP_BATCH = 500
_log = logging.getLogger("verso_keeper")


def main() -> int:
    """Run the duties until a signal; return the exit status, 2 for invalid settings."""
    try:
        settings = read_settings(KeeperSettings)
    except RequestInvalid as error:
        telemetry.configure("keeper")
        _log.error("keeper failed to start: %s", error.detail, extra={"code": error.code})
        return 2
    telemetry.configure("keeper", level=settings.log_level)
    tracing.configure("keeper")
    over = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: over.set())
    try:
        with keeping(settings, over):
            _log.info("started")
            over.wait()
    except DurabilityMissing as error:
        _log.error("keeper failed to start: %s", error.detail, extra={"code": error.code})
        return 1
    _log.info("stopped")
    return 0


@contextmanager
def keeping(settings: KeeperSettings, over: threading.Event) -> Iterator[None]:
    """Start the duties of each ledger once it answers, and end them in the opposite order.

    Raises:
        DurabilityMissing: the only ledger would lose acknowledged work.
    """
    addresses = settings.ledger_addresses
    with ExitStack() as stack:
        kept = [_Kept.connect(settings, address) for address in addresses]
        for one in kept:
            stack.callback(one.ledger.close)
        wakeups = WakeupSender(settings.broker_url)
        stack.callback(wakeups.close)
        if settings.metrics_port:
            _serve_metrics(settings, stack)
        ledgers = {one.ledger.name: one.ledger for one in kept}
        known = LedgerIndex(ledgers).known
        sweeper = ResultSweeper(ResultFiles(settings.results), known)
        if len(kept) == 1:
            kept[0].start(settings, stack, wakeups, ledgers, over)
        else:
            for one in kept:
                thread = threading.Thread(
                    target=one.start_in_time,
                    args=(settings, stack, wakeups, ledgers, over),
                    name=f"start {one.ledger.name}",
                    daemon=True,
                )
                thread.start()
                stack.callback(thread.join, _STOP_S)
        sweep = Periodic("sweep", sweeper.step, every_s=_EVERY_S)
        sweep.start()
        stack.callback(sweep.stop, timeout_s=_STOP_S)
        yield


@dataclass(frozen=True, slots=True)
class _Kept:
    """A ledger whose duties this keeper does."""

    client: Redis
    ledger: Ledger
    several: bool

    @classmethod
    def connect(cls, settings: KeeperSettings, address: LedgerAddress) -> _Kept:
        """Return the ledger at an address."""
        client = connect(address.url, timeout_s=5.0, retries=1)
        ledger = Ledger(client, replicas=settings.ledger_replicas, name=address.name)
        return cls(client, ledger, len(settings.ledger_addresses) > 1)

    def start_in_time(self, *args: Any) -> None:
        """Start the duties as soon as the ledger is fit for them; the others do not wait."""
        over: threading.Event = args[-1]
        while not over.is_set():
            try:
                self.start(*args)
            except VersoError as error:
                about = {"ledger": self.ledger.name, "code": error.code}
                _log.error("ledger not kept: %s", error.detail, extra=about)
                over.wait(_AGAIN_S)
            else:
                return

    def start(
        self,
        settings: KeeperSettings,
        stack: ExitStack,
        wakeups: WakeupSender,
        ledgers: Mapping[str, Ledger],
        over: threading.Event,
    ) -> None:
        """Start the duties once the ledger answers, unless the keeper stops before.

        Raises:
            DurabilityMissing: it would lose acknowledged work.
            LedgerMisnamed: it is another ledger of the platform.
        """
        await_ledger(self.client, over)
        if over.is_set():
            return
        if self.several:
            self.ledger.epoch.check_name(self.ledger.name)
        for duty in self._duties(settings, stack, wakeups, ledgers):
            duty.start()
            stack.callback(duty.stop, timeout_s=_STOP_S)

    def _duties(
        self,
        settings: KeeperSettings,
        stack: ExitStack,
        wakeups: WakeupSender,
        ledgers: Mapping[str, Ledger],
    ) -> list[Periodic]:
        ledger = self.ledger
        # Workers send three heartbeats in a lease, and one may itself be slow to arrive.
        reaper = Reaper(ledger, grace_s=settings.lease_s / 3 + 1.0)
        prober = Prober(ledger, after_s=settings.probe_after_s)
        scrubber = Scrubber(
            ledger,
            share=settings.scrub_share / len(settings.ledger_addresses),
            every_s=settings.scrub_every_s,
            pass_s=settings.scrub_pass_s,
        )
        migrator = Migrator(ledger, clock=ledger.now)
        recounter = Recounter(ledger)
        fitter = Fitter(ledger, after_chunks=settings.fit_after_chunks, growth=settings.fit_growth)
        retention = Retention(ledger, every_s=settings.retention_every_s)
        webhooks = WebhookSender(ledger.webhooks, allowed=networks(settings.webhook_allow))
        stack.callback(webhooks.close)

        def touch() -> None:
            if settings.heartbeat_file is not None:
                settings.heartbeat_file.touch()

        def rewrite() -> bool:
            return ledger.maintenance.rewrite_file(every_s=settings.rewrite_every_s)

        steps: list[tuple[str, Callable[[], object], float, Callable[[], object]]] = [
            ("reap", reaper.step, _EVERY_S, touch),
            ("wake", lambda: wakeups.notify(reaper.due), _EVERY_S, _nothing),
            ("probe", prober.step, _EVERY_S, _nothing),
            ("drop", lambda: drop(ledger), _EVERY_S, _nothing),
            ("webhooks", webhooks.step, _WEBHOOKS_EVERY_S, _nothing),
            ("scrub", scrubber.step, _EVERY_S, _nothing),
            ("migrate", migrator.step, _EVERY_S, _nothing),
            ("count", recounter.step, _EVERY_S, _nothing),
            ("rewrite", rewrite, _REWRITE_CHECK_S, _nothing),
            ("fit", fitter.step, _FIT_EVERY_S, _nothing),
            ("retain", retention.step, _EVERY_S, _nothing),
        ]
        if ledger is next(iter(ledgers.values())):  # the home ledger has the notes
            steps.append(("roll", Rollover(ledger, ledgers).step, _EVERY_S, _nothing))
        if self.several:
            steps.append(("move", Mover(ledger, ledgers).step, _EVERY_S, _nothing))
        where = f" {ledger.name}" if self.several else ""
        return [
            Periodic(name + where, step, every_s=every_s, after_round=after)
            for name, step, every_s, after in steps
        ]


def _nothing() -> None:
    return


def drop(ledger: Ledger) -> None:
    """Delete all verified raw texts that are due, a batch at a time."""
    while ledger.maintenance.drop_due(_DROP_BATCH) == _DROP_BATCH:
        pass


def _serve_metrics(settings: KeeperSettings, stack: ExitStack) -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    several = len(settings.ledger_addresses) > 1
    collectors = []
    for address in settings.ledger_addresses:
        # A client of its own that gives up soon: a scrape must not wait for an unavailable ledger.
        client = connect(address.url, timeout_s=2.0, retries=0)
        counts = Ledger(client, name=address.name)
        stack.callback(counts.close)
        collectors.append(LedgerCollector(counts, server=partial(ask_server, client)))
    registry.register(LedgersCollector(collectors) if several else collectors[0])
    pages, thread = start_http_server(settings.metrics_port, registry=registry)
    stack.callback(pages.server_close)
    stack.callback(thread.join)
    stack.callback(pages.shutdown)
