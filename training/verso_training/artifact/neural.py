"""The neural codec in training: a decoder's graphs applied to whole chunks.

A chunk is cut into segments that fit the decoder's window; they share its vector. A worker's own
segments are of more equal length, so a chunk of several may take a few bytes more or less there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_codecs import ranks
from verso_codecs.ranks import Events, RankTables
from verso_core.errors import ArtifactInvalid
from verso_core.manifest import Codec
from verso_training.artifact.graphs import DecoderGraph, EncoderGraph, Floats
from verso_training.data import chunks

_CHECKED = 8
"""Segments on which the noise between writing and reading is checked against the margin."""

Sizes = list[int]


@dataclass(frozen=True)
class Segments:
    """Chunks cut into segments for the decoder.

    Attributes:
        sizes: Bytes of each chunk.
        texts: The segments of all chunks, in order; a chunk that is not UTF-8 has none.
        owners: The chunk of each segment. Shape: (segments,), int64.
        vectors: Unit vectors of the segments' chunks. Shape: (segments, D), float32.
    """

    sizes: Sizes
    texts: list[str]
    owners: NDArray[np.int64]
    vectors: Floats


@dataclass(frozen=True)
class NeuralCodec:
    """The neural codec of one folder's graphs."""

    about: Codec
    graph: DecoderGraph

    def events(self, segments: Segments) -> list[Events]:
        """Return the coding events of each segment, in order."""
        records = [self.graph.tokens(text) for text in segments.texts]
        found = {
            at: ranks.events(
                seen.logits, seen.confidence, targets=seen.targets, epsilon=self.about.epsilon
            )
            for at, seen in self.graph.passes(records, segments.vectors)
        }
        return [found[at] for at in range(len(records))]

    def fit(self, events: Sequence[Events]) -> RankTables:
        """Return the rank probabilities of these events."""
        return RankTables.fit(
            events, vocab=self.about.vocab, confidence_epsilon=self.about.confidence_epsilon
        )

    def sizes(
        self, segments: Segments, events: Sequence[Events], tables: Sequence[RankTables]
    ) -> Sizes:
        """Return the bytes of each chunk with its tables; its raw size if smaller or not
        codable."""
        parts: list[Sizes] = [[] for _ in segments.sizes]
        for owner, event in zip(segments.owners, events, strict=True):
            parts[owner].append(len(self.encode(event, tables[owner])))
        # Several payloads are preceded by their sizes, one byte each.
        whole = [sum(part) + (len(part) if len(part) > 1 else 0) for part in parts]
        return [
            min(size, raw) if part else raw
            for size, raw, part in zip(whole, segments.sizes, parts, strict=True)
        ]

    def encode(self, event: Events, tables: RankTables) -> bytes:
        """Return one segment's payload."""
        return ranks.encode_events(event, tables, confidence_epsilon=self.about.confidence_epsilon)

    def noise(self, segments: Segments) -> float:
        """Return the greatest difference of a logit between writing and reading, on a few segments.

        Raises:
            ArtifactInvalid: it is beyond half the margin, the most that a record tolerates.
        """
        few = range(0, len(segments.texts), max(1, len(segments.texts) // _CHECKED))
        records = [self.graph.tokens(segments.texts[at]) for at in few]
        logit, confidence = self.graph.greatest_noise(records, segments.vectors[list(few)])
        if 2 * logit > self.about.epsilon or 2 * confidence > self.about.confidence_epsilon:
            raise ArtifactInvalid(
                f"expected noise within half the margin, got {logit:.1e} and {confidence:.1e}"
            )
        return logit

    def payloads(
        self, texts: Sequence[str], vectors: Floats, tables: RankTables
    ) -> list[bytes | None]:
        """Code texts, each in one pass, and read them back token by token.

        Args:
            texts: Those with too many tokens yield None.
            vectors: As stored, widened. Shape: (texts, D).

        Raises:
            ArtifactInvalid: a payload does not decode to its text.
        """
        short = [
            at
            for at, text in enumerate(texts)
            if len(self.graph.tokens(text)) < self.about.max_tokens
        ]
        chosen = Segments([], [texts[at] for at in short], np.arange(len(short)), vectors[short])
        coded = [self.encode(event, tables) for event in self.events(chosen)]
        read = self.graph.decode(coded, chosen.vectors, tables) if coded else []
        for text, ids in zip(chosen.texts, read, strict=True):
            if self.graph.tokenizer.decode(ids, skip_special_tokens=False) != text:
                raise ArtifactInvalid(f"golden sample {text!r} does not come back")
        payloads: list[bytes | None] = [None] * len(texts)
        for at, payload in zip(short, coded, strict=True):
            payloads[at] = payload
        return payloads


def cut(
    texts: Sequence[bytes], tokenizer: Tokenizer, encoder: EncoderGraph, *, window: int
) -> Segments:
    """Cut chunks into segments of fewer than ``window`` tokens, with their vectors."""
    segments: list[str] = []
    owners: list[int] = []
    decoded: list[str] = []
    for at, chunk in enumerate(texts):
        try:
            decoded.append(chunk.decode())
        except UnicodeDecodeError:
            decoded.append("")
            continue
        parts = list(halved(decoded[-1], tokenizer, window=window))
        segments += parts
        owners += [at] * len(parts)
    vectors = encoder.encode(decoded) if decoded else np.empty((0, 0), np.float32)
    return Segments([len(chunk) for chunk in texts], segments, np.array(owners, np.int64),
                    vectors[owners])  # fmt: skip


def halved(text: str, tokenizer: Tokenizer, *, window: int) -> Iterator[str]:
    """Halve a text at its best breaks until every piece fits; joined they are the text."""
    if len(ids(tokenizer, text)) < window:
        yield text
        return
    middle = chunks.boundary(text, 0, len(text) // 2 + 1)
    yield from halved(text[:middle], tokenizer, window=window)
    yield from halved(text[middle:], tokenizer, window=window)


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
