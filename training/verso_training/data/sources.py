"""The public data sets a decoder is trained on, as documents.

Every document names its family (the mixture is drawn by family) and its split. Only training parts
reach ``Split.TRAIN``; validation documents are 2 % of the prose, chosen by a hash of their id, and
the published ``dev`` parts of the log sets. Test parts are never opened here.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

_HELD_OUT_PERCENT = 2
_LOG_SETS = ("logs_rcheck", "logs_rinstall", "logs_defects4j", "logs_syzkaller")


class Split(StrEnum):
    """What a document may be used for."""

    TRAIN = "train"
    VALIDATION = "validation"


@dataclass(frozen=True)
class Chunk:
    """One text for one record."""

    text: str
    family: str
    source: str


@dataclass(frozen=True)
class Document:
    """One text with its source."""

    family: str
    source: str
    key: str
    text: str
    split: Split
    atomic: bool = False
    """True for a text that is always one chunk, such as a question."""


def documents(root: Path) -> Iterator[Document]:
    """Yield every document below ``root`` that training or validation may use, in a fixed order."""
    yield from _prose(root)
    yield from _logs(root)
    yield from _squad(root)


def held_out(key: str) -> bool:
    """Whether a prose document belongs to the validation part: a hash decides, 2 % of all."""
    digest = hashlib.sha256(key.encode("utf-8")).digest()
    return int.from_bytes(digest[:4], "big") % 100 < _HELD_OUT_PERCENT


def foreign(root: Path, *, count: int = 300) -> list[Chunk]:
    """CLINC150 validation questions: a set unlike the training texts, for figures only."""
    with lzma.open(
        root / "intent_clinc150" / "data_full.json.xz", "rt", encoding="utf-8"
    ) as stream:
        rows = json.load(stream)["val"]
    step = max(1, len(rows) // count)
    return [Chunk(text, "clinc150", "clinc150") for text, _ in rows[::step]]


def _prose(root: Path) -> Iterator[Document]:
    files = {"techdocs": ["techdocs"], "books": [f"books_{i}" for i in range(1, 5)]}
    files["factbook"] = ["factbook1995"]
    for family, names in files.items():
        for name in names:
            for row in _rows(root / "prose" / f"{name}.jsonl.xz"):
                # A book is cut into passages "<book>#<chapter>.<part>": the whole book is held
                # out or none of it, otherwise names and style leak into validation.
                key = str(row["id"]).split("#")[0]
                split = Split.VALIDATION if held_out(key) else Split.TRAIN
                yield Document(family, family, str(row["id"]), str(row["text"]), split)


def _logs(root: Path) -> Iterator[Document]:
    for name in _LOG_SETS:
        for part, split in (("train", Split.TRAIN), ("dev", Split.VALIDATION)):
            for row in _rows(root / name / f"{part}.jsonl.xz"):
                yield Document("logs", name, str(row["id"]), str(row["text"]), split)
    # Eight whole jobs: the published "stress" part stays unseen for evaluation.
    for row in _rows(root / "logs_ci_logdx" / "dev.jsonl.xz"):
        yield Document("logs", "logs_ci_logdx", str(row["id"]), str(row["text"]), Split.TRAIN)


def _squad(root: Path) -> Iterator[Document]:
    folder = root / "qa_squad"
    titles = json.loads((folder / "split_by_article.json").read_text(encoding="utf-8"))
    split_of = dict.fromkeys(titles["train_11_only"] + titles["train"], Split.TRAIN)
    split_of |= dict.fromkeys(titles["dev"], Split.VALIDATION)
    seen: set[str] = set()
    for name in ("squad11_dev_shared", "squad2_dev_shared"):
        with lzma.open(folder / f"{name}.json.xz", "rt", encoding="utf-8") as stream:
            articles = json.load(stream)["data"]
        for article in articles:
            split = split_of.get(article["title"])
            if split is None:
                continue
            for number, paragraph in enumerate(article["paragraphs"]):
                key = f"{name}:{article['title']}:{number}"
                texts = [(paragraph["context"], False)]
                texts += [(question["question"], True) for question in paragraph["qas"]]
                for text, atomic in texts:
                    if text not in seen:
                        seen.add(text)
                        yield Document("squad", "squad", key, text, split, atomic)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)
