"""A program that logs by a client of Python, as an application does, until all is accepted.

    python sending.py elasticsearch URL --lines 1000 --service shop --identified

The clients retry by themselves as their settings say. What a client gives up is handed to it once
more, as an application would that may not lose a line, and counted. The last line printed is JSON:
``lines``, ``seconds`` from the first to the last acceptance, ``core_s`` of this process, and
``given_up``, how many batches the client gave back.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import elasticsearch
import opensearchpy
from elasticsearch import Elasticsearch, helpers
from opensearchpy import OpenSearch
from opensearchpy import helpers as opensearch_helpers
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
from opentelemetry.sdk.resources import Resource

BATCH = 1000
_RETRIED = (429, 502, 503, 504)
_TRIES = 8
_MOST_UNSENT = 20 * BATCH
_AGAIN_S = 0.5


@dataclass(frozen=True)
class Lines:
    """The lines that are sent, and when.

    Attributes:
        service: that writes them.
        rows: their texts, again and again; without any a text is the service and the number.
        count: how many are sent.
        per_s: how many a second; 0: as many as are accepted.
        identified: whether each has an identity.
        batch: how many a request has.
    """

    service: str
    rows: Sequence[str]
    count: int
    per_s: float
    identified: bool
    batch: int = BATCH

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line when it is due."""
        began = time.monotonic()
        for n in range(self.count):
            if self.per_s and n % 50 == 0:
                time.sleep(max(0.0, began + n / self.per_s - time.monotonic()))
            yield n, self.rows[n % len(self.rows)] if self.rows else f"{self.service} {n} is full"

    def batches(self) -> Iterator[list[tuple[int, str]]]:
        """Yield as many lines as a request has, as soon as they are there."""
        rows = iter(self)
        while part := list(islice(rows, self.batch)):
            yield part


def by_elasticsearch(url: str, lines: Lines) -> int:
    """Send by the helper of Elasticsearch's client."""
    with Elasticsearch(
        f"{url}/es",
        request_timeout=30,
        max_retries=_TRIES,
        retry_on_timeout=True,
        retry_on_status=_RETRIED,
        retry_backoff_base=0.1,
        retry_backoff_cap=2.0,
    ) as client:
        fault = (elasticsearch.TransportError, elasticsearch.ApiError)
        return sum(
            _again(partial(helpers.bulk, client, actions), fault) for actions in _actions(lines)
        )


def by_opensearch(url: str, lines: Lines) -> int:
    """Send by the helper of OpenSearch's client."""
    client = OpenSearch(
        f"{url}/es", timeout=30, max_retries=3, retry_on_timeout=True, retry_on_status=_RETRIED
    )
    with client:
        return sum(
            _again(
                partial(opensearch_helpers.bulk, client, actions),
                opensearchpy.OpenSearchException,
            )
            for actions in _actions(lines)
        )


def _actions(lines: Lines) -> Iterator[list[dict[str, object]]]:
    for batch in lines.batches():
        actions: list[dict[str, object]] = []
        for n, text in batch:
            action: dict[str, object] = {
                "_index": lines.service,
                "@timestamp": time.time_ns() // 1_000_000,
                "message": text,
                "service": lines.service,
                "log": {"level": "info"},
            }
            if lines.identified:
                action["_id"] = f"{lines.service}-{n}"
            actions.append(action)
        yield actions


def _again(
    send: Callable[[], object], faults: type[Exception] | tuple[type[Exception], ...]
) -> int:
    """Send until it succeeds; return how often it failed."""
    failed = 0
    while True:
        try:
            send()
        except faults:
            failed += 1
            time.sleep(_AGAIN_S)
        else:
            return failed


class KeepingExporter(OTLPLogExporter):
    """Exports a batch until it is accepted; counts what was, and what the SDK gave up."""

    exported = 0
    given_up = 0

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Export a batch."""
        while super().export(batch) is not LogRecordExportResult.SUCCESS:
            self.given_up += 1
            time.sleep(_AGAIN_S)
        self.exported += len(batch)
        return LogRecordExportResult.SUCCESS


def by_opentelemetry(url: str, lines: Lines) -> int:
    """Send by the SDK of OpenTelemetry: its records, its batches, its retries."""
    exporter = KeepingExporter(endpoint=f"{url}/v1/logs", timeout=60)
    provider = LoggerProvider(
        resource=Resource({"service.name": lines.service}), shutdown_on_exit=False
    )
    provider.add_log_record_processor(
        BatchLogRecordProcessor(
            exporter,
            schedule_delay_millis=200,
            max_export_batch_size=lines.batch,
            max_queue_size=2 * _MOST_UNSENT,
        )
    )
    logger = provider.get_logger("sending")
    for n, text in lines:
        while n - exporter.exported > _MOST_UNSENT:  # else the SDK would drop the oldest
            time.sleep(0.01)
        identity = {"log.record.uid": f"{lines.service}-{n}"} if lines.identified else None
        logger.emit(
            LogRecord(
                timestamp=time.time_ns(), severity_text="INFO", body=text, attributes=identity
            )
        )
    provider.force_flush()
    provider.shutdown()
    return exporter.given_up


CLIENTS: dict[str, Callable[[str, Lines], int]] = {
    "elasticsearch": by_elasticsearch,
    "opensearch": by_opensearch,
    "opentelemetry": by_opentelemetry,
}


def main() -> None:
    """Send the lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("client", choices=sorted(CLIENTS))
    parser.add_argument("url", help="of the gateway")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--per-second", type=float, default=0.0, help="0: as many as are accepted")
    parser.add_argument("--service", default="shop")
    parser.add_argument("--texts", type=Path, help="file of texts, one a line")
    parser.add_argument("--identified", action="store_true", help="each line has an identity")
    parser.add_argument("--batch", type=int, default=BATCH, help="lines of a request")
    options = parser.parse_args()
    for name in ("elastic_transport", "opensearch", "opentelemetry"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they warn of each retry
    rows = options.texts.read_text().splitlines() if options.texts else []
    lines = Lines(
        options.service,
        rows,
        options.lines,
        options.per_second,
        options.identified,
        options.batch,
    )
    began, spent = time.monotonic(), time.process_time()
    given_up = CLIENTS[options.client](options.url, lines)
    print(  # noqa: T201
        json.dumps(
            {
                "lines": options.lines,
                "seconds": round(time.monotonic() - began, 3),
                "core_s": round(time.process_time() - spent, 3),
                "given_up": given_up,
            }
        )
    )


if __name__ == "__main__":
    main()
