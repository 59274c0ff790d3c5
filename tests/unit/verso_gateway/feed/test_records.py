"""Fields of structured records become text, time and labels; nothing else of them is lost."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import RequestInvalid, TextNotEncodable, TextTooLarge
from verso_core.jobs.logs.lines import MAX_LABELS
from verso_core.texts import MAX_METADATA_BYTES
from verso_gateway.feed import mapping
from verso_gateway.feed.records import FieldMap, LogRecord, add_label, flat

NAMES = st.sampled_from(["message", "host", "level", "log", "@timestamp", "a", "b.c"]) | st.text()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)


def record(row: bytes, fields: FieldMap | None = None) -> LogRecord:
    found = mapping.decode_row(row, fields or FieldMap())
    assert isinstance(found, LogRecord), found
    return found


def encodable(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


@given(OBJECTS.filter(encodable))
def test_every_value_is_in_the_text_the_time_the_labels_or_the_attributes(
    fields: dict[str, Any],
) -> None:
    row = orjson.dumps(fields)
    found = record(row)
    if found.text == row:
        return
    rest = orjson.loads(found.attributes or b"{}")
    text = found.text.decode()
    for name, value in flat(fields).items():
        labelled = str(value) in found.labels.values() or str(value).lower() in (
            *found.labels.values(), "true", "false",
        )  # fmt: skip
        timed = name in FieldMap().time and found.time_ns is not None
        assert (name in rest and rest[name] == value) or value == text or labelled or timed


def test_a_document_of_filebeat() -> None:
    row = {
        "@timestamp": "2026-11-23T03:46:06.123Z",
        "message": "disk full",
        "log": {"offset": 12, "file": {"path": "/var/log/a.log"}},
        "host": {"name": "web-1", "ip": ["10.0.0.1"]},
        "service": {"name": "shop"},
        "tags": None,
    }
    found = record(json.dumps(row).encode())
    assert found.text == b"disk full"
    assert found.time_ns == 1_795_405_566_123_000_000
    assert found.labels == {"service": "shop", "host": "web-1", "source": "/var/log/a.log"}
    assert json.loads(found.attributes) == {
        "log.offset": 12, "host.ip": ["10.0.0.1"], "tags": None,
    }  # fmt: skip


def test_a_record_without_a_text_is_its_own_json() -> None:
    row = b' {"code": 3, "level": "WARN"} '
    found = record(row)
    assert (found.text, found.attributes) == (row.strip(), b"")
    assert found.labels == {"level": "warn"}


def test_fields_and_labels_are_those_that_are_named() -> None:
    fields = mapping.field_map("what", "when", ["env", "pod.name"], base=FieldMap(offset_s=3600))
    found = record(
        b'{"what": "x", "when": "1970-01-01T01:00:01", "env": "test", "pod": {"name": "p"}}', fields
    )
    assert (found.text, found.time_ns, found.attributes) == (b"x", 10**9, b"")
    assert found.labels == {"env": "test", "pod.name": "p"}


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (b"{", RequestInvalid),
        (b"[1]", RequestInvalid),
        (b'{"message": "\xff"}', TextNotEncodable),
        (b'{"message": "\\ud800"}', TextNotEncodable),
        (b'{"message": "' + b"x" * (4 << 20) + b'"}', TextTooLarge),
    ],
)
def test_a_bad_row_is_an_error_at_its_place(row: bytes, error: type[Exception]) -> None:
    first, bad, last = mapping.decode(
        b'{"message":"a"}\n' + row + b'\n\n{"message":"b"}', FieldMap()
    )
    assert isinstance(bad, error)
    assert isinstance(first, LogRecord)
    assert isinstance(last, LogRecord)
    assert (first.text, last.text) == (b"a", b"b")


@given(st.lists(st.tuples(st.text(), st.text(max_size=300))))
def test_labels_stay_within_their_limits(pairs: list[tuple[str, str]]) -> None:
    labels: dict[str, str] = {}
    for name, value in pairs:
        add_label(labels, name, value)
    assert len(labels) <= MAX_LABELS
    assert len(json.dumps(labels, ensure_ascii=False, separators=(",", ":")).encode()) <= (
        6 * MAX_METADATA_BYTES  # quotes and control characters are escaped
    )


def test_keys_that_would_become_the_same_are_kept_apart() -> None:
    fields = {"a.b": 1, "a": {"b": 2}}
    assert flat(fields) == fields


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    assert len(mapping.decode(data, FieldMap())) <= data.count(b"\n") + 1


@pytest.mark.parametrize("depth", [8, 250, 260, 900])
def test_a_row_nested_deeper_than_json_is_written_is_kept_whole(depth: int) -> None:
    row = b'{"message": "m", "a": %b1%b}' % (b'{"a":' * depth, b"}" * depth)
    found = record(row)
    assert (found.text, found.attributes) == (row, b"") or json.loads(found.attributes)
    assert depth > 250 or found.text == b"m"
