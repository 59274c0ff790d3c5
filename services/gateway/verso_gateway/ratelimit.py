"""How much more a caller may bring, said before it is refused.

draft-ietf-httpapi-ratelimit-headers-10: ``RateLimit-Policy`` names a quota and ``RateLimit`` what
is left of it. The quota is room in a queue, in slices, so nothing is given back after a fixed
window: ``t`` is when the queue will be empty at the rate at which it drains now.
"""

from __future__ import annotations

from verso_core.jobs import Queue
from verso_gateway.settings import Settings
from verso_ledger import Accepted


def headers(queue: Queue, settings: Settings, accepted: Accepted) -> dict[str, str]:
    """Return the headers of an answer to an accepted job; none for one that was there before."""
    if accepted.left is None or accepted.drained_s is None:
        return {}
    quota = round(settings.queue_limit_slices * settings.tenant_part)
    return {
        "RateLimit-Policy": f'"{queue}";q={quota};qu="slices"',
        "RateLimit": f'"{queue}";r={accepted.left};t={accepted.drained_s}',
    }
