"""What would the decoder's distribution buy as one more input of the mixture codec?

A bound by measurement, not a codec: bits are reckoned, nothing is written. A text is coded token by
token of the decoder, and each token byte by byte:

1. Before a token, whether the record ends, by the decoder alone.
2. Before each further byte of a token, whether the token ends here, by the decoder alone: the sum
   over the tokens that continue the bytes so far against the one that is these bytes.
3. Each byte's eight bits: the decoder's distribution of the next byte, among the tokens that begin
   with the bytes so far, gives a probability of each bit; the mixture gives its own; both are mixed
   as log-odds, st(p) = w_1 st(p_mixture) + w_2 st(p_decoder) + b.

All of that is known where the text is read back, so a codec could do it. The weights, a set for
each place in a token and sureness of the decoder, are fitted on held-out texts that are not
measured. The mixture is fitted to 400 kB of training texts, as for the storage tables; the decoder
is the shipped one, which reads the stored int8 vector of its chunk. Reading back costs what the
decoder's codec costs, a step for each token, and the mixture's on top.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.papers.kept import Figures, Kept, Parts, rate, table, with_interval
from studies.quality.classification import Bench
from verso_codecs import mixture_fit
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import manifest
from verso_core.jobs import Precision
from verso_training.artifact.graphs import DecoderGraph, EncoderGraph
from verso_training.data import sources
from verso_training.data.sources import Split
from verso_worker.engine.vocabulary import Vocabulary
from verso_worker.records.artifact import cutter
from verso_worker.records.chunking import Cutter
from verso_worker.records.space import Space

STUDY = "combined"
SOURCES = ("techdocs", "books")
CHUNKS = 60
_FIT_BYTES = 400_000
_LEAST = 2.0**-16
_EDGES = (0.2, 0.5, 0.8, 0.95)
"""Of the decoder's likeliest byte, between sets of weights."""
_STEPS = 25
_TINY = 1e-300
Floats = NDArray[np.float64]
Decision = tuple[float, float, int, int]
"""Probability of a 1 by the mixture and by the decoder, the bit, and its set of weights."""


class Pieces:
    """The decoder's tokens in the order of their bytes: those that begin alike lie together.

    Args:
        pieces: Bytes of each token; the two special ones are not among them.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.order = np.array(sorted(range(len(pieces)), key=lambda token: pieces[token]))
        self._sorted = [pieces[token] for token in self.order]
        self._bounds: dict[bytes, NDArray[np.int64]] = {}

    def bounds(self, prefix: bytes) -> NDArray[np.int64]:
        """Return where the tokens behind a prefix begin, by their next byte. Shape: (257,).

        Entry b is the first token with the prefix and a byte of at least b behind it; the tokens
        that *are* the prefix stand before entry 0.
        """
        if prefix not in self._bounds:
            ends = [bisect.bisect_left(self._sorted, prefix + bytes([b])) for b in range(256)]
            last = bisect.bisect_left(self._sorted, prefix + b"\xff" * 64)
            self._bounds[prefix] = np.array([*ends, last])
        return self._bounds[prefix]

    def first(self, prefix: bytes) -> int:
        """Return where the tokens that are, or begin with, a prefix begin."""
        return bisect.bisect_left(self._sorted, prefix)


@dataclass(frozen=True)
class Decided:
    """The binary decisions of texts.

    Attributes:
        mixture: Probability of a 1 by the mixture. Shape: (N,).
        decoder: Likewise by the decoder. Shape: (N,).
        bits: What came. Shape: (N,), 0 or 1.
        kinds: Which set of weights. Shape: (N,).
        owners: The text of each decision. Shape: (N,).
        ends: Bits of each text that the decoder alone spends on where its tokens and records end.
            Shape: (texts,).
    """

    mixture: Floats
    decoder: Floats
    bits: NDArray[np.int64]
    kinds: NDArray[np.int64]
    owners: NDArray[np.int64]
    ends: Floats

    def cost(self, chance: Floats) -> Floats:
        """Return the bits of each text's decisions with these probabilities of a 1."""
        own = np.where(self.bits == 1, chance, 1.0 - chance)
        spent = -np.log2(np.clip(own, _LEAST, 1.0))
        counted = np.bincount(self.owners, weights=spent, minlength=len(self.ends))
        return np.asarray(counted, np.float64)


def run(bench: Bench) -> Parts:
    """Measure both kinds of prose."""
    kept = Kept(bench.work / "papers" / STUDY)
    return {source: kept.of(source, partial(_measured, bench, source)) for source in SOURCES}


