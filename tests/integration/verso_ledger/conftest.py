"""A ledger on a real server, and the small things its tests are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from tests.wire import Item, cut

from verso_core.jobs import Collection, Kind, Precision, Queue, TextPolicy
from verso_core.record import Codec, Entry, Record
from verso_ledger import Ledger, NewJob


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
