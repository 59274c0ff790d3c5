"""Who may call: API keys beyond loopback, and a guard against web pages on loopback.

A key is ``vk_`` and 32 random bytes in base64url. The keys file holds one key a line, its name and
the SHA-256 of the whole key in hex, so that the file reveals no key; ``#`` starts a comment:

    laptop 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

While requests arrive, the file is checked every second, so that keys change without a restart. If
it cannot be read, the keys read before stay valid. Two lines with one name are two keys of one
tenant, which is how a key is replaced without a gap.

A random key of 256 bits needs no slow hash: there is no dictionary to try.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from verso_core.errors import Unauthorized

TENANT_DEFAULT = "default"
LOOK_S = 1.0
"""Seconds between two checks of the keys file."""
_log = logging.getLogger(__name__)
_LINE = re.compile(r"^(?P<name>[A-Za-z0-9_.-]{1,64})\s+(?P<digest>[0-9a-f]{64})$")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Key:
    """A known key: its name, which is also its tenant, and the SHA-256 of the key."""

    name: str
    digest: bytes


def mint(name: str) -> tuple[str, str]:
    """Return a new key, shown once, and its line for the keys file."""
    key = "vk_" + secrets.token_urlsafe(32)
    return key, f"{name} {hashlib.sha256(key.encode()).hexdigest()}"


def read_keys(path: Path) -> tuple[Key, ...]:
    """Return the keys of a file.

    Raises:
        ValueError: a line is no ``name sha256``, or there is no line.
    """
    keys = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"{path}, line {number}: expected a name and a SHA-256 in hex")
        keys.append(Key(name=match["name"], digest=bytes.fromhex(match["digest"])))
    if not keys:
        raise ValueError(f"{path}: expected at least one key")
    return tuple(keys)


class KeysFile:
    """The current keys of a file.

    Args:
        path: the file.
        clock: a monotonic clock, seconds.

    Raises:
        ValueError: at the start, the file is no keys file.
        OSError: at the start, the file cannot be read.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._looked_s = clock()
        self._stamp = _stamp(path)
        self._keys = read_keys(path)

    def __call__(self) -> tuple[Key, ...]:
        """Return the keys; the file is read again when it has changed."""
        if self._clock() - self._looked_s >= LOOK_S:
            self._looked_s = self._clock()
            try:
                stamp = _stamp(self._path)
                if stamp != self._stamp:
                    self._stamp, self._keys = stamp, read_keys(self._path)
                    _log.info("API keys reloaded", extra={"count": len(self._keys)})
            except (OSError, ValueError) as error:
                # the message of a ValueError names a line and quotes nothing
                _log.error("API keys not reloaded: %s", error)
        return self._keys


def _stamp(path: Path) -> tuple[int, int, int]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size, state.st_ino


def _no_keys() -> tuple[Key, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Gate:
    """Identifies callers. Without keys only programs of this machine may call."""

    known: Callable[[], tuple[Key, ...]] = _no_keys

    def tenant(self, connection: HTTPConnection) -> str:
        """Return the caller's tenant.

        Raises:
            Unauthorized: the request has no known key; or, without keys in use, it may come from a
                web page of another site.
        """
        keys = self.known()
        if not keys:
            _check_not_a_web_page(connection)
            return TENANT_DEFAULT
        presented = _presented(connection)
        if presented is None:
            raise Unauthorized("expected an API key: 'Authorization: Bearer vk_...' or X-API-Key")
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in keys:  # no early end: the time must not reveal which key is close
            if hmac.compare_digest(key.digest, digest):
                found = key.name
        if found is None:
            raise Unauthorized("the API key is not known here")
        return found


def _presented(connection: HTTPConnection) -> str | None:
    scheme, _, credentials = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials.strip():
        return credentials.strip()
    return connection.headers.get("x-api-key")


def _check_not_a_web_page(connection: HTTPConnection) -> None:
    """Refuse foreign names in Host (DNS rebinding) and Origin (cross-site requests)."""
    if _hostname("//" + connection.headers.get("host", "")) not in _LOOPBACK_NAMES:
        raise Unauthorized("expected a loopback name in Host; use API keys to serve other names")
    origin = connection.headers.get("origin")
    if origin is not None and _hostname(origin) not in _LOOPBACK_NAMES:
        raise Unauthorized("requests of web pages from other sites need an API key")


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
