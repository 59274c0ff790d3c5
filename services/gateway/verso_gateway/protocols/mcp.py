"""Errors of the Model Context Protocol's transport: of JSON-RPC, without the id of a request.

Sources: specification 2025-11-25, "Transports" (403 for Origin, 405 for GET), and RFC 6750, section
3, which its "Authorization" follows, for keys that are missing, unknown or too weak.
"""

from __future__ import annotations

import json

from starlette.datastructures import Headers
from starlette.types import Scope

from verso_core.errors import ErrorBody
from verso_gateway.protocols import Shaped

JSON = "application/json"
_INVALID_REQUEST = -32600
_INTERNAL_ERROR = -32603


def shaped(scope: Scope, body: ErrorBody, status: int) -> Shaped:
    """Return the answer to an error that no tool has met."""
    status = 400 if status == 422 else status
    error = {
        "code": _INTERNAL_ERROR if status >= 500 else _INVALID_REQUEST,
        "message": body["detail"],
        "data": body,
    }
    content = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode("ascii")
    return Shaped(status, content, JSON, _challenge(scope, status))


def _challenge(scope: Scope, status: int) -> dict[str, str]:
    headers = Headers(scope=scope)
    if status == 401 and ("authorization" in headers or "x-api-key" in headers):
        return {"WWW-Authenticate": 'Bearer realm="verso", error="invalid_token"'}
    return {}
