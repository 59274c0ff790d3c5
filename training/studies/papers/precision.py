"""What do search and decoder lose by the precision of vectors? (Decodable Sentence-BERT, table 5.)

Chunks of a set are encoded once and rounded to each precision; questions stay float32, as the
stores score them. All chunks are compared, without an index. A document has the rank of its best
chunk.

*1 bit* keeps the sign of each dimension. *Re-scored*: the nearest chunks by 1 bit are read back
from their patches, encoded once more, and ordered by the exact vectors. Reading gives the exact
text, and the encoder of one artifact gives its vector again, so this is the order of the float32
vectors among those chunks; what it costs is reading and encoding them.

*Bits a byte*: the shipped decoder's payload of a chunk's first record, coded against the vector as
it is stored. It was trained on float16 and int8.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.papers.kept import Figures, Kept, Parts, table
from studies.quality.classification import Bench
from verso_client.cli import evaluation
from verso_core import manifest
from verso_core.heads import SignalName
from verso_core.jobs import Precision
from verso_training.artifact.graphs import EncoderGraph
from verso_training.heads import signals
from verso_worker.records.artifact import cutter
from verso_worker.records.space import Space

STUDY = "precision"
SETS = ("ir_cacm", "ir_scifact")
KINDS = ("float32", "float16", "int8", "int4", "1 bit")
RESCORED = (10, 30, 100)
_PART = 256
_HITS = 300
"""Chunks of a ranking, enough for a hundred documents."""
_SAMPLE = 100
_BITS = {"float32": 32, "float16": 16, "int8": 8, "int4": 4, "1 bit": 1}
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Corpus:
    """A set's chunks with their documents, and unit vectors of chunks and questions.

    Attributes:
        owners: Of the chunks.
        vectors: Shape: (N, D).
        questions: Shape: (Q, D).
        judged: Relevant documents of each question.
    """

    owners: list[str]
    chunks: list[str]
    vectors: Floats
    questions: Floats
    judged: list[Mapping[str, int]]


def run(bench: Bench) -> Parts:
    """Measure both sets."""
    kept = Kept(bench.work / "papers" / STUDY)
    found: dict[str, Figures] = {}
    for name in SETS:
        folder = bench.data / name
        found[name] = kept.of(name, partial(_measured, bench, folder))
    return found


def _measured(bench: Bench, folder: Path) -> Figures:
    corpus = read(bench, folder)
    found = {f"{kind}/bytes": _BITS[kind] * corpus.vectors.shape[1] / 8 for kind in KINDS}
    return {**found, **searched(bench, corpus), **coded(bench, corpus)}


def read(bench: Bench, folder: Path) -> Corpus:
    """Read a set in the layout of BEIR and encode it, by parts that are kept."""
    given = evaluation.read(folder, split="test")
    cut = cutter(manifest.load(bench.artifact)).cut
    rows = [(name, part) for name, text in given.documents.items() for part in cut(text.encode())]
    chunks = [part.decode() for _, part in rows]
    asked = list(given.questions.values())
    keep = bench.work / "vectors"
    return Corpus(
        [name for name, _ in rows],
        chunks,
        _encoded(bench, chunks, keep / f"{folder.name}-chunks"),
        _encoded(bench, asked, keep / f"{folder.name}-questions"),
        [given.relevant[question] for question in given.questions],
    )


def _encoded(bench: Bench, texts: Sequence[str], keep: Path) -> Floats:
    keep.mkdir(parents=True, exist_ok=True)
    graph = None
    parts = []
    for start in range(0, len(texts), _PART):
        path = keep / f"{start}.npy"
        if not path.exists():
            graph = graph or EncoderGraph(bench.artifact, threads=1)
            with path.with_suffix(".new").open("wb") as stream:
                np.save(stream, graph.encode(texts[start : start + _PART]))
            path.with_suffix(".new").rename(path)
        parts.append(np.load(path))
    return np.concatenate(parts)


def stored(vectors: Floats, kind: str, *, scale: float) -> Floats:
    """Return vectors as a store of this precision gives them back. Shape: (N, D), in and out."""
    if kind == "float32":
        return vectors
    if kind == "1 bit":
        signs = np.where(vectors < 0, -1.0, 1.0) / np.sqrt(vectors.shape[1])
        return np.asarray(signs, np.float32)
    space = Space(Precision(kind), int(vectors.shape[1]), scale)
    return space.widen(space.round(vectors))


def searched(bench: Bench, corpus: Corpus) -> Figures:
    """Return nDCG@10 and recall by precision, and the paired gain against float32."""
    scale = manifest.load(bench.artifact).manifest.space.int8_scale
    exact = corpus.questions @ corpus.vectors.T
    scores = {
        kind: corpus.questions @ stored(corpus.vectors, kind, scale=scale).T for kind in KINDS
    }
    signs = stored(corpus.questions, "1 bit", scale=scale)
    scores["1 bit, questions too"] = signs @ stored(corpus.vectors, "1 bit", scale=scale).T
    for count in RESCORED:
        scores[f"1 bit, {count} re-scored"] = rescored(scores["1 bit"], exact, count=count)
    reached = {
        name: evaluation.measures(ranked(row, corpus.owners), corpus.judged)
        for name, row in scores.items()
    }
    figures: dict[str, float] = {"chunks": len(corpus.owners), "questions": len(corpus.judged)}
    for name, found in reached.items():
        gain = evaluation.gain(found.ndcg_10, reached["float32"].ndcg_10)
        figures |= {
            f"{name}/ndcg": 100 * float(np.mean(found.ndcg_10)),
            f"{name}/recall": 100 * float(np.mean(found.recall_100)),
            f"{name}/gain": 100 * gain.mean,
            f"{name}/low": 100 * gain.low,
            f"{name}/high": 100 * gain.high,
        }
    return figures


def rescored(coarse: Floats, exact: Floats, *, count: int) -> Floats:
    """Order the first ``count`` of each row by exact scores, before all others. Shape: (Q, N)."""
    first = np.argsort(-coarse, axis=1, kind="stable")[:, :count]
    found = coarse.copy()
    # Cosines are at most 1, so that these stand before every other.
    np.put_along_axis(found, first, np.take_along_axis(exact, first, 1) + 3.0, 1)
    return found


def ranked(scores: Floats, owners: Sequence[str]) -> list[list[str]]:
    """Return each question's documents, best first. Shape: (Q, N)."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_HITS]
    return [list(dict.fromkeys(owners[at] for at in row)) for row in order]


