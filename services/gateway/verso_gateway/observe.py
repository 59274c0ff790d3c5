"""The outermost middleware: request ids, metrics, a log line, and an answer to every exception.

An unexpected exception becomes a 500 that names its class only. The log gets the lines of its
traceback but not its message, which may quote a text.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import traceback
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from verso_core import api_keys, tracing
from verso_gateway import problems
from verso_gateway.access import SCOPES
from verso_gateway.auth import Caller
from verso_gateway.metrics import UNROUTED, Metrics

_log = logging.getLogger("verso_gateway.access")
_audit_log = logging.getLogger("verso.audit")
_REQUEST_ID = re.compile(r"^[A-Za-z0-9_.:-]{1,128}$")


class Observe:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.perf_counter()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        try:
            await self._traced(scope, receive, noted)
        except ClientDisconnect:
            pass  # the caller went away before its body had come: nobody waits for an answer
        except Exception as error:  # the last place that can still answer
            _log_fault(error)
            if status:  # half an answer is sent: let the server cut the connection
                raise
            await problems.answer(scope, error)(scope, receive, noted)
        finally:
            # After this iteration of the loop, at whose end the answer is sent.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(self._note, scope, status, seconds)

    async def _traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        parent = Headers(scope=scope).get(tracing.HEADER)
        with tracing.span("request", parent=parent) as span:
            try:
                await self._app(scope, receive, send)
            finally:
                if span is not None:
                    span.update_name(getattr(scope.get("route"), "name", UNROUTED))
                    span.set_attribute("http.request.method", scope["method"])
                    span.set_attribute("verso.job", scope["state"].get("job_id") or "")

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        task = getattr(route, "name", UNROUTED)
        status = status or 499  # the caller went away before an answer began
        code = scope["state"].get("code")
        self._metrics.request(task, status=status, seconds=seconds)
        if code is not None:
            self._metrics.problem(code)
        _audit(scope, task, status=status)
        _log.info(
            "request",
            extra={
                "request_id": scope["state"]["request_id"],
                "method": scope["method"],
                "task": task,
                "status": status,
                "code": code,
                "job": scope["state"].get("job_id"),
                "ms": round(seconds * 1000, 1),
            },
        )


def _audit(scope: Scope, task: str, *, status: int) -> None:
    """Note who tried an act of an administrator, what it was of, and how it ended.

    Looking changes nothing, and is no act.
    """
    state = scope["state"]
    if SCOPES.get(task) is not api_keys.Scope.ADMIN or scope["method"] == "GET":
        return
    caller: Caller | None = state.get("caller")
    key = None if caller is None or caller.key is None else caller.key.id
    _audit_log.info(
        task,
        extra={
            "act": task,
            "tenant": None if caller is None else caller.tenant,
            "key": key,
            "target": state.get("target") or scope.get("path_params", {}).get("name"),
            "status": status,
            "code": state.get("code"),
            "job": state.get("job_id"),
            "request_id": state["request_id"],
        },
    )


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid4().hex


def _log_fault(error: BaseException) -> None:
    places = [
        f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)
    ]
    _log.error("fault", extra={"error": type(error).__name__, "places": places})
