"""OTLP logs, as protobuf and as JSON."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as Sent

from verso_core.errors import BodyTooLarge, RequestInvalid
from verso_core.jobs.logs.records import TimeFrom
from verso_gateway.bodies.reading import MOST_LISTED
from verso_gateway.feed import otlp
from verso_gateway.feed.records import MOST_RECORDS, FieldMap, LogRecord

NAMES = st.sampled_from(["service.name", "host.name", "level", "a", "a.b"]) | st.text(max_size=8)
LEAVES = (
    st.builds(lambda value: AnyValue(string_value=value), st.text(max_size=20))
    | st.builds(lambda value: AnyValue(bool_value=value), st.booleans())
    | st.builds(lambda value: AnyValue(int_value=value), st.integers(-(2**63), 2**63 - 1))
    | st.builds(lambda value: AnyValue(double_value=value), st.floats())
    | st.builds(lambda value: AnyValue(bytes_value=value), st.binary(max_size=20))
)


def array(values: list[AnyValue]) -> AnyValue:
    return AnyValue(array_value={"values": values})  # type: ignore[arg-type]


def pairs(values: dict[str, AnyValue]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in values.items()]


def kvlist(values: dict[str, AnyValue]) -> AnyValue:
    return AnyValue(kvlist_value={"values": pairs(values)})  # type: ignore[arg-type]


VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(array)
        | st.dictionaries(NAMES, inner, max_size=3).map(kvlist)
    ),
    max_leaves=5,
)
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=4).map(pairs)
RECORDS = st.builds(
    Sent,
    time_unix_nano=st.integers(0, 2**64 - 1),
    observed_time_unix_nano=st.integers(0, 2**64 - 1),
    severity_number=st.integers(0, 24),
    severity_text=st.sampled_from(["", "Warn", "ERROR"]),
    body=VALUES,
    attributes=ATTRIBUTES,
    trace_id=st.sampled_from([b"", bytes(range(16))]),
    span_id=st.sampled_from([b"", bytes(range(8))]),
    flags=st.integers(0, 255),
)


@st.composite
def requests(draw: st.DrawFn) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    part = request.resource_logs.add()
    part.resource.attributes.extend(draw(ATTRIBUTES))
    scoped = part.scope_logs.add()
    scoped.scope.name = draw(st.sampled_from(["", "scope"]))
    scoped.log_records.extend(draw(st.lists(RECORDS, max_size=4)))
    return request


def as_json(request: ExportLogsServiceRequest) -> bytes:
    """Write a request as the JSON of OTLP, whose ids are hexadecimal and enums numbers."""
    value: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    for part in value.get("resourceLogs", ()):
        for scoped in part.get("scopeLogs", ()):
            for record in scoped.get("logRecords", ()):
                for name in ("traceId", "spanId"):
                    if name in record:
                        record[name] = base64.b64decode(record[name]).hex()
    return json.dumps(value).encode()


@given(requests())
def test_both_forms_are_read_as_the_same_records(request: ExportLogsServiceRequest) -> None:
    plain = otlp.decode_protobuf(request.SerializeToString(), FieldMap())
    assert otlp.decode_json(as_json(request), FieldMap()) == plain
    sent = [
        record
        for part in request.resource_logs
        for scoped in part.scope_logs
        for record in scoped.log_records
    ]
    for record, one in zip(plain, sent, strict=True):
        assert isinstance(record, LogRecord)
        if one.body.HasField("string_value"):
            assert record.text == one.body.string_value.encode()
        if one.body.HasField("bytes_value"):
            assert record.text == one.body.bytes_value
        if 0 < one.time_unix_nano < 2**63:
            assert (record.time_ns, record.time_from) == (one.time_unix_nano, TimeFrom.SENDER)


def test_what_a_record_says_is_in_its_labels_and_attributes() -> None:
    request = ExportLogsServiceRequest()
    part = request.resource_logs.add()
    part.resource.attributes.extend(
        pairs(
            {
                "service.name": AnyValue(string_value="shop"),
                "host.name": AnyValue(string_value="web-1"),
                "sdk": AnyValue(string_value="python"),
                "process.pid": AnyValue(int_value=7),
            }
        )
    )
    scoped = part.scope_logs.add()
    scoped.scope.name = "app"
    scoped.log_records.add(
        time_unix_nano=5,
        severity_number=13,
        body=AnyValue(string_value="disk full"),
        attributes=pairs(
            {
                "log.record.uid": AnyValue(string_value="01H"),
                "process.pid": AnyValue(int_value=8),
                "code": array([AnyValue(int_value=1)]),
            }
        ),
        trace_id=bytes(15) + b"\1",
    )
    [record] = otlp.decode_protobuf(request.SerializeToString(), FieldMap())
    assert isinstance(record, LogRecord)
    assert record.labels == {"service": "shop", "host": "web-1", "sdk": "python", "level": "warn"}
    assert (record.source, record.identity) == ("shop", "01H")
    assert json.loads(record.attributes) == {
        "process.pid": 7,
        "scope.name": "app",
        "log.record.uid": "01H",
        "code": [1],
        "record.process.pid": 8,
        "severity_number": 13,
        "trace_id": "0" * 31 + "1",
    }


def test_the_time_is_the_senders_else_the_observed_else_none() -> None:
    def read(**times: int) -> tuple[int | None, TimeFrom]:
        request = ExportLogsServiceRequest()
        request.resource_logs.add().scope_logs.add().log_records.add(**times)
        [record] = otlp.decode_protobuf(request.SerializeToString(), FieldMap())
        assert isinstance(record, LogRecord)
        return record.time_ns, record.time_from

    assert read(time_unix_nano=1, observed_time_unix_nano=2) == (1, TimeFrom.SENDER)
    assert read(observed_time_unix_nano=2) == (2, TimeFrom.OBSERVED)
    assert read(time_unix_nano=2**63) == (None, TimeFrom.ARRIVAL)


def test_a_body_that_is_an_object_has_its_text_in_a_field() -> None:
    request = ExportLogsServiceRequest()
    body = kvlist({"msg": AnyValue(string_value="x"), "n": AnyValue(int_value=1)})
    request.resource_logs.add().scope_logs.add().log_records.add(body=body)
    [record] = otlp.decode_protobuf(request.SerializeToString(), FieldMap())
    assert isinstance(record, LogRecord)
    assert (record.text, record.attributes) == (b"x", b'{"n":1}')


def test_a_string_that_is_no_utf8_keeps_its_bytes_and_costs_nothing() -> None:
    request = ExportLogsServiceRequest()
    scoped = request.resource_logs.add().scope_logs.add()
    bad = AnyValue(string_value="XX")
    for body in (AnyValue(string_value="first"), bad, kvlist({"msg": bad})):
        scoped.log_records.add(body=body, attributes=pairs({"a": bad}), severity_text="XX")
    data = request.SerializeToString().replace(b"XX", b"\xe9\xff")
    found = otlp.decode_protobuf(data, FieldMap())
    assert [one.text for one in found if isinstance(one, LogRecord)] == [
        b"first",
        b"\xe9\xff",
        b"\xe9\xff",
    ]
    for one in found:
        assert isinstance(one, LogRecord)
        assert json.loads(one.attributes) == {"a": base64.b64encode(b"\xe9\xff").decode()}
        assert one.labels == {"level": "\\xe9\\xff"}


def test_a_request_of_too_many_records_is_refused_before_it_is_read() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.extend([Sent()] * MOST_RECORDS)
    assert len(otlp.decode_protobuf(request.SerializeToString(), FieldMap())) == MOST_RECORDS
    records.add()
    with pytest.raises(BodyTooLarge):
        otlp.decode_protobuf(request.SerializeToString(), FieldMap())


def test_a_bad_record_costs_itself() -> None:
    records: list[object] = [
        {"body": {"stringValue": "a"}},
        {"body": {"stringValue": 1}},
        7,
        {"timeUnixNano": "soon"},
        {"attributes": [{"key": 1}]},
        {"body": {"stringValue": "b"}, "attributes": None, "unknown": []},
    ]
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    found = otlp.decode_json(json.dumps(body).encode(), FieldMap())
    assert [isinstance(one, LogRecord) for one in found] == [True, False, False, False, False, True]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"resourceLogs": 1}', b"{"])
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(RequestInvalid):
        otlp.decode_json(body, FieldMap())


@given(st.binary())
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    with contextlib.suppress(RequestInvalid):
        assert isinstance(otlp.decode_protobuf(data, FieldMap()), list)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("resourceLogs", "scopeLogs", "logRecords", "resource", "scope"),
                    *("attributes", "body", "key", "value", "values", "stringValue"),
                    *("kvlistValue", "arrayValue", "intValue"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(JSON_VALUES)
def test_any_json_is_a_request_or_refused(value: object) -> None:
    with contextlib.suppress(RequestInvalid):
        assert isinstance(otlp.decode_json(json.dumps(value).encode(), FieldMap()), list)


def nested(kind: str, depth: int) -> bytes:
    """Write a value; the parser takes more levels than the standard library writes."""
    begin, end = b'{"%b": {"values": [' % kind.encode(), b"]}}"
    if kind == "kvlistValue":
        begin, end = begin + b'{"key": "a", "value": ', b"}" + end
    return begin * depth + b'{"stringValue": "x"}' + end * depth


def with_records(*records: bytes) -> bytes:
    return b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [%b]}]}]}' % b", ".join(records)


@pytest.mark.parametrize(
    "value",
    [nested("arrayValue", 240), nested("kvlistValue", 240), b'{"intValue": "%b"}' % (b"9" * 20)],
    ids=["arrays", "objects", "integer"],
)
def test_a_value_that_no_json_holds_costs_its_record(value: bytes) -> None:
    body = with_records(
        b'{"body": {"stringValue": "first"}}',
        b'{"body": {"kvlistValue": {"values": [{"key": "a", "value": %b}]}}}' % value,
        b'{"body": {"stringValue": "m"}, "attributes": [{"key": "a", "value": %b}]}' % value,
        b'{"body": {"stringValue": "last"}}',
    )
    found = otlp.decode_json(body, FieldMap())
    assert [isinstance(one, LogRecord) for one in found] == [True, False, False, True]


def test_values_may_be_nested_as_deep_as_in_protobuf() -> None:
    body = with_records(
        *(b'{"body": %b}' % nested(kind, 30) for kind in ("kvlistValue", "arrayValue"))
    )
    assert all(isinstance(one, LogRecord) for one in otlp.decode_json(body, FieldMap()))


def test_a_body_with_too_many_values_is_refused_before_it_is_read() -> None:
    body = b'{"resourceLogs": [%b 1]}' % (b"[]," * (MOST_LISTED + 2048))
    with pytest.raises(BodyTooLarge):
        otlp.decode_json(body, FieldMap())
