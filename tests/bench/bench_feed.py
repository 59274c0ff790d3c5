"""How many log records does a gateway accept a second, by protocol, and how soon does it answer?

A gateway, a ledger that syncs every write, and no worker: what is measured is acceptance, bounded
by the gateway's one core (decoding, and writing lines) and by the ledger's disk.

- *bodies*: requests of 1,000 records, a few callers. Beside them ``/v1/ingest``, with plain lines
  and with a document a line; with ``--other`` also that of another source tree, in turn with bulk.
- *lines*: requests of one record each, at a rate that callers keep up whatever the answers do, as
  agents do. How many share a job, and the time to each answer.
- *waiting*: memory that the ledger takes for a record beyond the bytes of its line.

Records are lines of the shipped corpus, or of ``--data``'s first set.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cramjam
import httpx2
import line_sets
import redis
import sheet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from processes import Site, running
from traffic import Traffic, read_answer

from verso_gateway.feed.loki import PUSH_REQUEST
from verso_standalone.stack import find_artifact

START_NS = 1_795_405_566_123_456_789
STEP_NS = 1_234_567
PACKAGES = (
    "shared",
    *(f"services/{part}" for part in ("gateway", "worker", "keeper", "standalone")),
)
_OTHER = """
import sys
sys.path.insert(0, sys.argv[1])
from processes import running
from verso_standalone.stack import find_artifact
with running(find_artifact(), 1) as site:
    worker = site.processes["worker-0"]
    for process in (*worker.children(recursive=True), worker):
        process.kill()
    print(site.url("gateway-0"), flush=True)
    sys.stdin.read()
