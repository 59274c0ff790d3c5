"""Texts to records and back: the rules that make a stored chunk readable for ever.

Writing a chunk, whose vector has been rounded to what the store will return:

1. The codecs that the collection's policy allows code the chunk, against the *stored* vector, which
   a read will use (:mod:`verso_worker.records.policy`).
2. The cheapest payload is decoded; a neural one in another batch, with its logits disturbed by as
   much as another machine may differ. If a byte differs, the next payload is tried. RAW is always
   among them, so no chunk is refused because a model codes it badly.
3. The record carries the hash of the stored vector and a keyed checksum of the chunk's bytes.

A read checks both, and returns RecordCorrupt rather than a wrong text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from verso_core.errors import PatchCorrupt, RecordCorrupt, VersoError
from verso_core.jobs import CodecPolicy
from verso_core.record import Codec, Record, checksum, vector_hash
from verso_worker.records import policy as policies
from verso_worker.records.neural import Decoder, NeuralCodec, Segmenter
from verso_worker.records.policy import Offer
from verso_worker.records.space import Space, Stored, Vector


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vectors of a batch of texts.

    vectors: Shape: (texts, dim), float32, unit length.
    tokens: how many tokens of each text were read.
    truncated: whether a text has more.
    """

    vectors: Vector
    tokens: list[int]
    truncated: list[bool]


@dataclass(frozen=True, slots=True)
class Guess:
    """The decoder's guess of a text from a vector alone.

    ``text`` may end inside a UTF-8 character if it stopped at the token limit; ``log_probability``
    is the mean over its tokens, <= 0; ``confidence`` the mean probability of its tokens, in [0, 1],
    not calibrated; ``cosine`` that of its own vector with the one given, in [-1, 1].
    """

    text: bytes
    log_probability: float
    confidence: float
    cosine: float = 0.0


class Engine(Decoder, Protocol):
    """The model's graphs, wherever they run. Vectors: (texts, dim) float32, widened from store."""

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        """Return each text's vector; text beyond the encoder's window is ignored."""

    def guess(self, vectors: Vector, *, beam: int, max_tokens: int) -> list[Guess]:
        """Decode each vector with no patch at all."""


class ByteCodec(Protocol):
    """A codec that needs no vector."""

    def encode(self, text: bytes) -> bytes:
        """Code any bytes."""

    def decode(self, payload: bytes) -> bytes:
        """Return the coded bytes; raises PatchCorrupt for a payload that is not of this codec."""


