"""The texts that benches measure on: the shipped corpus, and public sets in a data folder.

None of them was trained on: the corpus and the log sets are published test parts, prose is what
training holds out, and the others are never used for training at all.
"""

from __future__ import annotations

import csv
import hashlib
import json
import lzma
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from verso_standalone import sample

LOGHUB = (
    "Android", "Apache", "BGL", "HDFS", "HPC", "Hadoop", "HealthApp", "Linux", "Mac", "OpenSSH",
    "OpenStack", "Proxifier", "Spark", "Windows",
)  # fmt: skip

Read = Callable[[Path], Iterator[str]]


def corpus() -> list[bytes]:
    """Return all texts of the shipped corpus, in its order."""
    return [_bytes(document.text) for document in sample.documents()]


def corpus_by_kind() -> dict[str, list[bytes]]:
    """Return the shipped corpus by kind of text."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for document in sample.documents():
        found[f"corpus: {document.metadata['kind']}"].append(_bytes(document.text))
    return dict(found)


def public(folder: Path, *, only: Collection[str] = ()) -> dict[str, list[bytes]]:
    """Return the public sets that are in a data folder, by name; a missing set is left out.

    Args:
        folder: Of the sets.
        only: Names of the sets to read; empty: all.
    """
    readers: dict[str, Read] = {f"loghub: {system}": loghub(system) for system in LOGHUB}
    readers |= {
        "logs_rcheck: test": jsonl("logs_rcheck/test.jsonl.xz"),
        "logs_syzkaller: test": jsonl("logs_syzkaller/test.jsonl.xz"),
        "prose: documentation, held out": held_out("prose/techdocs.jsonl.xz"),
        "prose: books, held out": held_out("prose/books_1.jsonl.xz"),
        "clinc150: val": _clinc,
        "sts-b: dev": _stsb,
        "scifact: abstracts": jsonl("ir_scifact/corpus.jsonl.xz"),
    }
    found = {}
    for name, read in readers.items():
        if only and name not in only:
            continue
        try:
            texts = list(dict.fromkeys(read(folder)))
        except FileNotFoundError:
            continue
        found[name] = [text.encode() for text in texts if text]
    return found


def chosen(texts: list[bytes], count: int, *, salt: str = "bench") -> list[bytes]:
    """Choose texts by a hash, so that every run on every machine chooses the same ones."""
    ordered = sorted(texts, key=lambda text: _rank(text, salt))
    return ordered[:count]


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _rank(text: bytes, salt: str) -> bytes:
    return hashlib.blake2b(text, digest_size=8, key=salt.encode()).digest()


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def jsonl(name: str) -> Read:
    """Read the field `text` of every row of a file."""
    return lambda folder: (row["text"] for row in _rows(folder / name))


def held_out(name: str) -> Read:
    """Yield the documents that training holds out, by its own rule (see the corpus' README)."""

    def read(folder: Path) -> Iterator[str]:
        for row in _rows(folder / name):
            digest = hashlib.sha256(str(row["id"]).split("#")[0].encode()).digest()
            if int.from_bytes(digest[:4], "big") % 100 < 2:
                yield row["text"]

    return read


def loghub(system: str) -> Read:
    """Read the lines of a log system, in the order of their times."""

    def read(folder: Path) -> Iterator[str]:
        path = folder / "logs_loghub2k" / system / f"{system}_2k.log"
        with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            yield from (line.rstrip("\r\n") for line in lines)

    return read


def whole(system: str) -> Read:
    """Read all lines that there are of a log system, in the order of their times."""

    def read(folder: Path) -> Iterator[str]:
        path = folder / "logs_loghub_full" / f"{system}.log.xz"
        with lzma.open(path, "rt", encoding="utf-8", errors="replace", newline="\n") as lines:
            yield from (line.rstrip("\r\n") for line in lines)

    return read


def _clinc(folder: Path) -> Iterator[str]:
    with lzma.open(folder / "intent_clinc150/data_full.json.xz", "rt", encoding="utf-8") as stream:
        yield from (text for text, _ in json.load(stream)["val"])


def _stsb(folder: Path) -> Iterator[str]:
    with (folder / "sim_stsb/stsb-en-dev.csv").open(encoding="utf-8", newline="") as stream:
        for first, second, _ in csv.reader(stream):
            yield first
            yield second
