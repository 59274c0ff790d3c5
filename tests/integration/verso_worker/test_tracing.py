"""A caller's trace goes through the gateway and the ledger into the worker, and holds no text."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.integration.verso_worker.worker_parts import Bench, make_pipeline

from verso_core import tracing
from verso_core.jobs import Precision, Queue
from verso_core.jobs.collections import CollectionParams
from verso_gateway.app import create_app
from verso_gateway.settings import Settings
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_worker.jobs.dispatcher import Dispatcher
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.stores.edge.client import EdgeVectors, shard_child

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
SECRET = "nobody may read this in a span"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield exporter
    tracing.use(None)


class Collector(ThreadingHTTPServer):
    """Takes spans over OTLP, as the children of a worker send them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Taking)

    def spans(self) -> set[tuple[str, str, str]]:
        """Return what came: service, span, and the trace's id."""
        return {
            (_service(resource.resource), span.name, span.trace_id.hex())
            for body in list(self.bodies)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _service(resource: Any) -> str:
    [name] = [one.value.string_value for one in resource.attributes if one.key == "service.name"]
    return str(name)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Where processes that are started from here on send their spans."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def dispatcher(valkey_url: str, tmp_path: Path) -> Iterator[Dispatcher]:
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(Ledger(connect(valkey_url))))
        model_store = ArtifactStore(tmp_path / "artifacts", tmp_path, threads=1, device="cpu")
        stack.callback(model_store.close)
        model_store.open(ARTIFACT)
        child = shard_child(tmp_path / "vectors", socket_path=tmp_path / "v.sock", floor_mib=1)
        child.start()
        stack.callback(child.stop)
        vectors = stack.enter_context(closing(EdgeVectors(tmp_path / "v.sock")))
        pipeline = make_pipeline(model_store, vectors, ledger)
        pipeline.create_collection(CollectionParams(name="default", precision=Precision.FLOAT16))
        yield Bench(ledger, pipeline, vectors).dispatcher


def _queued(ledger: Ledger) -> int:
    depths = ledger.maintenance.depths()
    return sum(depths[queue].queued for queue in (Queue.INTERACTIVE, Queue.BULK))


async def _ask(url: str, dispatcher: Dispatcher, path: str, *bodies: object) -> None:
    """Post all bodies at once, and let the dispatcher work when the ledger has them."""
    app = create_app(Settings(redis_url=url, broker_url=url.removesuffix("/0") + "/1"))
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            asked = [
                asyncio.create_task(client.post(path, json=body, headers=headers))
                for body in bodies
            ]
            ledger = dispatcher._sources[0].ledger
            while True:  # a request without ``Prefer`` is answered as soon as its job is queued
                if await asyncio.to_thread(_queued, ledger) == len(bodies):
                    break
                await asyncio.sleep(0.05)
            while (
                not all(one.done() for one in asked) or await asyncio.to_thread(_queued, ledger) > 0
            ):
                for queue in (Queue.INTERACTIVE, Queue.BULK):
                    await asyncio.to_thread(dispatcher.run_queue, queue)
                await asyncio.sleep(0.05)
            assert {one.result().status_code for one in asked} <= {200, 201, 202}


def _below(span: ReadableSpan, spans: dict[int, ReadableSpan]) -> list[str]:
    """Name a span and what it is inside of, innermost first, down to the caller."""
    names = [span.name]
    while span.parent is not None and span.parent.span_id in spans:
        span = spans[span.parent.span_id]
        names.append(span.name)
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == CALLER
    return names


def test_a_callers_trace_goes_on_in_the_worker_and_quotes_nothing(
    dispatcher: Dispatcher, exporter: InMemorySpanExporter, valkey_url: str
) -> None:
    body = {"documents": [{"id": "one", "text": SECRET}]}
    asyncio.run(_ask(valkey_url, dispatcher, "/v1/ingest", body))
    dispatcher.run_queue(Queue.BULK)
    dispatcher.run_queue(Queue.SCRUB)
    made = exporter.get_finished_spans()
    spans = {one.context.span_id: one for one in made if one.context is not None}
    assert {f"{one.context.trace_id:032x}" for one in made if one.context is not None} == {TRACE}
    paths = [_below(one, spans) for one in made]
    request = next(path[-1] for path in paths)
    for expected in (["accept"], ["infer", "ingest work"], ["store", "ingest work"]):
        assert [*expected, request] in paths
    assert ["commit", "ingest work", request] in paths
    assert ["ingest verify", request] in paths
    assert SECRET not in "".join(one.to_json() for one in made)


def test_a_trace_goes_on_inside_the_engine_and_the_vector_store(
    collector: Collector, exporter: InMemorySpanExporter, dispatcher: Dispatcher, valkey_url: str
) -> None:
    """They are processes of their own, and send their spans themselves."""
    body = {"documents": [{"id": "one", "text": SECRET}]}
    asyncio.run(_ask(valkey_url, dispatcher, "/v1/ingest", body))
    wanted = {
        ("verso-engine", "encode", TRACE),
        ("verso-engine", "tokenize", TRACE),
        ("verso-vectors", "put", TRACE),
    }
    deadline = time.monotonic() + 60
    while not wanted <= collector.spans():
        assert time.monotonic() < deadline, collector.spans()
        time.sleep(0.1)
    assert {trace for _, _, trace in collector.spans()} == {TRACE}  # pings and scrapes have none
    assert SECRET.encode() not in b"".join(collector.bodies)


def test_embeds_that_run_together_are_told_in_each_ones_trace(
    dispatcher: Dispatcher, exporter: InMemorySpanExporter, valkey_url: str
) -> None:
    bodies = [{"texts": [SECRET, str(n)]} for n in range(3)]
    asyncio.run(_ask(valkey_url, dispatcher, "/v1/embed", *bodies))
    made = exporter.get_finished_spans()
    spans = {one.context.span_id: one for one in made if one.context is not None}
    paths = [_below(one, spans) for one in made]
    assert sum(path[0] == "embed work" and len(path) == 2 for path in paths) == 3
    assert sum(path[0] == "wait" for path in paths) == 3
