"""``POST /v1/logs``: logs by OTLP/HTTP, in protobuf or JSON."""

from __future__ import annotations

import json
from functools import partial

from fastapi import Request
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from starlette.responses import Response

from verso_core.errors import RequestInvalid
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.feed import otlp
from verso_gateway.protocols import OTLP_PATH, Protocol
from verso_gateway.protocols.otlp import JSON, PROTOBUF
from verso_gateway.routes.feed import accepting

router = guarded("feed")
HOLD_S = 2.0
"""Longest that a request is held for room. The SDK of Python gives a batch up after 10 s in all."""
_DECODERS = {JSON: otlp.decode_json, PROTOBUF: otlp.decode_protobuf}


@router.post(OTLP_PATH, name="otlp_logs", include_in_schema=False)
async def logs(request: Request) -> Response:
    """Take the logs of an ``ExportLogsServiceRequest`` in: they are on disk when this answers."""
    with accepting.counted(request, Protocol.OTLP):
        kind = reading.media_type(request)
        if kind not in _DECODERS:
            raise RequestInvalid(f"expected Content-Type {PROTOBUF} or {JSON}, got {kind!a}")
        decode = partial(_DECODERS[kind], fields=accepting.feed_of(request).fields)
        decoded = await accepting.read(request, Protocol.OTLP, decode)
        taken = await accepting.accept(request, decoded, Protocol.OTLP, hold_s=HOLD_S)
    rejected, reason = len(taken.rejected), taken.first_reason
    if kind == JSON:
        partial_success = {"rejectedLogRecords": str(rejected), "errorMessage": reason}
        content = json.dumps({"partialSuccess": partial_success} if rejected else {}).encode()
        return Response(content, media_type=JSON)
    answer = ExportLogsServiceResponse()
    if rejected:
        answer.partial_success.rejected_log_records = rejected
        answer.partial_success.error_message = reason.encode("utf-8", "replace").decode()
    return Response(answer.SerializeToString(), media_type=PROTOBUF)
