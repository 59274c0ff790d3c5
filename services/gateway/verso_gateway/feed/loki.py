"""Loki's push API: streams of entries, as JSON or as protobuf in a raw block of Snappy.

Sources: Loki's HTTP API reference, "Ingest logs"; ``pkg/push/push.proto`` of grafana/loki. The
protobuf messages are described here, as no package has them; a line is read as bytes, which on
the wire are the same as a string, so that every byte comes through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cramjam
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from verso_core.errors import BodyTooLarge, RequestInvalid, VersoError
from verso_gateway.feed import times
from verso_gateway.feed.records import (
    Decoded,
    FieldMap,
    LogRecord,
    add_label,
    checked,
    packed,
)
from verso_gateway.feed.values import check_messages, parse_bounded

_JOBS = ("service_name", "job", "app", "service")
"""Labels that say what routes a stream, the first that is there."""
_PAIR = re.compile(r'\s*([A-Za-z_:][A-Za-z0-9_:.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_LABEL_NAMES = {"service_name": "service", "hostname": "host", "filename": "source"}
_SECOND_NS = 1_000_000_000
_ENTRIES = (1, 2)
"""Numbers of the fields that lead to an entry: streams, entries."""


def decode_json(body: bytes, fields: FieldMap) -> list[Decoded]:
    """Return the records of a push as JSON, in order.

    Raises:
        RequestInvalid: the body is no push.
        BodyTooLarge: it has too many values.
    """
    value = parse_bounded(body)
    streams = value.get("streams") if isinstance(value, dict) else None
    if not isinstance(streams, list):
        raise RequestInvalid("expected an object with an array of streams")
    return [record for stream in streams for record in _json_stream(stream, fields)]


def _json_stream(stream: object, fields: FieldMap) -> Iterator[Decoded]:
    labels = stream.get("stream") if isinstance(stream, dict) else None
    values = stream.get("values") if isinstance(stream, dict) else None
    if not isinstance(labels, dict) or not isinstance(values, list):
        yield RequestInvalid("expected a stream with an object stream and an array values")
        return
    if not all(isinstance(value, str) for value in labels.values()):
        yield from (RequestInvalid("expected strings as labels of a stream") for _ in values)
        return
    shared = _Stream(labels, fields)
    for value in values:
        match value:
            case [str() as time, str() as line]:
                yield shared.record(_number(time), line.encode(), {})
            case [str() as time, str() as line, dict() as metadata]:
                yield shared.record(_number(time), line.encode(), metadata)
            case _:
                yield RequestInvalid("expected [time in nanoseconds, line] as strings")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def decode_protobuf(body: bytes, fields: FieldMap, *, most_bytes: int) -> list[Decoded]:
    """Return the records of a push as protobuf in Snappy, in order.

    Args:
        body: a raw block of Snappy.
        fields: which labels records have.
        most_bytes: largest size that the block may have inflated.

    Raises:
        BodyTooLarge: it has more, or too many entries.
        RequestInvalid: the body is no push.
    """
    inflated = _inflated(body, most_bytes)
    check_messages(inflated, _ENTRIES)
    push = PUSH_REQUEST()
    try:
        push.ParseFromString(inflated)
    except DecodeError as exc:
        raise RequestInvalid("expected a PushRequest in protobuf, got other bytes") from exc
    return [record for stream in push.streams for record in _protobuf_stream(stream, fields)]


def inflated_bytes(body: bytes) -> int:
    """Return the size that a raw block of Snappy has inflated.

    Its first bytes say it (format_description.txt of Snappy).
    """
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return size


def _inflated(body: bytes, most_bytes: int) -> bytes:
    size = inflated_bytes(body)
    if size > most_bytes:
        raise BodyTooLarge(f"expected <= {most_bytes} bytes in a block of Snappy, got {size}")
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as exc:
        raise RequestInvalid("expected a raw block of Snappy, got other bytes") from exc


def _protobuf_stream(stream: Any, fields: FieldMap) -> Iterator[Decoded]:
    try:
        shared = _Stream(read_labels(stream.labels), fields)
    except RequestInvalid as error:
        yield from (error for _ in stream.entries)
        return
    for entry in stream.entries:
        time_ns = entry.timestamp.seconds * _SECOND_NS + entry.timestamp.nanos
        metadata = {pair.name: pair.value for pair in entry.structuredMetadata}
        yield shared.record(time_ns, entry.line, metadata)


def read_labels(text: str) -> dict[str, str]:
    r"""Read the labels of a stream: ``{job="web", path="C:\\log"}``.

    Raises:
        RequestInvalid: they are written otherwise.
    """
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        raise RequestInvalid('expected labels as {name="value"}')
    inner, at = inner[1:-1].strip(), 0
    labels: dict[str, str] = {}
    while at < len(inner):
        found = _PAIR.match(inner, at)
        if found is None:
            raise RequestInvalid('expected labels as {name="value", …}')
        labels[found[1]] = _ESCAPE.sub(_unescaped, found[2])
        at = found.end()
    return labels


def _unescaped(found: re.Match[str]) -> str:
    """Return what an escape of Go's strings stands for."""
    name = found[1]
    if len(name) == 1:
        return _ESCAPES.get(name, name)
    code = int(name, 8) if name[0] in "01234567" else int(name[1:], 16)
    return chr(code) if code < 0xD800 or 0xE000 <= code < 0x110000 else "\ufffd"