"""
GOALS = {"bulk lines/s": 5000.0, "one-line p99 ms": 100.0, "lines a job": 20.0}
_JSON, _NDJSON, _PROTOBUF = "application/json", "application/x-ndjson", "application/x-protobuf"


def otlp(rows: Sequence[str], first: int) -> bytes:
    """Write records as a request of OTLP."""
    request = ExportLogsServiceRequest()
    part = request.resource_logs.add()
    for name, value in (("service.name", "shop"), ("host.name", "a")):
        part.resource.attributes.add(key=name).value.string_value = value
    scoped = part.scope_logs.add()
    for n, row in enumerate(rows, first):
        record = scoped.log_records.add(
            time_unix_nano=START_NS + n * STEP_NS, severity_text="INFO", severity_number=9
        )
        record.body.string_value = row
    return bytes(request.SerializeToString())


def bulk(rows: Sequence[str], first: int) -> bytes:
    """Write records as actions of Elasticsearch, as an agent does that sends few fields."""
    parts = []
    for n, row in enumerate(rows, first):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(START_NS // 10**9 + n // 800))
        document = {
            "@timestamp": f"{stamp}.{n % 800:03}Z",
            "message": row,
            "host": {"name": "a"},
            "log": {"level": "info"},
        }
        parts += ['{"create":{"_index":"shop"}}', json.dumps(document)]
    return ("\n".join(parts) + "\n").encode()


def loki(rows: Sequence[str], first: int) -> bytes:
    """Write records as a push of Loki, in protobuf and Snappy."""
    push = PUSH_REQUEST()
    stream = push.streams.add(labels='{service_name="shop", host="a"}')
    for n, row in enumerate(rows, first):
        entry = stream.entries.add(line=row.encode())
        entry.timestamp.seconds, entry.timestamp.nanos = divmod(START_NS + n * STEP_NS, 10**9)
    return bytes(cramjam.snappy.compress_raw(push.SerializeToString()))


def plain(rows: Sequence[str], _: int) -> bytes:
    """Write lines as they are."""
    return ("\n".join(rows) + "\n").encode()


def documents(rows: Sequence[str], _: int) -> bytes:
    """Write a document a line."""
    return "".join(
        json.dumps({"text": row, "metadata": {"host": "a"}}) + "\n" for row in rows
    ).encode()


Writer = Callable[[Sequence[str], int], bytes]
WAYS: dict[str, tuple[str, str, Writer]] = {
    "bulk": ("/es/_bulk", _NDJSON, bulk),
    "otlp": ("/v1/logs", _PROTOBUF, otlp),
    "loki": ("/loki/api/v1/push", _PROTOBUF, loki),
    "plain lines": ("/v1/ingest?collection=logs&label=host=a", "text/plain", plain),
    "documents": ("/v1/ingest?collection=default", _NDJSON, documents),
}


def request(url: str, way: str, rows: Sequence[str], first: int) -> bytes:
    """Write a whole HTTP request."""
    path, kind, write = WAYS[way]
    body = write(rows, first)
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def batches(rows: Sequence[str], size: int, count: int) -> Iterator[tuple[int, list[str]]]:
    """Yield as many batches of records, with the number of the first."""
    for n in range(count):
        yield n * size, [rows[(n * size + i) % len(rows)] for i in range(size)]


async def at_once(url: str, requests: Sequence[bytes], callers: int) -> Traffic:
    """Send requests with so many callers, each of which waits for its answers."""
    parts, waiting, latencies = urlsplit(url), iter(requests), list[float]()

    async def caller() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for one in waiting:
            began = time.perf_counter()
            writer.write(one)
            status, body = await read_answer(reader)
            _check(status, body)
            latencies.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return Traffic(len(requests), time.perf_counter() - began, latencies)


async def at_rate(url: str, requests: Sequence[bytes], per_s: float, callers: int) -> Traffic:
    """Send requests at a rate, over so many connections; the time counts from when one was due."""
    parts, latencies = urlsplit(url), list[float]()
    began = time.perf_counter()

    async def caller(number: int) -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for n in range(number, len(requests), callers):
            due = began + n / per_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(requests[n])
            status, body = await read_answer(reader)
            _check(status, body)
            latencies.append(time.perf_counter() - due)
        writer.close()

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return Traffic(len(requests), time.perf_counter() - began, latencies)


def _check(status: int, body: bytes) -> None:
    if status not in (200, 202, 204):
        raise RuntimeError(f"expected 200, got {status}: {body[:200]!r}")


def ledger_of(site: Site) -> redis.Redis:
    """Connect to the ledger of a site."""
    environment = site.processes["gateway-0"].environ()
    return redis.Redis.from_url(environment["VERSO_REDIS_URL"])


def memory_of(ledger: redis.Redis) -> int:
    """Return the bytes that the ledger holds."""
    found: dict[str, Any] = ledger.info("memory")
    return int(found["used_memory_dataset"])


@contextmanager
def gateway_of(tree: Path) -> Iterator[str]:
    """Run another source tree's gateway, without a worker; yield its address."""
    paths = [str(tree / part) for part in PACKAGES]
    process = subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(tree / "tests" / "bench")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate()  # the end of its input ends it


