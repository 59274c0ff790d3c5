"""A training set in which all segments of a chunk have the chunk's one vector, as they are stored.

Half of the documents is cut into chunks that fill the encoder's window and these into segments, as
a worker cuts them; the other half as ``prepare`` cuts all, since single lines and short texts are
records too. The decoder's tokens are those of a set that ``prepare`` wrote.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from verso_training import device, encoder
from verso_training.config import Recipe
from verso_training.data import chunks, dataset
from verso_training.data.sources import Chunk, Document, Split
from verso_worker.records.chunking import Cutter


def prepare(
    recipe: Recipe,
    documents: Iterable[Document],
    *,
    prepared: Path,
    folder: Path,
    sentence_encoder: tuple[encoder.SentenceEncoder, Tokenizer],
) -> None:
    """Write the data set into ``folder``; ``prepared`` is the other one's."""
    folder.mkdir(parents=True, exist_ok=True)
    model, words = sentence_encoder
    tokens = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    tokens.save(str(folder / "tokenizer.json"))
    cutter = Cutter(tokens, words, recipe.model.max_tokens, encoder.MAX_TOKENS)
    pools: dict[Split, list[Document]] = defaultdict(list)
    for document in documents:
        pools[document.split].append(document)
    rng = random.Random(recipe.data.seed)
    for split, pool in pools.items():
        budgets = dataset.budgets_of(pool, recipe.data, total_bytes=recipe.data.total_bytes)
        drawn = chunks.draw(pool, budgets=budgets, rng=rng, cut=partial(_cut, cutter=cutter))
        if split is Split.VALIDATION:
            drawn = dataset.first_of_each_family(drawn, recipe.data.validation_chunks)
        parts = [cutter.segments(chunk.text.encode()) for chunk in drawn]
        vectors = encoder.encode(
            model, words,
            texts=[chunk.text for chunk in drawn],
            device=device.named(recipe.train.device),
            bfloat16=recipe.train.bfloat16,
        )  # fmt: skip
        rows = [
            Chunk(part.decode(), chunk.family, chunk.source)
            for chunk, own in zip(drawn, parts, strict=True)
            for part in own
        ]
        dataset.write(
            folder,
            split,
            rows,
            tokens=dataset.encode(tokens, [row.text for row in rows]),
            vectors=np.repeat(vectors, [len(own) for own in parts], axis=0),
        )


def _cut(document: Document, rng: random.Random, *, cutter: Cutter) -> Iterator[Chunk]:
    if rng.random() < 0.5:
        yield from chunks.cut(document, rng)
        return
    for piece in cutter.cut(document.text.encode()):
        if len(piece.strip()) >= chunks.SHORTEST:
            yield Chunk(piece.decode(), document.family, document.source)
