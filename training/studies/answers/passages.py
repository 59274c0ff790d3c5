"""Passages of the shipped prose and documentation, of which questions are made."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verso_core.texts import SENTENCE_END

_MOST = 700
"""Characters of a passage: about 160 tokens, as a paragraph of SQuAD's."""
_LEAST = 200
_FILES = ("books_1", "books_2", "books_3", "books_4", "techdocs")
_OTHER_LICENCE = "celery/celery"
"""The one source of documentation with terms that a head would inherit (CC BY-SA)."""


@dataclass(frozen=True)
class Passage:
    """Consecutive sentences of one document."""

    document: str
    text: str


def passages(root: Path, *, documents: int, seed: int = 0) -> list[Passage]:
    """Return the passages of some documents of each file of prose, drawn at random.

    Args:
        root: Of the public data sets.
        documents: Of each file.
        seed: Of the draw.
    """
    found = []
    for name in _FILES:
        with lzma.open(root / "prose" / f"{name}.jsonl.xz", "rt", encoding="utf-8") as stream:
            rows = [json.loads(line) for line in stream]
        free = [row for row in rows if row["source"] != _OTHER_LICENCE]
        for row in random.Random(f"{seed}:{name}").sample(free, min(documents, len(free))):
            found += [Passage(row["id"], text) for text in cut(row["text"])]
    return found


def cut(text: str) -> Iterator[str]:
    """Yield slices of a text: whole sentences, 200 to 700 characters; longer sentences are left
    out."""
    start = end = 0
    for first, last in sentences(text):
        if last - start > _MOST:
            if end - start >= _LEAST:
                yield text[start:end]
            start = first
        end = last
        if last - first > _MOST:
            start = last
    if end - start >= _LEAST:
        yield text[start:end].strip()


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the sentences and lines of a text are: characters [start, end)."""
    start = 0
    for separator in SENTENCE_END.finditer(text):
        if separator.start() > start:
            yield start, separator.start()
        start = separator.end()
    if start < len(text):
        yield start, len(text)