class Reader:
    """The decoder of an artifact, asked for its distributions.

    Args:
        folder: Of the artifact.
    """

    def __init__(self, folder: Path) -> None:
        artifact = manifest.load(folder)
        about, codec = artifact.manifest.space, artifact.manifest.codec
        self.cutter = cutter(artifact)
        self.eos = codec.eos
        self._graph = DecoderGraph(folder, codec, threads=1)
        self._encoder = EncoderGraph(folder, threads=1)
        self._space = Space(Precision.INT8, about.dim, about.int8_scale)
        tokenizer = artifact.data["decoder_tokenizer.json"]
        words = Vocabulary(tokenizer, size=codec.vocab, max_tokens=codec.max_tokens)
        self.pieces = [words.text([token]) or b"" for token in range(codec.vocab - 2)]
        self.ordered = Pieces(self.pieces)

    def segments(self, chunk: bytes) -> Iterator[tuple[list[int], Floats]]:
        """Yield the tokens of each segment and the distribution before each token and the end.

        Shape of a distribution: (tokens + 1, V).
        """
        unit = self._encoder.encode([chunk.decode()])
        vector = self._space.widen(self._space.round(unit))
        parts = self.cutter.segments(chunk)
        records = [self._graph.tokens(part.decode()) for part in parts]
        found = dict(self._graph.passes(records, np.repeat(vector, len(records), axis=0)))
        for row, ids in enumerate(records):
            logits = found[row].logits.astype(np.float64)
            shares = np.exp(logits - logits.max(-1, keepdims=True))
            yield ids, shares / shares.sum(-1, keepdims=True)


def _measured(bench: Bench, source: str) -> Figures:
    reader = Reader(bench.artifact)
    general = NgramTables.load(bench.artifact / "ngram.npz")
    tables = MixtureTables.fit(_first(bench, source, reader.cutter), general)
    held = _held(bench, source, reader.cutter)
    learnt, asked = (decided(part, reader, tables) for part in (held[0::2], held[1::2]))
    began_s = time.process_time()
    by_mixture = np.array([_mixture_bits(chunk, tables) for chunk in held[1::2]])
    spent_s = time.process_time() - began_s
    by_decoder = np.array([_decoder_bits(chunk, reader) for chunk in held[1::2]])
    combined = asked.cost(mixed(asked, fitted(learnt))) + asked.ends
    choice = np.minimum(by_mixture, by_decoder)
    sizes = np.array([len(chunk) for chunk in held[1::2]])
    figures = {
        "chunks": len(sizes),
        "bytes": int(sizes.sum()),
        "mixture_s_a_mb": 1e6 * spent_s / int(sizes.sum()),
    }
    spent = {"mixture": by_mixture, "decoder": by_decoder, "choice": choice}
    spent |= {"combined": combined, "ends": asked.ends, "saved": choice - combined}
    for name, bits in spent.items():
        figures |= rate(name, bits, sizes)
    return figures


def _first(bench: Bench, source: str, cuts: Cutter) -> list[bytes]:
    """Return training chunks of a source, as many as a collection's codec is fitted to."""
    chunks, size = [], 0
    for document in sources.documents(bench.data):
        if document.source == source and document.split is Split.TRAIN:
            chunks += cuts.cut(document.text.encode())
            size += len(document.text.encode())
        if size >= _FIT_BYTES:
            break
    return chunks


