"""OTLP/HTTP logs: ``ExportLogsServiceRequest`` as protobuf or JSON.

Source: OpenTelemetry protocol specification, "OTLP/HTTP"; ``logs.proto`` and ``common.proto`` of
opentelemetry-proto. In JSON names are lowerCamelCase, 64-bit integers are strings (or numbers), ids
are hexadecimal and enums are numbers; what is unknown is ignored.

Both forms are read as the same plain values: an object for each record, with the names of JSON.
Strings of protobuf are read as bytes, which on the wire are the same: agents send what stands in a
file, and a parser of strings would refuse a whole request for one byte that is no UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

from verso_core.errors import RequestInvalid, VersoError
from verso_core.jobs.logs.records import TimeFrom
from verso_gateway.feed import times
from verso_gateway.feed.records import (
    Decoded,
    FieldMap,
    LogRecord,
    add_label,
    as_json,
    checked,
    flat,
)
from verso_gateway.feed.values import check_messages, parse_bounded

UID = "log.record.uid"
"""Attribute that identifies a record (semantic conventions, "General logs attributes")."""
_SERVICE = "service.name"
_LEVELS = ("trace", "debug", "info", "warn", "error", "fatal")
_SCOPE = ("name", "version")
_MAX_DEPTH = 32  # as protobuf allows, whose parser stops at 100 messages
_RECORDS = (1, 2, 2)
"""Numbers of the fields that lead to a record: resource_logs, scope_logs, log_records."""
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Numbers that JSON has no form of, as protobuf's JSON writes them."""


def decode_protobuf(body: bytes, fields: FieldMap) -> list[Decoded]:
    """Return the records of a request in protobuf, in order.

    Raises:
        RequestInvalid: the body is no request.
        BodyTooLarge: it has too many records.
    """
    check_messages(body, _RECORDS)
    request = _REQUEST()
    try:
        request.ParseFromString(body)
    except DecodeError as exc:
        raise RequestInvalid("expected an ExportLogsServiceRequest in protobuf") from exc
    found: list[Decoded] = []
    for part in request.resource_logs:
        resource = _attributes(part.resource.attributes)
        for scoped in part.scope_logs:
            shared = _Shared(resource, _scope_of(scoped.scope), fields)
            found += (shared.decoded(_fields(record)) for record in scoped.log_records)
    return found


def decode_json(body: bytes, fields: FieldMap) -> list[Decoded]:
    """Return the records of a request in JSON, in order.

    Raises:
        RequestInvalid: the body is no request.
        BodyTooLarge: it has too many values.
    """
    value = parse_bounded(body)
    if not isinstance(value, dict):
        raise RequestInvalid("expected an object with resourceLogs")
    return [record for part in _list(value, "resourceLogs") for record in _part(part, fields)]


def _part(part: Any, fields: FieldMap) -> Iterator[Decoded]:
    for scoped in _list(part, "scopeLogs"):
        try:
            scope = _object(scoped, "scope")
            about = {f"scope.{name}": scope[name] for name in _SCOPE if scope.get(name)}
            resource = _json_attributes(_object(part, "resource"))
            shared = _Shared(resource, about | _json_attributes(scope), fields)
        except RequestInvalid as error:
            yield from (error for _ in _list(scoped, "logRecords"))
            continue
        for record in _list(scoped, "logRecords"):
            try:
                yield shared.decoded(_json_fields(record))
            except RequestInvalid as error:
                yield error


class _Raw(bytes):
    """A string of protobuf that is no UTF-8: exact as a text, base64 among attributes."""


