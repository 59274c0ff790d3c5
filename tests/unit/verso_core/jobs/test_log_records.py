"""A record becomes one line and comes back as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import RecordCorrupt
from verso_core.jobs.logs.records import (
    LATEST_NS,
    TIME_BYTES,
    LineRecord,
    TimeFrom,
    is_marked,
    marked,
    public,
    read_line,
    write_line,
)

BYTES = st.binary() | st.lists(st.sampled_from([b"\0", b"\1", b" ", b"\n", b"s", b"{}"])).map(
    b"".join
)
ATTRIBUTES = st.just(b"") | st.dictionaries(st.text(), st.text()).map(
    lambda value: json.dumps(value).encode()
)


@given(BYTES, st.sampled_from(TimeFrom), ATTRIBUTES, st.integers(0, LATEST_NS))
def test_a_record_comes_back(
    text: bytes, source: TimeFrom, attributes: bytes, time_ns: int
) -> None:
    record = LineRecord(text, source, attributes)
    line = write_line(record, time_ns)
    assert b"\n" not in line
    assert read_line(line) == record


def test_the_time_is_exact_and_in_front() -> None:
    line = write_line(LineRecord(b"disk full"), 1_795_405_566_123_456_789)
    assert line == b"2026-11-23T03:46:06.123456789Z disk full"
    assert line[TIME_BYTES:] == b"disk full"


def test_lines_of_a_body_become_one_line() -> None:
    line = write_line(LineRecord(b"Traceback:\n  at x", TimeFrom.ARRIVAL, b'{"a":1}'), 0)
    assert line[TIME_BYTES:] == b'Traceback:\0   at x\0\1a{"a":1}'


@pytest.mark.parametrize("line", [b"", b"no time", b"2026-11-23T03:46:06.123456789Z x\0y"])
def test_another_line_is_no_record(line: bytes) -> None:
    with pytest.raises(RecordCorrupt):
        read_line(line)


def test_the_mark_is_not_shown() -> None:
    labels = marked({"host": "a"})
    assert is_marked(labels)
    assert not is_marked({"host": "a"})
    assert public(labels) == {"host": "a"}
