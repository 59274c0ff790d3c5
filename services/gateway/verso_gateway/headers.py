"""Headers that a job's request may carry, and those that say how much room the queue has.

    Prefer           RFC 7240: ``wait=N`` waits up to N seconds for the result, ``respond-async``
                     does not wait; ``handling=strict`` prefers an error to an answer that leaves
                     a missing partition out, ``handling=lenient`` the answer
    Priority         RFC 9218, section 4.1: ``u=0`` first, ``u=7`` last, 3 by default; orders the
                     jobs of one tenant only
    Verso-Deadline   seconds from now after which work that has not started is dropped
    Verso-Webhook    id of the webhook that is notified when the job ends
    Idempotency-Key  the same key and request find the same job

draft-ietf-httpapi-idempotency-key-header-06 makes the key a structured-field string, that is,
quoted (RFC 8941, section 3.3.3); most clients send it bare, so both are accepted. Requests are the
same if a hash of method, target, media type and body is.

Answers carry ``RateLimit-Policy``, a quota, and ``RateLimit``, what is left of it
(draft-ietf-httpapi-ratelimit-headers-10). The quota is room in a queue, in slices, which no fixed
window restores: ``t`` is when the queue will be empty at the rate of the work done now.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request

from verso_core.errors import RequestInvalid
from verso_core.jobs import Queue
from verso_gateway.settings import Settings
from verso_ledger import Accepted

STRICT, LENIENT = "strict", "lenient"
"""What ``Prefer: handling`` may ask for (RFC 7240, section 4.4)."""
LONGEST_DEADLINE_S = 30 * 24 * 3600.0
WEBHOOK_PATTERN = "^wh_[0-9a-f]{32}$"
DEADLINE_PATTERN = (
    r"^(?=.*[1-9])([0-9]{1,6}|1[0-9]{6}|2[0-4][0-9]{5}|25[0-8][0-9]{4}|259[01][0-9]{3})"
    r"(\.[0-9]{1,6})?$|^2592000$"
)
"""Seconds in (0, LONGEST_DEADLINE_S], as a pattern for the description of the API."""
KEY_PATTERN = r"^[!#-~][ -~]{0,254}$"
"""Of a bare idempotency key."""
_MAX_KEY_CHARACTERS = 255
_WAIT = re.compile(r"^\d{1,9}$")
_URGENCY = re.compile(r"(?:^|,)\s*u=([0-7])\s*(?=[,;]|$)")
_SECONDS = re.compile(r"^\d{1,9}(?:\.\d{1,6})?$")
_WEBHOOK = re.compile(WEBHOOK_PATTERN)
_QUOTED_KEY = re.compile(r'^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"\s*(?:;.*)?$')
_BARE_KEY = re.compile(r"^[\x21\x23-\x7e][\x20-\x7e]*$")


@dataclass(frozen=True, slots=True)
class Preference:
    """What a Prefer header asks for; None and False for what it does not name."""

    wait_s: float | None = None
    respond_async: bool = False
    handling: str | None = None

    def wait(self, default_s: float, *, max_s: float) -> float:
        """Return the seconds to wait; 0 for ``respond-async`` alone."""
        if self.wait_s is not None:
            return min(self.wait_s, max_s)
        return 0.0 if self.respond_async else default_s

    def applied(self, wait_s: float) -> str | None:
        """Return the Preference-Applied header, None if nothing was preferred."""
        parts = ["respond-async"] if self.respond_async else []
        if self.wait_s is not None:
            parts.append(f"wait={wait_s:.0f}")
        if self.handling is not None:
            parts.append(f"handling={self.handling}")
        return ", ".join(parts) or None


def preference_of(request: Request) -> Preference:
    """Return the preference of a request."""
    return parse_prefer(request.headers.getlist("prefer"))


def parse_prefer(values: Iterable[str]) -> Preference:
    """Return what Prefer headers ask for; the unknown and malformed is ignored (RFC 7240, 2)."""
    wait_s, respond_async, handling = None, False, None
    for part in ",".join(values).split(","):
        name, _, value = part.partition(";")[0].partition("=")
        value = value.strip().strip('"')
        match name.strip().lower():
            case "respond-async":
                respond_async = True
            case "wait" if wait_s is None and _WAIT.fullmatch(value):
                wait_s = float(value)  # of a preference given twice the first counts
            case "handling" if handling is None and value in (STRICT, LENIENT):
                handling = value
    return Preference(wait_s=wait_s, respond_async=respond_async, handling=handling)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How a job is to be scheduled. ``deadline_s``: seconds from now; None for none.

    ``urgency`` is None where the caller did not say, so that it follows from the kind of the job.
    """

    urgency: int | None = None
    deadline_s: float | None = None
    webhook: str | None = None


def scheduling_of(request: Request) -> Scheduling:
    """Return the scheduling that a request's headers ask for.

    A malformed Priority counts as absent, as RFC 9218 asks (section 4).

    Raises:
        RequestInvalid: Verso-Deadline is no number of seconds in range, or Verso-Webhook no id.
    """
    headers = request.headers
    given = _URGENCY.search(",".join(headers.getlist("priority")))
    return Scheduling(
        urgency=None if given is None else int(given[1]),
        deadline_s=_deadline_s(headers.get("verso-deadline")),
        webhook=_webhook(headers.get("verso-webhook")),
    )


def key_of(request: Request) -> str | None:
    """Return a request's idempotency key, None if it has none.

    Raises:
        RequestInvalid: the header holds no usable key.
    """
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    quoted = _QUOTED_KEY.match(given.strip())
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else given.strip()
    if not _BARE_KEY.match(key) and not (quoted and key):
        raise RequestInvalid("expected a quoted or bare ASCII string as Idempotency-Key")
    if len(key) > _MAX_KEY_CHARACTERS:
        raise RequestInvalid(f"expected an Idempotency-Key of <= {_MAX_KEY_CHARACTERS} characters")
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


def rate_limit(queue: Queue, settings: Settings, accepted: Accepted) -> dict[str, str]:
    """Return the RateLimit headers for an accepted job; none for a job that existed before."""
    if accepted.left is None or accepted.drained_s is None:
        return {}
    quota = round(settings.queue_limit_slices * settings.tenant_part)
    return {
        "RateLimit-Policy": f'"{queue}";q={quota};qu="slices"',
        "RateLimit": f'"{queue}";r={accepted.left};t={accepted.drained_s}',
    }


def _deadline_s(given: str | None) -> float | None:
    if given is None:
        return None
    if not _SECONDS.match(given.strip()) or not 0 < float(given) <= LONGEST_DEADLINE_S:
        most = f"{LONGEST_DEADLINE_S:.0f}"
        raise RequestInvalid(f"expected seconds in (0, {most}] as Verso-Deadline")
    return float(given)


def _webhook(given: str | None) -> str | None:
    if given is not None and not _WEBHOOK.match(given.strip()):
        raise RequestInvalid("expected the id of a webhook (wh_...) as Verso-Webhook")
    return None if given is None else given.strip()
