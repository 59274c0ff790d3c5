"""Protocols of others that paths speak, and how each says that something went wrong.

A path is enough to know the protocol, so that middleware that refuses a request before any route
is found answers in the words of the one who asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

OTLP_PATH = "/v1/logs"
BULK_PATH = "/es"
LOKI_PATH = "/loki"
LONGEST_WAIT_S = 2
"""Most that ``Retry-After`` says: the SDKs of OpenTelemetry give a batch up that they could not
send within 10 s."""


class Protocol(StrEnum):
    """A protocol by which log records come in."""

    OTLP = "otlp"
    BULK = "bulk"
    LOKI = "loki"
    SYSLOG = "syslog"


class Shaped(NamedTuple):
    """An answer to an error in the words of a protocol."""

    status: int
    content: bytes
    media_type: str
    headers: Mapping[str, str] = {}


def protocol_of(path: str) -> Protocol | None:
    """Return the protocol that a path speaks; None for Verso's own and OpenAI's."""
    if path == OTLP_PATH:
        return Protocol.OTLP
    for prefix, protocol in ((BULK_PATH, Protocol.BULK), (LOKI_PATH, Protocol.LOKI)):
        if path == prefix or path.startswith(f"{prefix}/"):
            return protocol
    return None
