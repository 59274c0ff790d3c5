"""How fast does the n-gram codec code and read with one thread, and what limits it?

Texts of the shipped corpus, cut to at most 1,000 bytes; with a data folder, lines of log systems
that its tables never saw; and one text again and again, whose lines of the table stay in the first
cache and whose branches are foreseen: the distance to it is what memory and guessing cost. *model*
is the prediction of every bit alone, *arithmetic* the coder alone. Processor seconds, so that other
work counts only by the caches it shares. The best of three rounds; every text is read back and
compared. The last column is a hash of all payloads: it stays the same when only the speed changes.

With ``--rival`` the plain codec that needs no mixing (`static_ngram`) is counted over the very
texts that the shipped tables were counted over, its orders 3 to 5 each with what is best on
validation texts, and both code the same sets. With ``--document`` texts of that many bytes are
taken in and read back as a worker does it, in this process, and the n-gram codec's share is told.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sheet
import static_ngram
import texts
from static_ngram import StaticNgram

from verso_codecs import coder, ngram
from verso_codecs.ngram import NgramTables
from verso_core import manifest
from verso_core.jobs import CodecPolicy, Precision
from verso_core.manifest import Artifact
from verso_core.record import Codec
from verso_standalone.stack import find_artifact
from verso_training import config
from verso_training.artifact import publish
from verso_training.data import chunks, sources
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import byte_codecs, cutter
from verso_worker.records.recorder import ByteCodec, Recorder
from verso_worker.records.space import Space

_SYSTEMS = ("HDFS", "OpenSSH", "Spark")
_LONGEST = 1000
_ROUNDS = 3
_ORDERS = (3, 4, 5)
_LEASTS = (4, 8, 30)
_DISCOUNTS = (0.5, 0.75)
_RECIPE = "cpu"
_VALIDATION = 2000
_HELD_OUT = {
    "short texts": ("clinc150: val", "sts-b: dev"),
    "prose": ("prose: documentation, held out", "prose: books, held out"),
    "long logs": ("logs_rcheck: test",),
}
_LONG = ("prose: documentation, held out", "logs_rcheck: test")


def measure(given: Sequence[bytes], tables: NgramTables) -> dict[str, Any]:
    """Code and read texts; megabytes a second of a processor."""
    raw = sum(map(len, given)) / 1e6
    ngram.decode(ngram.encode(given[0], tables), tables)  # compiles
    rounds = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        decided = [ngram.decisions(text, tables) for text in given]
        predicted = time.process_time()
        payloads = [coder.encode(*one) for one in decided]
        coded = time.process_time()
        read = [ngram.decode(payload, tables) for payload in payloads]
        done = time.process_time()
        if read != given:
            raise AssertionError("a text did not come back")
        rounds.append((predicted - began, coded - predicted, coded - began, done - coded))
    model, arithmetic, code, back = (raw / min(column) for column in zip(*rounds, strict=True))
    return {
        "texts": len(given),
        "model MB/s": model,
        "arithmetic MB/s": arithmetic,
        "code MB/s": code,
        "read MB/s": back,
        "payloads": hashlib.sha256(b"|".join(payloads)).hexdigest()[:12],
    }


def rivals(folder: Path) -> list[StaticNgram]:
    """Count what the shipped tables were counted over; each order at its best on validation.

    Validation texts are those on which the shipped model learnt to mix.
    """
    recipe = config.load(_RECIPE)
    pool = list(sources.documents(folder))
    train = [document for document in pool if document.split is sources.Split.TRAIN]
    counts = static_ngram.count(publish.table_texts(train, recipe))
    held = chunks.draw_held_out(
        pool, fit_chunks=recipe.publish.mixing_chunks, report_chunks=0
    ).fitting
    chosen = texts.chosen([chunk.text.encode() for chunk in held], _VALIDATION)
    found = []
    for order in _ORDERS:
        made = (
            static_ngram.fit(counts, order=order, least=least, discount=discount)
            for least in _LEASTS
            for discount in _DISCOUNTS
        )
        sizes = ((sum(len(model.encode(text)) for text in chosen), model) for model in made)
        found.append(min(sizes, key=lambda pair: pair[0])[1])
    return found


def against(given: Sequence[bytes], codec: StaticNgram | _Shipped) -> dict[str, float]:
    """Bytes a text, and megabytes a second of a processor, of coding and of reading."""
    raw = sum(map(len, given))
    codec.decode(codec.encode(given[0]))  # compiles
    code, back = [], []
    for _ in range(_ROUNDS):
        began = time.process_time()
        payloads = [codec.encode(text) for text in given]
        coded = time.process_time()
        read = [codec.decode(payload) for payload in payloads]
        back.append(time.process_time() - coded)
        code.append(coded - began)
        if read != given:
            raise AssertionError("a text did not come back")
    return {
        "bytes": sum(map(len, payloads)) / len(given),
        "code MB/s": raw / 1e6 / min(code),
        "read MB/s": raw / 1e6 / min(back),
    }


@dataclass(frozen=True)
class _Shipped:
    """The product's codec, as what it is compared with."""

    tables: NgramTables

    @property
    def size_bytes(self) -> int:
        """Bytes of memory."""
        arrays = (getattr(self.tables.model, name) for name in ("table", "stretches", "weights"))
        return sum(array.nbytes for array in arrays)

    def encode(self, text: bytes) -> bytes:
        return ngram.encode(text, self.tables)

    def decode(self, payload: bytes) -> bytes:
        return ngram.decode(payload, self.tables)


