"""Cut documents into chunks, and draw a training set from them.

A chunk is what one record stores: at most ``max_tokens - 1`` decoder tokens, cut at the ends of
lines, sentences or words. Production texts are single log lines and short sentences as often as
paragraphs, so the target length of every chunk is drawn: one chunk in three is a single line or
sentence, the others are log-uniform between 60 and 480 characters.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tokenizers import Tokenizer

from verso_training.data.sources import Chunk, Document, Split

_SINGLE_SHARE = 1 / 3
_LENGTH_RANGE = (60, 480)
_BARE_SHARE = 0.8
"""Share of chunks that are stripped of surrounding white space."""
_BOUNDARIES = ("\n\n", "\n", ". ", " ")
_UNIT_END = re.compile(r"\n|(?<=[.!?]) ")
SHORTEST = 12
_LINE_REPEATS = 3
"""A log line seen more often than this is boilerplate."""


def cut(document: Document, rng: random.Random) -> Iterator[Chunk]:
    """Yield the chunks of one document in order, of lengths drawn from ``rng``."""
    text, start = document.text, 0
    while start < len(text):
        end = len(text) if document.atomic else _end(text, start, rng)
        piece = text[start:end]
        if rng.random() < _BARE_SHARE:
            piece = piece.strip()
        if len(piece.strip()) >= SHORTEST:
            yield Chunk(piece, document.family, document.source)
        start = end


Cut = Callable[[Document, random.Random], Iterator[Chunk]]


def fit_tokens(
    chunks: list[Chunk], tokenizer: Tokenizer, *, max_tokens: int
) -> Iterator[tuple[Chunk, list[int]]]:
    """Yield each chunk with its token ids; one that is too long is halved until it fits."""
    while chunks:
        encoded = tokenizer.encode_batch_fast([c.text for c in chunks], add_special_tokens=False)
        halves: list[Chunk] = []
        for chunk, encoding in zip(chunks, encoded, strict=True):
            if len(encoding) < max_tokens:
                yield chunk, encoding.ids
                continue
            middle = boundary(chunk.text, 0, len(chunk.text) // 2 + 1)
            parts = (chunk.text[:middle].strip(), chunk.text[middle:].strip())
            halves += [
                Chunk(part, chunk.family, chunk.source) for part in parts if len(part) >= SHORTEST
            ]
        chunks = halves


def draw(
    documents: Iterable[Document],
    *,
    budgets: dict[str, int],
    rng: random.Random,
    cut: Cut = cut,
) -> list[Chunk]:
    """Cut documents in random order until each source has its bytes; repeats count once.

    ``budgets``: bytes per source. Within the logs a chunk that consists mostly of repeated lines
    is dropped: installers and test runners print the same lines in every file.
    """
    pool = list(documents)
    rng.shuffle(pool)
    taken: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    count = Counter(document.source for document in pool)
    seen: set[str] = set()
    drawn: list[Chunk] = []
    for document in pool:
        source = document.source
        if taken[source] >= budgets[source]:
            continue
        # One long document must not fill a source: each contributes at most 2 % of the budget
        # (more if there are only a few), from a random position, and a small text all of it.
        limit = max(8_000, budgets[source] // 50, 2 * budgets[source] // count[source])
        for chunk in cut(_window(document, limit, rng), rng):
            if chunk.text in seen or (chunk.family == "logs" and _boilerplate(chunk.text, lines)):
                continue
            seen.add(chunk.text)
            taken[source] += len(chunk.text.encode("utf-8"))
            drawn.append(chunk)
    rng.shuffle(drawn)
    return drawn


def boundary(text: str, start: int, limit: int) -> int:
    """Return the best end of a chunk in ``text[start:limit]``: behind the last paragraph, line,
    sentence or word that ends in its second half, else at ``limit``."""
    middle = start + (limit - start) // 2
    for mark in _BOUNDARIES:
        found = text.rfind(mark, middle, limit)
        if found >= 0:
            return found + len(mark)
    return limit


def _end(text: str, start: int, rng: random.Random) -> int:
    if rng.random() < _SINGLE_SHARE:
        found = _UNIT_END.search(text, min(start + 24, len(text)))
        if found and found.end() - start <= _LENGTH_RANGE[1]:
            return found.end()
    low, high = _LENGTH_RANGE
    limit = start + int(low * math.exp(rng.random() * math.log(high / low)))
    if limit >= len(text):
        return len(text)
    return max(boundary(text, start, limit), start + 1)


def _window(document: Document, limit: int, rng: random.Random) -> Document:
    text = document.text
    if len(text) <= limit:
        return document
    start = rng.randrange(len(text) - limit)
    if start:
        start = boundary(text, start, min(start + 200, len(text)))
    return Document(
        document.family, document.source, document.key, text[start : start + limit], document.split
    )


def _boilerplate(text: str, lines: Counter[str]) -> bool:
    own = [line for line in text.splitlines() if line.strip()]
    stale = sum(len(line) for line in own if lines[line] >= _LINE_REPEATS)
    lines.update(own)
    return 2 * stale > sum(len(line) for line in own)


_SEED = 11


@dataclass(frozen=True)
class HeldOut:
    """Chunks of documents that were not trained on."""

    fitting: list[Chunk]
    reporting: list[Chunk]


def draw_held_out(documents: Iterable[Document], *, fit_chunks: int, report_chunks: int) -> HeldOut:
    """Draw at most ``fit_chunks`` and ``report_chunks`` per source."""
    pools: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        if document.split is Split.VALIDATION:
            digest = hashlib.sha256(b"report:" + document.key.encode("utf-8")).digest()
            pools[digest[0] % 2].append(document)
    return HeldOut(_limited(pools[0], fit_chunks), _limited(pools[1], report_chunks))


def _limited(pool: list[Document], count: int) -> list[Chunk]:
    # Twice the longest chunks are enough bytes for any draw of ``count``.
    budgets = {document.source: 1000 * count for document in pool}
    taken: Counter[str] = Counter()
    kept = []
    for chunk in draw(pool, budgets=budgets, rng=random.Random(_SEED)):
        taken[chunk.source] += 1
        if taken[chunk.source] <= count:
            kept.append(chunk)
    return kept
