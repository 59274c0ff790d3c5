"""How many bytes does a record take, by codec, what is saved in all, and what does reading cost?

Every set is cut in time (`record_sets`): what may be fitted is fitted to its first part, and what
is measured is the last. Texts are cut into records as the worker cuts them; each record is encoded,
its vector rounded to the collection's precision, coded by every codec alone, read back and
compared. All sizes are of the real bytes.

- *zstd-19*, *brotli*, *ppmd*: one record, no knowledge of others;
- *zstd+dict*: the rival (`record_codecs`), everything about it chosen on the end of the first part;
- *general*: Zstandard with the artifact's dictionary; *n-gram* and *neural*: the artifact's, which
  were not trained on these sets. *no vector* is the decoder with the vector zeroed: the difference
  is what the vector saves;
- *mixture*: fitted to the first part, as `verso train decoder` fits it;
- *stored*: the smallest of raw, general, n-gram and neural, and the byte that names it: what the
  artifact as it ships keeps. *fitted*: the same with the mixture, and with the dictionary that
  `verso train decoder` chooses. *worst* is the most that any one record's *fitted* is above
  zstd+dict.

A record that a codec cannot take, or makes longer, counts with its raw bytes. Seconds are of the
processor, of one thread (the decoder: of all its threads together, 64 records side by side), so
that other work on the machine does not count. The decoder takes most of the time; ``--no-decoder``
leaves it out, also of what is stored. *new values* and *new words* are the bytes that the mixture
spends on what the first part does not have (`costs`). With ``--stores N`` texts of about N records
of each set go through a running platform as well, and its stores are asked (`real_stores`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import costs
import numpy as np
import real_stores
import record_codecs
import record_sets
import sheet
import storage_tables
from record_codecs import ByteCoder

from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_codecs.zstd import ZstdCodec
from verso_core import manifest
from verso_core.jobs import Precision
from verso_core.manifest import Artifact
from verso_core.record import CHECKSUM_BYTES, VECTOR_HASH_BYTES, Codec, Entry, Record
from verso_standalone.stack import find_artifact
from verso_training.artifact.collection import best_dictionary, cut
from verso_worker.engine.loading import load_service
from verso_worker.engine.service import Service
from verso_worker.records.artifact import MixtureCodec, NgramCodec, cutter
from verso_worker.records.chunking import Cutter
from verso_worker.records.neural import NeuralCodec
from verso_worker.records.recorder import ByteCodec
from verso_worker.records.space import Space

BATCH = 256
FEWEST_TO_FIT = 20
Sizes = dict[str, list[int]]


@dataclass(frozen=True)
class Model:
    """An artifact, ready to code."""

    artifact: Artifact
    service: Service
    tables: NgramTables
    space: Space

    cutter: Cutter


@dataclass
class Findings:
    """What the codecs made of one set's records, in their order.

    sizes: bytes of each record by codec, at most its raw bytes
    seconds: processor seconds of reading all of them back, by codec
    """

    sizes: Sizes
    seconds: dict[str, float]
    decoder: list[Codec]

    def add(self, coder: ByteCoder, records: Sequence[bytes]) -> None:
        """Code the records, read them back and compare."""
        payloads = [coder.encode(record) for record in records]
        coder.decode(payloads[0], len(records[0]))  # what is compiled or loaded at the first call
        began = time.process_time()
        read = [
            coder.decode(payload, len(record))
            for payload, record in zip(payloads, records, strict=True)
        ]
        self.seconds[coder.name] = time.process_time() - began
        _compared(coder.name, read, records)
        self.sizes[coder.name] = [
            min(len(payload), len(record))
            for payload, record in zip(payloads, records, strict=True)
        ]

    def smallest(self, names: Sequence[str], records: Sequence[bytes]) -> list[int]:
        """Return what is stored of each record: the smallest payload and the byte that names it."""
        rows = [list(map(len, records)), *(self.sizes[name] for name in names)]
        return [1 + min(row) for row in zip(*rows, strict=True)]


def measure(
    found: record_sets.RecordSet, model: Model, *, records: int, decoder: bool
) -> dict[str, Any]:
    """Fit to a set's first part and measure on its last."""
    fit = [chunk for text in found.fit for chunk in cut(text)]
    texts = list(_texts(found.test, model, records=records))
    test = [record for text in texts for record in text]
    findings = Findings({}, {}, [])
    for coder in (record_codecs.alone(), record_codecs.brotli_best(), record_codecs.ppmd(fit)):
        findings.add(coder, test)
    rival = record_codecs.with_dictionary(fit)
    findings.add(rival, test)
    findings.add(_coder("general", ZstdCodec(model.artifact.data["zstd.dict"])), test)
    findings.add(_coder("n-gram", NgramCodec(model.tables)), test)
    neural = ("neural",) if decoder else ()
    if decoder:
        _neural(findings, test, model)
    kept: dict[str, int] = {}
    spent: dict[str, float] = {}
    general = findings.smallest(("general", "n-gram", *neural), test)
    own = general
    if len(fit) >= FEWEST_TO_FIT:
        tables, kept = _fit(findings, fit, test, model)
        spent = costs.shares(fit, test, tables)
        own = findings.smallest(("own dictionary", "n-gram", "mixture", *neural), test)
    frames = findings.sizes["zstd+dict"]
    count, raw = len(test), sum(map(len, test))
    return {
        "set": found.name,
        "records": count,
        "fitted_to": len(fit),
        "raw": raw / count,
        "sizes": {name: sum(sizes) / count for name, sizes in findings.sizes.items()},
        "stored": sum(general) / count,
        "fitted": sum(own) / count,
        "of_zstd_dict": sum(own) / sum(frames),
        "worst": max(size - frame for size, frame in zip(own, frames, strict=True)),
        "seconds_a_mb": {name: 1e6 * s / raw for name, s in findings.seconds.items()},
        "kept_bytes": kept,
        "mixture_spends": spent,
        "zstd_choice": rival.choice,
        "codecs": _winners(findings, test),
        "views": _views(texts, own, findings, model.space),
        "documents": _documents(texts, own, rival),
    }


