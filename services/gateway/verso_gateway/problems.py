"""Errors as HTTP: the table from code to status, and the shapes of answers.

Every route answers errors as problem+json (RFC 9457) with ``code``, ``retryable`` and
``request_id``; routes that speak a protocol of others answer in its shape
(:mod:`verso_gateway.protocols`). ``type`` is a path of this server that explains the code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Scope

from verso_core.errors import (
    CLASSES,
    DocumentsRefused,
    ErrorBody,
    QueueFull,
    RequestInvalid,
    SourceMoved,
    error_body,
)
from verso_gateway.protocols import (
    FEEDS,
    LONGEST_WAIT_S,
    Protocol,
    bulk,
    cohere,
    loki,
    mcp,
    openai,
    otlp,
    protocol_of,
    tei,
)

STATUSES: dict[str, int] = {
    "request_invalid": 422,
    "text_not_encodable": 422,
    "text_too_large": 422,
    "duplicate_id": 422,
    "id_invalid": 422,
    "vector_invalid": 422,
    "kind_unsupported": 422,
    "partitioned_unsupported": 422,
    "metadata_invalid": 422,
    "batch_empty": 422,
    "body_too_large": 413,
    "idempotency_conflict": 422,
    "space_mismatch": 422,
    "question_too_long": 422,
    "training_data_invalid": 422,
    "documents_refused": 422,
    "encoding_unsupported": 415,
    "file_unreadable": 422,
    "file_unsupported": 415,
    "file_encrypted": 422,
    "file_without_text": 422,
    "file_too_large": 422,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "collection_unknown": 404,
    "document_unknown": 404,
    "job_unknown": 404,
    "webhook_unknown": 404,
    "head_unknown": 404,
    "key_unknown": 404,
    "model_unknown": 404,
    "collection_exists": 409,
    "migration_refused": 409,
    "document_changed": 409,
    "source_moved": 409,
    "record_corrupt": 500,
    "patch_corrupt": 500,
    "partition_missing": 500,
    "vectors_damaged": 500,
    "artifact_invalid": 500,
    "head_invalid": 500,
    "backup_invalid": 500,
    "frame_invalid": 500,
    "internal": 500,
    "not_installed": 501,
    "job_ended": 500,
    "attempts_exhausted": 500,
    "cancelled": 409,
    "labels_changed": 409,
    "result_lost": 410,
    "deadline_expired": 504,
    "queue_full": 429,
    "unavailable": 503,
    "ledger_unavailable": 503,
    "vectors_unavailable": 503,
    "engine_unavailable": 503,
    "not_ready": 503,
    "trainer_unavailable": 503,
    "durability_missing": 503,
    "collection_busy": 503,
    "results_unavailable": 503,
    "objects_unavailable": 503,
    "ledger_behind": 503,
    "ledger_misnamed": 503,
    "disk_full": 503,
}
"""HTTP status of every error code (a test keeps it complete)."""

CODINGS = ("gzip", "deflate", "zstd")
"""Content codings of request bodies that are taken."""
_SHAPES = {
    Protocol.OTLP: otlp.shaped,
    Protocol.BULK: bulk.shaped,
    Protocol.LOKI: loki.shaped,
    Protocol.OPENAI: openai.shaped,
    Protocol.COHERE: cohere.shaped,
    Protocol.TEI: tei.shaped,
    Protocol.MCP: mcp.shaped,
}
_RETRY_AFTER_S = 1.0


def explanation(code: str) -> str | None:
    """Return what an error code means, from its class; None for an unknown code."""
    cls = CLASSES.get(code)
    if cls is None:
        return None
    help_text = "Trying again later can help." if cls.retryable else "Trying again does not help."
    meaning = (cls.__doc__ or "").strip()
    return f"{code} (HTTP {STATUSES[code]})\n\n{meaning}\n{help_text}\n"


def answer(scope: Scope, error: BaseException) -> Response:
    """Return the response to an error, in the shape of the route of ``scope``.

    Args:
        scope: ASGI scope of the request; ``pointer`` in its state, if set, names the part of the
            body that is wrong (RFC 6901).
        error: a VersoError, or a foreign exception, of which only the class name is shown.
    """
    body = error_body(error)
    status = STATUSES[body["code"]]
    scope.setdefault("state", {})["code"] = body["code"]  # for the metrics
    protocol = protocol_of(scope["path"])
    if protocol is not None:
        shaped = _SHAPES[protocol](scope, body, status)
        longest_s = LONGEST_WAIT_S if protocol in FEEDS else math.inf
        return Response(
            shaped.content,
            status_code=shaped.status,
            media_type=shaped.media_type,
            headers={
                **_headers(error, body, status=status, longest_s=longest_s),
                **shaped.headers,
            },
        )
    pointer = scope.get("state", {}).get("pointer")
    content = _problem_shape(scope, error, status=status, pointer=pointer)
    return Response(
        # ASCII: a pointer may name a key that holds a lone surrogate
        json.dumps(content).encode("ascii"),
        status_code=status,
        media_type="application/problem+json",
        headers=_headers(error, body, status=status),
    )


def _problem_shape(
    scope: Scope, error: BaseException, *, status: int, pointer: str | None
) -> dict[str, Any]:
    body = error_body(error)
    content: dict[str, Any] = {
        "type": f"/docs/errors/{body['code']}",
        "title": body["code"].replace("_", " "),
        "status": status,
        "detail": body["detail"],
        "instance": scope["path"],
        "code": body["code"],
        "retryable": body["retryable"],
        "request_id": scope.get("state", {}).get("request_id"),
    }
    if (job_id := scope.get("state", {}).get("job_id")) is not None:
        content["job_id"] = job_id
    if pointer is not None:
        content["pointer"] = pointer
    if isinstance(error, DocumentsRefused):
        content |= error.intaken
    if isinstance(error, SourceMoved):
        content["position"] = error.position
    return content


def _headers(
    error: BaseException, body: ErrorBody, *, status: int, longest_s: float = math.inf
) -> dict[str, str]:
    headers = {"Cache-Control": "no-store"}
    if body["retryable"]:
        wait_s = error.retry_after_s if isinstance(error, QueueFull) else _RETRY_AFTER_S
        wait_s = min(wait_s, longest_s)
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
        headers["Retry-After-Ms"] = str(math.ceil(wait_s * 1000))
    else:
        # the OpenAI SDK tries a 409 or 5xx again unless this header forbids it
        headers["X-Should-Retry"] = "false"
    if status == 415:
        headers["Accept-Encoding"] = ", ".join(CODINGS)  # RFC 9110, section 12.5.3
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="verso"'
    return headers


def from_validation(exc: ValidationError) -> tuple[RequestInvalid, str]:
    """Return the first fault that pydantic found as an error, and a JSON pointer to the part."""
    fault = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return from_fault(fault["loc"], message=fault["msg"])


def from_fault(loc: Sequence[int | str], *, message: str) -> tuple[RequestInvalid, str]:
    """Return one of pydantic's faults as an error, and a JSON pointer (RFC 6901)."""
    pointer = "".join("/" + escaped(str(part)) for part in loc)
    return RequestInvalid(f"{pointer or 'body'}: {message}"), pointer


def escaped(part: str) -> str:
    """Return a part of a JSON pointer, escaped (RFC 6901, section 3)."""
    return part.replace("~", "~0").replace("/", "~1")


def codes_in_openapi() -> Mapping[str, Any]:
    """Return the schema of problems for the OpenAPI document."""
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "retryable"],
        "properties": {
            "type": {"type": "string", "examples": ["/docs/errors/queue_full"]},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "code": {"type": "string", "enum": sorted(STATUSES)},
            "retryable": {"type": "boolean"},
            "request_id": {"type": ["string", "null"]},
            "job_id": {"type": "string", "description": "the job that ended in this error"},
            "pointer": {"type": "string", "description": "RFC 6901"},
            "accepted": {"type": "integer", "const": 0, "description": "of documents_refused"},
            "refused": {"type": "integer", "description": "of documents_refused"},
            "refusals": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/Refusal"},
                "description": "of documents_refused",
            },
        },
    }
