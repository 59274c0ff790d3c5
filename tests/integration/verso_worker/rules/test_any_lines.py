"""Whatever bytes lines are, they come out of a log collection as they went in.

Every example is a stream of its own in one collection: taken in, verified, read in order and by id,
deleted in part, merged, and read again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.integration.verso_worker.rules.log_lines import NAME, ingest, raw
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item

from verso_core.errors import DocumentUnknown
from verso_core.jobs import CollectionKind, Kind, Status
from verso_core.jobs.collections import CollectionParams

_hosts = itertools.count()

WORDS = st.sampled_from(
    [
        *(b"2026-01-01T00:00:00Z", b"Jun 14 15:16:01", b"sshd[4242]:", b"user=root"),
        *(b"10.0.0.7:443", b"4b4dd551-26d8-48e2-bd52-91793d2157bc", b"0x7fed806eb5d", b"-17"),
        *(b"3.14", b"\x00", b"\xff\xfe", b"\r", b"\t", b"", b"caf\xc3\xa9", b"[", b"9" * 40),
        b"\x01\x02\x03",
    ]
)
LINES = st.one_of(
    st.binary(max_size=60),
    st.lists(WORDS, max_size=6).map(b" ".join),
    st.just(b"2026-01-01T00:00:00Z the same time and the same words"),
).map(lambda line: line.replace(b"\n", b""))
PARTS = st.lists(st.lists(LINES, min_size=1, max_size=40), min_size=1, max_size=4)


@pytest.fixture
def logs(stores: Stores) -> Stores:
    """The stores, with an empty log collection."""
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    return stores


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PARTS, st.booleans(), st.sets(st.integers(0, 60)))
@example([[b" ".join(b"%d" % (n * n) for n in range(2000))] * 2, [b""]], False, {0})
@example([[b"a line", b"x" * (1 << 20), b"a line"], [b"\r", b"\x00", b""]], False, {0})
@example([[b"", b"", b""], [b"open"]], True, {1, 3})
def test_any_lines_come_out_as_they_went_in(
    logs: Stores, parts: list[list[bytes]], is_open: bool, chosen: set[int]
) -> None:
    host = f"h{next(_hosts)}"
    rows = list(itertools.chain(*parts))
    is_open = is_open and rows[-1] != b""
    stream = 0
    for n, part in enumerate(parts):
        text = text_of(part, is_open=is_open and n == len(parts) - 1)
        [found] = ingest(logs, text, host=host)
        assert found["lines"] == len(part)
        stream = found["stream"]
    names = [f"{stream}:{n}" for n in range(len(rows))]
    kept: list[bytes | None] = [*rows]
    check(logs, host, names, kept, is_open=is_open)
    for n in {one % len(rows) for one in chosen}:
        kept[n] = None
    items = [Item({"id": name}) for name, row in zip(names, kept, strict=True) if row is None]
    if items:
        assert logs.do(Kind.DELETE, {"collection": NAME}, items)[0] is Status.SUCCEEDED
    check(logs, host, names, kept, is_open=is_open)
    logs.pipeline._lines.management.merge(logs.ledger.documents.collection(NAME))
    check(logs, host, names, kept, is_open=is_open)


def text_of(rows: Sequence[bytes], *, is_open: bool) -> bytes:
    text = b"".join(row + b"\n" for row in rows)
    return text[:-1] if is_open else text


def check(
    logs: Stores, host: str, names: list[str], kept: list[bytes | None], *, is_open: bool
) -> None:
    """Read the lines of a stream in order, the other way round, and by id."""
    rows = [row for row in kept if row is not None]
    only = {"field": "host", "eq": host}
    ends_open = is_open and kept[-1] is not None
    assert raw(logs, filter=only) == text_of(rows, is_open=ends_open)
    assert raw(logs, filter=only, order="newest") == text_of(rows[::-1], is_open=False)
    found = logs.read(*names, collection=NAME)
    assert found == [DocumentUnknown.code if row is None else row for row in kept]
