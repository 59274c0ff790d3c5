"""HTTP exchanges as values, and what both clients share of the HTTP library.

An operation (:mod:`verso_client.operations`) is a generator: it yields a :class:`Call` and is sent
the :class:`Reply`. :func:`repeated` adds the retries, with a :class:`Pause` before each. Neither
does input or output of its own, so the synchronous and the asynchronous client share every rule
about requests, retries and results, and differ only in how they perform the steps.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2

from verso_core.errors import (
    CLASSES,
    DocumentsRefused,
    IdInvalid,
    MetadataInvalid,
    QueueFull,
    RequestInvalid,
    SourceMoved,
    Unavailable,
    VersoError,
)
from verso_core.jobs.job import JobEvent
from verso_core.jobs.logs.tail import TailEvent, TailGap, TailLine, TailRequest

T = TypeVar("T")

_FIRST_PAUSE_S = 0.25
_WAIT_SHARE = 0.8
"""Of the time that the client waits for a byte, the part in which the platform has to answer."""
DEFAULT_URL = "http://127.0.0.1:8080"
_HERE = ("localhost", "127.0.0.1", "::1")
_FAULTS: Mapping[str, type[RequestInvalid]] = {
    "id": IdInvalid,
    "collection": IdInvalid,
    "name": MetadataInvalid,  # of a file: it becomes metadata
}
"""Errors of parameters that a URL cannot carry; of others it is ``RequestInvalid``."""


class Unreachable(Unavailable):
    """Raised when nothing answers at the platform's address; its code is that of its parent."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request.

    Attributes:
        path: path below the platform's address, its segments quoted.
        repeatable: whether it is idempotent, so that it can be repeated when the connection breaks
            before an answer.
        wait_s: seconds that the platform may wait before it answers, less where the client does not
            wait as long for a byte.
        pause_s: seconds before it is made.

    Raises:
        RequestInvalid: a parameter holds a lone surrogate, so that a URL cannot carry it.
    """

    method: str
    path: str
    params: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    wait_s: float = 0.0
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        for name, given in self.params.items():
            for value in given if isinstance(given, tuple) else (given,):
                if not _encodable(str(value)):
                    error = _FAULTS.get(name, RequestInvalid)
                    raise error(f"expected {name} without lone surrogates, got {value!a}")


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause between two calls."""

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
            Unavailable: the body is not JSON, so the answer is not the platform's.
        """
        try:
            return json.loads(self.body)
        except ValueError as exc:
            kind = self.headers.get("content-type", "no content type")
            raise Unavailable(f"expected JSON, got {kind} with status {self.status}") from exc


Steps = Generator[Call, Reply, T]
"""An operation: the calls that it makes, and its result."""
Attempts = Generator[Call | Pause, Reply | None, T]
"""An operation with its retries."""


def path_of(*segments: str) -> str:
    """Return the path of segments below ``/v1``, each quoted.

    Raises:
        IdInvalid: a segment holds a lone surrogate.
    """
    for segment in segments:
        if not _encodable(segment):
            raise IdInvalid(f"expected an id without lone surrogates, got {segment!a}")
    return "/v1/" + "/".join(map(_quoted, segments))


def _quoted(segment: str) -> str:
    if segment in (".", ".."):  # else they would name a place in the path (RFC 3986, 5.2.4)
        return segment.replace(".", "%2E")
    return quote(segment, safe="")


def _encodable(text: str) -> bool:
    """Whether a string has a form in UTF-8, as the bytes of a file's name may lack one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def error_of(reply: Reply) -> VersoError:
    """Return the error that a problem+json answer (RFC 9457) describes.

    Any other answer, of a proxy for example, becomes ``Unavailable`` for the statuses that mean
    "later" and a plain ``VersoError`` for others, such as a redirection.
    """
    try:
        problem = json.loads(reply.body)
        code, detail = str(problem["code"]), str(problem.get("detail") or problem.get("title"))
    except (ValueError, TypeError, KeyError):
        if reply.status in (414, 431):
            return RequestInvalid("expected shorter parameters: they do not fit the URL")
        place = reply.headers.get("location")
        led = f", which leads to {place}" if place else ""
        detail = f"unexpected answer with status {reply.status}{led}"
        return (Unavailable if reply.status in (429, 502, 503, 504) else VersoError)(detail)
    if code == QueueFull.code:
        return QueueFull(detail, retry_after_s=retry_after_s(reply) or 1.0)
    if code == DocumentsRefused.code:
        return DocumentsRefused(detail, intaken=problem)
    if code == SourceMoved.code:
        return SourceMoved(detail, position=int(problem.get("position", 0)))
    return CLASSES.get(code, VersoError)(detail)


