"""A ledger on a real server, and the small things its tests are made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from tests.chaos.clock import Clock
from tests.simulation.server import Server
from tests.wire import Item, cut

from verso_core.jobs import Collection, Kind, Precision, Queue, TextPolicy
from verso_core.record import Codec, Entry, Record
from verso_ledger import Ledger, NewJob


@pytest.fixture(scope="module")
def server(valkey_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose clock the tests of a file set."""
    if (lacks := Clock.lacks()) is not None:
        if os.environ.get("CI"):
            pytest.fail(lacks)
        pytest.skip(lacks)
    with Server(valkey_binary, tmp_path_factory.mktemp("timed")) as found:
        yield found


@pytest.fixture
def timed_url(server: Server) -> str:
    """URL of an empty server whose time stands still but for what a test lets pass."""
    server.client.flushall()
    return server.url


@pytest.fixture
def pass_s(server: Server) -> Callable[[float], None]:
    """Let time pass for that server: ``pass_s(seconds)``."""
    return server.pass_s


@pytest.fixture
def ledger(valkey_url: str) -> Iterator[Ledger]:
    """A ledger with nothing in it."""
    found = Ledger.from_url(valkey_url)
    yield found
    found.close()


@pytest.fixture
def new_job() -> Callable[..., NewJob]:
    """Build a job of ``slices`` slices with ``items`` items each."""

    def build(
        kind: Kind = Kind.EMBED,
        *,
        slices: int = 1,
        items: int = 2,
        text: bytes = b"one text",
        **rest: object,
    ) -> NewJob:
        queue = Queue.BULK if kind is Kind.INGEST else Queue.INTERACTIVE
        all_items = [Item({"id": f"d{n}"}, text) for n in range(slices * items)]
        parts = list(cut(kind, {"collection": "c"}, all_items, max_items=items, max_bytes=1 << 30))
        return NewJob(kind=kind, queue=queue, slices=parts, **rest)  # type: ignore[arg-type]

    return build


@pytest.fixture
def new_collection() -> Callable[..., Collection]:
    """Build a collection's settings."""

    def build(name: str = "c", **changes: object) -> Collection:
        settings: dict[str, object] = {
            "name": name,
            "precision": Precision.FLOAT16,
            "text_policy": TextPolicy.PATCH,
            "space": "0123456789abcdef",
            "dim": 384,
            "int8_scale": 0.1 + 0.2,
            "artifacts": (),
            "buckets": 16,
            "checksum_key": "00ff",
            "created": datetime.now(UTC),
        }
        return Collection.model_validate(settings | changes)

    return build


@pytest.fixture
def new_entry() -> Callable[..., bytes]:
    """Build an entry whose one record carries ``payload``."""

    def build(seq: int, payload: bytes = b"patch") -> bytes:
        record = Record(Codec.RAW, 0, b"hashhash", b"sums", payload)
        return Entry(seq=seq, size_bytes=len(payload), records=(record,)).pack()

    return build
