"""The neural codec of whole chunks: one segment as it is, several behind their sizes.

The engine codes and decodes segments (:mod:`verso_worker.records.chunking`); a chunk of several is
coded segment by segment, all of them against the chunk's one vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from verso_core.errors import PatchCorrupt
from verso_core.record import Codec, pack_parts, unpack_parts
from verso_worker.records.policy import Offer
from verso_worker.records.space import Vector


class Decoder(Protocol):
    """The part of the engine that codes and decodes segments."""

    def code(self, texts: Sequence[bytes], vectors: Vector) -> list[bytes | None]:
        """Code each text against its vector; None where it cannot (not UTF-8, too long)."""

    def read(
        self,
        payloads: Sequence[bytes],
        vectors: Vector,
        *,
        disturbed: bool = False,
        drafts: Sequence[bytes] | None = None,
    ) -> list[bytes | None]:
        """Decode each payload; None for one that is no payload of this model.

        ``disturbed`` decodes with logits moved by up to half the margin. ``drafts`` are the
        expected texts of the payloads: a right one is confirmed through the payload in one pass
        over all its tokens, a wrong one changes only the time.
        """


class Segmenter(Protocol):
    """Cuts a chunk into segments."""

    def segments(self, chunk: bytes) -> list[bytes]:
        """Return the segments, in order; joined they are the chunk. The same for ever."""


@dataclass(frozen=True, slots=True)
class NeuralCodec:
    """Codes chunks against their vectors. Shape of vectors: (chunks, dim), float32, widened."""

    decoder: Decoder
    segmenter: Segmenter

    def code(self, chunks: Sequence[bytes], vectors: Vector) -> list[Offer | None]:
        """Code each chunk; None where the decoder cannot take all of it."""
        pieces = [self.segmenter.segments(chunk) for chunk in chunks]
        sizes = [len(parts) for parts in pieces]
        flat = [part for parts in pieces for part in parts]
        coded = iter(self.decoder.code(flat, np.repeat(vectors, sizes, axis=0)))
        return [_offer([next(coded) for _ in range(size)]) for size in sizes]

    def read(
        self,
        offers: Sequence[Offer],
        vectors: Vector,
        *,
        disturbed: bool = False,
        drafts: Sequence[bytes] | None = None,
    ) -> list[bytes | None]:
        """Decode chunks; None where a payload is none of this model's.

        Args:
            offers: codec and payload, as :meth:`code` returned them.
            vectors: the chunks' stored vectors.
            disturbed: see :class:`Decoder`.
            drafts: the expected text of each chunk.
        """
        pieces = [_parts(codec, payload) for codec, payload in offers]
        expected = None if drafts is None else self._drafts(pieces, drafts)
        texts = iter(
            self.decoder.read(
                [part for parts in pieces for part in parts],
                np.repeat(vectors, [len(parts) for parts in pieces], axis=0),
                disturbed=disturbed,
                drafts=expected,
            )
        )
        return [_join([next(texts) for _ in parts]) for parts in pieces]

    def _drafts(self, pieces: list[list[bytes]], drafts: Sequence[bytes]) -> list[bytes]:
        """Cut drafts as their payloads are cut; one that does not fit becomes empty drafts."""
        expected: list[bytes] = []
        for parts, draft in zip(pieces, drafts, strict=True):
            segments = self.segmenter.segments(draft)
            expected += segments if len(segments) == len(parts) else [b""] * len(parts)
        return expected


def _offer(payloads: list[bytes | None]) -> Offer | None:
    whole = [payload for payload in payloads if payload is not None]
    if len(whole) < len(payloads):
        return None
    return (Codec.NEURAL, whole[0]) if len(whole) == 1 else (Codec.SEGMENTED, pack_parts(whole))


def _parts(codec: Codec, payload: bytes) -> list[bytes]:
    if codec is Codec.NEURAL:
        return [payload]
    try:
        return unpack_parts(payload)
    except PatchCorrupt:
        return []


def _join(texts: list[bytes | None]) -> bytes | None:
    whole = [text for text in texts if text is not None]
    return b"".join(whole) if len(whole) == len(texts) and texts else None
