"""What both clients need to know of HTTP and of the library they speak it with."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx2

from verso_client.answers import JobEvent
from verso_client.exchange import Call, Reply
from verso_core.errors import Unavailable

DEFAULT_URL = "http://127.0.0.1:8080"


def headers_of(api_key: str | None) -> dict[str, str]:
    """Return the headers that every request carries."""
    headers = {"Accept": "application/json", "User-Agent": "verso-client"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return headers


def reply_of(response: httpx2.Response) -> Reply:
    """Return a response that has been read as a value."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, response.content)


def broken(error: httpx2.TransportError, url: httpx2.URL) -> Unavailable:
    """Return the error for a platform that could not be reached or did not finish its answer."""
    reason = str(error) or type(error).__name__
    return Unavailable(f"no answer from {url}: {reason}")


def event_call(job_id: str, *, after: str | None) -> Call:
    """Make the call that follows a job, from its beginning or after an event."""
    headers = {} if after is None else {"Last-Event-ID": after}
    return Call("GET", f"/v1/jobs/{quote(job_id, safe='')}/events", headers=headers)


def job_event(event: httpx2.ServerSentEvent) -> JobEvent:
    """Read one server-sent event."""
    return JobEvent(id=event.id, name=event.event, data=json.loads(event.data or "{}"))
