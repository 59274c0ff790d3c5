"""The engine's wire protocol: one handler for each operation, and the client that calls them.

    op       header                    blobs               reply header              reply blobs
    info     -                         -                   artifact, device, ...     -
    figures  -                         -                   lanes: {name: counts}     -
    encode   -                         texts               tokens                    vectors
    code     -                         vectors, texts      coded: [bool]             payloads
    read     disturbed, drafts: bool   vectors, payloads,  read: [bool]              texts
                                       maybe drafts
    guess    beam, max_tokens, count   vectors             log_probability: [..],    texts
                                                           confidence: [..]

The client has the signatures of the service, since callers do not know which of the two they hold.
The operations of heads are in :mod:`verso_worker.engine.head_operations`.

Vectors are one blob, (n, D) float32, little endian, row after row. Where ``coded`` or ``read`` is
false the blob is empty and means None. Every reply's header has ``timings_ms``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import VectorInvalid
from verso_worker.engine.head_operations import HeadCalls
from verso_worker.ipc.rpc import Client, Handler
from verso_worker.records.outputs import Timings
from verso_worker.records.recorder import Encoded, Guess

CALL_TIMEOUT_S = 120.0
"""Longest call: a full slice behind the backlog of a busy engine. A hung engine is seen sooner."""

_FIGURES_S = 2.0  # a scrape must not wait for an engine that hangs
_LITTLE = np.dtype("<f4")


class Model(Protocol):
    """The model behind the handlers."""

    def encode(self, texts: Sequence[bytes], *, timings: Timings) -> Encoded:
        """Return vectors."""
        ...

    def code(
        self, texts: Sequence[bytes], vectors: NDArray[np.float32], *, timings: Timings
    ) -> list[bytes | None]:
        """Return payloads."""
        ...

    def read(
        self,
        payloads: Sequence[bytes],
        vectors: NDArray[np.float32],
        *,
        disturbed: bool,
        drafts: Sequence[bytes] | None,
        timings: Timings,
    ) -> list[bytes | None]:
        """Return texts."""
        ...

    def guess(
        self, vectors: NDArray[np.float32], *, beam: int, max_tokens: int, timings: Timings
    ) -> list[Guess]:
        """Return guesses."""
        ...

    def figures(self) -> dict[str, dict[str, float]]:
        """Return what each lane has done."""
        ...


def handlers(model: Model, info: Mapping[str, Any]) -> dict[str, Handler]:
    """Return the handlers of all operations; `info` is the reply of ``info``."""

    def encode(_: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        timings = Timings()
        encoded = model.encode(blobs, timings=timings)
        header = {"tokens": encoded.tokens, "timings_ms": timings.spent}
        return header, [_bytes(encoded.vectors)]

    def code(_: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        vectors, texts = _split(blobs)
        timings = Timings()
        payloads = model.code(texts, vectors, timings=timings)
        coded = [payload is not None for payload in payloads]
        header = {"coded": coded, "timings_ms": timings.spent}
        return header, [payload or b"" for payload in payloads]

    def read(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        half = (len(blobs) + 1) // 2
        drafts = blobs[half:] if header["drafts"] else None
        vectors, payloads = _split(blobs[:half] if header["drafts"] else blobs)
        timings = Timings()
        texts = model.read(
            payloads, vectors, disturbed=header["disturbed"], drafts=drafts, timings=timings
        )
        found = [text is not None for text in texts]
        reply = {"read": found, "timings_ms": timings.spent}
        return reply, [text or b"" for text in texts]

    def guess(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        timings = Timings()
        vectors = _vectors(blobs[0], count=header["count"])
        guesses = model.guess(
            vectors, beam=header["beam"], max_tokens=header["max_tokens"], timings=timings
        )
        reply = {
            "log_probability": [guess.log_probability for guess in guesses],
            "confidence": [guess.confidence for guess in guesses],
            "timings_ms": timings.spent,
        }
        return reply, [guess.text for guess in guesses]

    return {
        "info": lambda _header, _blobs: (info, []),
        "figures": lambda _header, _blobs: ({"lanes": model.figures()}, []),
        "encode": encode,
        "code": code,
        "read": read,
        "guess": guess,
    }


class EngineClient(HeadCalls):
    """The engine as the worker sees it; any number of threads may call.

    Its signatures repeat those of the service in the engine's process.

    Raises in every method:
        EngineUnavailable: the engine is away, died in the call or is too slow; try again.
    """

    def __init__(self, socket_path: Path, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._client = Client(socket_path, timeout_s)
        # Separate, because a scrape does not count as use of the engine: see idle_s.
        self._gauge = Client(socket_path, _FIGURES_S)

    @property
    def idle_s(self) -> float:
        """Seconds since the last call ended; 0 while one runs."""
        return self._client.idle_s

    def info(self) -> dict[str, Any]:
        """Return the served artifact: its id, space and codec, the device and versions."""
        return self._client.call("info")[0]

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the counts of each lane since the engine's start."""
        lanes: dict[str, dict[str, float]] = self._gauge.call("figures")[0]["lanes"]
        return lanes

    def encode(self, texts: Sequence[bytes], *, timings: Timings | None = None) -> Encoded:
        """Return each text's vector; text beyond the encoder's window is ignored."""
        header, [vectors] = self._client.call("encode", {}, texts)
        _add(timings, header)
        return Encoded(_vectors(vectors, count=len(texts)), header["tokens"])

    def code(
        self,
        texts: Sequence[bytes],
        vectors: NDArray[np.float32],
        *,
        timings: Timings | None = None,
    ) -> list[bytes | None]:
        """Code each text against its vector; None where the decoder cannot."""
        header, payloads = self._client.call("code", {}, [_bytes(vectors), *texts])
        _add(timings, header)
        return _or_none(payloads, header["coded"])

    def read(
        self,
        payloads: Sequence[bytes],
        vectors: NDArray[np.float32],
        *,
        disturbed: bool = False,
        drafts: Sequence[bytes] | None = None,
        timings: Timings | None = None,
    ) -> list[bytes | None]:
        """Decode each payload against its vector; None for one that is no payload of this model.

        `drafts`, the expected text of each payload, change only the time it takes.
        """
        blobs = [_bytes(vectors), *payloads, *(drafts or ())]
        wanted = {"disturbed": disturbed, "drafts": drafts is not None}
        header, texts = self._client.call("read", wanted, blobs)
        _add(timings, header)
        return _or_none(texts, header["read"])

    def guess(
        self,
        vectors: NDArray[np.float32],
        *,
        beam: int,
        max_tokens: int,
        timings: Timings | None = None,
    ) -> list[Guess]:
        """Decode each vector with no patch at all."""
        wanted = {"beam": beam, "max_tokens": max_tokens, "count": len(vectors)}
        header, texts = self._client.call("guess", wanted, [_bytes(vectors)])
        _add(timings, header)
        figures = zip(texts, header["log_probability"], header["confidence"], strict=True)
        return [Guess(text, log, confidence) for text, log, confidence in figures]

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()
        self._gauge.close()


def _bytes(vectors: NDArray[np.float32]) -> bytes:
    return vectors.astype(_LITTLE, copy=False).tobytes()


def _split(blobs: list[bytes]) -> tuple[NDArray[np.float32], list[bytes]]:
    if not blobs:
        raise VectorInvalid("expected a blob of vectors, got none")
    return _vectors(blobs[0], count=len(blobs) - 1), blobs[1:]


def _vectors(blob: bytes, *, count: int) -> NDArray[np.float32]:
    """Read (count, D) vectors; D follows from the blob's size."""
    if count == 0:
        return np.empty((0, 0), np.float32)
    if len(blob) % (4 * count):
        raise VectorInvalid(f"expected {count} rows of float32, got {len(blob)} bytes")
    return np.frombuffer(blob, _LITTLE).reshape(count, -1).astype(np.float32)


def _or_none(blobs: list[bytes], there: list[bool]) -> list[bytes | None]:
    return [blob if present else None for blob, present in zip(blobs, there, strict=True)]


def _add(timings: Timings | None, header: Mapping[str, Any]) -> None:
    if timings is not None:
        for name, spent in header["timings_ms"].items():
            timings.spent[name] = timings.spent.get(name, 0.0) + spent
