"""What a vector is worth to the decoder, and what the space is worth to a search."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from studies.papers.kept import Figures
from studies.quality import pairsets
from verso_client.cli import evaluation
from verso_training import device
from verso_training.data.dataset import Dataset
from verso_training.decoder import loss
from verso_training.decoder.model import Decoder
from verso_training.decoder.train import round_int8
from verso_training.encoder import batch_tokens, batches, padded, token_ids
from verso_training.heads import scoring
from verso_training.heads.signals import bootstrap

Floats = NDArray[np.float32]
_OTHERS = 1000
"""Documents of a search beside those that its questions ask for."""


@torch.inference_mode()
def encode(model: torch.nn.Module, tokenizer: Tokenizer, texts: Sequence[str]) -> Floats:
    """Return unit vectors of texts, in their order. Shape: (texts, D)."""
    ids = [token_ids(one.ids) for one in tokenizer.encode_batch_fast(list(texts))]
    found: list[Floats] = [np.empty(0, np.float32)] * len(ids)
    near = device.of(model)
    for rows in batches([len(one) for one in ids], tokens=batch_tokens(near)):
        batch = device.beside(model, padded([ids[row] for row in rows]))
        with torch.autocast(near.type, torch.bfloat16):
            vectors = model(*batch)
        for row, vector in zip(rows, vectors.float().cpu().numpy(), strict=True):
            found[row] = vector
    return np.stack(found)


def rounded(vectors: Floats, *, scale: float) -> Floats:
    """Return vectors as an int8 collection keeps them. Shape: (N, D), in and out."""
    return round_int8(torch.from_numpy(vectors), scale).numpy()


def bits(decoder: Decoder, held: Dataset, vectors: Floats, *, scale: float) -> Figures:
    """Return bits a record with and without the vector, and what it saves, by kind of text.

    Args:
        decoder: Of the arm.
        held: Chunks that nothing was trained on.
        vectors: The arm's, of these chunks. Shape: (chunks, D).
        scale: Of the int8 space.
    """
    families = np.array([chunk.family for chunk in held.chunks])
    found: dict[str, float] = {}
    for name, as_met in (
        ("vector", lambda read: round_int8(read, scale)),
        ("none", torch.zeros_like),
    ):
        spent = by_chunk(decoder, held, vectors, as_met=as_met)
        for family in sorted({*families.tolist()}):
            found[f"{family}/{name}"] = float(spent[families == family].mean())
    for family in sorted({*families.tolist()}):
        found[f"{family}/saved"] = found[f"{family}/none"] - found[f"{family}/vector"]
    return found


def by_chunk(
    decoder: Decoder, held: Dataset, vectors: Floats, *, as_met: loss.Met
) -> NDArray[np.float64]:
    """Return the bits of each chunk. Shape of vectors: (chunks, D), of the result: (chunks,)."""
    numbered = [replace(chunk, source=str(row)) for row, chunk in enumerate(held.chunks)]
    own = replace(held, chunks=numbered, vectors=vectors.astype(np.float16))
    near = device.of(decoder).type
    measured = loss.measure(decoder.eval(), own, as_met=as_met, device=near, bfloat16=True)
    rows = [measured[chunk.source] for chunk in numbered]
    return np.array([row.bits_per_byte * row.size_bytes for row in rows])


@dataclass(frozen=True)
class Guards:
    """Texts by which a space is compared with the old one.

    Attributes:
        pairs: STS-B's dev part.
        search: A part of SciFact's documents, and the claims of its training part.
    """

    pairs: list[scoring.Pair]
    search: evaluation.Set


def guards(data: Path) -> Guards:
    """Read the texts; no test part is opened."""
    given = evaluation.read(data / "ir_scifact", split="train")
    asked = {name for grades in given.relevant.values() for name in grades}
    others = sorted(set(given.documents) - asked)
    chosen = asked | set(random.Random(0).sample(others, min(_OTHERS, len(others))))
    documents = {name: text for name, text in given.documents.items() if name in chosen}
    return Guards(pairsets.stsb(data, "dev"), replace(given, documents=documents))


def searched(
    model: torch.nn.Module, tokenizer: Tokenizer, about: Guards, *, scale: float
) -> Figures:
    """Return Spearman on STS-B's dev part, and nDCG@10 of the search, with intervals."""
    left, right = (
        rounded(encode(model, tokenizer, texts), scale=scale)
        for texts in ([p.a for p in about.pairs], [p.b for p in about.pairs])
    )
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    gold = np.array([pair.score for pair in about.pairs])
    similar = bootstrap(lambda at: 100 * scoring.spearman(cosines[at], gold[at]), len(gold))
    reached = ndcg(model, tokenizer, about.search, scale=scale)
    search = bootstrap(lambda at: float(reached[at].mean()), len(reached))
    return {
        "sts-b": similar.value,
        "sts-b/low": similar.low,
        "sts-b/high": similar.high,
        "scifact": search.value,
        "scifact/low": search.low,
        "scifact/high": search.high,
    }


def ndcg(
    model: torch.nn.Module, tokenizer: Tokenizer, about: evaluation.Set, *, scale: float
) -> NDArray[np.float64]:
    """Return nDCG@10 of each question, in percent, by rounded vectors. Shape: (questions,)."""
    names = list(about.documents)
    stored = rounded(encode(model, tokenizer, list(about.documents.values())), scale=scale)
    scores = encode(model, tokenizer, list(about.questions.values())) @ stored.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :100]
    ranked = [[names[at] for at in row] for row in order]
    judged = [dict(about.relevant[name]) for name in about.questions]
    return 100 * np.array(evaluation.measures(ranked, judged).ndcg_10)
