"""``/v1/session``: a cookie for a browser, which must not keep a key where scripts can read it.

The cookie holds a random token; the ledger keeps its hash beside the key's until the session
expires, so a session works with every gateway and ends when it is deleted, or with its key.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

from fastapi import Request
from starlette.responses import Response

from verso_core.api_keys import Scope
from verso_core.errors import RequestInvalid, Unauthorized
from verso_core.jobs.job import CallerView, SessionView
from verso_gateway import auth, openapi, responses
from verso_gateway.access import caller_of, guarded
from verso_gateway.context import context_of

router = guarded("session")


@router.post(
    "/v1/session",
    name="session_create",
    operation_id="createSession",
    status_code=201,
    responses=openapi.responses(SessionView, status=201),
)
async def create(request: Request) -> Response:
    """Exchange an API key for the cookie of a session, which may do what the key may.

    The cookie is for pages of this origin only. A session ends after ``VERSO_SESSION_S`` seconds,
    when it is deleted, and with its key.
    """
    key, context = caller_of(request).key, context_of(request)
    if key is None:
        raise RequestInvalid("expected a platform that uses API keys: here no session is needed")
    if auth.presented_key(request) is None:
        raise Unauthorized("expected an API key: a session cannot be exchanged for another")
    token, lasts_s = secrets.token_urlsafe(32), context.settings.session_s
    expires = datetime.now(UTC) + timedelta(seconds=lasts_s)
    if key.expires is not None:
        expires = min(expires, key.expires)
    await context.ledgers.home.sessions.put(_hash(token), key.digest, lasts_s=lasts_s)
    view = SessionView(name=key.name, scopes=tuple(sorted(key.scopes or Scope)), expires=expires)
    response = responses.json_response(view, status=201, headers={"Cache-Control": "no-store"})
    response.set_cookie(
        auth.COOKIE,
        token,
        max_age=lasts_s,
        httponly=True,
        samesite="strict",
        secure=_is_https(request),
    )
    return response


@router.get(
    "/v1/session",
    name="session",
    operation_id="getSession",
    responses=openapi.responses(CallerView),
)
async def get(request: Request) -> Response:
    """Say who the holder of the request's key or session is, and what it may do."""
    caller = caller_of(request)
    scopes = tuple(scope for scope in sorted(Scope) if caller.may(scope))
    view = CallerView(name=caller.tenant, scopes=scopes, keys=caller.key is not None)
    return responses.json_response(view, headers={"Cache-Control": "no-store"})


@router.delete("/v1/session", name="session_delete", operation_id="deleteSession", status_code=204)
async def delete(request: Request) -> Response:
    """End the session whose cookie the request carries."""
    token = request.cookies.get(auth.COOKIE)
    if token is not None:
        await context_of(request).ledgers.home.sessions.drop(_hash(token))
    response = Response(status_code=204)
    response.delete_cookie(auth.COOKIE, httponly=True, samesite="strict", secure=_is_https(request))
    return response


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _is_https(request: Request) -> bool:
    """Whether the browser speaks TLS: to this process, or to a proxy, which Origin shows."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
