"""Webhooks: how messages are signed, and to which addresses they may be sent.

Messages follow Standard Webhooks (standardwebhooks.com, version 1.0.0): three headers name the
message, the time of this attempt and its signatures, one for each secret that is valid, so that a
secret can be changed without a gap.

    webhook-id          the same at every attempt, so that a receiver can ignore repetitions
    webhook-timestamp   Unix seconds of this attempt; a receiver refuses old ones
    webhook-signature   "v1," and base64 of HMAC-SHA256(secret, "id.timestamp.body"), by spaces

A message may be sent to https on port 443 of a global address, and to any port, with or without
TLS, of the networks that the operator allows. The addresses of a name are checked at the moment of
sending (:func:`permitted`), since a name may resolve to a private address later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from verso_core.errors import RequestInvalid

SECRET_PREFIX = "whsec_"  # noqa: S105 - how a secret begins, not one
MAX_URL_CHARACTERS = 2048
DELAYS_S = (5.0, 30.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0)
"""Waits before the second, third, ... attempt: eight attempts within 19 hours."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# IPv6 ranges that carry an IPv4 address, and the bit at which it begins (RFC 6052, 3056, 4291).
_EMBEDDING: tuple[tuple[ipaddress.IPv6Network, int], ...] = (
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
_TEREDO = ipaddress.IPv6Network("2001::/32")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message goes. ``path`` starts with a slash and holds the query as well."""

    tls: bool
    host: str
    port: int
    path: str


def new_secret() -> str:
    """Make a secret: ``whsec_`` and base64 of 32 random bytes."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(secret: str, body: bytes, *, message_id: str, timestamp: int) -> str:
    """Return one signature: ``v1,`` and base64.

    Raises:
        RequestInvalid: the secret is malformed.
    """
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise RequestInvalid("expected a webhook secret: whsec_ and base64") from exc
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def headers(
    valid: Iterable[str], body: bytes, *, message_id: str, timestamp: int
) -> Mapping[str, str]:
    """Return the headers of one attempt, signed with every secret that is valid."""
    signatures = [sign(s, body, message_id=message_id, timestamp=timestamp) for s in valid]
    return {
        "Content-Type": "application/json",
        "User-Agent": "verso-webhooks",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def networks(text: str) -> tuple[Network, ...]:
    """Read networks separated by commas or spaces, such as ``10.0.0.0/8, fd00::/8``.

    Raises:
        ValueError: one of them is malformed.
    """
    return tuple(ipaddress.ip_network(part) for part in text.replace(",", " ").split())


def target_of(url: str, allowed: Iterable[Network] = ()) -> Target:
    """Parse an address and check all that can be checked without resolving its host.

    Raises:
        RequestInvalid: it is not an http address, names a user, or is not permitted.
    """
    allowed = tuple(allowed)
    if len(url) > MAX_URL_CHARACTERS or not url.isascii() or any(c <= " " for c in url):
        raise RequestInvalid(f"expected an ASCII URL of <= {MAX_URL_CHARACTERS} characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise RequestInvalid("expected an https URL") from exc
    if parts.scheme not in ("https", "http") or not host:
        raise RequestInvalid("expected an https URL")
    if "@" in parts.netloc or parts.fragment:
        raise RequestInvalid("expected a URL without user and fragment")
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = Target(tls=tls, host=host, port=port or (443 if tls else 80), path=path)
    literal = _literal(host)
    if literal is not None and not permitted(literal, target, allowed):
        raise RequestInvalid("expected a public address, https and port 443")
    if literal is None and not allowed and not (tls and target.port == 443):
        raise RequestInvalid("expected https and port 443")
    return target


def permitted(address: Address, target: Target, allowed: Iterable[Network]) -> bool:
    """Whether a message may be sent to this address of the target's host.

    Of an address that embeds another, such as ``::ffff:127.0.0.1``, both are checked.
    """
    faces = (address, *_embedded(address))
    if any(face in network for face in faces for network in allowed):
        return True
    if not (target.tls and target.port == 443):
        return False
    if isinstance(address, ipaddress.IPv6Address) and (
        address in _TEREDO or address in _LOCAL_NAT64
    ):
        return False
    inner = _embedded(address)
    return all(_public(face) for face in (inner or (address,)))


def _public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False  # RFC 3879 deprecates fec0::/10, which ipaddress takes for global
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    for network, shift in _EMBEDDING:
        if address in network:
            return (ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF),)
    return ()


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
