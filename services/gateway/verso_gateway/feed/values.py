"""Bodies of agents, JSON read within a bound, and protobuf looked at before it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from verso_core.errors import BodyTooLarge, RequestInvalid
from verso_gateway.bodies import reading
from verso_gateway.feed.records import MOST_RECORDS


def parse_bounded(body: bytes) -> Any:
    """Return the value of a JSON body.

    Raises:
        RequestInvalid: the body is no JSON.
        BodyTooLarge: it has too many values: as objects they take many times its bytes.
    """
    if reading.has_values(body, reading.MOST_LISTED):
        raise BodyTooLarge(f"expected <= {reading.MOST_LISTED} values in a body, got more")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid(f"malformed JSON: {exc.msg} at character {exc.pos}") from exc


def check_messages(data: bytes, path: Sequence[int]) -> None:
    """Check how many messages protobuf has at a path of field numbers, and on the way there.

    An empty one takes two bytes, and hundreds once it is read. Bytes that are no message are left
    to the parser.

    Raises:
        BodyTooLarge: there are more than of ``MOST_RECORDS``.
    """
    count = found = 0
    parts = [(0, len(data), 0)]
    while parts:
        begin, end, depth = parts.pop()
        for number, first, last in _fields(data, begin, end):
            count += 1
            leads = number == path[depth]
            found += leads and depth + 1 == len(path)
            if found > MOST_RECORDS or count > 2 * MOST_RECORDS:
                raise BodyTooLarge(f"expected <= {MOST_RECORDS} records in a request, got more")
            if leads and depth + 1 < len(path):
                parts.append((first, last, depth + 1))


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, begin and end of the fields of a message, up to what is none.

    Source: protobuf.dev, "Encoding".
    """
    while at < end:
        tag, at = _varint(data, at)
        last = at
        match tag & 7:
            case 0:
                _, last = _varint(data, at)
            case 1:
                last += 8
            case 2:
                size, at = _varint(data, at)
                last = at + size
            case 5:
                last += 4
            case 6 | 7:
                return
        if last > end:
            return
        yield tag >> 3, at, last
        at = last


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; beyond the data if it does not."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    return 0, len(data) + 1
