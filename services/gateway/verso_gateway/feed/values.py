"""JSON bodies of agents, read within a bound."""

from __future__ import annotations

from typing import Any

import orjson

from verso_core.errors import BodyTooLarge, RequestInvalid
from verso_gateway.bodies import reading


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
