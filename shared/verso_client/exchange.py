"""One HTTP exchange as a value, and the steps by which an operation proceeds.

An operation (:mod:`verso_client.operations`) is a generator: it yields a :class:`Call` and is sent
the :class:`Reply`, or yields a :class:`Pause` and is resumed after it. It does no input or output
of its own, so the synchronous and the asynchronous client share every rule about requests, retries
and results, and differ only in who carries the steps out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from verso_core.errors import CLASSES, QueueFull, Unavailable, VersoError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A request to be made.

    Attributes:
        path: below the platform's address, with its segments already quoted.
        repeatable: whether making it twice does no more than making it once, so that it may be
            tried again when the connection breaks before an answer.
        timeout_s: seconds without a byte before it is given up; None takes the client's.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait of so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a call. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Read the body as JSON.

        Raises:
            Unavailable: it is something else, so whoever answered is not the platform.
        """
        try:
            return json.loads(self.body)
        except ValueError as exc:
            kind = self.headers.get("content-type", "no content type")
            raise Unavailable(f"expected JSON, got {kind} with status {self.status}") from exc


Steps = Generator[Call | Pause, Reply | None, T]


def error_of(reply: Reply) -> VersoError:
    """Rebuild the error that a problem+json answer (RFC 9457) describes.

    An answer of someone else on the way, a proxy say, gives an ``Unavailable`` for the statuses
    that mean "later" and a plain ``VersoError`` for others.
    """
    try:
        problem = json.loads(reply.body)
        code, detail = str(problem["code"]), str(problem.get("detail") or problem.get("title"))
    except (ValueError, TypeError, KeyError):
        detail = f"unexpected answer with status {reply.status}"
        return (Unavailable if reply.status in (429, 502, 503, 504) else VersoError)(detail)
    if code == QueueFull.code:
        return QueueFull(detail, retry_after_s=retry_after_s(reply) or 1.0)
    return CLASSES.get(code, VersoError)(detail)


def retry_after_s(reply: Reply) -> float | None:
    """Return the seconds that the server asks to wait, None where it does not say.

    ``Retry-After-Ms`` is finer and goes before ``Retry-After`` (RFC 9110, section 10.2.3), of which
    only the form in seconds is read.
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(reply.headers.get(name, "")) / scale
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None