class _Timed:
    """A codec of the worker's, with the processor seconds it took."""

    def __init__(self, codec: ByteCodec) -> None:
        self._codec = codec
        self.seconds = 0.0

    def encode(self, text: bytes) -> bytes:
        began = time.thread_time()
        payload = self._codec.encode(text)
        self.seconds += time.thread_time() - began
        return payload

    def decode(self, payload: bytes) -> bytes:
        began = time.thread_time()
        text = self._codec.decode(payload)
        self.seconds += time.thread_time() - began
        return text


def document(text: bytes, artifact: Artifact) -> dict[str, Any]:
    """Take a text in and read it back as a worker does, but without stores, queue and sockets.

    Seconds are of the processor, a MB of text, all threads together.
    """
    service = load_service(artifact, threads=1)
    chunks = cutter(artifact).cut(text)
    codecs = {codec: _Timed(coder) for codec, coder in byte_codecs(artifact).items()}
    recorder = Recorder(service, codecs, cutter(artifact))
    settings = artifact.manifest.space
    space = Space(Precision.INT8, settings.dim, settings.int8_scale)
    given: dict[str, Any] = {"kB": len(text) / 1e3, "chunks": len(chunks)}
    began = time.process_time()
    stored = space.round(service.encode(chunks).vectors)
    records = recorder.write(
        chunks, stored, precision=space, slot=0, key=bytes(16), policy=CodecPolicy.SMALLEST
    )
    written, coding = time.process_time(), codecs[Codec.NGRAM].seconds
    read = recorder.read(records, list(stored), precision=space, key=bytes(16))
    done = time.process_time()
    service.close()
    if b"".join(chunk for chunk in read if isinstance(chunk, bytes)) != text:
        raise AssertionError("a text did not come back")
    mega = len(text) / 1e6
    of_ngram = [
        len(chunk)
        for chunk, record in zip(chunks, records, strict=True)
        if record.codec is Codec.NGRAM
    ]
    return given | {
        "stored": sum(len(record.payload) for record in records) / len(records),
        "by n-gram": sum(of_ngram) / len(text),
        "write s/MB": (written - began) / mega,
        "of it n-gram": coding / mega,
        "read s/MB": (done - written) / mega,
        "of it n-gram again": (codecs[Codec.NGRAM].seconds - coding) / mega,
    }


def _sets(folder: Path | None, count: int) -> dict[str, list[bytes]]:
    corpus = [text[:_LONGEST] for text in texts.chosen(texts.corpus(), count)]
    sets = {"corpus": corpus}
    if folder is not None:
        found = (list(texts.loghub(system)(folder)) for system in _SYSTEMS)
        sets["log lines"] = [
            line.encode() for lines in found for line in lines[1000 : 1000 + count]
        ]
    return sets


def _compared(folder: Path, count: int, tables: NgramTables) -> list[dict[str, Any]]:
    sets = _sets(folder, count)
    public = texts.public(folder)
    for name, parts in _HELD_OUT.items():
        pool = [text[:_LONGEST] for part in parts for text in public[part]]
        sets[name] = texts.chosen(pool, count)
    codecs = {"the codec": _Shipped(tables)} | {
        f"order {one.order}, seen {one.least}": one for one in rivals(folder)
    }
    return [
        {"set": name, "raw": sum(map(len, given)) / len(given), "codec": label}
        | {"kB of tables": codec.size_bytes / 1e3}
        | against(given, codec)
        for name, given in sets.items()
        for label, codec in codecs.items()
    ]


def _documents(folder: Path, size: int, artifact: Artifact) -> list[dict[str, Any]]:
    public = texts.public(folder)
    joined = {name: b"\n\n".join(public[name])[:size] for name in _LONG}
    return [{"text": name} | document(text, artifact) for name, text in joined.items()]


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rival", action="store_true", help="needs --data; some minutes")
    parser.add_argument("--document", type=int, metavar="BYTES", help="needs --data")
    arguments = parser.parse_args()
    if arguments.data is None and (arguments.rival or arguments.document):
        parser.error("--rival and --document need --data")
    paper = sheet.Sheet("ngram")
    folder = arguments.artifact or find_artifact()
    tables = NgramTables.load(folder / "ngram.npz")
    sets = _sets(arguments.data, arguments.texts)
    sets["one text"] = [min(sets["corpus"], key=len)] * 3 * arguments.texts
    result: dict[str, Any] = {}
    if arguments.rival:
        result["rival"] = _compared(arguments.data, arguments.texts, tables)
        _table("against static contexts, one thread", result["rival"])
    elif arguments.document:
        artifact = manifest.load(folder)
        result["documents"] = _documents(arguments.data, arguments.document, artifact)
        _table("a whole text in and back, processor seconds", result["documents"])
    else:
        result["sets"] = {name: measure(given, tables) for name, given in sets.items()}
        rows = [{"set": name} | row for name, row in result["sets"].items()]
        _table("the n-gram codec, one thread", rows)
    paper.finish(result)


def _table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    sheet.table(title, list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