class _Shared:
    """What the records of a scope share: the labels, and attributes that are no labels."""

    def __init__(
        self, resource: Mapping[str, Any], scope: Mapping[str, Any], fields: FieldMap
    ) -> None:
        self._fields = fields
        rest = flat(resource)
        service = rest.get(_SERVICE)
        self._source = service if isinstance(service, str) else ""
        self._whole = (
            {"resource": resource, "scope": scope} if fields.keeps_whole(self._source) else None
        )
        self._labels = fields.take_labels(rest)
        for name in [*rest]:
            if isinstance(rest[name], str) and add_label(self._labels, name, rest[name]):
                del rest[name]
        self._more = {**rest, **flat(scope)}

    def decoded(self, record: Mapping[str, Any]) -> Decoded:
        """Return a record of plain values as one of ours."""
        try:
            return self._record(record)
        except VersoError as error:
            return error

    def _record(self, record: Mapping[str, Any]) -> LogRecord:
        rest = flat(record["attributes"])
        identity = rest.get(UID)
        rest = _joined({**self._more, **_about(record)}, rest, prefix="record")
        text, more = self._body(record["body"])
        rest = _joined(rest, more, prefix="body") if more else rest
        labels = self._fields.take_labels(rest, known=self._labels)
        if "level" not in labels and (level := _level(record)):
            add_label(labels, "level", level)
        if self._whole is not None:
            sent = {name: value for name, value in record.items() if value}
            text, rest = as_json({**self._whole, **sent}, default=_base64), {}
        elif text is None:  # an event is its name and its attributes
            text, rest = _packed(rest), {}
        time_ns, time_from = _time(record)
        return checked(
            LogRecord(
                text,
                labels,
                time_ns,
                time_from,
                attributes=_packed(rest),
                source=self._source,
                identity=identity if isinstance(identity, str) and identity else None,
            )
        )

    def _body(self, body: Any) -> tuple[bytes | None, dict[str, Any]]:
        """Return a body's text and its other fields; no text of a record without a body."""
        match body:
            case None:
                return None, {}
            case str():
                return body.encode(), {}
            case bytes():
                return body, {}
            case dict():
                rest = flat(body)
                texts = (n for n in self._fields.text if isinstance(rest.get(n), (str, _Raw)))
                if (name := next(texts, None)) is not None:
                    text = rest.pop(name)
                    return text.encode() if isinstance(text, str) else text, rest
        return as_json(body, default=_base64), {}


def _joined(first: Mapping[str, Any], second: Mapping[str, Any], *, prefix: str) -> dict[str, Any]:
    """Return the attributes of both; a name of the second that the first has gets a prefix."""
    found = dict(first)
    for name, value in second.items():
        place = name
        while place in found or (place != name and place in second):
            place = f"{prefix}.{place}"
        found[place] = value
    return found