def _texts(texts: list[bytes], model: Model, *, records: int) -> Iterator[list[bytes]]:
    """Take texts from all over a part, cut, until there are enough records."""
    taken = 0
    for text in record_sets.spread(texts, records):
        if taken >= records:
            return
        found = model.cutter.cut(text)
        taken += len(found)
        yield found


def _to_store(
    row: Mapping[str, Any],
    found: record_sets.RecordSet,
    model: Model,
    *,
    records: int,
    measured: int,
) -> Iterator[real_stores.Text]:
    """Choose among the texts that were measured, from all over them, until there are enough."""
    texts = _texts(found.test, model, records=measured)
    documents = list(zip(texts, row["documents"], strict=True))
    taken = 0
    for text, (framed, *payloads) in record_sets.spread(documents, records):
        if taken < records:
            taken += len(text)
            yield real_stores.Text(b"".join(text), framed, tuple(payloads))


def _coder(name: str, codec: ByteCodec) -> ByteCoder:
    return ByteCoder(name, codec.encode, lambda payload, _: codec.decode(payload))


def _neural(findings: Findings, test: Sequence[bytes], model: Model) -> None:
    """Code with the decoder, against the stored vectors and against none; read the former back."""
    codec = NeuralCodec(model.service, model.cutter)
    sizes: dict[str, list[int]] = {"neural": [], "neural, no vector": []}
    seconds = 0.0
    for start in range(0, len(test), BATCH):
        part = test[start : start + BATCH]
        vectors = model.space.widen(model.space.round(model.service.encode(part).vectors))
        offers = codec.code(part, vectors)
        rows = [row for row, offer in enumerate(offers) if offer is not None]
        given = [offer for offer in offers if offer is not None]
        if not start and given:
            codec.read(given[:1], vectors[rows[:1]])
        began = time.process_time()
        read = codec.read(given, vectors[rows])
        seconds += time.process_time() - began
        _compared("neural", read, [part[row] for row in rows])
        bare = codec.code(part, np.zeros_like(vectors))
        for name, found in (("neural", offers), ("neural, no vector", bare)):
            sizes[name] += [
                len(record) if offer is None else min(len(offer[1]), len(record))
                for offer, record in zip(found, part, strict=True)
            ]
        findings.decoder += [Codec.RAW if offer is None else offer[0] for offer in offers]
    findings.sizes |= sizes
    findings.seconds["neural"] = seconds


def _fit(
    findings: Findings, fit: Sequence[bytes], test: Sequence[bytes], model: Model
) -> tuple[MixtureTables, dict[str, int]]:
    """Fit what `verso train decoder` fits, measure it, and return it and the bytes to keep."""
    tables = MixtureTables.fit(list(fit), model.tables)
    findings.add(_coder("mixture", MixtureCodec(tables)), test)
    dictionary, _ = best_dictionary(fit, own=model.artifact.data["zstd.dict"])
    findings.add(_coder("own dictionary", ZstdCodec(dictionary)), test)
    with tempfile.TemporaryDirectory() as folder:
        tables.save(Path(folder) / "mixture.npz")
        size = (Path(folder) / "mixture.npz").stat().st_size
    return tables, {"mixture.npz": size, "zstd.dict": len(dictionary)}


