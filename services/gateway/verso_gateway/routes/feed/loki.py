"""``POST /loki/api/v1/push``: streams of entries, in JSON or in protobuf and Snappy."""

from __future__ import annotations

from functools import partial

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import RequestInvalid
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_gateway.feed import loki
from verso_gateway.protocols import LOKI_PATH, Protocol
from verso_gateway.routes.feed import accepting

router = guarded("feed")
HOLD_S = 5.0
"""Longest that a request is held for room."""
_JSON = "application/json"
_PROTOBUF = ("application/x-protobuf", "")


@router.post(f"{LOKI_PATH}/api/v1/push", name="loki_push", include_in_schema=False)
async def push(request: Request) -> Response:
    """Take the entries of a push in: they are on disk when this answers.

    An entry that cannot be read is left out and counted; if none can, the answer is 400.
    """
    fields = accepting.feed_of(request).fields
    with accepting.counted(request, Protocol.LOKI):
        kind, inflated_bytes = reading.media_type(request), None
        if kind == _JSON:
            decode = partial(loki.decode_json, fields=fields)
        elif kind in _PROTOBUF:
            most = context_of(request).settings.feed_limit_bytes
            decode = partial(loki.decode_protobuf, fields=fields, most_bytes=most)
            inflated_bytes = loki.inflated_bytes
        else:
            raise RequestInvalid(f"expected Content-Type {_JSON} or {_PROTOBUF[0]}, got {kind!a}")
        decoded = await accepting.read(
            request, Protocol.LOKI, decode, inflated_bytes=inflated_bytes
        )
        taken = await accepting.accept(request, decoded, Protocol.LOKI, hold_s=HOLD_S)
        if decoded and len(taken.rejected) == len(decoded):
            raise RequestInvalid(f"no entry can be accepted; the first: {taken.first_reason}")
    return Response(status_code=204)
