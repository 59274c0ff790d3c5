"""Figures of an artifact on held-out texts, from real patch bytes.

For every source: the cost of a record with the neural codec and its vector, with the neural codec
and no vector (zeros), with the n-gram codec, with zstd and its dictionary, and with the smallest
of neural, n-gram, zstd and raw, which is what a worker stores. All figures are bits per byte of
text: payloads in whole bytes, without record headers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verso_codecs import ngram, ranks
from verso_codecs.ngram import NgramTables
from verso_codecs.ranks import RankTables
from verso_codecs.zstd import ZstdCodec
from verso_training.artifact.graphs import DecoderGraph, EncoderGraph, Pass
from verso_training.config import Recipe
from verso_training.data.sources import Chunk

_SLICE = 64


@dataclass(frozen=True)
class Sample:
    """One text with everything that a record needs.

    Attributes:
        vector: As stored. Shape: (D,), float16.
        patches: Payload by codec name; no ``neural`` if the text has too many tokens.
        tokens: Encoder tokens, [CLS] and [SEP] included.
    """

    text: str
    vector: NDArray[np.float16]
    patches: Mapping[str, bytes]
    tokens: int


@dataclass
class Tally:
    """Sums over the texts of one source."""

    texts: int = 0
    size_bytes: int = 0
    tokens: int = 0
    hits: int = 0
    escapes: int = 0
    patch_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def bits_per_byte(self, name: str) -> float:
        """Bits of payload per byte of text."""
        return 8.0 * self.patch_bytes[name] / max(self.size_bytes, 1)


@dataclass(frozen=True)
class Suite:
    """An artifact's graphs and tables, loaded to encode and decode."""

    encoder: EncoderGraph
    decoder: DecoderGraph
    rank_tables: RankTables
    ngram_tables: NgramTables
    zstd: ZstdCodec
    recipe: Recipe

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> Suite:
        """Open the graphs and tables of an artifact folder; the manifest need not exist yet."""
        return cls(
            EncoderGraph(folder),
            DecoderGraph(folder, recipe.model),
            RankTables.load(folder / "ranks.npz"),
            NgramTables.load(folder / "ngram.npz"),
            ZstdCodec((folder / "zstd.dict").read_bytes()),
            recipe,
        )

    def measure(self, texts: Sequence[Chunk]) -> dict[str, Tally]:
        """Return tallies per source and, under ``all``, together."""
        tallies: dict[str, Tally] = defaultdict(Tally)
        for start in range(0, len(texts), _SLICE):
            part = texts[start : start + _SLICE]
            words = [chunk.text for chunk in part]
            vectors = self.encoder.encode(words).astype(np.float16).astype(np.float32)
            with_vector = self._neural(words, vectors)
            without = self._neural(words, np.zeros_like(vectors))
            for index, chunk in enumerate(part):
                data = chunk.text.encode("utf-8")
                sizes = {
                    "ngram": len(ngram.encode(data, self.ngram_tables)),
                    "zstd": len(self.zstd.encode(data)),
                }
                if index in with_vector:
                    sizes["neural"] = len(with_vector[index][0])
                    sizes["neural, no vector"] = len(without[index][0])
                else:
                    sizes["neural"] = sizes["neural, no vector"] = min(sizes.values())
                sizes["smallest"] = min(sizes["neural"], sizes["ngram"], sizes["zstd"], len(data))
                for key in ("all", chunk.source):
                    _add(tallies[key], len(data), sizes, with_vector.get(index))
        return dict(tallies)

    def noise(self, texts: Sequence[Chunk]) -> tuple[float, float]:
        """Return the greatest step noise of logits and of confidence over ``texts``, in nats."""
        records = [self.decoder.tokens(chunk.text) for chunk in texts]
        short = [i for i, ids in enumerate(records) if len(ids) < self.recipe.model.max_tokens]
        vectors = self.encoder.encode([texts[i].text for i in short]).astype(np.float16)
        return self.decoder.greatest_noise([records[i] for i in short], vectors.astype(np.float32))

    def encode(self, texts: Sequence[str]) -> Iterator[Sample]:
        """Return the vector and payloads of each text."""
        vectors = self.encoder.encode(texts).astype(np.float16)
        neural = self._neural(texts, vectors.astype(np.float32))
        for index, text in enumerate(texts):
            data = text.encode("utf-8")
            patches = {
                "zstd": self.zstd.encode(data),
                "ngram": ngram.encode(data, self.ngram_tables),
            }
            if index in neural:
                patches["neural"] = neural[index][0]
            tokens = len(self.encoder.tokens(text))
            yield Sample(text, vectors[index], patches, tokens)

    def unread(self, sample: Sample) -> str | None:
        """Return the name of a codec whose payload does not decode to the text, or None."""
        data = sample.text.encode("utf-8")
        if self.zstd.decode(sample.patches["zstd"]) != data:
            return "zstd"
        if ngram.decode(sample.patches["ngram"], self.ngram_tables) != data:
            return "ngram"
        if "neural" in sample.patches:
            vectors = sample.vector.astype(np.float32)[None]
            (ids,) = self.decoder.decode([sample.patches["neural"]], vectors, self.rank_tables)
            if ids != self.decoder.tokens(sample.text):
                return "neural"
            if self.decoder.tokenizer.decode(ids, skip_special_tokens=False) != sample.text:
                return "tokenizer"
        return None

    def _neural(
        self, texts: Sequence[str], vectors: NDArray[np.float32]
    ) -> dict[int, tuple[bytes, Pass, int]]:
        """Return payload, pass and number of escapes by index, without texts of too many tokens."""
        config = self.recipe.publish
        records = [self.decoder.tokens(text) for text in texts]
        short = [i for i, ids in enumerate(records) if len(ids) < self.recipe.model.max_tokens]
        result = {}
        for index, seen in self.decoder.passes([records[i] for i in short], vectors[short]):
            events = ranks.events(
                seen.logits, seen.confidence, targets=seen.targets, epsilon=config.epsilon
            )
            payload = ranks.encode_events(
                events, self.rank_tables, confidence_epsilon=config.confidence_epsilon
            )
            escapes = int((events.ranks == ranks.ESCAPE).sum())
            result[short[index]] = (payload, seen, escapes)
        return result