def coded(bench: Bench, corpus: Corpus) -> Figures:
    """Return the decoder's bits a byte by precision, and the milliseconds to encode a chunk."""
    scale = manifest.load(bench.artifact).manifest.space.int8_scale
    rows = np.arange(0, len(corpus.chunks), max(1, len(corpus.chunks) // _SAMPLE))[:_SAMPLE]
    texts = [corpus.chunks[row] for row in rows]
    figures = {}
    for kind in KINDS:
        vectors = stored(corpus.vectors[rows], kind, scale=scale)
        seen = signals.decoder_signals(texts, vectors, artifact=bench.artifact, coder=True)
        figures[f"{kind}/bits"] = -float(seen[SignalName.BITS_GIVEN_VECTOR].mean())
        figures[f"{kind}/saved"] = float(seen[SignalName.BITS_SAVED].mean())
    graph = EncoderGraph(bench.artifact, threads=1)
    graph.encode(texts[:1])
    began_s = time.process_time()
    graph.encode(texts)
    return figures | {"encode_ms": 1e3 * (time.process_time() - began_s) / len(texts)}


def page(found: Parts) -> str:
    """Return the tables."""
    columns = ["set, vectors", "bytes", "nDCG@10", "against float32", "recall@100", "bits a byte"]
    rows = []
    for name, figures in found.items():
        kinds = [key.removesuffix("/ndcg") for key in figures if key.endswith("/ndcg")]
        for kind in kinds:
            plain = kind.partition(",")[0]
            gain = "" if kind == "float32" else _interval(figures, kind)
            bits = f"{figures[f'{kind}/bits']:.3f}" if kind in KINDS else ""
            ndcg, recall = figures[f"{kind}/ndcg"], figures[f"{kind}/recall"]
            size = f"{figures[f'{plain}/bytes']:,.0f}"
            rows.append([f"{name}, {kind}", size, f"{ndcg:.1f}", gain, f"{recall:.1f}", bits])
    costs = "; ".join(f"{n}: {f['encode_ms']:.0f} ms to encode a chunk" for n, f in found.items())
    return f"{table(columns, rows)}\n\n{costs}"


def _interval(figures: Figures, kind: str) -> str:
    gain, low, high = (figures[f"{kind}/{key}"] for key in ("gain", "low", "high"))
    return f"{gain:+.1f} [{low:+.1f}, {high:+.1f}]"