class _Stream:
    """What the entries of a stream share: its labels, and what of them does not fit."""

    def __init__(self, given: Mapping[str, str], fields: FieldMap) -> None:
        self._labels: dict[str, str] = {}
        self._more: dict[str, Any] = {}
        self._fields = fields
        for name, value in given.items():
            own = _LABEL_NAMES.get(name, name)
            if own in given and own != name:
                own = name
            if not add_label(self._labels, own, value):
                self._more[name] = value
        self._source = next((given[name] for name in _JOBS if given.get(name)), "")

    def record(self, time_ns: int | None, line: bytes, metadata: Mapping[str, Any]) -> Decoded:
        """Return the record of an entry."""
        rest = {**self._more, **metadata}
        labels = self._fields.take_labels(rest, known=self._labels) if rest else self._labels
        when = None if time_ns is None else times.in_range(time_ns)
        if when is None:
            return RequestInvalid("expected a time in nanoseconds since 1970")
        try:
            return checked(
                LogRecord(line, labels, when, attributes=packed(rest), source=self._source)
            )
        except VersoError as error:
            return error


def _push_request() -> Any:
    """Return the class of the message PushRequest."""
    field = descriptor_pb2.FieldDescriptorProto
    messages: Mapping[str, Sequence[tuple[str, int, Any, str]]] = {
        "Timestamp": [("seconds", 1, field.TYPE_INT64, ""), ("nanos", 2, field.TYPE_INT32, "")],
        "Label": [("name", 1, field.TYPE_STRING, ""), ("value", 2, field.TYPE_STRING, "")],
        "Entry": [
            ("timestamp", 1, field.TYPE_MESSAGE, "Timestamp"),
            ("line", 2, field.TYPE_BYTES, ""),
            ("structuredMetadata", 3, field.TYPE_MESSAGE, "*Label"),
        ],
        "Stream": [
            ("labels", 1, field.TYPE_STRING, ""),
            ("entries", 2, field.TYPE_MESSAGE, "*Entry"),
        ],
        "PushRequest": [("streams", 1, field.TYPE_MESSAGE, "*Stream")],
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="verso/loki.proto", package="verso.loki", syntax="proto3"
    )
    for name, rows in messages.items():
        message = file.message_type.add(name=name)
        for label, number, kind, of in rows:
            message.field.add(
                name=label,
                number=number,
                type=kind,
                type_name=f".verso.loki.{of.lstrip('*')}" if of else None,
                label=field.LABEL_REPEATED if of.startswith("*") else field.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("verso.loki.PushRequest"))


PUSH_REQUEST: Any = _push_request()
"""Class of the message that a push is."""