COLUMNS = ("neural", "neural, no vector", "ngram", "zstd", "smallest")


def table(tallies: Mapping[str, Tally]) -> str:
    """Return the figures as a Markdown table, bits per byte."""
    lines = [
        "| source | texts | bytes | " + " | ".join(COLUMNS) + " | top-1 | escapes |",
        "|---|---|---|" + "---|" * (len(COLUMNS) + 2),
    ]
    for key in sorted(tallies):
        tally = tallies[key]
        cells = [f"{tally.bits_per_byte(name):.3f}" for name in COLUMNS]
        tokens = max(tally.tokens, 1)
        cells += [f"{tally.hits / tokens:.1%}", f"{tally.escapes / tokens:.1%}"]
        lines.append(f"| {key} | {tally.texts} | {tally.size_bytes} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def json_line(tallies: Mapping[str, Tally]) -> str:
    """Return the figures as one line of JSON."""
    return json.dumps(
        {
            key: {
                "texts": tally.texts,
                "size_bytes": tally.size_bytes,
                "bits_per_byte": {n: round(tally.bits_per_byte(n), 4) for n in COLUMNS},
                "token_accuracy": round(tally.hits / max(tally.tokens, 1), 4),
                "escapes": round(tally.escapes / max(tally.tokens, 1), 4),
            }
            for key, tally in sorted(tallies.items())
        }
    )


def _add(
    tally: Tally, size: int, sizes: Mapping[str, int], neural: tuple[bytes, Pass, int] | None
) -> None:
    tally.texts += 1
    tally.size_bytes += size
    for name, count in sizes.items():
        tally.patch_bytes[name] += count
    if neural is not None:
        _, seen, escapes = neural
        tally.tokens += len(seen.targets)
        tally.hits += int((seen.logits.argmax(-1) == seen.targets).sum())
        tally.escapes += escapes