def retry_after_s(reply: Reply) -> float | None:
    """Return the seconds that the server asks to wait, or None.

    ``Retry-After-Ms`` is finer and has precedence over ``Retry-After`` (RFC 9110, section 10.2.3),
    of which only the form in seconds is read.
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(reply.headers.get(name, "")) / scale
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def headers_of(api_key: str | None) -> dict[str, str]:
    """Return the headers that every request carries.

    Raises:
        RequestInvalid: the key holds what no key does.
    """
    headers = {"Accept": "application/json", "User-Agent": "verso-client"}
    key = (api_key or "").strip()  # a key that was read from a file may have its line end
    if not (key.isascii() and key.isprintable()):
        raise RequestInvalid("expected an API key of printable ASCII characters")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers


def asks_environment(url: str) -> bool:
    """Whether the environment's proxies count, none of which reaches this machine's own platform.

    One that cannot be used at all would be an error even so.

    Raises:
        RequestInvalid: the address is no URL.
    """
    try:
        there = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise RequestInvalid(f"expected an address such as {DEFAULT_URL}: {error}") from error
    return there.scheme != "http" or there.host not in _HERE


def asked_headers(call: Call, *, strict: bool, timeout_s: float | None) -> dict[str, str]:
    """Return the headers of a call.

    Args:
        call: the call.
        strict: nothing may be left out of the answer.
        timeout_s: how long the client waits for a byte, seconds; None: without end.
    """
    preferred = [call.headers.get("Prefer")]
    wait_s = math.ceil(call.wait_s)
    if timeout_s is not None and wait_s > _WAIT_SHARE * timeout_s:
        wait_s = math.floor(_WAIT_SHARE * timeout_s)
    if wait_s > 0:
        preferred.append(f"wait={wait_s}")
    if strict:
        preferred.append("handling=strict")
    prefer = ", ".join(filter(None, preferred))
    return {**call.headers, "Prefer": prefer} if prefer else dict(call.headers)


def reply_of(response: httpx2.Response) -> Reply:
    """Return a response that has been read."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, response.content)


def unreachable(error: httpx2.RequestError | httpx2.InvalidURL, url: httpx2.URL) -> VersoError:
    """Return the error for a platform that was not reached or did not complete its answer."""
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx2.InvalidURL):  # an id or a filter that no URL is long enough for
        return RequestInvalid(f"expected shorter parameters: {reason}")
    if isinstance(error, httpx2.UnsupportedProtocol):
        return RequestInvalid(f"expected an address such as {DEFAULT_URL}, got {url}")
    return Unreachable(f"no answer from {url}: {reason}")


def event_call(job_id: str, *, after: str | None) -> Call:
    """Return the call that streams a job's events, all of them or those after an event."""
    headers = {} if after is None else {"Last-Event-ID": after}
    return Call("GET", path_of("jobs", job_id, "events"), headers=headers)


def job_event(event: httpx2.ServerSentEvent) -> JobEvent:
    """Read one server-sent event."""
    return JobEvent(id=event.id, name=event.event, data=json.loads(event.data or "{}"))


def tail_call(request: TailRequest, *, after: str | None) -> Call:
    """Return the call that streams a tail, from its start or after an event."""
    asked = request.model_dump(mode="json", exclude_unset=True, exclude={"filter"})
    if request.filter is not None:
        asked["filter"] = json.dumps(request.filter.model_dump(mode="json"))
    headers = {} if after is None else {"Last-Event-ID": after}
    return Call("GET", path_of("logs", "tail"), params=asked, headers=headers)


def tail_event(event: JobEvent) -> TailEvent:
    """Read an event of a tail; those of names that are not known are places."""
    match event.name:
        case "line":
            return TailEvent(id=event.id, line=TailLine.model_validate(event.data))
        case "gap":
            return TailEvent(id=event.id, gap=TailGap.model_validate(event.data))
    return TailEvent(id=event.id)


@dataclass(frozen=True, slots=True)
class Retries:
    """Which failed calls are repeated, and when.

    1. Only calls that fail with a ``retryable`` error are repeated: a full queue, a restart.
    2. The pause doubles from a quarter of a second, with full jitter so that callers who failed
       together do not return together, and is never shorter than the server asked for.
    3. After ``patience_s`` seconds the last error is raised.
    """

    patience_s: float = 30.0
    longest_pause_s: float = 8.0

    def pause_s(self, attempt: int, *, asked_s: float | None) -> float:
        """Return the pause after failed attempt ``attempt``, counted from 0, seconds."""
        ceiling = min(self.longest_pause_s, _FIRST_PAUSE_S * 2 ** min(attempt, 16))
        return max(random.uniform(0, ceiling), asked_s or 0.0)


class Patience:
    """How long one call is still repeated, as the retries say."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._deadline = time.monotonic() + retries.patience_s
        self._attempt = 0

    def pause_s(self, error: VersoError, *, asked_s: float | None) -> float:
        """Return the pause before the next attempt, seconds.

        Raises:
            VersoError: the error itself, after which there is no other attempt.
        """
        pause_s = self._retries.pause_s(self._attempt, asked_s=asked_s)
        if not error.retryable or time.monotonic() + pause_s > self._deadline:
            raise error
        self._attempt += 1
        return pause_s


def repeated(steps: Steps[T], retries: Retries) -> Attempts[T]:
    """Repeat each call of an operation as the retries say; return the operation's result."""
    try:
        call = next(steps)
        while True:
            try:
                reply = yield from perform(call, retries)
            except VersoError as error:
                call = steps.throw(error)
            else:
                call = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


def perform(call: Call, retries: Retries) -> Attempts[Reply]:
    """Repeat a call until it succeeds, fails for good, or ``patience_s`` has passed.

    Raises:
        VersoError: the platform's error, or Unavailable if it could not be reached.
    """
    if call.pause_s > 0:
        yield Pause(call.pause_s)
    patience = Patience(retries)
    while True:
        asked_s: float | None = None
        try:
            reply = yield call
            assert reply is not None
            if reply.status < 300:
                return reply
            asked_s = retry_after_s(reply)
            raise error_of(reply)
        except VersoError as error:
            if not call.repeatable:
                raise
            pause_s = patience.pause_s(error, asked_s=asked_s)
        yield Pause(pause_s)
