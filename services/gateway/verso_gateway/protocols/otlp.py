"""Errors of OTLP/HTTP: ``google.rpc.Status`` in the type of the request.

Source: OpenTelemetry protocol specification, "Failures".
"""

from __future__ import annotations

import json

from google.rpc.status_pb2 import Status
from starlette.datastructures import Headers
from starlette.types import Scope

from verso_core.errors import ErrorBody
from verso_gateway.protocols import Shaped

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
# google.rpc.Code; INVALID_ARGUMENT for every other status of the caller's, INTERNAL of the server's
_CODES = {401: 16, 403: 7, 404: 5, 405: 12, 429: 8, 503: 14, 504: 4}


def media_type(scope: Scope) -> str:
    """Return the type that a request is answered in: its own, or protobuf."""
    given = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    return JSON if given == JSON else PROTOBUF


def shaped(scope: Scope, body: ErrorBody, status: int) -> Shaped:
    """Return the answer to an error."""
    status = 400 if status == 422 else status
    code = _CODES.get(status, 13 if status >= 500 else 3)
    kind = media_type(scope)
    if kind == JSON:
        content = json.dumps({"code": code, "message": body["detail"]}).encode()
    else:
        # a message of protobuf has no lone surrogates
        message = body["detail"].encode("utf-8", "replace").decode()
        content = Status(code=code, message=message).SerializeToString()
    return Shaped(status, content, kind)
