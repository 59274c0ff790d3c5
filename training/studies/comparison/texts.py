"""What the compared decoders are trained on and measured on: log lines and short texts.

Of every loghub system the first 800 lines are trained on and every second of the next 200 is
measured; of CLINC150's and STS-B's training parts one text in 40 is measured. No test part is
opened. Records are cut once, by the smallest vocabulary, and encoded once: all arms see the same
texts and the same vectors.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from verso_training import encoder
from verso_training.config import Recipe
from verso_training.data import chunks, dataset
from verso_training.data.sources import Chunk, Split

VOCABULARIES = (4096, 8192, 16384)
_TRAIN_LINES, _LAST_LINE = 800, 1000
_EVERY = 40
_ROOM = 32
"""Tokens that a larger vocabulary may need more than the smallest for the same text."""

Encoder = tuple[encoder.SentenceEncoder, Tokenizer]


def prepare(
    recipe: Recipe,
    data: Path,
    *,
    folder: Path,
    sentence_encoder: Encoder,
    vocabularies: Sequence[int] = VOCABULARIES,
) -> None:
    """Write one prepared data set for each vocabulary into ``folder``, named by its size."""
    pools = {split: list(found) for split, found in texts(data).items()}
    words = [chunk.text for chunk in pools[Split.TRAIN]]
    fitted = {vocab: dataset.fit(words, vocab=vocab) for vocab in vocabularies}
    smallest = fitted[min(vocabularies)]
    for split, pool in pools.items():
        limit = recipe.model.max_tokens - _ROOM
        kept = [c for c, _ in chunks.fit_tokens(pool, smallest, max_tokens=limit)]
        words = [chunk.text for chunk in kept]
        vectors = encoder.encode(*sentence_encoder, texts=words, bfloat16=recipe.train.bfloat16)
        for vocab, one in fitted.items():
            out = folder / str(vocab)
            out.mkdir(parents=True, exist_ok=True)
            one.save(str(out / "tokenizer.json"))
            dataset.write(out, split, kept, tokens=dataset.encode(one, words), vectors=vectors)


def texts(data: Path) -> dict[Split, list[Chunk]]:
    """The texts of both parts, each text once in its part, in a fixed order."""
    found: dict[Split, dict[Chunk, None]] = {split: {} for split in Split}
    for split, chunk in _all(data):
        found[split].setdefault(chunk)
    return {split: list(parts) for split, parts in found.items()}


def _all(data: Path) -> Iterator[tuple[Split, Chunk]]:
    for folder in sorted(path for path in (data / "logs_loghub2k").iterdir() if path.is_dir()):
        path = folder / f"{folder.name}_2k.log"
        with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
            lines = [line.rstrip("\r\n") for line in stream if line.strip()]
        chunk = Chunk("", "logs", f"loghub {folder.name}")
        for line in lines[:_TRAIN_LINES]:
            yield Split.TRAIN, replace(chunk, text=line)
        for line in lines[_TRAIN_LINES:_LAST_LINE:2]:
            yield Split.VALIDATION, replace(chunk, text=line)
    yield from _spread("clinc150", _questions(data))
    yield from _spread("sts-b", _sentences(data))


def _spread(source: str, found: Iterable[str]) -> Iterator[tuple[Split, Chunk]]:
    for number, text in enumerate(dict.fromkeys(found)):
        split = Split.TRAIN if number % _EVERY else Split.VALIDATION
        yield split, Chunk(text, "short texts", source)


def _questions(data: Path) -> Iterator[str]:
    path = data / "intent_clinc150" / "data_full.json.xz"
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        yield from (text for text, _ in json.load(stream)["train"])


def _sentences(data: Path) -> Iterator[str]:
    packed = (data / "sim_stsb" / "stsb-en-train.csv.xz").read_bytes()
    content = lzma.decompress(packed).decode()
    for first, second, _ in csv.reader(io.StringIO(content, newline="")):
        yield first
        yield second
