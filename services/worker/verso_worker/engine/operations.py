"""The engine's wire protocol: one handler for each operation, and the client that calls them.

    op       header                    blobs               reply header              reply blobs
    info     -                         -                   artifact, device, ...     -
    figures  -                         -                   lanes: {name: counts}     -
    passed   -                         -                   -; once codecs may serve  -
    encode   -                         texts               tokens, truncated: [..]   vectors
    code     -                         vectors, texts      coded: [bool]             payloads
    read     disturbed, drafts: bool   vectors, payloads,  read: [bool]              texts
                                       maybe drafts
    guess    beam, max_tokens, count   vectors             log_probability: [..],    texts
                                                           confidence: [..],
                                       cosine: [..]

The client and the service implement :class:`verso_worker.records.recorder.Engine`.
The operations of heads are in :mod:`verso_worker.engine.head_operations`.

Vectors are one blob, (n, D) float32, little endian, row after row. Where ``coded`` or ``read`` is
false the blob is empty and means None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from verso_core.errors import VectorInvalid
from verso_worker.engine.head_operations import (
    HeadCalls,
    Message,
    Vectors,
    pack_vectors,
    unpack_vectors,
)
from verso_worker.ipc.client import Client
from verso_worker.ipc.server import Handler
from verso_worker.records.recorder import Encoded, Engine, Guess

CALL_TIMEOUT_S = 120.0
"""Longest call: a full slice behind the backlog of a busy engine. A hung engine is seen sooner."""

_PASSED_S = 600.0
_PATIENCE_S = 20.0
"""How long a call waits for codecs that are checked for the first time, usually 15 s. Then its slot
is free for others, and its work, which is done again, does not slow the check too often."""
_FIGURES_S = 2.0  # a scrape must not wait for an engine that hangs


class Model(Engine, Protocol):
    """The model behind the handlers."""

    def figures(self) -> dict[str, dict[str, float]]:
        """Return what each lane has done."""


class Gate(Protocol):
    """What calls that need a codec wait for."""

    def await_passed(self, *, patience_s: float | None = None) -> None:
        """Return once codecs may serve; raise ArtifactInvalid if they never may, else NotReady."""


def handlers(model: Model, info: Mapping[str, Any], gate: Gate) -> dict[str, Handler]:
    """Return the handlers of all operations; `info` is the reply of ``info``."""

    def passed(_header: dict[str, Any], _blobs: list[bytes]) -> Message:
        gate.await_passed()
        return {}, []

    def encode(_: dict[str, Any], blobs: list[bytes]) -> Message:
        encoded = model.encode(blobs)
        reply = {"tokens": encoded.tokens, "truncated": encoded.truncated}
        return reply, [pack_vectors(encoded.vectors)]

    def code(_: dict[str, Any], blobs: list[bytes]) -> Message:
        gate.await_passed(patience_s=_PATIENCE_S)
        vectors, texts = _split(blobs)
        payloads = model.code(texts, vectors)
        coded = [payload is not None for payload in payloads]
        return {"coded": coded}, [payload or b"" for payload in payloads]

    def read(header: dict[str, Any], blobs: list[bytes]) -> Message:
        gate.await_passed(patience_s=_PATIENCE_S)
        half = (len(blobs) + 1) // 2
        drafts = blobs[half:] if header["drafts"] else None
        vectors, payloads = _split(blobs[:half] if header["drafts"] else blobs)
        texts = model.read(payloads, vectors, disturbed=header["disturbed"], drafts=drafts)
        return {"read": [text is not None for text in texts]}, [text or b"" for text in texts]

    def guess(header: dict[str, Any], blobs: list[bytes]) -> Message:
        gate.await_passed(patience_s=_PATIENCE_S)
        vectors = unpack_vectors(blobs[0], count=header["count"])
        guesses = model.guess(vectors, beam=header["beam"], max_tokens=header["max_tokens"])
        reply = {
            "log_probability": [guess.log_probability for guess in guesses],
            "confidence": [guess.confidence for guess in guesses],
            "cosine": [guess.cosine for guess in guesses],
        }
        return reply, [guess.text for guess in guesses]

    return {
        "info": lambda _header, _blobs: (info, []),
        "figures": lambda _header, _blobs: ({"lanes": model.figures()}, []),
        "passed": passed,
        "encode": encode,
        "code": code,
        "read": read,
        "guess": guess,
    }


class EngineClient(HeadCalls):
    """The engine as the worker sees it; any number of threads may call.

    Raises in every method:
        EngineUnavailable: the engine is away, died in the call or is too slow; try again.
        NotReady: its codecs are being checked for the first time on this machine.
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

    def await_passed(self) -> None:
        """Wait until the codecs have passed their golden samples.

        Raises:
            ArtifactInvalid: they have not; no call that needs one is answered.
        """
        self._client.call("passed", timeout_s=_PASSED_S)

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the counts of each lane since the engine's start."""
        lanes: dict[str, dict[str, float]] = self._gauge.call("figures")[0]["lanes"]
        return lanes

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        """Return each text's vector; text beyond the encoder's window is ignored."""
        header, [vectors] = self._client.call("encode", {}, texts)
        rows = unpack_vectors(vectors, count=len(texts))
        return Encoded(rows, header["tokens"], header["truncated"])

    def code(self, texts: Sequence[bytes], vectors: Vectors) -> list[bytes | None]:
        """Code each text against its vector; None where the decoder cannot."""
        header, payloads = self._client.call("code", {}, [pack_vectors(vectors), *texts])
        return _or_none(payloads, header["coded"])

    def read(
        self,
        payloads: Sequence[bytes],
        vectors: Vectors,
        *,
        disturbed: bool = False,
        drafts: Sequence[bytes] | None = None,
    ) -> list[bytes | None]:
        """Decode each payload against its vector; None for one that is no payload of this model.

        `drafts`, the expected text of each payload, change only the time it takes.
        """
        blobs = [pack_vectors(vectors), *payloads, *(drafts or ())]
        wanted = {"disturbed": disturbed, "drafts": drafts is not None}
        header, texts = self._client.call("read", wanted, blobs)
        return _or_none(texts, header["read"])

    def guess(self, vectors: Vectors, *, beam: int, max_tokens: int) -> list[Guess]:
        """Decode each vector with no patch at all."""
        wanted = {"beam": beam, "max_tokens": max_tokens, "count": len(vectors)}
        header, texts = self._client.call("guess", wanted, [pack_vectors(vectors)])
        names = ("log_probability", "confidence", "cosine")
        figures = zip(texts, *(header[name] for name in names), strict=True)
        return [Guess(*one) for one in figures]

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()
        self._gauge.close()


def _split(blobs: list[bytes]) -> tuple[Vectors, list[bytes]]:
    if not blobs:
        raise VectorInvalid("expected a blob of vectors, got none")
    return unpack_vectors(blobs[0], count=len(blobs) - 1), blobs[1:]


def _or_none(blobs: list[bytes], there: list[bool]) -> list[bytes | None]:
    return [blob if present else None for blob, present in zip(blobs, there, strict=True)]
