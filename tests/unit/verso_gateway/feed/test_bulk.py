"""Elasticsearch's bulk API."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import BodyTooLarge, IdInvalid, KindUnsupported, RequestInvalid
from verso_gateway.feed import bulk
from verso_gateway.feed.records import MOST_RECORDS, FieldMap, LogRecord


def body(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["index", "create"]),
            st.from_regex(r"[a-z]{1,8}", fullmatch=True),
            st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
            st.text(st.characters(codec="utf-8")),
        )
    )
)
def test_actions_come_in_order(rows: list[tuple[str, str, str | None, str]]) -> None:
    sent: list[object] = []
    for name, index, identity, text in rows:
        sent += [{name: {"_index": index, "_id": identity}}, {"message": text}]
    found = bulk.decode(body(*sent), FieldMap())
    read = []
    for action in found:
        assert isinstance(action.decoded, LogRecord)
        assert action.decoded.source == action.index
        read.append((action.name, action.index, action.identity, action.decoded.text.decode()))
    assert read == rows


def test_what_stands_beside_an_action_is_ignored_and_a_second_action_is_none() -> None:
    found = bulk.decode(
        body({"index": {"_index": "a"}, "attempts": 0}, {"message": "x"}), FieldMap()
    )
    assert [(action.name, action.index) for action in found] == [("index", "a")]
    with pytest.raises(RequestInvalid):
        bulk.decode(body({"index": {}, "create": {}}, {"message": "x"}), FieldMap(), index="a")


def test_blank_lines_and_a_missing_line_end_do_not_matter() -> None:
    data = b'\n{"index":{}}\r\n\n{"message":"a"}\r\n  \n{"create":{}}\n{"message":"b"}'
    found = bulk.decode(data, FieldMap(), index="logs-x")
    assert [action.name for action in found] == ["index", "create"]
    assert {action.index for action in found} == {"logs-x"}


def test_a_bad_item_costs_itself() -> None:
    data = (
        body({"index": {}}, {"message": "a"}, {"update": {"_id": "1"}}, {"doc": {}})
        + body({"delete": {"_id": "1"}}, {"index": {}})
        + b"{not json\n"
        + body({"create": {"_id": "x" * 257}}, {}, {"create": {"_id": 7}}, {"message": "b"})
    )
    found = [action.decoded for action in bulk.decode(data, FieldMap(), index="i")]
    assert [type(one) for one in found] == [
        LogRecord, KindUnsupported, KindUnsupported, RequestInvalid, IdInvalid, LogRecord,
    ]  # fmt: skip


def test_an_item_without_an_index_is_refused() -> None:
    [action] = bulk.decode(body({"index": {}}, {}), FieldMap())
    assert isinstance(action.decoded, RequestInvalid)


@pytest.mark.parametrize(
    "data",
    [b"x\n", b'{"index":{},"create":{}}\n{}\n', b'{"put":{}}\n{}\n', b'{"index":{}}\n', b"[]\n"],
)
def test_what_is_no_action_ends_the_request(data: bytes) -> None:
    with pytest.raises(RequestInvalid):
        bulk.decode(data, FieldMap(), index="i")


@given(st.lists(st.sampled_from([b'{"index":{}}', b"{}", b"", b"{", b'{"delete":{}}', b"\xff"])))
def test_any_lines_are_actions_or_refused(rows: list[bytes]) -> None:
    with contextlib.suppress(RequestInvalid):
        assert len(bulk.decode(b"\n".join(rows), FieldMap(), index="i")) <= len(rows)


def test_a_body_of_very_many_lines_is_refused_before_they_are_objects() -> None:
    with pytest.raises(BodyTooLarge):
        bulk.decode(b"\n" * (2 * MOST_RECORDS + 1), FieldMap())
