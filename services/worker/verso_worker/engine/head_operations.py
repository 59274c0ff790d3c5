"""The wire operations of heads: their handlers, and the client's side.

    op             header                   blobs                  reply header         reply blobs
    head_load      folder                   -                      name, version        -
    head_classify  name, version, count     vectors, or texts      classes              logits,
                   (vectors: bool)                                                      features
    head_score     name, version, count     vectors, or the firsts -                    scores
                   (vectors: bool)          and then the seconds
    head_answer    name, version, count     question, contexts     found: null_score,   -
                                                                   spans
    probe          -                        vectors, texts         right, tokens        -
    predict        -                        vectors, texts         counts; sizes of     tokens and
                                                                   tokens, guesses      guesses

Vectors of a pair are rows 2n and 2n + 1. Contexts are UTF-8; spans are ``[start, end, score]`` in
their characters. A restarted engine has no heads: calls raise HeadUnknown until ``head_load``,
which may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import VectorInvalid
from verso_worker.ipc.client import Client
from verso_worker.ipc.server import Handler
from verso_worker.records.outputs import Classified, Document, Found, Predicted, Span

if TYPE_CHECKING:  # the client's side runs where there is no ONNX Runtime
    from verso_worker.engine.heads import Heads

Vectors = NDArray[np.float32]
Message = tuple[dict[str, Any], list[bytes]]
_LITTLE = np.dtype("<f4")
_CALL_S, _CALL_S_PER_KIB = 120.0, 2.0
"""Longest call with texts: batches of a long one run when nobody else wants the cores."""


class Probing(Protocol):
    """The part of the service that compares texts with the decoder's predictions."""

    def probe(self, texts: Sequence[bytes], vectors: Vectors) -> list[tuple[int, int]]:
        """Return right first guesses and tokens of each text; (0, 0) for an unreadable one."""

    def predict(self, texts: Sequence[bytes], vectors: Vectors) -> list[list[Predicted] | None]:
        """Return each text's tokens with their first guesses; None for an unreadable one."""


@dataclass(frozen=True, slots=True)
class HeadHandlers:
    """The engine's side.

    heads: the loaded heads.
    model: compares texts with the decoder's predictions.
    """

    heads: Heads
    model: Probing

    def table(self) -> dict[str, Handler]:
        """Return the handler of each operation."""
        return {
            "head_load": self._load,
            "head_classify": self._classify,
            "head_documents": self._documents,
            "head_score": self._score,
            "head_answer": self._answer,
            "probe": self._probe,
            "predict": self._predict,
        }

    def _load(self, header: dict[str, Any], _: list[bytes]) -> Message:
        head = self.heads.load(Path(header["folder"]))
        return {"name": head.name, "version": head.version}, []

    def _classify(self, header: dict[str, Any], blobs: list[bytes]) -> Message:
        name, version = header["name"], header["version"]
        if header["vectors"]:
            vectors = unpack_vectors(blobs[0], count=header["count"])
            found = self.heads.classify_vectors(name, version, vectors=vectors)
        else:
            found = self.heads.classify_texts(name, version, texts=blobs)
        return _classes(found)

    def _documents(self, header: dict[str, Any], blobs: list[bytes]) -> Message:
        given = _unpack_documents(header["chunks"], header["terms"], blobs)
        return _classes(
            self.heads.classify_documents(header["name"], header["version"], documents=given)
        )

    def _score(self, header: dict[str, Any], blobs: list[bytes]) -> Message:
        name, version, count = header["name"], header["version"], header["count"]
        if header["vectors"]:
            rows = unpack_vectors(blobs[0], count=2 * count)
            pairs = rows.reshape(count, 2, rows.shape[1])
            scores = self.heads.score_vectors(name, version, pairs=pairs)
        else:
            first, second = blobs[:count], blobs[count:]
            scores = self.heads.score_texts(name, version, first=first, second=second)
        return {}, [pack_vectors(scores)]

    def _answer(self, header: dict[str, Any], blobs: list[bytes]) -> Message:
        found = self.heads.answer(
            header["name"],
            header["version"],
            question=blobs[0],
            contexts=[blob.decode("utf-8") for blob in blobs[1:]],
            count=header["count"],
        )
        answers = [
            {
                "null_score": one.null_score,
                "spans": [[span.start, span.end, span.score] for span in one.spans],
            }
            for one in found
        ]
        return {"found": answers}, []

    def _probe(self, _: dict[str, Any], blobs: list[bytes]) -> Message:
        texts = blobs[1:]
        probed = self.model.probe(texts, unpack_vectors(blobs[0], count=len(texts)))
        return {"right": [one[0] for one in probed], "tokens": [one[1] for one in probed]}, []

    def _predict(self, _: dict[str, Any], blobs: list[bytes]) -> Message:
        texts = blobs[1:]
        found = self.model.predict(texts, unpack_vectors(blobs[0], count=len(texts)))
        flat = [one for own in found for one in own or ()]
        header = {
            "counts": [None if own is None else len(own) for own in found],
            "tokens": [len(one.token) for one in flat],
            "guesses": [len(one.guess) for one in flat],
        }
        return header, [
            b"".join(one.token for one in flat),
            b"".join(one.guess for one in flat),
        ]


