"""NDJSON whose rows are records: a JSON object a line, with fields that the request names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from verso_core.errors import RequestInvalid, TextNotEncodable, VersoError
from verso_gateway.feed.records import Decoded, FieldMap


def decode(body: bytes, fields: FieldMap, *, source: str = "") -> list[Decoded]:
    """Return the records of NDJSON; blank lines are ignored."""
    rows = [row for row in body.split(b"\n") if row and not row.isspace()]
    return [decode_row(row, fields, source=source) for row in rows]


def decode_row(row: bytes, fields: FieldMap, *, source: str = "") -> Decoded:
    """Return the record of one JSON object."""
    try:
        return fields.record(parse_object(row), row.strip(), source=source)
    except VersoError as error:
        return error


def parse_object(row: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RequestInvalid: the bytes are none.
        TextNotEncodable: they are no UTF-8, or a string holds a lone surrogate.
    """
    try:
        value = orjson.loads(row)
    except orjson.JSONDecodeError as exc:
        if "surrogate" in exc.msg or "UTF-8" in exc.msg:
            raise TextNotEncodable(f"expected UTF-8 without lone surrogates: {exc.msg}") from exc
        raise RequestInvalid(f"malformed JSON: {exc.msg} at character {exc.pos}") from exc
    if not isinstance(value, dict):
        raise RequestInvalid(f"expected a JSON object, got {type(value).__name__}")
    return value


def field_map(
    text: str | None, time: str | None, labels: Sequence[str], *, base: FieldMap
) -> FieldMap:
    """Return the fields that a request names: ``text_field``, ``time_field`` and ``labels``."""
    return FieldMap(
        text=base.text if text is None else (text,),
        time=base.time if time is None else (time,),
        labels={**base.labels, **{name: (name,) for name in labels}},
        offset_s=base.offset_s,
    )
