"""Data sets with a part to fit to and a later part to measure on, in the order of their times.

Log systems: the first half of their lines, and the last. Sets with published parts: the training
part and the test part. Sets with neither: the first half and the last, in the order of the file.
Nothing of a measured part is ever fitted to, and no order or size is chosen on one.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import texts

FIT_BYTES = 400_000
"""Most bytes of a first part that are fitted to: of a log the last ones, of other sets any."""

_LONGEST = 16_000
"""Bytes; longer texts are whole logs, and are taken apart at line ends."""

_LINES = 1000

Parts = tuple[list[str], list[str]]
T = TypeVar("T")


@dataclass(frozen=True)
class RecordSet:
    """One data set's parts, each a list of texts."""

    name: str
    fit: list[bytes]
    test: list[bytes]


def record_sets(
    folder: Path | None, names: list[str] | None = None, *, fit_bytes: int | None = FIT_BYTES
) -> Iterator[RecordSet]:
    """Yield the sets that are in a data folder, without one the shipped corpus' kinds, or the
    named.

    The corpus' texts are from the test parts of those sets. Of a first part the last ``fit_bytes``
    are kept; None keeps all.

    Raises:
        ValueError: a name is of no set.
    """
    corpus = texts.corpus_by_kind()
    if strange := set(names or ()) - {*corpus, *_readers()}:
        raise ValueError(f"expected names of sets, got {sorted(strange)}")
    for name, found in corpus.items():
        if folder is None if names is None else name in names:
            yield RecordSet(name, found[0::2], found[1::2])
    for name, read in _readers().items():
        if folder is None or (names is not None and name not in names):
            continue
        try:
            fit, test = read(folder)
        except FileNotFoundError:
            continue
        pieces = list(_pieces(fit))
        first = pieces if fit_bytes is None else _capped(pieces, most=fit_bytes)
        yield RecordSet(name, first, list(_pieces(test)))


def spread(found: Sequence[T], count: int) -> Iterator[T]:
    """Return texts from all over a list, in its order of first importance: every n-th, then others.

    A caller that takes texts until it has enough records has taken them from everywhere.
    """
    step = max(1, len(found) // max(1, count))
    return itertools.chain.from_iterable(found[start::step] for start in range(step))


def _readers() -> dict[str, Callable[[Path], Parts]]:
    readers: dict[str, Callable[[Path], Parts]] = {
        f"loghub: {system}": _halves(texts.loghub(system), _LINES) for system in texts.LOGHUB
    }
    return readers | {
        "loghub, whole: Linux": _halves(texts.whole("Linux")),
        "loghub, whole: Proxifier": _halves(texts.whole("Proxifier")),
        "rcheck logs": _parts("logs_rcheck"),
        "install logs": _parts("logs_rinstall"),
        "failed tests": _parts("logs_defects4j"),
        "kernel crashes": _parts("logs_syzkaller"),
        "CI jobs": _parts("logs_ci_logdx", "dev", "stress"),
        "failed builds": _halves(_builds),
        "kernel boots": _halves(texts.jsonl("logs_kernelci/cases.jsonl.xz")),
        "a test suite": _halves(_php),
        "clinc150": _clinc,
        "sts-b": _stsb,
        "squad paragraphs": _squad,
        "documentation": _held_out("prose/techdocs.jsonl.xz"),
        "books": _held_out("prose/books_1.jsonl.xz"),
        "abstracts": _halves(texts.jsonl("ir_scifact/corpus.jsonl.xz")),
    }


def _pieces(found: list[str]) -> Iterator[bytes]:
    for text in found:
        data = text.encode()
        while len(data) > _LONGEST:
            end = data.rfind(b"\n", 1, _LONGEST) + 1 or _LONGEST
            yield data[:end]
            data = data[end:]
        if data.strip():
            yield data


def _capped(found: list[bytes], *, most: int) -> list[bytes]:
    """The last texts: what a log system wrote just before the part that is measured."""
    kept, size = [], 0
    for text in reversed(found):
        kept.append(text)
        size += len(text)
        if size >= most:
            break
    return kept[::-1]


def _halves(read: texts.Read, count: int | None = None) -> Callable[[Path], Parts]:
    def parts(folder: Path) -> Parts:
        found = [text for text in read(folder) if text.strip()]
        middle = count or len(found) // 2
        return found[:middle], found[middle:]

    return parts


def _parts(name: str, first: str = "train", last: str = "test") -> Callable[[Path], Parts]:
    def parts(folder: Path) -> Parts:
        fit, test = (
            list(dict.fromkeys(texts.jsonl(f"{name}/{part}.jsonl.xz")(folder)))
            for part in (first, last)
        )
        return fit, test

    return parts


def _builds(folder: Path) -> Iterator[str]:
    with lzma.open(folder / "logs_ci_cidiff/cases.jsonl.xz", "rt", encoding="utf-8") as stream:
        yield from (json.loads(line)["fail_log"] for line in stream)


def _php(folder: Path) -> Iterator[str]:
    path = folder / "logs_phptest/php_test_run.log.xz"
    with lzma.open(path, "rt", encoding="utf-8", errors="replace") as stream:
        yield from (line.rstrip("\r\n") for line in stream)


def _clinc(folder: Path) -> Parts:
    with lzma.open(folder / "intent_clinc150/data_full.json.xz", "rt", encoding="utf-8") as stream:
        parts = json.load(stream)
    # The published order is by intent; the sample is spread over all of them.
    train = [text for text, _ in parts["train"]]
    return _mixed(train), [text for text, _ in parts["test"]]


def _stsb(folder: Path) -> Parts:
    found = []
    for name in ("stsb-en-train.csv.xz", "stsb-en-test.csv"):
        data = (folder / "sim_stsb" / name).read_bytes()
        content = (lzma.decompress(data) if name.endswith(".xz") else data).decode()
        rows = csv.reader(io.StringIO(content, newline=""))
        found.append([text for row in rows for text in row[:2]])
    return _mixed(found[0]), found[1]


def _mixed(found: list[str]) -> list[str]:
    return [found[at * 7919 % len(found)] for at in range(len(found))]


def _squad(folder: Path) -> Parts:
    titles = json.loads((folder / "qa_squad/split_by_article.json").read_text(encoding="utf-8"))
    with lzma.open(folder / "qa_squad/squad2_dev_shared.json.xz", "rt", encoding="utf-8") as stream:
        articles = json.load(stream)["data"]
    fit: list[str] = []
    test: list[str] = []
    for article in articles:
        contexts = [paragraph["context"] for paragraph in article["paragraphs"]]
        if article["title"] in titles["train"]:
            fit += contexts
        elif article["title"] in titles["eval"]:
            test += contexts
    return fit, test


def _held_out(name: str) -> Callable[[Path], Parts]:
    def parts(folder: Path) -> Parts:
        held = list(texts.held_out(name)(folder))
        out = set(held)
        return [text for text in texts.jsonl(name)(folder) if text not in out], held

    return parts