def _winners(findings: Findings, test: Sequence[bytes]) -> dict[str, float]:
    """Return the share of records that each codec stores."""
    first = ["own dictionary"] if "own dictionary" in findings.sizes else ["general"]
    names = [name for name in (*first, "n-gram", "mixture", "neural") if name in findings.sizes]
    counted: Counter[str] = Counter()
    for row, record in enumerate(test):
        offers = {"raw": len(record)} | {name: findings.sizes[name][row] for name in names}
        counted[min(offers, key=lambda name: offers[name])] += 1
    return {name: count / len(test) for name, count in counted.most_common()}


def _documents(
    texts: Sequence[Sequence[bytes]], stored: Sequence[int], rival: ByteCoder
) -> list[list[int]]:
    """Return of each text what zstd+dict makes of it whole, and the payload of each record."""
    sizes = iter(stored)
    return [
        [len(rival.encode(b"".join(records))), *(next(sizes) for _ in records)] for records in texts
    ]


def _views(
    texts: Sequence[Sequence[bytes]], stored: Sequence[int], findings: Findings, space: Space
) -> dict[str, float]:
    """Return the three views: what is saved in all, vectors and entries counted as they are
    kept.
    """
    sizes = iter(stored)
    entries = 0
    for text in texts:
        records = tuple(
            Record(
                Codec.RAW,
                0,
                bytes(VECTOR_HASH_BYTES),
                bytes(CHECKSUM_BYTES),
                bytes(next(sizes) - 1),
            )
            for _ in text
        )
        entries += len(Entry(seq=1, size_bytes=sum(map(len, text)), records=records).pack())
    count, raw = len(stored), sum(len(record) for text in texts for record in text)
    vectors = count * space.size_bytes
    usual = count * space.dim * np.dtype(np.float32).itemsize + raw
    rivals = [findings.sizes[name] for name in ("zstd-19", "brotli", "ppmd", "zstd+dict")]
    best = min(sum(sizes) for sizes in rivals)
    return {
        "entry": entries / count,
        "vector": space.size_bytes,
        "saved_against_vector_and_best_rival": 1 - (vectors + sum(stored)) / (vectors + best),
        "saved_against_float32_and_raw": 1 - (vectors + entries) / usual,
        "saved_against_raw_alone": 1 - (vectors + entries) / raw,
    }


def _compared(name: str, read: Sequence[bytes | None], records: Sequence[bytes]) -> None:
    if list(read) != list(records):
        raise AssertionError(f"{name}: a record did not come back")


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all")
    parser.add_argument("--records", type=int, default=300, help="about so many of each set")
    parser.add_argument("--precision", type=Precision, default=Precision.INT8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-decoder", action="store_true", help="leave the neural codec out")
    parser.add_argument(
        "--stores", type=int, metavar="N", help="take about N records of each into a platform too"
    )
    parser.add_argument(
        "--keep", type=Path, help="file of rows; sets that are in it are not redone"
    )
    arguments = parser.parse_args()
    paper = sheet.Sheet("storage")
    folder = arguments.artifact or find_artifact()
    artifact = manifest.load(folder)
    settings = artifact.manifest.space
    service = load_service(artifact, threads=arguments.threads)
    space = Space(arguments.precision, settings.dim, settings.int8_scale)
    model = Model(
        artifact, service, NgramTables.load(folder / "ngram.npz"), space, cutter(artifact)
    )
    done = _kept(arguments.keep)
    rows = []
    sets = {one.name: one for one in record_sets.record_sets(arguments.data, arguments.sets)}
    for name, found in sets.items():
        row = done.get(name) or measure(
            found, model, records=arguments.records, decoder=not arguments.no_decoder
        )
        rows.append(row)
        if arguments.keep and name not in done:
            with arguments.keep.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
        print(f"{name}: {row['fitted']:.1f}", file=sys.stderr, flush=True)
    service.close()
    stores = []
    if arguments.stores:
        chosen = {
            row["set"]: list(
                _to_store(
                    row,
                    sets[row["set"]],
                    model,
                    records=arguments.stores,
                    measured=arguments.records,
                )
            )
            for row in rows
        }
        stores = real_stores.measure(folder, chosen, precision=arguments.precision)
    storage_tables.show(rows, stores, artifact)
    paper.finish(
        {
            "artifact": artifact.id,
            "precision": arguments.precision,
            "sets": [{key: row[key] for key in row if key != "documents"} for row in rows],
            "stores": stores,
            "artifact_bytes": storage_tables.artifact_bytes(artifact),
        }
    )


def _kept(path: Path | None) -> Mapping[str, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["set"]: row for row in rows}


if __name__ == "__main__":
    main()
