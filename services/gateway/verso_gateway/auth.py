"""Who calls: API keys beyond loopback, and a guard against web pages on loopback.

A key comes as ``Authorization: Bearer``, as ``ApiKey`` (itself, or base64 of ``name:key`` as
Elasticsearch's clients send it), as the password of ``Basic``, or in ``X-API-Key``. A browser may
exchange it for a session's cookie (:mod:`verso_gateway.routes.session`).

While requests arrive, the file of keys is checked every second, so that keys change without a
restart. If it cannot be read, the keys read before stay valid.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from verso_core import api_keys
from verso_core.api_keys import Key, Scope
from verso_core.errors import Forbidden, Unauthorized

TENANT_DEFAULT = "default"
LOOK_S = 1.0
"""Seconds between two checks of the keys file."""
COOKIE = "verso_session"
_log = logging.getLogger(__name__)
_audit = logging.getLogger("verso.audit")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""RFC 9110, section 9.2.1."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the holder of a key or, where no keys are used, anyone of this machine.

    Attributes:
        tenant: whose jobs and collections are the caller's own.
        key: the key; None where no keys are used, and all is allowed.
    """

    tenant: str
    key: Key | None = None

    @property
    def owner(self) -> str | None:
        """The owner of a collection that the caller makes; none where no keys are used."""
        return None if self.key is None else self.tenant

    def may(self, scope: Scope) -> bool:
        """Whether the caller has a scope."""
        return self.key is None or self.key.may(scope)

    def check(self, scope: Scope) -> None:
        """Check that the caller has a scope.

        Raises:
            Forbidden: it has not.
        """
        if not self.may(scope):
            assert self.key is not None
            has = ", ".join(sorted(self.key.scopes or ()))
            raise Forbidden(f"expected a key with the scope {scope}, this one has: {has}")

    def sees(self, name: str, *, owner: str | None) -> bool:
        """Whether a collection exists as far as the caller can tell.

        A key with a list sees what the list names, a key with ``admin`` everything, any other key
        its tenant's own collections and those that nobody owns.
        """
        if self.may(Scope.ADMIN):
            return True
        assert self.key is not None
        if self.key.collections is not None:
            return self.key.lists(name)
        return owner is None or owner == self.tenant