class _Raw:
    def encode(self, text: bytes) -> bytes:
        return text

    def decode(self, payload: bytes) -> bytes:
        return payload


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes and reads the records of one artifact.

    Args:
        engine: the artifact's graphs.
        codecs: its byte codecs; RAW need not be among them.
        segmenter: cuts chunks for its decoder.
    """

    engine: Engine
    codecs: Mapping[Codec, ByteCodec]
    segmenter: Segmenter

    @property
    def neural(self) -> NeuralCodec:
        """The codec that reads vectors."""
        return NeuralCodec(self.engine, self.segmenter)

    def write(
        self,
        chunks: Sequence[bytes],
        stored: Stored,
        *,
        precision: Space,
        slot: int,
        key: bytes,
        policy: CodecPolicy,
    ) -> list[Record]:
        """Make a verified record of each chunk.

        Args:
            chunks: the chunks' bytes.
            stored: their vectors as the store will return them. Shape: (chunks, dim).
            precision: how they are widened.
            slot: the artifact's slot in the collection.
            key: the collection's checksum key.
            policy: chooses the codecs; ``fast`` uses no model.
        """
        widened = precision.widen(stored)
        offers = self._offers(chunks, widened, policy=policy)
        chosen = self._verified(chunks, widened, offers)
        return [
            Record(
                codec=codec,
                slot=slot,
                vector_hash=vector_hash(precision.raw(row)),
                checksum=checksum(chunk, key=key),
                payload=payload,
            )
            for chunk, row, (codec, payload) in zip(chunks, stored, chosen, strict=True)
        ]

    def _offers(
        self, chunks: Sequence[bytes], vectors: Vector, *, policy: CodecPolicy
    ) -> list[list[Offer]]:
        """Code each chunk with the codecs of a policy; return the payloads, cheapest first."""
        coders = [own for own in self.codecs.items() if policies.allowed(own[0], policy)]
        offers = []
        for chunk in chunks:
            own = [(Codec.RAW, chunk), *((codec, coder.encode(chunk)) for codec, coder in coders)]
            offers.append(policies.ordered(own, policy, size_bytes=len(chunk)))
        open_rows = [
            row
            for row, own in enumerate(offers)
            if policies.decoder_may_win(own, policy, size_bytes=len(chunks[row]))
        ]
        for rows in policies.parts(open_rows, policy):
            if not self._add_neural(offers, chunks, vectors, rows=rows, policy=policy):
                break
        return offers

    def _add_neural(
        self,
        offers: list[list[Offer]],
        chunks: Sequence[bytes],
        vectors: Vector,
        *,
        rows: list[int],
        policy: CodecPolicy,
    ) -> bool:
        """Let the decoder code some chunks; return whether its payload is the first of any."""
        won = False
        coded = self.neural.code([chunks[row] for row in rows], vectors[rows])
        for row, offer in zip(rows, coded, strict=True):
            if offer is not None:
                size = len(chunks[row])
                offers[row] = policies.ordered([*offers[row], offer], policy, size_bytes=size)
                won = won or offers[row][0] is offer
        return won

    def _verified(
        self, chunks: Sequence[bytes], vectors: Vector, offers: list[list[Offer]]
    ) -> list[Offer]:
        """Return each chunk's cheapest offer that decodes to it under disturbance."""
        best = [0] * len(chunks)
        open_rows = list(range(len(chunks)))
        while open_rows:
            tried = [offers[row][best[row]] for row in open_rows]
            expected = [chunks[row] for row in open_rows]
            texts = self._decode(tried, vectors[open_rows], drafts=expected)
            wrong = []
            for row, text in zip(open_rows, texts, strict=True):
                if text != chunks[row]:
                    best[row] += 1
                    wrong.append(row)
            open_rows = wrong
        return [own[index] for own, index in zip(offers, best, strict=True)]

    def _decode(
        self, offers: Sequence[Offer], vectors: Vector, *, drafts: Sequence[bytes]
    ) -> list[bytes | None]:
        texts: list[bytes | None] = [None] * len(offers)
        neural = [row for row, (codec, _) in enumerate(offers) if codec.reads_vector]
        if neural:
            # The chunk itself is the draft: an ingest needs to know whether the payload decodes to
            # it, token by token and under disturbance. The independent verify has no draft.
            found = self.neural.read(
                [offers[row] for row in neural],
                vectors[neural],
                disturbed=True,
                drafts=[drafts[row] for row in neural],
            )
            for row, text in zip(neural, found, strict=True):
                texts[row] = text
        for row, (codec, payload) in enumerate(offers):
            if not codec.reads_vector:
                texts[row] = self._decode_bytes(codec, payload)
        return texts

    def _decode_bytes(self, codec: Codec, payload: bytes) -> bytes | None:
        coder = _Raw() if codec is Codec.RAW else self.codecs.get(codec)
        if coder is None:  # damaged: this artifact never wrote such a payload
            return None
        try:
            return coder.decode(payload)
        except PatchCorrupt:
            return None

    def read(
        self,
        records: Sequence[Record],
        stored: Sequence[Stored | None],
        *,
        precision: Space,
        key: bytes,
    ) -> list[bytes | VersoError]:
        """Return each record's chunk, or the error that keeps it from being read.

        Args:
            records: records of this artifact.
            stored: their vectors as the store returned them. Shape: (dim,). Only neural records
                need one; None if the store has none.
            precision: how they are widened.
            key: the collection's checksum key.
        """
        texts: list[bytes | None] = [
            None if record.codec.reads_vector else self._decode_bytes(record.codec, record.payload)
            for record in records
        ]
        rows = []
        vectors = []
        for row, (record, vector) in enumerate(zip(records, stored, strict=True)):
            if not record.codec.reads_vector or vector is None:
                continue
            if vector_hash(precision.raw(vector)) == record.vector_hash:
                rows.append(row)
                vectors.append(vector)
        if rows:
            widened = precision.widen(np.stack(vectors))
            offers = [(records[row].codec, records[row].payload) for row in rows]
            for index, text in enumerate(self.neural.read(offers, widened)):
                row = rows[index]
                if not _matches(text, records[row], key=key):
                    # A decode alone, in the smallest batch, is the canonical one: tried last.
                    one = slice(index, index + 1)
                    [text] = self.neural.read(offers[one], widened[one])
                texts[row] = text
        return [
            text
            if text is not None and _matches(text, record, key=key)
            else RecordCorrupt(
                f"the {record.codec.name.lower()} record does not decode to its text"
            )
            for text, record in zip(texts, records, strict=True)
        ]


def _matches(text: bytes | None, record: Record, *, key: bytes) -> bool:
    return text is not None and checksum(text, key=key) == record.checksum
