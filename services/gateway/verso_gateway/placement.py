"""Where a job stands among others, as its request's headers say.

Priority         RFC 9218, section 4.1: ``u=0`` is worked on first, ``u=7`` last, 3 by default;
                 it orders the jobs of one tenant and moves nobody else's
Verso-Deadline   seconds from now after which the work is not begun any more
Verso-Webhook    id of the webhook that is told of the job's end
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.requests import Request

from verso_core.errors import RequestInvalid
from verso_ledger import URGENCY

LONGEST_DEADLINE_S = 30 * 24 * 3600.0
_URGENCY = re.compile(r"(?:^|,)\s*u=([0-7])\s*(?=[,;]|$)")
_SECONDS = re.compile(r"^\d{1,9}(?:\.\d{1,6})?$")
_WEBHOOK = re.compile(r"^wh_[0-9a-f]{32}$")


@dataclass(frozen=True, slots=True)
class Placement:
    """What a caller asked for. ``deadline_s``: seconds from now; None for none."""

    urgency: int = URGENCY
    deadline_s: float | None = None
    webhook: str | None = None


def placement_of(request: Request) -> Placement:
    """Read a request's placement.

    A Priority that is none counts as not given, as RFC 9218 asks (section 4).

    Raises:
        RequestInvalid: the deadline is no number of seconds in range, or the webhook's id none.
    """
    headers = request.headers
    given = _URGENCY.search(",".join(headers.getlist("priority")))
    return Placement(
        urgency=URGENCY if given is None else int(given[1]),
        deadline_s=_deadline_s(headers.get("verso-deadline")),
        webhook=_webhook(headers.get("verso-webhook")),
    )


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
