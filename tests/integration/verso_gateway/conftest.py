"""A real gateway on a real Valkey, and a fake worker that commits made-up results.

The fake worker claims and commits by the ledger's own protocol, but what it commits is computed
from the request in a line or two. What a real worker answers is tested end to end.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
import uvicorn
from tests.wire import Item, Result, Slice, read_slice

from verso_core.errors import (
    CollectionUnknown,
    DocumentUnknown,
    HeadUnknown,
    LedgerUnavailable,
    RecordCorrupt,
    error_body,
)
from verso_core.jobs import Collection, CollectionKind, Kind, Precision, Queue, TextPolicy
from verso_gateway.app import create_app
from verso_gateway.settings import Settings
from verso_ledger import Ledger

DIM = 4
_ABOUT = {"head": "h", "version": "0" * 16, "channel": "stable"}


def collection(
    name: str = "default",
    owner: str | None = None,
    kind: CollectionKind = CollectionKind.DOCUMENTS,
) -> Collection:
    """Make a collection as a worker would."""
    return Collection(
        name=name,
        kind=kind,
        precision=Precision.FLOAT16,
        text_policy=TextPolicy.PATCH,
        space="5p4c3",
        dim=DIM,
        int8_scale=100.0,
        artifacts=("c0d3c",),
        buckets=16,
        checksum_key="00" * 16,
        created=datetime(2026, 1, 1, tzinfo=UTC),
        owner=owner,
    )


def vector(text: bytes) -> bytes:
    """Make up a vector for a text. Shape: 4 float32."""
    return struct.pack(f"<{DIM}f", *(byte / 255 for byte in hashlib.sha256(text).digest()[:DIM]))


@dataclass
class FakeWorker:
    """Works the ledger in a thread until it is closed; ``gate`` cleared makes it pause."""

    ledger: Ledger
    gate: threading.Event = field(default_factory=threading.Event)
    documents: dict[str, Item] = field(default_factory=dict)
    seen: list[Slice] = field(default_factory=list)
    fail: BaseException | None = None
    closed: bool = False
    turn: threading.Lock = field(default_factory=threading.Lock)

    def pause(self) -> None:
        """Claim nothing any more, until ``gate`` is set; what was claimed has ended."""
        self.gate.clear()
        with self.turn:
            pass

    def run(self) -> None:
        """Claim and commit until closed."""
        while not self.closed:
            if not self.gate.wait(0.02):
                continue
            with self.turn:
                try:
                    busy = self.gate.is_set() and self._round()
                except LedgerUnavailable:
                    busy = False
            if not busy:
                time.sleep(0.005)

    def _round(self) -> bool:
        busy = False
        for queue in (Queue.INTERACTIVE, Queue.BULK):
            for lease in self.ledger.leases.claim(queue, owner="worker", n=4):
                busy = True
                work = read_slice(lease.payload)
                self.seen.append(work)
                if self.fail is not None:
                    self.ledger.leases.fail(lease, self.fail)
                    continue
                try:
                    result = self._result(work)
                except CollectionUnknown as error:  # a real one fails the slice, too
                    self.ledger.leases.fail(lease, error)
                    continue
                errors = len(result.items) - result.ok
                self.ledger.leases.commit(lease, result.pack(), ok=result.ok, errors=errors)
        return busy

    def _result(self, work: Slice) -> Result:
        result = Result([], timings_ms={"queue": 1.0, "infer": 2.5})
        for item in work.items:
            if item.rejected is not None:
                body = {"ok": False, "error": item.rejected}
                result.items.append(body | {k: v for k, v in item.header.items() if k == "id"})
                continue
            try:
                result.items.append({"ok": True} | self._item(work, item, result))
            except (DocumentUnknown, HeadUnknown, RecordCorrupt) as error:
                about = {"ok": False, "id": item.header.get("id"), "error": error_body(error)}
                result.items.append(about)
        return result

    def _item(self, work: Slice, item: Item, result: Result) -> dict[str, Any]:
        text = item.blob or b""
        match work.kind:
            case Kind.EMBED:
                cut = {"truncated": True} if len(text) > 500 else {}
                return cut | {
                    "tokens": len(text.split()) + 2,
                    "blob": result.add_blob(vector(text)),
                }
            case Kind.INGEST:
                self.documents[item.header["id"]] = item
                return {"id": item.header["id"], "chunks": 1, "bytes_text": len(text)}
            case Kind.INGEST_LINES:
                lines = item.header["count"]
                return {"stream": work.params["stream"], "first": item.header["first"]} | {
                    "lines": lines
                }
            case Kind.SEARCH:
                hits = [self._hit(document, result) for document in self.documents]
                return {"hits": hits[: work.params["limit"]]}
            case Kind.RECONSTRUCT if item.header.get("vector"):
                guess = {"exact": False, "confidence": 0.5, "log_probability": -1.25}
                return guess | {"blob": result.add_blob(b"a guess")}
            case Kind.RECONSTRUCT:
                return self._hit(item.header["id"], result) | {"exact": True, "chunks": 1}
            case Kind.DELETE:
                found = self.documents.pop(item.header["id"], None)
                return {"id": item.header["id"], "deleted": found is not None}
            case Kind.COLLECTION_CREATE | Kind.COLLECTION_CHANGE | Kind.COLLECTION_DELETE:
                return self._managed(work)
            case Kind.STATS:
                return {"documents": len(self.documents), "bytes_text": 1}
            case Kind.PROJECT | Kind.RECORDS | Kind.FEEDBACK | Kind.MIGRATE:
                return self._shown(work, item)
            case _:
                return self._asked(work, item, result)

    def _managed(self, work: Slice) -> dict[str, Any]:
        documents, name = self.ledger.documents, work.params["name"]
        if work.kind is Kind.COLLECTION_CREATE:
            kind = CollectionKind(work.params.get("kind", "documents"))
            made = documents.collection_put(collection(name, work.params.get("owner"), kind))
            return made.model_dump(mode="json", exclude={"checksum_key"})
        if (named := documents.collections().get(name)) is None:
            raise CollectionUnknown("it is gone")
        if work.kind is Kind.COLLECTION_DELETE:
            documents.collection_delete(named.name)
            return {"name": name}
        changes = {"retention_days": work.params.get("retention_days")}
        changed = documents.collection_change(
            named.name, lambda now: now.model_copy(update=changes)
        )
        return changed.model_dump(mode="json", exclude={"checksum_key"})

    def _asked(self, work: Slice, item: Item, result: Result) -> dict[str, Any]:
        text = item.blob or b""
        match work.kind:
            case Kind.CLASSIFY:
                return {"heads": [self._label(name) for name in work.params["heads"]]}
            case Kind.ANSWER:
                sizes = item.header["split"]
                span = {"start_byte": 0, "end_byte": 1}
                part: dict[str, Any] = {"context": 0, "blob": result.add_blob(text[sizes[0] :][:1])}
                part |= span | {"score": 2.0, "null_score": 1.0, "evidence": span}
                found = {"answered": True, "null_threshold": 0.0, "contexts": 1}
                return _ABOUT | found | {"answers": [part], "failed": []}
            case Kind.SCORE:
                score = 1.0 / (1 + abs(2 * item.header["split"] - len(text)))
                read = {"tokens": len(text)} if work.params.get("sentences") else {}
                return (
                    _ABOUT | {"score": -score if work.params["head"] == "alike" else score} | read
                )
            case Kind.CLUSTER:
                return {"records": 0, "clusters": 0, "alone": 0, "unread": 0, "groups": []}
            case Kind.LIST:
                asked = [one for one in work.params.get("ids", ()) if one in self.documents]
                return {"documents": [self._listed(one) for one in asked], "next_cursor": None}
            case Kind.COUNT:
                return {"documents": 0}
            case Kind.FACETS:
                return {"documents": 0, "facets": []}
            case Kind.UPDATE:
                document, written = item.header["id"], item.header["written"] + 1
                self.documents[document].header.update(
                    metadata=item.header["metadata"], written=written
                )
                return {"id": document, "written": written}
            case Kind.HEADS:
                kinds = {"name": "kinds", "share": 0.1, "stable": None, "canary": None}
                return {"heads": [kinds, kinds | {"name": "pairs", "tasks": ["relevance"]}]}
            case _:
                raise AssertionError(f"the gateway never asks a worker for {work.kind}")

    def _listed(self, document: str) -> dict[str, Any]:
        header = self.documents[document].header
        written = header.get("written", 1)
        return {"id": document, "written": written, "bytes": 1, "metadata": header["metadata"]}

    def _shown(self, work: Slice, item: Item) -> dict[str, Any]:
        if work.kind is Kind.PROJECT:
            return {"records": 0, "explained": [0.0, 0.0], "ids": [], "x": [], "y": []}
        if work.kind is Kind.MIGRATE:
            return {"migration": None}
        document = item.header["id"]
        if work.kind is Kind.FEEDBACK:
            return _ABOUT | {"id": document, "label": "a", "right": True}
        if document not in self.documents:
            raise DocumentUnknown(f"no document {document!r}")
        about = {"id": document, "chunks": 1, "written": 1, "verified": True}
        return about | {"bytes_text": 1, "bytes_entry": 9, "records": []}

    def _label(self, head: str) -> dict[str, Any]:
        if head == "nothing":
            raise HeadUnknown("no head 'nothing'")
        return _ABOUT | {"head": head, "label": "a", "abstained": False}

    def _hit(self, document: str, result: Result) -> dict[str, Any]:
        if document == "corrupt":
            raise RecordCorrupt("checksum differs")
        if document not in self.documents:
            raise DocumentUnknown(f"no document {document!r}")
        stored = self.documents[document]
        return {
            "id": document,
            "chunk": 0,
            "score": 0.5,
            "metadata": stored.header["metadata"],
            "time": stored.header["time"],
            "blob": result.add_blob(stored.blob or b""),
        }


@pytest.fixture
def worker(valkey_url: str) -> Iterator[FakeWorker]:
    """A worker at work on the shared Valkey, in which the default collection exists."""
    with _at_work(valkey_url) as working:
        yield working


@contextmanager
def _at_work(url: str) -> Iterator[FakeWorker]:
    ledger = Ledger.from_url(url)
    ledger.documents.collection_put(collection())
    working = FakeWorker(ledger)
    working.gate.set()
    thread = threading.Thread(target=working.run, name="worker")
    thread.start()
    try:
        yield working
    finally:
        working.closed = True
        thread.join()
        ledger.close()


def note_serving(worker: FakeWorker, *additional: dict[str, object]) -> None:
    """Say what a worker serves, as a real one does, with artifacts of other spaces."""
    states = {"pairs": "score", "alike": "score", "kinds": "classify"}
    heads = [
        {"name": name, "stable": {"version": "0" * 16, "task": task, "space": "5p4c3"}}
        for name, task in states.items()
    ]
    encoder = {"dim": DIM, "max_tokens": 256, "pooling": "mean", "precision": "float32"}
    encoder |= {"threads": 2, "batch_tokens": 512, "batch_rows": 64}
    stable = {"name": "minilm", "space": "5p4c3", "codec": "c0d3c"}
    artifact = {"stable": stable, "canary": None, "additional": list(additional)}
    state = {"encoder": encoder, "artifact": artifact, "heads": heads}
    worker.ledger.liveness.note_serving("w", state)
    worker.ledger.liveness.note_worker("w")


class Gateway:
    """A gateway that serves on a port of its own, in a thread."""

    def __init__(self, settings: Settings) -> None:
        config = uvicorn.Config(
            create_app(settings), port=0, log_config=None, timeout_graceful_shutdown=5
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="gateway")
        self._thread.start()
        until = time.monotonic() + 60
        while not self._server.started:
            assert self._thread.is_alive()
            assert time.monotonic() < until
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx2.Client(base_url=self.url, timeout=120)

    def _serve(self) -> None:
        asyncio.run(self._server.serve())

    def close(self) -> None:
        """Stop serving."""
        self.client.close()
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def start_gateway() -> Iterator[Callable[..., Gateway]]:
    """Start gateways with settings of the test's own."""
    started: list[Gateway] = []

    def start(redis_url: str, **settings: Any) -> Gateway:
        broker_url = redis_url.removesuffix("/0") + "/1"
        patient = {"wait_default_s": 60.0} | settings
        gateway = Gateway(Settings(redis_url=redis_url, broker_url=broker_url, **patient))
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.close()


@pytest.fixture
def gateway(valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]) -> Gateway:
    """A gateway whose jobs the worker does."""
    return start_gateway(valkey_url)


def post(client: httpx2.Client, path: str, body: object, **headers: str) -> httpx2.Response:
    """Post JSON in ASCII: httpx2 itself cannot send lone surrogates."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = json.dumps(body).encode("ascii")
    return client.post(path, content=content, headers={"Content-Type": "application/json", **named})


@pytest.fixture
def client(gateway: Gateway) -> httpx2.Client:
    """A client of that gateway."""
    return gateway.client
