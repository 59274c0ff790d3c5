"""Errors of Elasticsearch: an object ``error`` with a type and a reason (reference, "REST API").

A full queue is answered in plain text and the connection closed: Fluent Bit and others take that
for a refusal of the whole request, of which nothing was accepted.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.types import Scope

from verso_core.errors import ErrorBody
from verso_gateway.protocols import Shaped

HEADERS = {"X-Elastic-Product": "Elasticsearch"}
"""Headers of every answer: clients since 7.14 refuse to speak with what does not say it."""
JSON = "application/json"
_TYPES = {
    401: "security_exception",
    403: "security_exception",
    404: "index_not_found_exception",
    413: "content_too_long_exception",
    429: "es_rejected_execution_exception",
    503: "unavailable_shards_exception",
}
_OF_CODES = {
    "text_not_encodable": "document_parsing_exception",
    "text_too_large": "document_parsing_exception",
    "not_found": "resource_not_found_exception",
}


def shaped(_scope: Scope, body: ErrorBody, status: int) -> Shaped:
    """Return the answer to an error."""
    status = 400 if status == 422 else status
    if status == 429:
        content = body["detail"].encode("utf-8", "replace")
        return Shaped(status, content, "text/plain", {**HEADERS, "Connection": "close"})
    reason = error_of(body, status)
    error = {"root_cause": [reason], **reason}
    return Shaped(status, json.dumps({"error": error, "status": status}).encode(), JSON, HEADERS)


def error_of(body: ErrorBody, status: int) -> dict[str, Any]:
    """Return an error as it stands in an answer or an item."""
    kind = _OF_CODES.get(body["code"]) or _TYPES.get(status)
    kind = kind or ("illegal_argument_exception" if status < 500 else "exception")
    return {"type": kind, "reason": body["detail"]}
