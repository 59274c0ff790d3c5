"""The index of a log collection's segments follows the collection."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs import filters
from verso_codecs.logs.parsing import parse, split
from verso_codecs.logs.shapes import Shapes
from verso_core.segments import Segment
from verso_worker.records.segments import FRONT_BYTES, RECORDS, Front, Inventory, TimeSource
from verso_worker.rules.logs.index import SegmentIndex, StatementEntries, View
from verso_worker.rules.ports.stores import Logs

COUNT = 6


class Heads:
    """Segments by place, as the ledger has them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], bytes] = {}
        self.asked = 0

    def heads(self, _: str, places: list[tuple[int, int]], *, size: int) -> list[bytes]:
        self.asked += len(places)
        return [self.rows.get(place, b"")[:size] for place in places]

    def read(self, _: str, places: list[tuple[int, int]]) -> list[bytes | None]:
        return [self.rows.get(place) for place in places]


def segment(number: int, *, lines: int = 20, values: int = 1) -> tuple[Segment, bytes]:
    """Return a segment of which every line holds values with its number."""
    shapes = Shapes()
    words = [
        b"".join(b" value%d-%d" % (1000 + number, n * values + v) for v in range(values))
        for n in range(lines)
    ]
    parsed = parse(split(b"".join(b"line" + row + b"\n" for row in words)), shapes)
    parsed.number(range(7, 7 + len(parsed.new_rows)))
    front = Front(
        flags=0,
        lines=lines,
        times=TimeSource(),
        inventory=Inventory.of(parsed.shapes),
        filter=filters.build(parsed, first=0, count=lines, block_lines=128),
        sizes=(),
    )
    return Segment(0, 100 * number, lines, number, number), front.pack([])


def index() -> tuple[SegmentIndex, Heads]:
    heads = Heads()
    return SegmentIndex(cast(Logs, cast(Any, heads)), "uid"), heads


def described(view: View) -> dict[Segment, tuple[Any, ...]]:
    """Return what a view says of each segment, whatever its row."""
    found = {}
    for row, one in enumerate(view.segments):
        own = view.rows == row
        begin, end = view.filters.bounds[row : row + 2]
        found[one] = (
            view.shapes[own].tolist(),
            view.counts[own].tolist(),
            view.blocks[own].tolist(),
            view.filters.data[begin:end].tobytes(),
            [int(column[row]) for column in view.spans],
        )
    return found


@given(st.lists(st.sets(st.integers(0, COUNT - 1)), min_size=1, max_size=5))
def test_a_view_is_that_of_the_listed_segments(listings: list[set[int]]) -> None:
    followed, heads = index()
    made = [segment(number) for number in range(COUNT)]
    heads.rows = {(one.stream, one.first): data for one, data in made}
    for version, listing in enumerate(listings):
        listed = [made[number][0] for number in sorted(listing)]
        view = followed.view(listed, version=(version, 0))
        fresh, other = index()
        other.rows = heads.rows
        assert described(view) == described(fresh.view(listed, version=(0, 0)))
        for number in range(COUNT):
            token = b"value%d-1" % (1000 + number)
            found = np.flatnonzero(filters.find_joined(view.filters, [token]))
            holders = {view.segments[row] for row in found.tolist()}
            assert (made[number][0] in holders) == (number in listing)


def test_a_front_is_read_once_however_long_it_is() -> None:
    followed, heads = index()
    short, long = segment(1), segment(2, lines=90, values=120)
    assert len(long[1]) > FRONT_BYTES
    heads.rows = {(one.stream, one.first): data for one, data in (short, long)}
    listed = [short[0], long[0]]
    assert set(followed.view(listed, version=(1, 0)).segments) == set(listed)
    asked = heads.asked
    followed.view(listed, version=(2, 0))
    assert heads.asked == asked


def test_what_is_gone_damaged_or_stored_as_documents_is_left_out() -> None:
    followed, heads = index()
    made = [segment(number) for number in range(3)]
    damaged = bytearray(made[1][1])
    damaged[-1] ^= 1
    heads.rows = {(0, 0): bytes([made[0][1][0] ^ 8]) + made[0][1][1:]}  # one bit is corrected
    damaged[9] ^= 3
    heads.rows |= {(0, 100): bytes(damaged)}
    documents = Segment(0, 900, 5, flags=RECORDS)
    view = followed.view([*(one for one, _ in made), documents], version=(1, 0))
    assert view.segments == (made[0][0],)


@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.lists(st.integers(-1, 5), min_size=1, max_size=8),
    st.data(),
)
def test_entries_are_found_by_their_statement(
    shapes: list[int], of_shape: list[int], data: st.DataObject
) -> None:
    """Shapes from 8 on may have come since; some have no statement."""
    found = StatementEntries.of(np.array(shapes, np.int32), np.array(of_shape, np.int64), 6)
    told = [of_shape[one] if one < len(of_shape) else -1 for one in shapes]
    for statement in range(6):
        wanted = [at for at, one in enumerate(told) if one == statement]
        assert found.of_statement(statement).tolist() == wanted
    assert found.occurring(None).tolist() == [one in told for one in range(6)]
    chosen = data.draw(st.lists(st.booleans(), min_size=len(shapes), max_size=len(shapes)))
    kept = [one for one, take in zip(told, chosen, strict=True) if take]
    passing = found.occurring(np.array(chosen, np.bool_))
    assert passing.tolist() == [one in kept for one in range(6)]