def _held(bench: Bench, source: str, cuts: Cutter) -> list[bytes]:
    """Return chunks from all over the held-out documents of a source."""
    found = [
        chunk
        for document in sources.documents(bench.data)
        if document.source == source and document.split is Split.VALIDATION
        for chunk in cuts.cut(document.text.encode())
    ]
    return found[:: max(1, len(found) // (2 * CHUNKS))][: 2 * CHUNKS]


def _mixture_bits(chunk: bytes, tables: MixtureTables) -> float:
    bits, chances = mixture_fit.decisions(chunk, tables.tables)
    chance = chances / 65_536.0
    return float(-np.log2(np.where(bits != 0, chance, 1.0 - chance)).sum())


def _decoder_bits(chunk: bytes, reader: Reader) -> float:
    spent = 0.0
    for ids, shares in reader.segments(chunk):
        own = shares[np.arange(len(ids) + 1), [*ids, reader.eos]]
        spent -= float(np.log2(np.clip(own, _TINY, 1.0)).sum())
    return spent


def decided(chunks: Sequence[bytes], reader: Reader, tables: MixtureTables) -> Decided:
    """Take texts apart into decisions."""
    rows: list[Decision] = []
    owners: list[int] = []
    ends = np.zeros(len(chunks))
    for at, chunk in enumerate(chunks):
        bits, chances = mixture_fit.decisions(chunk, tables.tables)
        # Each byte is nine decisions, the first of which is whether the text ends.
        parts = (one[:-1].reshape(-1, 9)[:, 1:] for one in (bits, chances))
        by_byte = iter(zip(*parts, strict=True))
        for ids, shares in reader.segments(chunk):
            for ahead, token in itertools.zip_longest(shares, ids):
                held = np.concatenate([[0.0], np.cumsum(ahead[reader.ordered.order])])
                last = ahead[reader.eos] / (ahead[reader.eos] + held[-1])
                if token is None:
                    ends[at] -= np.log2(max(last, _TINY))
                    continue
                ends[at] -= np.log2(max(1.0 - last, _TINY))
                ends[at] += _token(reader.pieces[token], held, reader.ordered, by_byte, rows)
        owners += [at] * (len(rows) - len(owners))
    found = np.array(rows)
    return Decided(
        found[:, 0],
        found[:, 1],
        found[:, 2].astype(np.int64),
        found[:, 3].astype(np.int64),
        np.array(owners),
        ends,
    )


def _token(
    piece: bytes,
    held: Floats,
    ordered: Pieces,
    by_byte: Iterator[tuple[NDArray[np.uint8], NDArray[np.uint16]]],
    rows: list[Decision],
) -> float:
    """Add the decisions of one token; return the bits spent on where it ends.

    ``held`` is the decoder's cumulated distribution in the order of the pieces. Shape: (V - 1,).
    """
    spent = 0.0
    for place in range(len(piece) + 1):
        prefix = piece[:place]
        bounds = ordered.bounds(prefix)
        is_this = held[bounds[0]] - held[ordered.first(prefix)]
        goes_on = held[bounds[-1]] - held[bounds[0]]
        if place:
            own = is_this if place == len(piece) else goes_on
            spent -= np.log2(max(own, _TINY) / max(is_this + goes_on, _TINY))
        if place == len(piece):
            break
        shares = np.diff(held[bounds]) / max(goes_on, _TINY)
        shares = (shares + _LEAST / 256) / (1.0 + _LEAST)
        bits, chances = next(by_byte)
        kind = 5 * min(place, 1) + int(np.searchsorted(_EDGES, shares.max()))
        rows += _bits(np.concatenate([[0.0], np.cumsum(shares)]), bits, chances, kind)
    return float(spent)


def _bits(
    held: Floats, bits: NDArray[np.uint8], chances: NDArray[np.uint16], kind: int
) -> Iterator[Decision]:
    """Yield a byte's eight decisions, the highest bit first. Shape of ``held``: (257,)."""
    low, size = 0, 256
    for bit, chance in zip(bits.tolist(), chances.tolist(), strict=True):
        size //= 2
        ones = held[low + 2 * size] - held[low + size]
        both = held[low + 2 * size] - held[low]
        yield chance / 65_536.0, float(ones / both), bit, kind
        low += size * bit


def fitted(found: Decided) -> Floats:
    """Fit the weights of each kind by Newton's method, held near one half each. Shape: (K, 3)."""
    weights = np.tile([0.5, 0.5, 0.0], (2 * (len(_EDGES) + 1), 1))
    inputs = _inputs(found)
    for kind in range(len(weights)):
        rows = found.kinds == kind
        x, y, first = inputs[rows], found.bits[rows], weights[kind].copy()
        for _ in range(_STEPS if len(y) else 0):
            p = 1.0 / (1.0 + np.exp(-x @ weights[kind]))
            slope = x.T @ (p - y) + (weights[kind] - first)
            bend = (x * (p * (1 - p))[:, None]).T @ x + np.eye(3)
            weights[kind] -= np.linalg.solve(bend, slope)
    return weights


def mixed(found: Decided, weights: Floats) -> Floats:
    """Return the mixed probability of a 1. Shape: (N,)."""
    p: Floats = 1.0 / (1.0 + np.exp(-(_inputs(found) * weights[found.kinds]).sum(-1)))
    return np.clip(p, _LEAST, 1.0 - _LEAST)


def _inputs(found: Decided) -> Floats:
    parts = [np.clip(p, _LEAST, 1.0 - _LEAST) for p in (found.mixture, found.decoder)]
    stretched = [np.log(p / (1.0 - p)) for p in parts]
    return np.stack([*stretched, np.ones(len(found.bits))], -1)


def page(found: Parts) -> str:
    """Return the table."""
    columns = ["bits a byte", "mixture", "decoder", "the smaller of a chunk", "combined"]
    columns += ["of it token ends"]
    columns += ["saves of the smaller"]
    keys = ("mixture", "decoder", "choice", "combined", "ends", "saved")
    rows = [[name, *(with_interval(f, key, digits=3) for key in keys)] for name, f in found.items()]
    sizes = "; ".join(
        f"{name}: {f['chunks']:.0f} chunks, {f['bytes']:,.0f} bytes" for name, f in found.items()
    )
    return f"{table(columns, rows)}\n\n{sizes}"