class KeysFile:
    """The current keys of a file.

    Args:
        path: the file.
        clock: a monotonic clock, seconds.

    Raises:
        ValueError: at the start, the file is no keys file, or holds no key.
        OSError: at the start, the file cannot be read.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._looked_s = clock()
        self._stamp = _stamp(path)
        self._keys = api_keys.read_some(path)
        _warn_of_unscoped(self._keys)

    def __call__(self) -> tuple[Key, ...]:
        """Return the keys; the file is read again when it has changed."""
        if self._clock() - self._looked_s >= LOOK_S:
            self._looked_s = self._clock()
            try:
                stamp = _stamp(self._path)
                if stamp != self._stamp:
                    self._stamp, before, self._keys = stamp, self._keys, api_keys.read(self._path)
                    _note_change(before, self._keys)
            except (OSError, ValueError) as error:
                # the message of a ValueError names a line and quotes nothing
                _log.error("API keys not reloaded: %s", error)
        return self._keys


def _note_change(before: tuple[Key, ...], after: tuple[Key, ...]) -> None:
    _log.info("API keys reloaded", extra={"count": len(after)})
    added, removed = _less(after, before), _less(before, after)
    _audit.info("keys", extra={"act": "keys", "added": added, "removed": removed})
    if added:
        _warn_of_unscoped(after)


def _less(keys: tuple[Key, ...], others: tuple[Key, ...]) -> list[str]:
    """Return the names and ids of those keys that are not among the others."""
    return [f"{key.name} {key.id}" for key in keys if key not in others]


def _warn_of_unscoped(keys: tuple[Key, ...]) -> None:
    names = sorted({key.name for key in keys if key.scopes is None})
    if names:
        _log.warning("API keys without scope may do everything", extra={"names": names})


def _stamp(path: Path) -> tuple[int, int, int]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size, state.st_ino


@dataclass(frozen=True, slots=True)
class Gate:
    """Identifies callers. Without keys (``known`` None) only programs of this machine may call."""

    known: Callable[[], tuple[Key, ...]] | None = None

    def caller(self, connection: HTTPConnection) -> Caller:
        """Return who sent a request, by the key that came with it.

        Raises:
            Unauthorized: the request has no known key; or, without keys in use, it may come from a
                web page of another site.
        """
        if self.known is None:
            _check_not_a_web_page(connection)
            return Caller(TENANT_DEFAULT)
        presented = presented_key(connection)
        if presented is None:
            raise Unauthorized("expected an API key: 'Authorization: Bearer vk_...' or X-API-Key")
        return self.holder(hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest())

    def holder(self, digest: bytes) -> Caller:
        """Return the holder of the key with a digest.

        Raises:
            Unauthorized: there is no such key (any more), or it has expired.
        """
        found = None
        for key in () if self.known is None else self.known():
            if hmac.compare_digest(key.digest, digest):  # no early end: the time must not
                found = key  # reveal which key is close
        if found is None:
            raise Unauthorized("the API key is not known here")
        if found.expired(datetime.now(UTC)):
            raise Unauthorized("the API key has expired")
        return Caller(found.name, found)


def presented_key(connection: HTTPConnection) -> str | None:
    """Return the key that came with a request, None if none did."""
    scheme, _, credentials = connection.headers.get("authorization", "").partition(" ")
    credentials = credentials.strip()
    match scheme.lower():
        case "bearer" if credentials:
            return credentials
        case "basic":
            return _after_colon(credentials)
        case "apikey" if credentials:
            return _after_colon(credentials) or credentials
    return connection.headers.get("x-api-key")


def _after_colon(credentials: str) -> str | None:
    """Return what stands behind the name in base64 of ``name:key`` (RFC 7617, section 2)."""
    try:
        _, colon, key = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return key if colon else None


def check_same_origin(connection: HTTPConnection) -> None:
    """Check that a request which carries a cookie, and may change something, is no forgery.

    A browser says where a request comes from in Sec-Fetch-Site (W3C Fetch Metadata) or, where it
    is older, in Origin; no page can change either.

    Raises:
        Forbidden: it comes from a page of another origin, or does not say from where.
    """
    if connection.scope["method"] in _SAFE_METHODS:
        return
    headers = connection.headers
    site, origin = headers.get("sec-fetch-site"), _authority(headers.get("origin", ""))
    if site is None and origin is not None:
        same = origin == _authority("//" + headers.get("host", ""))
    else:
        same = site == "same-origin"
    if same:
        return
    raise Forbidden("expected a request from a page of this origin, with the cookie of a session")


def check_names(
    connection: HTTPConnection, names: Container[str | None], *, origins: Container[str]
) -> None:
    """Check the names in Host (DNS rebinding) and Origin (pages of other sites).

    Args:
        connection: the request.
        names: of hosts that are allowed in both, lower case.
        origins: whole origins that are allowed besides; ``*`` for all.

    Raises:
        Forbidden: one of them is not.
    """
    if hostname("//" + connection.headers.get("host", "")) not in names:
        raise Forbidden("expected a name in Host that VERSO_MCP_HOSTS lists, or a loopback name")
    origin = connection.headers.get("origin")
    if origin is None or origin in origins or "*" in origins:
        return
    if hostname(origin) not in names:
        raise Forbidden("expected a page of this host, or of VERSO_CORS_ORIGINS, in Origin")


def _check_not_a_web_page(connection: HTTPConnection) -> None:
    """Refuse foreign names in Host (DNS rebinding) and Origin (cross-site requests)."""
    if hostname("//" + connection.headers.get("host", "")) not in LOOPBACK_NAMES:
        raise Unauthorized("expected a loopback name in Host; use API keys to serve other names")
    origin = connection.headers.get("origin")
    if origin is not None and hostname(origin) not in LOOPBACK_NAMES:
        raise Unauthorized("requests of web pages from other sites need an API key")


def hostname(url: str) -> str | None:
    """Return the host of a URL, lower case; None of one that has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _authority(url: str) -> str | None:
    """Return host and port of a URL; None of one that has no host."""
    try:
        parts = urlsplit(url)
        return None if parts.hostname is None else parts.netloc.lower()
    except ValueError:
        return None
