"""Receive syslog: ``python -m verso_gateway.syslog``.

On SIGTERM or SIGINT it reads no more and ends once what it has read is on disk in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
import sys

from prometheus_client import start_http_server
from pydantic import ValidationError

from verso_core import telemetry, tracing
from verso_core.result_files import ResultFiles
from verso_core.settings import faults
from verso_gateway.context import DEFAULT, CollectionsCache, DiskRoom, WorkersCache
from verso_gateway.feed.acceptance import Acceptance
from verso_gateway.feed.making import CollectionMaker
from verso_gateway.job_service import JobService
from verso_gateway.metrics import Metrics
from verso_gateway.syslog.intake import Intake
from verso_gateway.syslog.server import Datagrams, Streams
from verso_gateway.syslog.settings import SyslogSettings
from verso_gateway.wakeup import WakeupSender
from verso_ledger import Ledgers, Limits

_log = logging.getLogger("verso.syslog")


async def serve(settings: SyslogSettings, metrics: Metrics) -> None:
    """Receive until a stop signal.

    Raises:
        OSError: a port is in use, or the certificate cannot be read.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ledgers = Ledgers.connect(
        settings.ledger_addresses, replicas=settings.ledger_replicas, at_home=[DEFAULT]
    )
    wakeups = WakeupSender(settings.broker_url, metrics=metrics)
    intake = _intake(settings, ledgers, wakeups, metrics=metrics, closing=stop)
    host = settings.syslog_host
    # before the streams: who waits until the TCP port answers may send datagrams then
    datagrams = Datagrams(intake.take, metrics=metrics, most_bytes=settings.syslog_udp_bytes)
    if settings.syslog_udp_port:
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: datagrams, (host, settings.syslog_udp_port)
        )
    streams = Streams(intake.take, metrics=metrics)
    if settings.syslog_port:
        await streams.listen(host, settings.syslog_port)
    if settings.syslog_tls_port and settings.syslog_tls_cert is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(settings.syslog_tls_cert, settings.syslog_tls_key)
        await streams.listen(host, settings.syslog_tls_port, tls=tls)
    ports = {"tcp": settings.syslog_port, "udp": settings.syslog_udp_port}
    _log.info("receives syslog", extra={"host": host, **ports, "tls": settings.syslog_tls_port})
    taking = asyncio.create_task(datagrams.run())
    await stop.wait()
    await streams.close(grace_s=settings.shutdown_grace_s)
    taking.cancel()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ledgers.close(), 2.0)
    await asyncio.to_thread(wakeups.close)


def _intake(
    settings: SyslogSettings,
    ledgers: Ledgers,
    wakeups: WakeupSender,
    *,
    metrics: Metrics,
    closing: asyncio.Event,
) -> Intake:
    # as in `app`: each process puts its own parts together, from settings of one kind
    job_service = JobService(
        ledgers,
        wakeups,
        files=ResultFiles(settings.results),
        metrics=metrics,
        limits=Limits(
            max_slices=settings.queue_limit_slices,
            max_bytes=settings.queue_limit_bytes,
            tenant_share=settings.tenant_part,
        ),
        keep_s=settings.keep_s,
        read_keep_s=settings.read_keep_s,
        closing=closing,
    )
    acceptance = Acceptance(
        ledgers,
        job_service,
        metrics=metrics,
        gather_s=settings.feed_gather_ms / 1000,
        keep_s=settings.feed_keep_s,
        identity_s=settings.feed_identity_s,
    )
    return Intake(
        acceptance,
        collections=CollectionsCache(ledgers),
        room=DiskRoom(WorkersCache(ledgers)),
        maker=CollectionMaker(job_service),
        routing=settings.routing,
        metrics=metrics,
        tenant=settings.syslog_tenant,
        offset_s=settings.syslog_offset_s,
        by_content=settings.feed_deduplicate,
    )


def main() -> int:
    """Receive until a stop signal; return the exit status, 2 for invalid settings."""
    try:
        settings = SyslogSettings()
    except ValidationError as error:
        sys.stderr.writelines(f"{fault}\n" for fault in faults(error))
        return 2
    telemetry.configure("syslog", level=settings.log_level)
    tracing.configure("syslog")
    metrics = Metrics()
    try:
        if settings.syslog_metrics_port:
            start_http_server(
                settings.syslog_metrics_port, addr=settings.syslog_host, registry=metrics.registry
            )
        asyncio.run(serve(settings, metrics))
    except OSError as error:
        sys.stderr.write(f"cannot receive syslog: {error}\n")
        return 1
    return 0
