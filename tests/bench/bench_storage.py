"""How many bytes does a record take, by codec, and what is saved in all?

Each text is cut into chunks as the worker cuts it; each chunk is encoded, its vector rounded to the
collection's precision, and coded by every codec against that vector. Sizes are of the real bytes:
payloads as they are stored, entries as the ledger keeps them, vectors as the store keeps them. Not
counted are the stores' own overheads (keys, indexes), which both sides of a comparison have.

Rivals: Zstandard with the artifact's dictionary (trained on the same texts as the decoder),
Zstandard with a dictionary trained on one half of the *same data set* and measured on the other (a
stronger rival: our tables never saw the set), and brotli at its best level, which has a dictionary
built in.
"neural, no vector" is the decoder with the vector zeroed: the difference is what the vector saves.

The answer is limited by the data alone; nothing is timed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import brotli
import numpy as np
import sheet
import texts

from verso_codecs import zstd
from verso_core import manifest
from verso_core.jobs import Precision
from verso_core.manifest import Artifact
from verso_core.record import CHECKSUM_BYTES, VECTOR_HASH_BYTES, Codec, Entry, Record
from verso_standalone.stack import find_artifact
from verso_worker.artifact import byte_codecs, cutter
from verso_worker.engine.loading import load_service
from verso_worker.engine.service import Service
from verso_worker.neural import NeuralCodec, Offer
from verso_worker.records import ByteCodec
from verso_worker.space import Space

OWN_DICTIONARY_BYTES = 16 * 1024
BATCH = 256


@dataclass
class Sums:
    """What a data set's records take, summed. All in bytes, over all records."""

    documents: int = 0
    records: int = 0
    raw: int = 0
    raw_of_own_half: int = 0
    records_of_own_half: int = 0
    brotli: int = 0
    zstd: int = 0
    zstd_own: int = 0
    ngram: int = 0
    neural: int = 0
    neural_without_vector: int = 0
    without_neural: int = 0
    best: int = 0
    entries: int = 0
    vectors: int = 0
    vectors_float32: int = 0
    chosen: Counter[str] = field(default_factory=Counter)


class Coders:
    """One artifact's codecs for one precision."""

    def __init__(self, artifact: Artifact, service: Service, precision: Precision) -> None:
        space = artifact.manifest.space
        self.service = service
        self.cutter = cutter(artifact)
        self.codecs: dict[Codec, ByteCodec] = byte_codecs(artifact)
        self._neural = NeuralCodec(service, self.cutter)
        self.space = Space(precision, space.dim, space.int8_scale)

    def neural(self, chunks: Sequence[bytes]) -> tuple[list[Offer | None], list[Offer | None]]:
        """Code chunks with the decoder: against their stored vectors, and with no vector."""
        vectors = self.space.widen(self.space.round(self.service.encode(chunks).vectors))
        return (
            self._neural.code(chunks, vectors),
            self._neural.code(chunks, np.zeros_like(vectors)),
        )


def measure(documents: Sequence[bytes], coders: Coders) -> Sums:
    """Code every document of a data set with every codec."""
    sums = Sums(documents=len(documents))
    halves = documents[0::2], documents[1::2]
    own = zstd.ZstdCodec(zstd.train(halves[0], OWN_DICTIONARY_BYTES))
    cut = [coders.cutter.cut(document) for document in documents]
    chunks = [chunk for document in cut for chunk in document]
    neural: list[Offer | None] = []
    bare: list[Offer | None] = []
    for start in range(0, len(chunks), BATCH):
        with_vector, without = coders.neural(chunks[start : start + BATCH])
        neural += with_vector
        bare += without
    at = 0
    for number, document in enumerate(cut):
        records = []
        for chunk in document:
            codec, payload = _add(sums, chunk, neural[at], bare[at], coders=coders)
            records.append(_record(codec, payload))
            if number % 2:
                sums.records_of_own_half += 1
                sums.raw_of_own_half += len(chunk)
                sums.zstd_own += min(len(own.encode(chunk)), len(chunk))
            at += 1
        size = sum(len(chunk) for chunk in document)
        sums.entries += len(Entry(seq=1, size_bytes=size, records=tuple(records)).pack())
    sums.vectors = sums.records * coders.space.size_bytes
    sums.vectors_float32 = sums.records * coders.space.dim * np.dtype(np.float32).itemsize
    return sums


