"""A prepared data set on disk: texts, token ids and sentence vectors of every chunk.

Preparation runs once per recipe:

1. read the documents, fit the tokenizer on a sample of the training mixture;
2. cut training and validation documents into chunks that fit the decoder's context;
3. encode every chunk once with the frozen sentence encoder, round to float16.

One folder holds ``tokenizer.json`` and, per split, ``<split>.jsonl`` (text, family, source),
``<split>.tokens.npz`` and ``<split>.vectors.npy``.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_training import chunks, encoder, tokenizer
from verso_training.config import DataConfig, Recipe
from verso_training.sources import Chunk, Document, Split


@dataclass(frozen=True)
class Dataset:
    """The chunks of one split, in a fixed order.

    Attributes:
        chunks: Texts with family and source.
        tokens: Token ids of all chunks, one behind the other. Shape: (all tokens,), uint16.
        offsets: Chunk i is ``tokens[offsets[i]:offsets[i + 1]]``. Shape: (chunks + 1,), int64.
        vectors: Sentence vectors. Shape: (chunks, dim), float16.
    """

    chunks: list[Chunk]
    tokens: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    vectors: NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.chunks)

    def lengths(self) -> NDArray[np.int64]:
        """Tokens per chunk, without bos and eos. Shape: (chunks,), int64."""
        return np.diff(self.offsets)

    def subset(self, indices: Iterable[int]) -> Dataset:
        """The chosen chunks, in the given order."""
        picked = list(indices)
        rows = [self.tokens[self.offsets[i] : self.offsets[i + 1]] for i in picked]
        return Dataset(
            [self.chunks[i] for i in picked],
            *_pack([r.tolist() for r in rows]),
            self.vectors[picked],
        )


def prepare(
    recipe: Recipe,
    documents: Iterable[Document],
    *,
    folder: Path,
    sentence_encoder: tuple[encoder.SentenceEncoder, Tokenizer],
    progress: encoder.Progress | None = None,
) -> None:
    """Write the prepared data set of ``recipe`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    pools: dict[Split, list[Document]] = defaultdict(list)
    for document in documents:
        pools[document.split].append(document)
    rng = random.Random(recipe.data.seed)
    sample = _sample(pools[Split.TRAIN], recipe.data, recipe.tokenizer.sample_bytes, rng)
    decoder_tokenizer = tokenizer.fit(sample, vocab=recipe.tokenizer.vocab)
    decoder_tokenizer.save(str(folder / "tokenizer.json"))
    for split, pool in pools.items():
        drawn = chunks.draw(
            pool,
            budgets=budgets_of(pool, recipe.data, total_bytes=recipe.data.total_bytes),
            rng=rng,
        )
        if split is Split.VALIDATION:
            drawn = _first_of_each_family(drawn, recipe.data.validation_chunks)
        fitted = list(
            chunks.fit_tokens(drawn, decoder_tokenizer, max_tokens=recipe.model.max_tokens)
        )
        kept = [chunk for chunk, _ in fitted]
        vectors = encoder.encode(
            *sentence_encoder,
            texts=[chunk.text for chunk in kept],
            device=recipe.train.device,
            bfloat16=recipe.train.bfloat16,
            progress=progress,
        )
        write(folder, split, kept, tokens=[ids for _, ids in fitted], vectors=vectors)


def write(
    folder: Path,
    split: Split,
    texts: Sequence[Chunk],
    *,
    tokens: list[list[int]],
    vectors: NDArray[np.float16],
) -> None:
    """Write one split's files; ``load`` reads them back. Vectors have shape (chunks, dim)."""
    packed, offsets = _pack(tokens)
    with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as stream:
        for chunk in texts:
            row = {"text": chunk.text, "family": chunk.family, "source": chunk.source}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    np.savez(folder / f"{split}.tokens.npz", tokens=packed, offsets=offsets)
    np.save(folder / f"{split}.vectors.npy", vectors)


def load(folder: Path, split: Split) -> Dataset:
    """Read one split of a prepared data set; vectors stay on disk until they are used."""
    with (folder / f"{split}.jsonl").open(encoding="utf-8") as stream:
        rows = [Chunk(**json.loads(line)) for line in stream]
    with np.load(folder / f"{split}.tokens.npz") as arrays:
        tokens, offsets = arrays["tokens"], arrays["offsets"]
    vectors = np.load(folder / f"{split}.vectors.npy", mmap_mode="r")
    return Dataset(rows, tokens, offsets, vectors)


def budgets_of(pool: Iterable[Document], config: DataConfig, *, total_bytes: int) -> dict[str, int]:
    """Bytes per source: a family's share, spread over its sources as evenly as they allow."""
    sizes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for document in pool:
        sizes[document.family][document.source] += len(document.text)
    budgets: dict[str, int] = {}
    for family, sources in sizes.items():
        left = int(total_bytes * config.shares.get(family, 1.0))
        ordered = sorted(sources.items(), key=lambda item: item[1])
        for rank, (source, size) in enumerate(ordered):
            budgets[source] = min(size, left // (len(ordered) - rank))
            left -= budgets[source]
    return budgets


def _sample(
    pool: list[Document], config: DataConfig, size_bytes: int, rng: random.Random
) -> Iterator[str]:
    """Texts of the training mixture, about ``size_bytes`` in all."""
    left = budgets_of(pool, config, total_bytes=size_bytes)
    for document in rng.sample(pool, len(pool)):
        room = left[document.source]
        if room > 0:
            # Whole documents would let a few giants decide the vocabulary.
            text = document.text[: max(20_000, room // 50)]
            left[document.source] -= len(text)
            yield text


def _first_of_each_family(drawn: list[Chunk], count: int) -> list[Chunk]:
    kept: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in drawn:
        if len(kept[chunk.family]) < count:
            kept[chunk.family].append(chunk)
    return [chunk for family in sorted(kept) for chunk in kept[family]]


def _pack(rows: list[list[int]]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    tokens = np.concatenate([np.asarray(row, np.uint16) for row in rows])
    return tokens, offsets