def _about(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says besides its attributes, as attributes."""
    return {
        name: record[field]
        for name, field in (
            ("severity_number", "severityNumber"),
            ("trace_id", "traceId"),
            ("span_id", "spanId"),
            ("trace_flags", "flags"),
            ("event_name", "eventName"),
        )
        if record[field]
    }


def _time(record: Mapping[str, Any]) -> tuple[int | None, TimeFrom]:
    if (sent := record["timeUnixNano"]) and times.in_range(sent) is not None:
        return sent, TimeFrom.SENDER
    if (observed := record["observedTimeUnixNano"]) and times.in_range(observed) is not None:
        return observed, TimeFrom.OBSERVED
    return None, TimeFrom.ARRIVAL


def _level(record: Mapping[str, Any]) -> str:
    """Return the level of a record; of its number alone the short name (SeverityNumber)."""
    text, number = record["severityText"], record["severityNumber"]
    if text:
        return str(text).lower()
    return _LEVELS[(number - 1) // 4] if 1 <= number <= 24 else ""


def _scope_of(scope: Any) -> dict[str, Any]:
    named = {name: _name(getattr(scope, name)) for name in _SCOPE}
    about = {f"scope.{name}": value for name, value in named.items() if value}
    return about | _attributes(scope.attributes)


def _fields(record: Any) -> dict[str, Any]:
    """Return a record of protobuf as plain values."""
    return {
        "timeUnixNano": record.time_unix_nano,
        "observedTimeUnixNano": record.observed_time_unix_nano,
        "severityNumber": record.severity_number,
        "severityText": _name(record.severity_text),
        "body": _value(record.body) if record.HasField("body") else None,
        "attributes": _attributes(record.attributes),
        "flags": record.flags,
        "traceId": record.trace_id.hex(),
        "spanId": record.span_id.hex(),
        "eventName": _name(record.event_name),
    }


def _attributes(pairs: Any) -> dict[str, Any]:
    return {_name(pair.key): _jsonable(_value(pair.value)) for pair in pairs}


def _name(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _value(value: Any) -> Any:
    """Return an AnyValue of protobuf as a plain value."""
    match value.WhichOneof("value"):
        case None:
            return None
        case "string_value":
            try:
                return value.string_value.decode()
            except UnicodeDecodeError:
                return _Raw(value.string_value)
        case "double_value":
            return _finite(value.double_value)
        case "array_value":
            return [_jsonable(_value(one)) for one in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case name:
            return getattr(value, name)


def _json_fields(record: Any) -> dict[str, Any]:
    """Return a record of JSON as plain values.

    Raises:
        RequestInvalid: it is no record.
    """
    if not isinstance(record, dict):
        raise RequestInvalid(f"expected an object as log record, got {type(record).__name__}")
    body = record.get("body")
    found: dict[str, Any] = {
        "timeUnixNano": _integer(record, "timeUnixNano"),
        "observedTimeUnixNano": _integer(record, "observedTimeUnixNano"),
        "severityNumber": _integer(record, "severityNumber"),
        "flags": _integer(record, "flags"),
        "body": None if body is None else _json_value(body, 0),
        "attributes": _json_attributes(record),
    }
    for name in ("severityText", "traceId", "spanId", "eventName"):
        value = record.get(name) or ""
        if not isinstance(value, str):
            raise RequestInvalid(f"expected a string as {name}, got {type(value).__name__}")
        found[name] = value
    return found


def _integer(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name) or 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 21:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestInvalid(f"expected an integer as {name}, got {type(value).__name__}")
    return value


def _json_attributes(holder: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    found = {}
    for pair in _list(holder, "attributes"):
        key = (
            pair.get("key", "") if isinstance(pair, dict) else None
        )  # what is empty may be left out
        if not isinstance(key, str):
            raise RequestInvalid("expected objects with key and value as attributes")
        found[key] = _jsonable(_json_value(pair.get("value"), depth))
    return found


def _json_value(value: Any, depth: int) -> Any:
    """Return an AnyValue of JSON as a plain value.

    Raises:
        RequestInvalid: it is none.
    """
    if value is None or value == {}:
        return None
    if not isinstance(value, dict) or len(value) != 1 or depth > _MAX_DEPTH:
        raise RequestInvalid("expected an object such as {stringValue: …} as a value")
    [(kind, inner)] = value.items()
    match kind, inner:
        case ("stringValue", str()) | ("boolValue", bool()):
            return inner
        case "intValue", _:
            return _signed(inner)
        case ("doubleValue", int() | float()):
            return inner
        case ("doubleValue", str()) if inner in _NOT_FINITE.values():
            return inner
        case "bytesValue", str():
            return _from_base64(inner)
        case "arrayValue", dict():
            return [_jsonable(_json_value(one, depth + 1)) for one in _list(inner, "values")]
        case "kvlistValue", dict():
            return _json_attributes({"attributes": _list(inner, "values")}, depth + 1)
    raise RequestInvalid(f"expected a value of its kind in {kind[:32]!a}")


def _signed(value: object) -> int:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 21:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestInvalid("expected an integer, or one as a string, as intValue")
    return value


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else _NOT_FINITE[str(value)]


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise RequestInvalid("expected base64 as bytesValue") from exc


def _list(holder: Any, name: str) -> Sequence[Any]:
    """Return an array of an object; empty where there is none.

    Raises:
        RequestInvalid: it is another value.
    """
    value = holder.get(name) if isinstance(holder, dict) else ()
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise RequestInvalid(f"expected an array as {name}, got {type(value).__name__}")
    return value


def _object(holder: Any, name: str) -> Mapping[str, Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def _jsonable(value: Any) -> Any:
    return _base64(value) if type(value) is bytes else value


def _packed(attributes: Mapping[str, Any]) -> bytes:
    return as_json(attributes, default=_base64) if attributes else b""


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def _request() -> Any:
    """Return the class of a request whose strings are bytes."""
    pool = descriptor_pool.DescriptorPool()
    for module in (common_pb2, resource_pb2, logs_pb2, logs_service_pb2):
        file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for message in file.message_type:
            for field in message.field:
                if field.type == field.TYPE_STRING:
                    field.type = field.TYPE_BYTES
        pool.Add(file)
    name = logs_service_pb2.ExportLogsServiceRequest.DESCRIPTOR.full_name
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


_REQUEST: Any = _request()
