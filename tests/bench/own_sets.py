"""Data sets with a part to fit to and a later part to measure on, in the order of their times.

Log systems: the first 1,000 of their 2,000 lines, and the last 1,000. Sets with published parts:
the training part and the test part. Nothing of a test part is ever fitted to, and no order or size
is chosen on one.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import texts

LINES = 1000
FIT_BYTES = 400_000
"""Most bytes of a training part that are fitted to, the first ones."""

RECORDS = 1000
"""Most records of a test part that are measured, spread evenly over it."""


@dataclass(frozen=True)
class OwnSet:
    """One data set's parts."""

    name: str
    fit: list[bytes]
    test: list[bytes]


def own_sets(folder: Path, names: list[str] | None = None) -> Iterator[OwnSet]:
    """Give the sets that are in a data folder, or those of them that are named."""
    readers: dict[str, Callable[[Path], tuple[list[str], list[str]]]] = {
        f"loghub: {system}": _loghub(system) for system in texts.LOGHUB
    }
    readers |= {
        "clinc150": _clinc,
        "sts-b": _stsb,
        "squad paragraphs": _squad,
        "rcheck logs": _rcheck,
        "documentation": _documentation,
    }
    for name, read in readers.items():
        if names is None or name in names:
            fit, test = read(folder)
            step = max(1, len(test) // RECORDS)
            yield OwnSet(name, _capped(fit), [t.encode() for t in test[::step]][:RECORDS])


def _capped(found: list[str]) -> list[bytes]:
    kept, size = [], 0
    for text in found:
        kept.append(text.encode())
        size += len(kept[-1])
        if size >= FIT_BYTES:
            break
    return kept


def _loghub(system: str) -> Callable[[Path], tuple[list[str], list[str]]]:
    def read(folder: Path) -> tuple[list[str], list[str]]:
        lines = [line for line in texts.loghub(system)(folder) if line.strip()]
        return lines[:LINES], lines[LINES:]

    return read


def _clinc(folder: Path) -> tuple[list[str], list[str]]:
    with lzma.open(folder / "intent_clinc150/data_full.json.xz", "rt", encoding="utf-8") as stream:
        parts = json.load(stream)
    # The published order is by intent; the sample is spread over all of them.
    train = [text for text, _ in parts["train"]]
    return [train[at * 7919 % len(train)] for at in range(len(train))], [
        t for t, _ in parts["test"]
    ]


def _stsb(folder: Path) -> tuple[list[str], list[str]]:
    found = []
    for name in ("stsb-en-train.csv.xz", "stsb-en-test.csv"):
        data = (folder / "sim_stsb" / name).read_bytes()
        content = (lzma.decompress(data) if name.endswith(".xz") else data).decode()
        rows = csv.reader(io.StringIO(content, newline=""))
        found.append([text for row in rows for text in row[:2]])
    return _spread(found[0]), found[1]


def _spread(texts_: list[str]) -> list[str]:
    return [texts_[at * 7919 % len(texts_)] for at in range(len(texts_))]


def _squad(folder: Path) -> tuple[list[str], list[str]]:
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


def _rcheck(folder: Path) -> tuple[list[str], list[str]]:
    fit, test = (
        list(dict.fromkeys(texts.jsonl(f"logs_rcheck/{part}.jsonl.xz")(folder)))
        for part in ("train", "test")
    )
    # The latest ones before the test part's years.
    return fit[-800:], test


def _documentation(folder: Path) -> tuple[list[str], list[str]]:
    held = list(texts.held_out("prose/techdocs.jsonl.xz")(folder))
    out = set(held)
    rest = [t for t in texts.jsonl("prose/techdocs.jsonl.xz")(folder) if t not in out]
    return rest, held
