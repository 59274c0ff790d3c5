"""Loki's push, as JSON and as protobuf in Snappy."""

from __future__ import annotations

import contextlib
import json

import cramjam
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import BodyTooLarge, RequestInvalid
from verso_core.jobs.logs.records import LATEST_NS
from verso_gateway.feed import loki
from verso_gateway.feed.records import MOST_RECORDS, FieldMap, LogRecord

LABELS = st.dictionaries(
    st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True),
    st.text(min_size=1, max_size=40),
    max_size=5,
)
ENTRIES = st.lists(st.tuples(st.integers(0, LATEST_NS), st.text()), max_size=5)


def snappy(message: Message) -> bytes:
    return bytes(cramjam.snappy.compress_raw(message.SerializeToString()))


def quoted(labels: dict[str, str]) -> str:
    # every escape of JSON's that this makes is one of Go's
    return (
        "{"
        + ", ".join(f"{name}={json.dumps(labels[name], ensure_ascii=False)}" for name in labels)
        + "}"
    )


@given(LABELS, ENTRIES)
def test_both_forms_are_read_as_the_same_records(
    labels: dict[str, str], entries: list[tuple[int, str]]
) -> None:
    values = [[str(time), line] for time, line in entries]
    body = json.dumps({"streams": [{"stream": labels, "values": values}]}, ensure_ascii=False)
    push = loki.PUSH_REQUEST()
    stream = push.streams.add(labels=quoted(labels))
    for time, line in entries:
        entry = stream.entries.add(line=line.encode())
        entry.timestamp.seconds, entry.timestamp.nanos = divmod(time, 10**9)
    plain = loki.decode_json(body.encode(), FieldMap())
    assert loki.decode_protobuf(snappy(push), FieldMap(), most_bytes=1 << 20) == plain
    for record, (time, line) in zip(plain, entries, strict=True):
        assert isinstance(record, LogRecord)
        assert (record.time_ns, record.text) == (time, line.encode())


@given(LABELS)
def test_labels_are_read_as_they_were_written(labels: dict[str, str]) -> None:
    assert loki.read_labels(quoted(labels)) == labels


@pytest.mark.parametrize("text", ["", "{", "{a}", '{a="b" c="d"}', '{a="b}', "{a='b'}"])
def test_other_labels_are_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        loki.read_labels(text)


def test_metadata_are_attributes_and_labels_have_our_names() -> None:
    body = {
        "streams": [
            {
                "stream": {"service_name": "shop", "job": "web"},
                "values": [["7", "x", {"trace": "t", "level": "WARN"}]],
            }
        ]
    }
    [record] = loki.decode_json(json.dumps(body).encode(), FieldMap())
    assert isinstance(record, LogRecord)
    assert record.labels == {"service": "shop", "job": "web", "level": "warn"}
    assert (record.attributes, record.source) == (b'{"trace":"t"}', "shop")


def test_a_bad_entry_costs_itself() -> None:
    values = [["1", "a"], ["soon", "b"], [1, "c"], ["2"], ["3", "d"]]
    streams = [
        {"stream": {"job": "x"}, "values": values},
        {"stream": {"job": 1}, "values": [["4", "e"]]},
    ]
    found = loki.decode_json(json.dumps({"streams": streams}).encode(), FieldMap())
    assert [isinstance(one, LogRecord) for one in found] == [True, False, False, False, True, False]


def test_metadata_that_no_json_holds_cost_their_entry() -> None:
    deep = b'["2", "b", {"a": ' + b"[" * 300 + b"]" * 300 + b"}]"
    values = b'[["1", "a"], %b, ["3", "c"]]' % deep
    body = b'{"streams": [{"stream": {"job": "x"}, "values": %b}]}' % values
    found = loki.decode_json(body, FieldMap())
    assert [isinstance(one, LogRecord) for one in found] == [True, False, True]


def test_a_push_of_too_many_entries_is_refused_before_it_is_read() -> None:
    push = loki.PUSH_REQUEST()
    stream = push.streams.add(labels='{job="x"}')
    for _ in range(MOST_RECORDS + 1):
        stream.entries.add()
    with pytest.raises(BodyTooLarge):
        loki.decode_protobuf(snappy(push), FieldMap(), most_bytes=1 << 24)


def test_a_block_says_its_size_before_it_is_inflated() -> None:
    with pytest.raises(BodyTooLarge):
        loki.decode_protobuf(
            bytes(cramjam.snappy.compress_raw(bytes(5000))), FieldMap(), most_bytes=4999
        )


@given(st.binary())
def test_any_bytes_are_a_push_or_refused(data: bytes) -> None:
    for body in (data, bytes(cramjam.snappy.compress_raw(data))):
        with contextlib.suppress(RequestInvalid, BodyTooLarge):
            assert isinstance(loki.decode_protobuf(body, FieldMap(), most_bytes=1 << 20), list)
    with contextlib.suppress(RequestInvalid):
        assert isinstance(loki.decode_json(data, FieldMap()), list)