class HeadCalls:
    """The client's side; a part of :class:`verso_worker.engine.operations.EngineClient`.

    Raises in every method:
        EngineUnavailable: the engine is away, died in the call or is too slow; try again.
        HeadUnknown: the version is not loaded, or does something else.
    """

    _client: Client

    def head_load(self, folder: Path) -> None:
        """Load and check a head from its folder.

        Raises:
            HeadInvalid: it is incomplete, altered, of another space, or fails its golden samples.
        """
        self._client.call("head_load", {"folder": str(folder)})

    def classify_vectors(self, name: str, version: str, *, vectors: Vectors) -> Classified:
        """Run a classifier on vectors. Shape: (n, D)."""
        return self._classify(
            name, version, [pack_vectors(vectors)], count=len(vectors), vectors=True
        )

    def classify_documents(
        self, name: str, version: str, *, documents: Sequence[Document]
    ) -> Classified:
        """Run a classifier on the chunks of documents, and on their terms if it reads them."""
        header = {
            "name": name,
            "version": version,
            "chunks": [len(one.vectors) for one in documents],
            "terms": [len(one.terms) for one in documents],
        }
        blobs = [
            pack_vectors(np.concatenate([one.vectors for one in documents])),
            np.concatenate([one.terms for one in documents]).astype("<i8").tobytes(),
            pack_vectors(np.concatenate([one.weights for one in documents])),
        ]
        reply, found = self._client.call("head_documents", header, blobs)
        return _unpack_classes(reply, found, count=len(documents))

    def classify_texts(self, name: str, version: str, *, texts: Sequence[bytes]) -> Classified:
        """Run a classifier that reads tokens."""
        return self._classify(name, version, texts, count=len(texts), vectors=False)

    def score_vectors(self, name: str, version: str, *, pairs: Vectors) -> Vectors:
        """Score pairs of vectors. Shape: (n, 2, D) to (n,)."""
        header = {"name": name, "version": version, "count": len(pairs), "vectors": True}
        _, [scores] = self._client.call("head_score", header, [pack_vectors(pairs)])
        return np.frombuffer(scores, _LITTLE).astype(np.float32)

    def score_texts(
        self, name: str, version: str, *, first: Sequence[bytes], second: Sequence[bytes]
    ) -> Vectors:
        """Score pairs of texts that are read together. Shape: (n,)."""
        header = {"name": name, "version": version, "count": len(first), "vectors": False}
        texts = [*first, *second]
        _, [scores] = self._client.call("head_score", header, texts, timeout_s=_longest_s(texts))
        return np.frombuffer(scores, _LITTLE).astype(np.float32)

    def answer(
        self, name: str, version: str, *, question: bytes, contexts: Sequence[str], count: int
    ) -> list[Found]:
        """Read the best spans of each context.

        Raises:
            QuestionTooLong: the question leaves no room for a context.
        """
        texts = [question, *(context.encode("utf-8") for context in contexts)]
        header, _ = self._client.call(
            "head_answer",
            {"name": name, "version": version, "count": count},
            texts,
            timeout_s=_longest_s(texts),
        )
        return [
            Found([Span(*span) for span in one["spans"]], one["null_score"])
            for one in header["found"]
        ]

    def probe(self, texts: Sequence[bytes], vectors: Vectors) -> list[tuple[int, int]]:
        """Count right first guesses and tokens of each text; (0, 0) where it cannot be read."""
        header, _ = self._client.call("probe", {}, [pack_vectors(vectors), *texts])
        return list(zip(header["right"], header["tokens"], strict=True))

    def predict(self, texts: Sequence[bytes], vectors: Vectors) -> list[list[Predicted] | None]:
        """Return each text's tokens with the decoder's first guesses; None where unreadable."""
        header, blobs = self._client.call("predict", {}, [pack_vectors(vectors), *texts])
        tokens, guesses = (
            _parts(blob, header[name])
            for blob, name in zip(blobs, ("tokens", "guesses"), strict=True)
        )
        rest = map(Predicted, tokens, guesses)
        return [None if count is None else list(islice(rest, count)) for count in header["counts"]]

    def _classify(
        self, name: str, version: str, blobs: Sequence[bytes], *, count: int, vectors: bool
    ) -> Classified:
        header = {"name": name, "version": version, "count": count, "vectors": vectors}
        limit_s = None if vectors else _longest_s(blobs)
        reply, found = self._client.call("head_classify", header, blobs, timeout_s=limit_s)
        return _unpack_classes(reply, found, count=count)