def beside(site: Site, other: str, rows: Sequence[str], options: argparse.Namespace) -> list[Any]:
    """Send actions here and documents to another tree in turn; return lines a second of both."""
    url, found = site.url("gateway-0"), list[tuple[float, float]]()
    for _ in range(options.rounds):
        rates = []
        for where, way in ((url, "bulk"), (other, "documents")):
            sent = batches(rows, options.records, options.requests // 4)
            requests = [request(where, way, batch, first) for first, batch in sent]
            traffic = asyncio.run(at_once(where, requests, options.callers))
            rates.append(options.records * len(requests) / traffic.seconds)
        found.append((rates[0], rates[1]))
    bulk_s, documents_s = (statistics.median(column) for column in zip(*found, strict=True))
    ratio = statistics.median(one / two for one, two in found)
    return [bulk_s, documents_s, ratio]


def measure(site: Site, rows: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure a gateway whose workers are gone."""
    url, ledger = site.url("gateway-0"), ledger_of(site)
    results: dict[str, Any] = {}
    table = []
    for way in WAYS:
        requests = [
            request(url, way, batch, first)
            for first, batch in batches(rows, options.records, options.requests)
        ]
        spent, held = site.spent()["gateway-0"], memory_of(ledger)
        traffic = asyncio.run(at_once(url, requests, options.callers))
        lines = options.records * options.requests
        core_us = 1e6 * (site.spent()["gateway-0"] - spent) / lines
        memory = (memory_of(ledger) - held) / lines
        results[f"{way} lines/s"] = lines / traffic.seconds
        results[f"{way} gateway us"] = core_us
        results[f"{way} ledger bytes"] = memory
        table.append((way, lines / traffic.seconds, core_us, memory, traffic.quantile_ms(0.5)))
    mean = sum(len(row.encode()) + 1 for row in rows) / len(rows)
    sheet.table(
        f"{options.records:,} records a body, {options.callers} callers, lines of {mean:.0f} bytes",
        ("way", "lines/s", "gateway us/line", "ledger bytes/line", "p50 ms"),
        table,
    )
    requests = [
        request(url, "loki", batch, first)
        for first, batch in batches(rows, 1, round(options.rate * options.seconds))
    ]
    asyncio.run(at_rate(url, requests[: options.rate], options.rate, options.connections))
    held, jobs = memory_of(ledger), site.total("gateway", "verso_feed_joined_requests_count")
    traffic = asyncio.run(at_rate(url, requests, options.rate, options.connections))
    jobs = site.total("gateway", "verso_feed_joined_requests_count") - jobs
    own = mean + 31
    results |= {
        "one-line p50 ms": traffic.quantile_ms(0.5),
        "one-line p99 ms": traffic.quantile_ms(0.99),
        "lines a job": len(requests) / jobs,
        "ledger bytes beyond a line": (memory_of(ledger) - held) / len(requests) - own,
    }
    sheet.table(
        f"{options.rate} requests of one line a second",
        ("what", "value"),
        [(name, results[name]) for name in list(results)[-4:]],
    )
    return results


def main() -> int:
    """Run the bench; return 1 if a goal was missed and ``--strict`` is given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--data", type=Path, help="folder with whole sets of lines")
    parser.add_argument("--records", type=int, default=1000, help="of a body")
    parser.add_argument("--requests", type=int, default=40, help="bodies of each way")
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--rate", type=int, default=500, help="requests of one line a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--other", type=Path, help="root of another source tree")
    parser.add_argument("--rounds", type=int, default=8, help="in turn with the other tree")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    report = sheet.Sheet("feed")
    [data, *_] = line_sets.whole(options.data).values()
    rows = [row.decode("utf-8", "replace") for row in islice(data.splitlines(), 50_000)]
    with running(options.artifact or find_artifact(), 1) as site:
        url = site.url("gateway-0")
        made = httpx2.post(
            f"{url}/v1/collections",
            json={"name": "logs", "kind": "logs"},
            headers={"Prefer": "wait=60"},
            timeout=120,
        )
        made.raise_for_status()
        worker = site.processes["worker-0"]
        for process in (*worker.children(recursive=True), worker):
            process.kill()
        results = measure(site, rows, options)
        if options.other is not None:
            with gateway_of(options.other.resolve()) as other:
                pair = beside(site, other, rows, options)
            names = ("bulk lines/s", "documents lines/s there", "ratio")
            sheet.table("In turn with another tree", names, [pair])
            results["beside"] = dict(zip(names, pair, strict=True))
    found = {
        "bulk lines/s": results["bulk lines/s"],
        "one-line p99 ms": -results["one-line p99 ms"],
        "lines a job": results["lines a job"],
    }
    missed = [
        name for name, goal in GOALS.items() if found[name] < (-goal if "ms" in name else goal)
    ]
    report.finish({"results": results, "goals": GOALS, "missed": missed})
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    os.environ.setdefault("VERSO_QUEUE_LIMIT_BYTES", str(4 << 30))
    sys.exit(main())
