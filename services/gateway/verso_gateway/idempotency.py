"""The Idempotency-Key header: the same key and request find the same job.

draft-ietf-httpapi-idempotency-key-header-06 makes the key a structured-field string, that is,
quoted (RFC 8941, section 3.3.3); most clients send it bare, so both are accepted. Requests are the
same if a hash of method, target, media type and body is.
"""

from __future__ import annotations

import hashlib
import re

from starlette.requests import Request

from verso_core.errors import RequestInvalid

KEY_PATTERN = r"^[!#-~][ -~]{0,254}$"
"""Of a bare key."""
_QUOTED = re.compile(r'^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"\s*(?:;.*)?$')
_BARE = re.compile(r"^[\x21\x23-\x7e][\x20-\x7e]*$")
_MAX_CHARACTERS = 255


def key_of(request: Request) -> str | None:
    """Return a request's idempotency key, None if it has none.

    Raises:
        RequestInvalid: the header holds no usable key.
    """
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    quoted = _QUOTED.match(given.strip())
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else given.strip()
    if not _BARE.match(key) and not (quoted and key):
        raise RequestInvalid("expected a quoted or bare ASCII string as Idempotency-Key")
    if len(key) > _MAX_CHARACTERS:
        raise RequestInvalid(f"expected an Idempotency-Key of <= {_MAX_CHARACTERS} characters")
    return key


class Fingerprint:
    """Hashes a request while its body arrives."""

    def __init__(self, request: Request) -> None:
        target = f"{request.method} {request.url.path}?{request.url.query}"
        about = f"{target}\n{request.headers.get('content-type', '')}\n"
        self._hash = hashlib.blake2b(about.encode("utf-8", "surrogateescape"), digest_size=32)

    def update(self, data: bytes) -> None:
        """Add more of the body."""
        self._hash.update(data)

    def hex(self) -> str:
        """Return the hash. Shape: 64 characters."""
        return self._hash.hexdigest()
