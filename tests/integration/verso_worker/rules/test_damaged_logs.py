"""Flipped bits in every kind of value that is stored of a log collection.

One flipped bit does no harm: it is corrected when the value is read, and the scrub writes it as
it was. More of them are an error that names what is damaged, at most a block of lines in the middle
of a segment; no line is ever wrong, and none is left out without a word.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.verso_worker.rules.log_lines import (
    NAME,
    START,
    accept,
    ingest,
    lines,
    raw,
    search,
)
from tests.integration.verso_worker.worker_parts import BUCKETS, NO_COLD_STORAGE, Stores
from tests.wire import Item

from verso_core.crc import flipped
from verso_core.errors import PatchCorrupt, RecordCorrupt
from verso_core.jobs import (
    BucketRange,
    CollectionKind,
    Failed,
    Kind,
    NoItem,
    Queue,
    Slice,
    Status,
)
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.logs.lines import LinesParams
from verso_core.jobs.scrub import Scrubbed
from verso_core.segments import Segment
from verso_ledger.keys import key
from verso_worker.records.segments import BLOCK_LINES, Front
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.counting import LineCounts
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.query.lines import LineQuery
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.logs.scrub import LogScrub
from verso_worker.rules.logs.search import LogSearch

A, B = lines(1100, host="a"), lines(300, host="b")
GONE = (7, 640, 641)
DAMAGED = {RecordCorrupt.code, PatchCorrupt.code}


@dataclass(frozen=True)
class Value:
    """One value as Valkey holds it."""

    kind: str
    name: str
    field: bytes
    data: bytes


class Held:
    """A log collection of two streams, and its values one by one."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.redis: Any = stores.redis
        stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
        ingest(stores, A, host="a")
        ingest(stores, B, host="b")
        items = [Item({"id": f"0:{n}"}) for n in GONE]
        stores.do(Kind.DELETE, {"collection": NAME}, items)
        self.uid = stores.uid(NAME)
        rows = A.splitlines(keepends=True)
        self.of_a = b"".join(row for n, row in enumerate(rows) if n not in GONE)

    def name(self, kind: str) -> str:
        return f"verso:{kind}:{self.uid}"

    def values(self, kind: str) -> list[Value]:
        """Return the values of a kind of key."""
        redis, name = self.redis, self.name(kind)
        if kind in ("shapes", "statements"):
            rows = redis.lrange(name, 0, -1)
            return [Value(kind, name, str(n).encode(), row) for n, row in enumerate(rows)]
        if kind in ("fitted", "streams", "log"):
            return [Value(kind, name, *row) for row in redis.hgetall(name).items()]
        if kind == "segments":
            return [Value(kind, name, b"", row) for row in redis.zrange(name, 0, -1)]
        keys = sorted(redis.scan_iter(name + ":*"))
        return [Value(kind, one.decode(), b"", redis.get(one)) for one in keys]

    def put(self, value: Value, data: bytes, field: bytes | None = None) -> None:
        """Replace a value, and the name of its field in a hash."""
        redis = self.redis
        if value.kind in ("shapes", "statements"):
            redis.lset(value.name, int(value.field), data)
        elif value.kind in ("fitted", "streams", "log"):
            redis.hdel(value.name, value.field)
            redis.hset(value.name, value.field if field is None else field, data)
        elif value.kind == "segments":
            score = redis.zscore(value.name, value.data)
            redis.zrem(value.name, value.data)
            redis.zadd(value.name, {data: score})
        else:
            redis.set(value.name, data)

    def all_of(self, kind: str) -> list[tuple[bytes, bytes]]:
        return sorted((one.field, one.data) for one in self.values(kind))


class Fresh:
    """A worker's rules over the same stores, which have read nothing yet."""

    def __init__(self, stores: Stores) -> None:
        store = LogStore(stores.ledger.logs, NO_COLD_STORAGE)
        self._collection = stores.ledger.documents.collection(NAME)
        self._lines = LineReader(store, stores.pipeline._records.reader)
        blocks, models = Blocks(store), stores.pipeline._records.reader.models
        search = LogSearch(
            models, store, stores.pipeline._records.search.lexicon, self._lines, blocks
        )
        self._query = LineQuery(store, self._lines, blocks, search)
        self._management = LogManagement(store, self._lines)
        self._counts = LineCounts(store, self._lines)
        self._scrub = LogScrub(store, self._management)

    def read(self, host: str, **asked: Any) -> bytes | str:
        """Return all lines of a stream, or the code of the error."""
        wanted: Any = {"field": "host", "eq": host}
        params = LinesParams(collection=NAME, limit=0, raw=True, filter=wanted, **asked)
        data = b""
        while True:
            try:
                page = self._query.run(Slice(Kind.LINES, params, (NoItem(),)), self._collection)
            except RecordCorrupt as error:
                return error.code
            data += page.only.data
            if page.only.next_cursor is None:
                return data
            params = params.model_copy(update={"cursor": page.only.next_cursor})

    def line(self, name: str) -> bytes | str:
        """Return a line, or the code of its error."""
        try:
            found = self._lines.texts(self._collection, [name]).get(name)
        except RecordCorrupt as error:
            return error.code
        if found is None:
            return "document_unknown"
        return found.error.code if isinstance(found, Failed) else found.data

    def count(self) -> int:
        return self._counts.by_stream(self._collection, None).total()

    def scrub(self) -> Scrubbed:
        return self._scrub.run(self._collection, BucketRange(first=0, count=BUCKETS, spend_s=60.0))


