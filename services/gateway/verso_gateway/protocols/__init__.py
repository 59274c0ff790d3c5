"""Protocols of others that paths speak, and how each says that something went wrong.

Some bring log records in, the others ask models: :mod:`~verso_gateway.protocols.openai`,
:mod:`~verso_gateway.protocols.cohere`, :mod:`~verso_gateway.protocols.tei`; agents call tools by
:mod:`~verso_gateway.protocols.mcp`. Jina's is ``/v1/rerank``, whose errors are Verso's own:
RFC 9457 has the ``detail`` that its clients show.

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
MCP_PATH = "/mcp"
TEI_PATH = "/tei"
COHERE_PATH = "/cohere"
"""Where the whole of Cohere's API is: its paths of the first version are Verso's own elsewhere."""
LONGEST_WAIT_S = 2
"""Most that ``Retry-After`` says to agents: the SDKs of OpenTelemetry give a batch up that they
could not send within 10 s."""


class Protocol(StrEnum):
    """A protocol of others."""

    OTLP = "otlp"
    BULK = "bulk"
    LOKI = "loki"
    SYSLOG = "syslog"
    OPENAI = "openai"
    COHERE = "cohere"
    TEI = "tei"
    MCP = "mcp"


FEEDS = (Protocol.OTLP, Protocol.BULK, Protocol.LOKI, Protocol.SYSLOG)
"""The protocols by which log records come in."""

_PREFIXES = (
    (BULK_PATH, Protocol.BULK),
    (LOKI_PATH, Protocol.LOKI),
    (MCP_PATH, Protocol.MCP),
    (TEI_PATH, Protocol.TEI),
    (COHERE_PATH, Protocol.COHERE),
    ("/v2", Protocol.COHERE),
    ("/v1/embeddings", Protocol.OPENAI),
    ("/v1/models", Protocol.OPENAI),
)


class Shaped(NamedTuple):
    """An answer to an error in the words of a protocol."""

    status: int
    content: bytes
    media_type: str
    headers: Mapping[str, str] = {}


def protocol_of(path: str) -> Protocol | None:
    """Return the protocol that a path speaks; None for Verso's own."""
    if path == OTLP_PATH:
        return Protocol.OTLP
    for prefix, protocol in _PREFIXES:
        if path == prefix or path.startswith(f"{prefix}/"):
            return protocol
    return None
