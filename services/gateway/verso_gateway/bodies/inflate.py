"""Compressed request bodies, inflated while they arrive (RFC 9110, section 8.4.1).

About ``_PIECE_BYTES`` are inflated at a time, when the application asks for them. So a small body
that inflates to a huge one costs no more memory than any other, and the limits of bodies
(:mod:`~verso_gateway.bodies.limits`), which stand behind, count what it inflates to.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import zstandard
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from verso_core.errors import EncodingUnsupported, RequestInvalid
from verso_gateway import problems
from verso_gateway.protocols import Protocol, protocol_of

_PIECE_BYTES = 64 * 1024
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
"""The header says which of both it is."""
_WINDOW_BYTES = 8 * 1024 * 1024
"""Most that a ``zstd`` body may refer back to (RFC 9659, section 3)."""
_FED_BYTES = 64
"""Given to Zstandard's inflater at a time, which has no bound of its own: they make 2 MiB at most,
16 blocks of 4 bytes and 128 KiB (RFC 8878, section 3.1.1.2)."""


class Inflate:
    """ASGI middleware that inflates bodies with a ``Content-Encoding``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        coding = _coding(scope)
        if coding in ("", "identity") or (coding == "snappy" and _is_push(scope)):
            await self._app(scope, receive, send)
        elif coding in problems.CODINGS:
            await self._app(scope, _Inflated(receive, coding).next, send)
        else:
            taken = " or ".join(problems.CODINGS)
            error = EncodingUnsupported(f"expected Content-Encoding {taken}, got {coding!a}")
            await problems.answer(scope, error)(scope, receive, send)


def _coding(scope: Scope) -> str:
    if scope["type"] != "http":
        return ""
    given = ",".join(Headers(scope=scope).getlist("content-encoding")).strip().lower()
    return given.removeprefix("x-")  # RFC 9110, section 8.4.1.3: x-gzip is gzip


def _is_push(scope: Scope) -> bool:
    """Whether a body is a push of Loki: its Snappy is a part of the protocol, which inflates it.

    Vector says so in the header (``src/sinks/loki/service.rs`` of vectordotdev/vector), Promtail
    does not.
    """
    return protocol_of(scope["path"]) is Protocol.LOKI


class _Frame:
    """A frame of Zstandard, inflated as zlib's objects inflate."""

    unused_data = b""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).decompressobj()
        self.unconsumed_tail = b""

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        return self._frame.eof

    def decompress(self, data: bytes, most: int) -> bytes:
        """Inflate a part of the data: ``most`` bytes, and what the last bytes fed make beyond."""
        pieces: list[bytes] = []
        size = fed = 0
        while fed < len(data) and size < most and not self.eof:
            pieces.append(self._frame.decompress(data[fed : fed + _FED_BYTES]))
            size += len(pieces[-1])
            fed += _FED_BYTES
        self.unconsumed_tail = self._frame.unused_data + data[fed:]
        return b"".join(pieces)


class _Inflated:
    """A body's messages, inflated."""

    def __init__(self, receive: Receive, coding: str) -> None:
        self._receive = receive
        self._coding = coding
        self._inflater = _inflater(coding)
        self._waiting = b""
        self._unfinished = False  # input was taken whose output did not fit into the piece
        self._more_arrives = True

    async def next(self) -> Message:
        """Return the next message.

        Raises:
            RequestInvalid: the bytes are not of the coding, or end too early.
        """
        if self._left:
            await asyncio.sleep(0)  # a body that inflates to much must not hold up other callers
        elif self._more_arrives:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._waiting = message.get("body", b"")
            self._more_arrives = message.get("more_body", False)
        else:
            return await self._receive()
        piece = self._inflate() if self._left else b""
        more = self._left or self._more_arrives
        if not more and not self._inflater.eof:
            raise RequestInvalid(f"the {self._coding} body ends too early")
        return {"type": "http.request", "body": piece, "more_body": more}

    @property
    def _left(self) -> bool:
        return bool(self._waiting) or self._unfinished

    def _inflate(self) -> bytes:
        if self._inflater.eof:  # several members (RFC 1952, section 2.2; RFC 8878, section 3)
            self._inflater = _inflater(self._coding)
        try:
            piece: bytes = self._inflater.decompress(self._waiting, _PIECE_BYTES)
        except (zlib.error, zstandard.ZstdError) as exc:
            raise RequestInvalid(f"expected a {self._coding} body, got other bytes") from exc
        self._waiting = self._inflater.unconsumed_tail or self._inflater.unused_data
        self._unfinished = len(piece) == _PIECE_BYTES and not self._inflater.eof
        return piece


def _inflater(coding: str) -> Any:
    """Return what inflates one member of a body; zlib's own type has no name."""
    return _Frame() if coding == "zstd" else zlib.decompressobj(_ZLIB_OR_GZIP)