def _add(
    sums: Sums, chunk: bytes, neural: Offer | None, bare: Offer | None, *, coders: Coders
) -> tuple[Codec, bytes]:
    """Add one chunk to the sums and give what would be stored of it."""
    offers = {codec: coder.encode(chunk) for codec, coder in coders.codecs.items()}
    offers[Codec.RAW] = chunk
    sums.records += 1
    sums.raw += len(chunk)
    sums.brotli += min(len(brotli.compress(chunk, quality=11, lgwin=16)), len(chunk))
    sums.zstd += min(len(offers[Codec.ZSTD]), len(chunk))
    sums.ngram += min(len(offers[Codec.NGRAM]), len(chunk))
    without = min(len(payload) for payload in offers.values())
    sums.without_neural += without
    # A chunk that the decoder cannot take counts with what it would be stored as instead.
    sums.neural += len(neural[1]) if neural is not None else without
    sums.neural_without_vector += len(bare[1]) if bare is not None else without
    offers |= dict([] if neural is None else [neural])
    codec, payload = min(offers.items(), key=lambda offer: (len(offer[1]), offer[0]))
    sums.best += len(payload)
    sums.chosen[codec.name.lower()] += 1
    return codec, payload


def _record(codec: Codec, payload: bytes) -> Record:
    return Record(codec, 0, bytes(VECTOR_HASH_BYTES), bytes(CHECKSUM_BYTES), payload)


def row_of(name: str, sums: Sums) -> dict[str, Any]:
    """Give the figures of one data set: means a record in bytes, shares, and the three views."""
    n = sums.records
    header = n  # the byte that names the codec
    usual = sums.vectors_float32 + sums.raw
    rival = sums.vectors + header + sums.without_neural
    return {
        "set": name,
        "documents": sums.documents,
        "records": n,
        "raw": sums.raw / n,
        "brotli": sums.brotli / n,
        "zstd": sums.zstd / n,
        "zstd_own_dictionary": sums.zstd_own / max(1, sums.records_of_own_half),
        "ngram": sums.ngram / n,
        "neural": sums.neural / n,
        "neural_without_vector": sums.neural_without_vector / n,
        "verso": (header + sums.best) / n,
        "entry": sums.entries / n,
        "vector": sums.vectors / n,
        "codecs": {name: count / n for name, count in sums.chosen.most_common()},
        "decoder_share": sum(sums.chosen[c.name.lower()] for c in Codec if c.reads_vector) / n,
        "saved_against_vector_and_best_text_codec": 1 - (sums.vectors + header + sums.best) / rival,
        "saved_against_float32_and_raw": 1 - (sums.vectors + sums.entries) / usual,
        "saved_against_raw_alone": 1 - (sums.vectors + sums.entries) / sums.raw,
    }


def main() -> None:
    """Measure, print, hand in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--documents", type=int, default=300, help="most documents of a set")
    parser.add_argument("--precision", type=Precision, choices=list(Precision), nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paper = sheet.Sheet("storage")
    artifact = manifest.load(arguments.artifact or find_artifact())
    service = load_service(artifact, threads=arguments.threads)
    sets = texts.corpus_by_kind() | (texts.public(arguments.data) if arguments.data else {})
    found: dict[str, list[dict[str, Any]]] = {}
    for precision in arguments.precision or list(Precision):
        coders = Coders(artifact, service, precision)
        found[precision] = [
            row_of(name, measure(texts.chosen(documents, arguments.documents), coders))
            for name, documents in sets.items()
        ]
        _print(precision, found[precision])
    service.close()
    paper.finish({"artifact": artifact.id, "sets": found})


def _print(precision: str, rows: list[dict[str, Any]]) -> None:
    sizes = (
        "raw", "brotli", "zstd", "zstd_own_dictionary", "ngram", "neural_without_vector", "neural",
        "verso", "entry",
    )  # fmt: skip
    titles = (
        "raw", "brotli", "zstd+dict", "zstd+own dict", "n-gram", "neural, no vector", "neural",
        "stored", "entry",
    )  # fmt: skip
    sheet.table(
        f"bytes a record, {precision} vectors",
        ["set", "records", *titles, "by decoder"],
        [
            [
                row["set"],
                row["records"],
                *(row[size] for size in sizes),
                f"{row['decoder_share']:.0%}",
            ]
            for row in rows
        ],
    )
    sheet.table(
        f"saved in all, {precision} vectors (negative: it takes more)",
        ["set", "vs vector + best text codec", "vs float32 + raw", "vs raw alone"],
        [
            [
                row["set"],
                f"{row['saved_against_vector_and_best_text_codec']:.1%}",
                f"{row['saved_against_float32_and_raw']:.1%}",
                f"{row['saved_against_raw_alone']:.1%}",
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