@pytest.fixture
def held(stores: Stores) -> Held:
    return Held(stores)


def places(value: Value, *, most: int) -> list[int]:
    """Return some bits of a value."""
    drawn = random.Random(len(value.data))
    return [drawn.randrange(8 * len(value.data)) for _ in range(most)]


KINDS = ["shapes", "statements", "fitted", "segments", "segment", "gone", "streams"]


def test_a_flipped_bit_harms_no_line_and_the_scrub_corrects_it(held: Held) -> None:
    for kind in KINDS:
        before = held.all_of(kind)
        values = held.values(kind)
        assert values, kind
        for value in values:
            for place in places(value, most=max(1, 8 // len(values))):
                held.put(value, flipped(value.data, place))
                fresh = Fresh(held.stores)
                assert (fresh.read("a"), fresh.read("b")) == (held.of_a, B), (value, place)
                assert fresh.line("0:640") == "document_unknown"
                found = fresh.scrub()
                assert (found.repaired > 0, found.damaged) == (True, 0), (value, place)
                assert held.all_of(kind) == before
    assert Fresh(held.stores).scrub().repaired == 0


def test_flipped_bits_of_labels_are_corrected(held: Held) -> None:
    before = held.all_of("streams")
    value = held.values("streams")[0]
    for place in range(3, 8 * len(value.field), 23):
        held.put(value, value.data, field=flipped(value.field, place))
        assert Fresh(held.stores).read("a") == held.of_a
        assert Fresh(held.stores).scrub().repaired == 1
        assert sorted(held.redis.hgetall(held.name("streams")).items()) == before


def test_a_stream_with_a_flipped_bit_gives_no_number_twice(held: Held) -> None:
    value = next(one for one in held.values("streams") if b'"a"' in one.field)
    for place in range(8 * len(value.data)):
        held.put(value, flipped(value.data, place))
        found = held.stores.ledger.logs.reserve(NAME, {"host": "a"}, 5)
        assert (found.stream, found.first) == (0, 1100)
        held.put(value, value.data)
    held.put(value, garbled(value.data, 4))
    with pytest.raises(RecordCorrupt):
        held.stores.ledger.logs.reserve(NAME, {"host": "a"}, 5)
    assert Fresh(held.stores).scrub().ids == ("(streams)",)


@pytest.mark.parametrize("when", ["waiting", "stored"])
def test_a_flipped_bit_of_lines_that_wait_harms_none_of_them(stores: Stores, when: str) -> None:
    """Where they stand once: before they are coded, and until they were compared with that."""
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    text = lines(200)
    drawn = random.Random(7)
    for n in range(24):
        name = key("payload", f"{accept(stores, text, host=f'h{n}')}.0")
        if when == "stored":
            stores.dispatcher.run_queue(Queue.BULK)
        data: Any = stores.redis.get(name)
        place = drawn.randrange(8 * (400 if n % 2 else len(data)))  # every second in the header
        stores.redis.set(name, flipped(data, place))
        stores.dispatcher.run_queue(Queue.BULK)
        stores.dispatcher.run_queue(Queue.SCRUB)
        assert raw(stores, filter={"field": "host", "eq": f"h{n}"}) == text
    assert stores.ledger.logs.state(NAME).verified == 24 * 200


def test_a_flipped_bit_of_a_counter_hides_no_line_and_is_counted_again(held: Held) -> None:
    before = dict(held.all_of("log"))
    for value in held.values("log"):
        for place in places(value, most=2):
            held.put(value, flipped(value.data, place))
            fresh = Fresh(held.stores)
            assert (fresh.read("a"), fresh.read("b")) == (held.of_a, B)
            fresh.scrub()
            after = dict(held.all_of("log"))
            counted = {b"lines", b"gone", b"bytes"} & before.keys()
            assert {name: after[name] for name in counted} == {
                name: before[name] for name in counted
            }
            assert fresh.count() == 1400 - len(GONE)
            held.put(value, value.data)


def test_a_damaged_counter_stops_no_ingest(held: Held) -> None:
    for value in held.values("log"):
        held.put(value, b"x" + value.data)
    more = lines(50, start=2000, host="a")
    ingest(held.stores, more, host="a")
    assert Fresh(held.stores).read("a") == held.of_a + more
    Fresh(held.stores).scrub()
    assert Fresh(held.stores).count() == 1450 - len(GONE)


def garbled(data: bytes, at: int) -> bytes:
    """Return data with two flipped bits of one byte."""
    return flipped(flipped(data, 8 * at), 8 * at + 3)


def test_a_damaged_block_is_named_and_takes_no_other_with_it(held: Held) -> None:
    value = held.values("segment")[0]
    front = Front.read(value.data)
    assert front is not None
    rows = A.splitlines()
    for number in (0, 3, len(front.sizes) - 1):
        at = front.size_bytes + sum(front.sizes[:number]) + front.sizes[number] // 2
        held.put(value, garbled(value.data, at))
        fresh = Fresh(held.stores)
        for n in range(0, 1100, 63):
            wrong = n // BLOCK_LINES == number
            gone = "document_unknown" if n in GONE else rows[n]
            assert fresh.line(f"0:{n}") == (RecordCorrupt.code if wrong else gone)
        assert (fresh.read("a"), fresh.read("b")) == (RecordCorrupt.code, B)
        left = [n for n in range(1100) if n // BLOCK_LINES != number and n not in GONE]
        others = b"".join(rows[n] + b"\n" for n in left)
        assert fresh.read("a", skip_damaged=True) == others
        found = fresh.scrub()
        assert found.ids == (f"0:{number * BLOCK_LINES}",)
        assert found.damaged == sum(
            n // BLOCK_LINES == number and n not in GONE for n in range(1100)
        )
        assert found.documents == 1400 - len(GONE)
        # A search still finds the lines of the other blocks.
        hits = search(held.stores, b"write to block failed", lines=True, limit=1000)
        found_ids = {hit["id"] for hit in hits}
        ids = {n: f"0:{n}" for n, row in enumerate(rows) if b"write to block" in row}
        lost = {n for n in ids if n // BLOCK_LINES == number or n in GONE}
        assert {ids[n] for n in ids.keys() - lost} <= found_ids


@pytest.mark.parametrize("kinds", [KINDS[:3], KINDS[3:]], ids=["read once", "read often"])
def test_more_damage_is_an_error_and_never_a_wrong_line(held: Held, kinds: list[str]) -> None:
    for value in [one for kind in kinds for one in held.values(kind)]:
        size = len(value.data)
        drawn = random.Random(size)
        for at in {0, size - 1, drawn.randrange(size)}:
            held.put(value, garbled(value.data, at))
            fresh = Fresh(held.stores)
            assert fresh.read("a") in (DAMAGED | {held.of_a})
            assert fresh.read("b") in (DAMAGED | {B})
            assert fresh.line("0:3") in (DAMAGED | {A.splitlines()[3]})
            found = fresh.scrub()
            assert found.damaged > 0
            assert found.ids
            if value.kind in ("segment", "gone"):
                assert found.ids[0].startswith(("0:", "1:"))
            else:
                assert found.ids[0] == f"({value.kind})"
            changed = replaced(held, value) if value.kind == "segments" else value
            held.put(changed, value.data)
    assert Fresh(held.stores).scrub().damaged == 0


def replaced(held: Held, value: Value) -> Value:
    """Return a member of the list of segments as it is now."""
    [now] = [one.data for one in held.values("segments") if not whole(one.data)]
    return Value(value.kind, value.name, value.field, now)


def whole(member: bytes) -> bool:
    try:
        Segment.unpack(member)
    except PatchCorrupt:
        return False
    return True


def test_lines_that_no_one_finds_are_an_error(held: Held) -> None:
    """A segment that is listed and not there, for readers that would look again for ever."""
    [value, _] = held.values("segment")
    held.redis.delete(value.name)
    fresh = Fresh(held.stores)
    assert fresh.read("a") == RecordCorrupt.code
    assert fresh.read("a", skip_damaged=True) == RecordCorrupt.code
    assert fresh.line("0:3") == RecordCorrupt.code
    assert fresh.scrub().ids == ("0:0",)


def test_a_delete_by_filter_deletes_what_it_can_read_and_fails_for_the_rest(held: Held) -> None:
    value = held.values("segment")[0]
    held.put(value, garbled(value.data, len(value.data) - 3))
    params = {"collection": NAME, "filter": {"field": "time", "lt": START + 1000}}
    status, _ = held.stores.do(Kind.DELETE_MATCHING, params, [Item({"part": 0, "parts": 1})])
    assert status is Status.DEAD
    held.put(value, value.data)
    assert raw(held.stores) == held.of_a
