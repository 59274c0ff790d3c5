"""The decoder's tokenizer, a lossless byte-level BPE.

Steps:

1. Every digit stands alone, with the space before it if there is one, so that numbers, times and
   addresses are spelt from ten symbols instead of thousands of rare ones.
2. The GPT-2 pattern splits the rest into words (Radford et al. 2019, section 2.2).
3. Bytes are mapped to printable symbols and merged (Sennrich et al. 2016). All 256 symbols are in
   the vocabulary, so that any valid UTF-8 text can be tokenised.

Ids 0 to V-3 belong to the tokenizer. bos = V-2 and eos = V-1 are added by the code around it and
never appear in the tokenizer, hence no text can spell them.

A prepared data set on disk: texts, token ids and sentence vectors of every chunk.

Preparation runs once per recipe:

1. read the documents, fit the tokenizer on a sample of the training mixture;
2. cut training and validation documents into chunks that fit the decoder's context;
3. encode every chunk once with the frozen sentence encoder, round to float16.

One folder holds ``tokenizer.json`` and, per split, ``<split>.jsonl`` (text, family, source),
``<split>.tokens.npz`` and ``<split>.vectors.npy``.

Batches of whole records, bucketed by length.

Rows of like length share a batch: a window of shuffled chunks is sorted by length and cut into
batches of at most ``tokens_per_step`` tokens, padding included; then the batches are shuffled.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from verso_training import device, encoder
from verso_training.config import DataConfig, Recipe
from verso_training.data import chunks
from verso_training.data.sources import Chunk, Document, Split

SPECIAL_IDS = 2
"""bos and eos."""


def fit(texts: Iterable[str], *, vocab: int) -> Tokenizer:
    """Train a tokenizer of ``vocab`` - 2 ids; small texts may yield fewer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" ?[0-9]"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - SPECIAL_IDS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Return the token ids of each text, without bos and eos."""
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


@dataclass(frozen=True)
class Dataset:
    """The chunks of one split, in a fixed order.

    Attributes:
        chunks: Texts with family and source.
        tokens: Token ids of all chunks, concatenated. Shape: (all tokens,), uint16.
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
        """Return the tokens per chunk, without bos and eos. Shape: (chunks,), int64."""
        return np.diff(self.offsets)

    def subset(self, indices: Iterable[int]) -> Dataset:
        """Return the chosen chunks, in the given order."""
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
    decoder_tokenizer = fit(sample, vocab=recipe.tokenizer.vocab)
    decoder_tokenizer.save(str(folder / "tokenizer.json"))
    for split, pool in pools.items():
        drawn = chunks.draw(
            pool,
            budgets=budgets_of(pool, recipe.data, total_bytes=recipe.data.total_bytes),
            rng=rng,
        )
        if split is Split.VALIDATION:
            drawn = first_of_each_family(drawn, recipe.data.validation_chunks)
        fitted = list(
            chunks.fit_tokens(drawn, decoder_tokenizer, max_tokens=recipe.model.max_tokens)
        )
        kept = [chunk for chunk, _ in fitted]
        vectors = encoder.encode(
            *sentence_encoder,
            texts=[chunk.text for chunk in kept],
            device=device.named(recipe.train.device),
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
    """Return bytes per source: a family's share, spread as evenly as its sources allow."""
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
    """Yield texts of the training mixture, about ``size_bytes`` in all."""
    left = budgets_of(pool, config, total_bytes=size_bytes)
    for document in rng.sample(pool, len(pool)):
        room = left[document.source]
        if room > 0:
            # With whole documents a few very long ones would decide the vocabulary.
            text = document.text[: max(20_000, room // 50)]
            left[document.source] -= len(text)
            yield text


def first_of_each_family(drawn: list[Chunk], count: int) -> list[Chunk]:
    """Return at most ``count`` chunks of each family."""
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


PADDING = -100
"""Target of a position that is not counted; cross-entropy ignores it by default."""
_LENGTH_STEP = 8
_WINDOW_BATCHES = 64


@dataclass(frozen=True)
class Batch:
    """A batch of records for the decoder.

    Attributes:
        tokens: bos and the record, padded with eos. Shape: (B, T), int64.
        targets: The record and eos, padded with ``PADDING``. Shape: (B, T), int64.
        vectors: Sentence vectors. Shape: (B, D), float32.
        indices: Rows of the data set. Shape: (B,), int64.
    """

    tokens: Tensor
    targets: Tensor
    vectors: Tensor
    indices: NDArray[np.int64]

    def to(self, device: str) -> Batch:
        """Return the same batch on another device."""
        return Batch(
            self.tokens.to(device),
            self.targets.to(device),
            self.vectors.to(device),
            self.indices,
        )


def collate(dataset: Dataset, indices: NDArray[np.int64], *, bos: int, eos: int) -> Batch:
    """Return one batch of the given rows. A row of n tokens takes n + 1 positions."""
    longest = int(dataset.lengths()[indices].max()) + 1
    length = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
    tokens = np.full((len(indices), length), eos, np.int64)
    targets = np.full((len(indices), length), PADDING, np.int64)
    for row, index in enumerate(indices):
        ids = dataset.tokens[dataset.offsets[index] : dataset.offsets[index + 1]]
        tokens[row, 0] = bos
        tokens[row, 1 : len(ids) + 1] = ids
        targets[row, : len(ids)] = ids
        targets[row, len(ids)] = eos
    vectors = np.asarray(dataset.vectors[indices], np.float32)
    return Batch(
        torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(vectors), indices
    )


def plan(
    lengths: NDArray[np.int64], *, tokens_per_step: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return the batches of one epoch as row indices; every row occurs exactly once."""
    order = rng.permutation(len(lengths))
    mean = float(lengths.mean()) + 1.0
    window = max(1, int(_WINDOW_BATCHES * tokens_per_step / mean))
    planned: list[NDArray[np.int64]] = []
    for start in range(0, len(order), window):
        part = order[start : start + window]
        planned.extend(
            _fill(part[np.argsort(lengths[part], kind="stable")], lengths, tokens_per_step)
        )
    return [planned[i] for i in rng.permutation(len(planned))]


def in_order(lengths: NDArray[np.int64], *, tokens_per_step: int) -> list[NDArray[np.int64]]:
    """Return batches for evaluation: all rows by length, without randomness."""
    return list(_fill(np.argsort(lengths, kind="stable"), lengths, tokens_per_step))


def _fill(
    ordered: NDArray[np.int64], lengths: NDArray[np.int64], tokens_per_step: int
) -> Iterator[NDArray[np.int64]]:
    start = 0
    for stop in range(1, len(ordered) + 1):
        longest_next = lengths[ordered[stop]] + 1 if stop < len(ordered) else 0
        padded = -(-int(longest_next) // _LENGTH_STEP) * _LENGTH_STEP
        if stop == len(ordered) or (stop + 1 - start) * padded > tokens_per_step:
            yield ordered[start:stop]
            start = stop
