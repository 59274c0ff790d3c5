"""What a gateway wrote to the ledger for the records that agents sent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.verso_gateway.conftest import FakeWorker

from verso_core.jobs import Kind
from verso_core.jobs.log_records import TIME_BYTES, LineRecord, public, read_line


@dataclass(frozen=True)
class Stored:
    """A record as it reached a worker."""

    collection: str
    place: tuple[int, int]
    labels: dict[str, str]
    time: str
    record: LineRecord

    @property
    def text(self) -> str:
        return self.record.text.decode()

    @property
    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.record.attributes or b"{}")
        return found


class Ledger:
    """The records that a worker saw, in the order of their streams."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker

    def slices(self) -> list[int]:
        """Return how many lines each slice had."""
        return [work.items[0].header["count"] for work in self._seen()]

    def records(self, count: int) -> list[Stored]:
        """Return all records once there are so many."""
        until = time.monotonic() + 30
        while len(found := list(self._records())) < count and time.monotonic() < until:
            time.sleep(0.01)
        assert len(found) == count
        return sorted(found, key=lambda one: (one.collection, one.place))

    def texts(self, count: int) -> list[str]:
        """Return the texts of all records once there are so many, sorted."""
        return sorted(one.text for one in self.records(count))

    def _seen(self) -> list[Any]:
        return [work for work in list(self._worker.seen) if work.kind is Kind.INGEST_LINES]

    def _records(self) -> Iterable[Stored]:
        for work in self._seen():
            [item] = work.items
            lines = (item.blob or b"").removesuffix(b"\n").split(b"\n")
            assert len(lines) == item.header["count"]
            for number, line in enumerate(lines, item.header["first"]):
                yield Stored(
                    work.params["collection"],
                    (work.params["stream"], number),
                    public(work.params["labels"]),
                    line[: TIME_BYTES - 1].decode(),
                    read_line(line),
                )


@pytest.fixture
def stored(worker: FakeWorker) -> Ledger:
    """What the worker of the test's gateway saw."""
    return Ledger(worker)
