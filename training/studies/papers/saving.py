"""What is saved by the published formula, and in real bytes? (Decodable Sentence-BERT, eq. 14.)

    ratio = 1 - (size_vector + size_text * (1 - acc)) / size_text

acc is the share of tokens that are the decoder's first guess, given the vector and the true tokens
before: the formula takes the bytes of a correction to be the share of wrong tokens. *Real* puts in
its place what is stored: each chunk's int8 vector, and the entry with the smallest payload of the
artifact's codecs, hashes and checks.

Held-out documents that are long enough for the longest length, one of each work (passages of one
book are no sample of books), are cut to each length in tokens of the encoder. A text of more than
256 has several chunks, each with a vector, by the formula too; *published vector* is the formula
with one float32 vector whatever the length, as the paper has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from studies.papers.kept import Figures, Kept, Parts, mean, table, with_interval
from studies.quality.classification import Bench
from verso_core import manifest
from verso_core.jobs import Precision
from verso_core.manifest import Artifact
from verso_core.record import CHECKSUM_BYTES, VECTOR_HASH_BYTES, Codec, Entry, Record
from verso_training.data import sources
from verso_training.data.sources import Document, Split
from verso_worker.engine.loading import load_service
from verso_worker.engine.service import Service
from verso_worker.records.artifact import byte_codecs, cutter
from verso_worker.records.chunking import Cutter
from verso_worker.records.neural import NeuralCodec
from verso_worker.records.recorder import ByteCodec
from verso_worker.records.space import Space

STUDY = "saving"
SOURCES = ("techdocs", "books", "logs_syzkaller")
LENGTHS = (64, 128, 256, 512, 1024, 2048)
TEXTS = 24
"""Of each source, if it has as many works."""


@dataclass(frozen=True)
class Model:
    """An artifact that codes."""

    service: Service
    cutter: Cutter
    space: Space
    codecs: dict[Codec, ByteCodec]


def run(bench: Bench) -> Parts:
    """Measure every source at every length."""
    kept = Kept(bench.work / "papers" / STUDY)
    artifact = manifest.load(bench.artifact)
    opened = cache(partial(_opened, artifact))
    found = {
        source: kept.of(source, partial(_measured, bench, source, opened)) for source in SOURCES
    }
    if opened.cache_info().currsize:
        opened().service.close()
    return found


def _opened(artifact: Artifact) -> Model:
    about = artifact.manifest.space
    return Model(
        load_service(artifact, threads=1),
        cutter(artifact),
        Space(Precision.INT8, about.dim, about.int8_scale),
        byte_codecs(artifact),
    )


def _measured(bench: Bench, source: str, opened: Callable[[], Model]) -> Figures:
    model = opened()
    texts = spread(_texts(bench, source, model.cutter), most=TEXTS)
    if not texts:
        raise AssertionError(f"{source}: no document has {LENGTHS[-1]} tokens")
    figures: dict[str, float] = {"texts": len(texts)}
    for length in LENGTHS:
        rows = [weighed(shortened(text, length, model.cutter), model) for text in texts]
        for key in rows[0]:
            figures |= mean(f"{length}/{key}", [row[key] for row in rows])
    return figures


def _texts(bench: Bench, source: str, cuts: Cutter) -> Iterator[Document]:
    """Yield the held-out documents that are long enough."""
    for document in sources.documents(bench.data):
        if document.split is not Split.VALIDATION or document.source != source:
            continue
        if cuts.tokens(document.text.encode()) >= LENGTHS[-1]:
            yield document


def spread(documents: Iterable[Document], *, most: int) -> list[str]:
    """Return the first text of each work, of as many works as wanted, from all over the source."""
    works: dict[str, str] = {}
    for document in documents:
        works.setdefault(document.key.partition("#")[0], document.text)
    found, count = [*works.values()], min(most, len(works))
    return [found[at * len(found) // count] for at in range(count)]


def shortened(text: str, length: int, cuts: Cutter) -> bytes:
    """Return the beginning of a text, of so many of the encoder's tokens."""
    offsets = cuts.encoder.encode(text, add_special_tokens=False).offsets
    return text[: offsets[min(length, len(offsets)) - 1][1]].encode()


def weighed(text: bytes, model: Model) -> Figures:
    """Return the bytes that are kept of a text, and what the formula has of them."""
    chunks = model.cutter.cut(text)
    vectors = model.space.widen(model.space.round(model.service.encode(chunks).vectors))
    offers = NeuralCodec(model.service, model.cutter).code(chunks, vectors)
    payloads = [
        min(
            [chunk, *(codec.encode(chunk) for codec in model.codecs.values())]
            + ([] if offer is None else [offer[1]]),
            key=len,
        )
        for chunk, offer in zip(chunks, offers, strict=True)
    ]
    records = tuple(
        Record(Codec.RAW, 0, bytes(VECTOR_HASH_BYTES), bytes(CHECKSUM_BYTES), payload)
        for payload in payloads
    )
    size, stored = len(text), model.space.size_bytes * len(chunks)
    entry = len(Entry(seq=1, size_bytes=size, records=records).pack())
    right = _right(chunks, vectors, model)
    published = model.space.dim * np.dtype(np.float32).itemsize
    return {
        "bytes": size,
        "chunks": len(chunks),
        "right": 100 * right,
        "formula": 100 * ratio(stored, size, right),
        "published": 100 * ratio(published, size, right),
        "patch": sum(map(len, payloads)),
        "real": 100 * (1 - (stored + entry) / size),
    }


def ratio(vector: int, size: int, right: float) -> float:
    """Return what is saved by eq. 14: a share of the text's bytes, below 0 where it grows."""
    return 1 - (vector + size * (1 - right)) / size


def _right(chunks: list[bytes], vectors: np.ndarray, model: Model) -> float:
    """Return the share of tokens that are the decoder's first guess."""
    parts = [model.cutter.segments(chunk) for chunk in chunks]
    given = np.repeat(vectors, [len(one) for one in parts], axis=0)
    probed = model.service.probe([part for one in parts for part in one], given)
    return sum(one for one, _ in probed) / max(1, sum(count for _, count in probed))


def page(found: Parts) -> str:
    """Return the table."""
    columns = ["source (texts), tokens", "bytes", "vectors", "right tokens, %"]
    columns += ["formula, published vector, %", "formula, %", "real, %", "patch"]
    rows = []
    for source, figures in found.items():
        for length in LENGTHS:
            cells = [f"{figures[f'{length}/bytes']:,.0f}", f"{figures[f'{length}/chunks']:.1f}"]
            cells += [with_interval(figures, f"{length}/{key}", digits=0) for key in _PERCENT]
            cells += [f"{figures[f'{length}/patch']:,.0f}"]
            rows.append([f"{source} ({figures['texts']:.0f}), {length}", *cells])
    return table(columns, rows)


_PERCENT = ("right", "published", "formula", "real")