def _classes(found: Classified) -> Message:
    features = b"" if found.features is None else pack_vectors(found.features)
    return {"classes": found.logits.shape[1]}, [pack_vectors(found.logits), features]


def _unpack_classes(reply: dict[str, Any], blobs: Sequence[bytes], *, count: int) -> Classified:
    logits, features = blobs
    rows = np.frombuffer(logits, _LITTLE).reshape(count, reply["classes"]).astype(np.float32)
    return Classified(rows, unpack_vectors(features, count=count) if features else None)


def _unpack_documents(
    chunks: Sequence[int], terms: Sequence[int], blobs: Sequence[bytes]
) -> list[Document]:
    """Return documents of these numbers of chunks and terms.

    Raises:
        VectorInvalid: the blobs do not hold as many.
    """
    vectors = unpack_vectors(blobs[0], count=sum(chunks))
    ids, weights = np.frombuffer(blobs[1], "<i8"), np.frombuffer(blobs[2], _LITTLE)
    if not len(ids) == len(weights) == sum(terms):
        raise VectorInvalid(f"expected {sum(terms)} terms, got {len(ids)} and {len(weights)}")
    rows, words = np.cumsum([0, *chunks]), np.cumsum([0, *terms])
    return [
        Document(vectors[a:b], ids[c:d], weights[c:d])
        for a, b, c, d in zip(rows, rows[1:], words, words[1:], strict=False)
    ]


def _parts(blob: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield the parts of a blob, which have these sizes."""
    at = 0
    for size in sizes:
        yield blob[at : at + size]
        at += size


def _longest_s(texts: Sequence[bytes]) -> float:
    """Return how long a call with these texts may take, seconds."""
    return _CALL_S + _CALL_S_PER_KIB * sum(map(len, texts)) / 1024


def pack_vectors(values: Vectors) -> bytes:
    """Return vectors as one blob: float32, little endian, row after row."""
    return values.astype(_LITTLE, copy=False).tobytes()


def unpack_vectors(blob: bytes, *, count: int) -> Vectors:
    """Read (count, D) vectors; D follows from the blob's size.

    Raises:
        VectorInvalid: the blob does not hold ``count`` rows of equal length.
    """
    if count == 0:
        return np.empty((0, 0), np.float32)
    if len(blob) % (4 * count):
        raise VectorInvalid(f"expected {count} rows of float32, got {len(blob)} bytes")
    return np.frombuffer(blob, _LITTLE).reshape(count, -1).astype(np.float32)
