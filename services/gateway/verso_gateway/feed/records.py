"""A log record, whatever protocol it came by, and how its fields become text, time and labels."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from verso_core.errors import RequestInvalid, TextTooLarge, VersoError
from verso_core.jobs.logs.lines import MAX_LABELS
from verso_core.jobs.logs.records import TimeFrom
from verso_core.texts import MAX_METADATA_BYTES, MAX_TEXT_BYTES
from verso_gateway.feed import times

TEXT_FIELDS = ("message", "log", "msg", "body")
"""Fields of a structured record that its text is looked for in."""
TIME_FIELDS = ("@timestamp", "timestamp", "time", "ts")
"""Fields of a structured record that its time is looked for in."""
_STANDARD: Mapping[str, tuple[str, ...]] = {
    "service": ("service.name", "service", "app"),
    "host": ("host.name", "host.hostname", "host", "hostname"),
    "level": ("log.level", "level", "severity", "severity_text"),
    "source": ("log.file.path", "source", "filename", "file"),
}
"""Labels that every record may have, and the attributes that say them, the first that is there."""
MOST_RECORDS = 100_000
"""Most records of one request: as objects they take many times the bytes of a small one."""
_MAX_DEPTH = 8
_BASE64 = "_base64"
_LONGEST_VALUE = 256


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One log record.

    Attributes:
        text: the exact bytes of its body.
        labels: of its stream.
        time_ns: Unix nanoseconds; None if it has none.
        time_from: whose time that is.
        attributes: everything else that it says, JSON of an object; empty if there is nothing.
        source: the name that routes it: an index, a service, a job.
        identity: by which a repeat is recognised; None if it has none.
    """

    text: bytes
    labels: Mapping[str, str] = field(default_factory=dict)
    time_ns: int | None = None
    time_from: TimeFrom = TimeFrom.SENDER
    attributes: bytes = b""
    source: str = ""
    identity: str | None = None


Decoded = LogRecord | VersoError
"""A record, or why there is none at its position."""


@dataclass(frozen=True, slots=True)
class FieldMap:
    """Which fields of a structured record are its text, its time and its labels.

    ``offset_s`` is the zone of times without one, seconds east of UTC. ``encoded``: the text may be
    base64, in a field of its name and ``_base64``. ``keeps_whole``: whether the text of a source's
    records is all of them.
    """

    text: tuple[str, ...] = TEXT_FIELDS
    time: tuple[str, ...] = TIME_FIELDS
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(_STANDARD))
    offset_s: int = 0
    encoded: bool = False
    keeps_whole: Callable[[str], bool] = lambda _source: False

    def with_labels(self, names: Iterable[str]) -> FieldMap:
        """Return the map with more labels, each the attribute of its name."""
        return replace(self, labels={**self.labels, **{name: (name,) for name in names}})

    def record(self, fields: Mapping[str, Any], raw: bytes, *, source: str = "") -> LogRecord:
        """Return the record of a JSON object.

        Args:
            fields: the object.
            raw: its bytes as they came, the text of a record without a field for it.
            source: what routes it.

        Raises:
            TextTooLarge: the text passes the limit of a text.
            RequestInvalid: it should be base64 and is not.
        """
        rest = flat(fields)
        names = () if self.keeps_whole(source) else self.text
        text = next((name for name in names if isinstance(rest.get(name), str)), None)
        body = raw if text is None else rest.pop(text).encode()
        if text is None and self.encoded:
            text = next((n for n in self.text if isinstance(rest.get(n + _BASE64), str)), None)
            body = raw if text is None else _unpacked(rest.pop(text + _BASE64))
        time_ns = None
        for name in self.time:
            time_ns = times.nanoseconds(rest.get(name), offset_s=self.offset_s)
            if time_ns is not None:
                del rest[name]
                break
        labels = self.take_labels(rest)
        try:
            attributes = b"" if text is None else packed(rest)
        except RequestInvalid:  # nothing of a record is cut: it is kept whole
            body, attributes = raw, b""
        return checked(
            LogRecord(body, labels, time_ns, attributes=attributes, source=source),
        )

    def take_labels(
        self, rest: dict[str, Any], *, known: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Move the labels out of a record's attributes.

        Args:
            rest: the attributes.
            known: labels that the record has already, which are kept.
        """
        labels = dict(known or {})
        for name, fields in self.labels.items():
            if name in labels:
                continue
            for one in fields:
                if one in rest and (value := _label(rest[one])):
                    if not add_label(labels, name, value.lower() if name == "level" else value):
                        return labels
                    del rest[one]
                    break
        return labels


def add_label(labels: dict[str, str], name: str, value: str) -> bool:
    """Add a label if the stream may have it; return whether it does."""
    if not name or len(labels) >= MAX_LABELS:
        return False
    size = len(name) + len(value) + sum(map(len, labels)) + sum(map(len, labels.values()))
    if 4 * size + 8 * MAX_LABELS > MAX_METADATA_BYTES:  # else it fits whatever the letters are
        pairs = [*labels.items(), (name, value)]
        size = sum(len(key.encode()) + len(one.encode()) + 8 for key, one in pairs)
        if size > MAX_METADATA_BYTES:
            return False
    labels[name] = value
    return True


def checked(record: LogRecord) -> LogRecord:
    """Check the size of a record and return the record.

    Raises:
        TextTooLarge: text and attributes together pass the limit of a text.
    """
    size = len(record.text) + len(record.attributes)
    if size > MAX_TEXT_BYTES - 1024:  # the time, and what is escaped
        raise TextTooLarge(f"expected a record of <= {MAX_TEXT_BYTES - 1024} bytes, got {size}")
    return record


def flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object whose nested keys are joined by dots.

    One in which two keys would become the same stays as it is, and so does what is nested deeper
    than eight objects.
    """
    found: dict[str, Any] = {}
    return found if _flatten(fields, "", _MAX_DEPTH, into=found) else dict(fields)


def _flatten(fields: Mapping[str, Any], prefix: str, depth: int, *, into: dict[str, Any]) -> bool:
    """Add fields by their joined names; return whether all names differ."""
    for name, value in fields.items():
        place = prefix + name
        if type(value) is dict and value and depth > 1:
            if not _flatten(value, f"{place}.", depth - 1, into=into):
                return False
        elif place in into:
            return False
        else:
            into[place] = value
    return True


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise RequestInvalid("expected base64 as text") from exc


def packed(attributes: Mapping[str, Any]) -> bytes:
    """Return attributes as JSON; empty without any.

    Raises:
        RequestInvalid: they are nested deeper than JSON is written, or hold an integer of more
            than 64 bits.
    """
    return as_json(attributes) if attributes else b""


def as_json(value: Any, *, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as JSON; ``default`` turns what JSON has no form of into what it has.

    Raises:
        RequestInvalid: as :func:`packed`.
    """
    try:
        return orjson.dumps(value, default=default)
    except orjson.JSONEncodeError as exc:
        raise RequestInvalid(f"expected a value that JSON can hold: {exc}") from exc


def _label(value: object) -> str | None:
    """Return an attribute as the value of a label; None for one that is no short scalar."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() if len(value) <= _LONGEST_VALUE:
            return value
        case int() | float():
            return str(value)
    return None
