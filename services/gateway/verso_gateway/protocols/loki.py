"""Errors of Loki: a line of plain text."""

from __future__ import annotations

from starlette.types import Scope

from verso_core.errors import ErrorBody
from verso_gateway.protocols import Shaped


def shaped(_scope: Scope, body: ErrorBody, status: int) -> Shaped:
    """Return the answer to an error."""
    content = body["detail"].encode("utf-8", "replace") + b"\n"
    return Shaped(400 if status == 422 else status, content, "text/plain; charset=utf-8")
