"""Syslog: messages of RFC 5424 and RFC 3164, and how they are separated on a stream.

On TCP a message ends with a line feed or is preceded by its length (RFC 6587, sections 3.4.2 and
3.4.1); which of both is seen from its first byte: a digit or ``<``. A line feed that ends a counted
message is dropped, as rsyslog and syslog-ng count one that nobody wrote. A message that follows
neither format is kept as it came, with the label ``malformed``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

from verso_core.errors import TextTooLarge, VersoError
from verso_gateway.feed import times
from verso_gateway.feed.records import Decoded, LogRecord, checked, packed

MAX_MESSAGE_BYTES = 256 * 1024
"""Longest message; RFC 5424, section 6.1, asks for 2 KiB."""

_LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron"),
    *("authpriv", "ftp", "ntp", "audit", "alert", "clock"),
    *(f"local{number}" for number in range(8)),
)
_BOM = b"\xef\xbb\xbf"
_WORD = rb"[!-~]"
# HEADER of RFC 5424, section 6: PRI VERSION SP TIMESTAMP SP HOSTNAME SP APP-NAME SP PROCID SP MSGID
_HEAD_5424 = re.compile(
    rb"<(\d{1,3})>1 (-|[0-9T:.Z+-]{20,40}) (%b{1,255}) (%b{1,48}) (%b{1,128}) (%b{1,32}) "
    % (_WORD, _WORD, _WORD, _WORD)
)
_ELEMENT = re.compile(rb'\[([!-~]{1,64}?)((?: [!-~]+?="(?:[^"\\\]]|\\.)*+")*+)\]', re.DOTALL)
_PARAMETER = re.compile(rb' ([!-~]+?)="((?:[^"\\\]]|\\.)*+)"', re.DOTALL)
_UNESCAPED = re.compile(r'\\(["\\\]])')
# RFC 3164, section 4.1: PRI, "Mmm dd hh:mm:ss" or, as rsyslog writes too, RFC 3339, then a host
_HEAD_3164 = re.compile(
    rb"<(\d{1,3})>(?:([A-Z][a-z]{2} [ 0-3]\d \d\d:\d\d:\d\d)|(\d{4}-[0-9T:.Z+-]{16,31})) "
    rb"(?:([!-~]{1,255}) )?"
)
_PRIORITY = re.compile(rb"<(\d{1,3})>")
_TAG = re.compile(rb"([!-Z^-~]{1,64}?)(?:\[([!-~]{1,64}?)\])?:(?: |$)")
_LENGTH = re.compile(rb"([1-9]\d{0,9}) ")

_Value = str | list[str] | None


def parse(message: bytes, *, now: datetime, offset_s: int = 0) -> Decoded:
    """Return the record of one message.

    Args:
        message: the message, without its frame.
        now: gives the year of RFC 3164, which writes none.
        offset_s: zone of its times, seconds east of UTC.
    """
    try:
        return checked(
            _parse_5424(message)
            or _parse_3164(message, now, timezone(timedelta(seconds=offset_s)))
            or LogRecord(message, {"malformed": "syslog"})
        )
    except VersoError as error:
        return error


def _parse_5424(message: bytes) -> LogRecord | None:
    head = _HEAD_5424.match(message)
    if head is None or (priority := _priority(head[1])) is None:
        return None
    data = _structured_data(message, head.end())
    if data is None:
        return None
    elements, end = data
    time_ns = times.nanoseconds(head[2].decode()) if head[2] != b"-" else None
    if time_ns is None and head[2] != b"-":
        return None
    host, app, process, message_id = (_field(head[number]) for number in (3, 4, 5, 6))
    text = message[end + 1 :].removeprefix(_BOM)
    more = {"process_id": process, "message_id": message_id} | elements
    return _record(text, priority, host, app, time_ns, more)


def _structured_data(message: bytes, at: int) -> tuple[dict[str, _Value], int] | None:
    """Return the parameters of STRUCTURED-DATA (section 6.3) as ``element.name``, and its end.

    A parameter that stands more than once has a list of values.
    """
    if message[at : at + 1] == b"-":
        return ({}, at + 1) if message[at + 1 : at + 2] in (b"", b" ") else None
    found: dict[str, _Value] = {}
    while (element := _ELEMENT.match(message, at)) is not None:
        name = element[1].decode()
        parameters = _PARAMETER.findall(element[2])
        if not parameters:
            found[name] = ""
        for key, value in parameters:
            text = _UNESCAPED.sub(r"\1", value.decode("utf-8", "backslashreplace"))
            place = f"{name}.{key.decode()}"
            match found.get(place):
                case None:
                    found[place] = text
                case str() as first:
                    found[place] = [first, text]
                case list() as values:
                    values.append(text)
        at = element.end()
    return (found, at) if found and message[at : at + 1] in (b"", b" ") else None


def _parse_3164(message: bytes, now: datetime, zone: timezone) -> LogRecord | None:
    head = _HEAD_3164.match(message)
    if head is None:
        local = _PRIORITY.match(message)
        if local is None or (priority := _priority(local[1])) is None:
            return None
        return _tagged(message[local.end() :], priority, None, None)
    priority = _priority(head[1])
    time_ns = (
        _without_year(head[2].decode(), now, zone)
        if head[2]
        else times.nanoseconds(head[3].decode(), offset_s=int(_offset_s(zone)))
    )
    if priority is None or time_ns is None:
        return None
    host, rest = head[4] or b"", message[head.end() :]
    # `logger` and others leave the host out on a local socket: what is taken for it is the tag
    if _TAG.fullmatch(host):
        host, rest = b"", host + b" " + rest
    return _tagged(rest, priority, host.decode() or None, time_ns)


def _tagged(rest: bytes, priority: int, host: str | None, time_ns: int | None) -> LogRecord:
    """Return the record of a message whose text may begin with ``program[process]:``."""
    tag = _TAG.match(rest)
    if tag is None:
        return _record(rest, priority, host, None, time_ns, {})
    process = None if tag[2] is None else tag[2].decode()
    text = rest[tag.end() :]
    return _record(text, priority, host, tag[1].decode(), time_ns, {"process_id": process})


def _record(
    text: bytes,
    priority: int,
    host: str | None,
    app: str | None,
    time_ns: int | None,
    more: dict[str, _Value],
) -> LogRecord:
    facility, level = divmod(priority, 8)
    labels = {"level": _LEVELS[level], "facility": _FACILITIES[facility]}
    labels |= {name: value for name, value in (("service", app), ("host", host)) if value}
    rest = {name: value for name, value in more.items() if value is not None}
    return LogRecord(text, labels, time_ns, attributes=packed(rest), source=app or "")


def _priority(digits: bytes) -> int | None:
    value = int(digits)
    return value if value < 8 * len(_FACILITIES) else None


def _field(value: bytes) -> str | None:
    return None if value == b"-" else value.decode()


def _offset_s(zone: timezone) -> float:
    return zone.utcoffset(None).total_seconds()


def _without_year(text: str, now: datetime, zone: timezone) -> int | None:
    """Return a time without a year: that of the years around now that is nearest to now."""
    found = []
    for year in (now.year - 1, now.year, now.year + 1):
        try:
            # a day of one digit stands behind a blank
            when = datetime.strptime(f"{year} {text} +0000", "%Y %b %d %H:%M:%S %z")
        except ValueError:  # no time, or 29 February of another year
            continue
        found.append(when.replace(tzinfo=zone).astimezone(UTC))
    if not found:
        return None
    nearest = min(found, key=lambda when: abs(when - now))
    return times.in_range(int(nearest.timestamp()) * 1_000_000_000)


class Framer:
    """Cuts the bytes of a connection into messages.

    A message that passes ``MAX_MESSAGE_BYTES`` is an error in its place, and its bytes are dropped.
    """

    def __init__(self) -> None:
        self._data = b""
        self._skipped = 0  # bytes of a long message of octet counting that are still to come
        self._dropping = False  # up to the next line feed

    def feed(self, chunk: bytes) -> Iterator[bytes | VersoError]:
        """Yield the messages that end in a chunk."""
        data, at = self._data + chunk, 0
        while at < len(data):
            if self._skipped:
                dropped = min(self._skipped, len(data) - at)
                at, self._skipped = at + dropped, self._skipped - dropped
                continue
            found, end = self._next(data, at)
            if end == at:
                break
            at = end
            if found is not None:
                yield found
        self._data = data[at:]

    def end(self) -> Iterator[bytes]:
        """Yield the message that the end of the connection ends."""
        data, self._data = self._data, b""
        if data and not self._dropping and not _LENGTH.match(data):
            yield data

    def _next(self, data: bytes, at: int) -> tuple[bytes | VersoError | None, int]:
        """Return the message at a place, if it is whole, and where the next one begins."""
        counted = None if self._dropping else _LENGTH.match(data, at)
        if counted is not None:
            size, begin = int(counted[1]), counted.end()
            if size > MAX_MESSAGE_BYTES:
                self._skipped = size
                return _too_long(), begin
            end = begin + size
            if len(data) < end:
                return None, at
            return data[begin:end].removesuffix(b"\n"), end
        end = data.find(b"\n", at)
        if end >= 0:
            dropped, self._dropping = self._dropping, False
            if end - at > MAX_MESSAGE_BYTES and not dropped:
                return _too_long(), end + 1
            return (None if dropped or end == at else data[at:end]), end + 1
        if len(data) - at > MAX_MESSAGE_BYTES:
            dropped, self._dropping = self._dropping, True
            return (None if dropped else _too_long()), len(data)
        return None, at


def _too_long() -> TextTooLarge:
    return TextTooLarge(f"expected a message of <= {MAX_MESSAGE_BYTES} bytes")
