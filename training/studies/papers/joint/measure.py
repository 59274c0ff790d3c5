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
    decoder.eval()
    near = device.of(decoder).type
    found: dict[str, float] = {}
    families = {chunk.source: chunk.family for chunk in held.chunks}
    own = replace(held, vectors=vectors.astype(np.float16))
    for name, as_met in (
        ("vector", lambda read: round_int8(read, scale)),
        ("none", torch.zeros_like),
    ):
        measured = loss.measure(decoder, own, as_met=as_met, device=near, bfloat16=True)
        for family in sorted({*families.values()}):
            rows = [measured[source] for source, owner in families.items() if owner == family]
            count = sum(chunk.family == family for chunk in held.chunks)
            total = sum(row.bits_per_byte * row.size_bytes for row in rows)
            found[f"{family}/{name}"] = total / count
    for family in sorted({*families.values()}):
        found[f"{family}/saved"] = found[f"{family}/none"] - found[f"{family}/vector"]
    return found


@dataclass(frozen=True)
class Guards:
    """Texts by which a space is compared with the old one.

    Attributes:
        pairs: STS-B's dev part.
        documents: A part of SciFact's.
        questions: Of its training part.
        judged: Relevant documents of each question.
    """

    pairs: list[scoring.Pair]
    documents: dict[str, str]
    questions: list[str]
    judged: list[dict[str, int]]


def guards(data: Path) -> Guards:
    """Read the texts; no test part is opened."""
    given = evaluation.read(data / "ir_scifact", split="train")
    asked = {name for grades in given.relevant.values() for name in grades}
    others = sorted(set(given.documents) - asked)
    chosen = asked | set(random.Random(0).sample(others, min(_OTHERS, len(others))))
    return Guards(
        pairsets.stsb(data, "dev"),
        {name: text for name, text in given.documents.items() if name in chosen},
        list(given.questions.values()),
        [dict(given.relevant[name]) for name in given.questions],
    )


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
    names = list(about.documents)
    stored = rounded(encode(model, tokenizer, list(about.documents.values())), scale=scale)
    scores = encode(model, tokenizer, about.questions) @ stored.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :100]
    ranked = [[names[at] for at in row] for row in order]
    reached = 100 * np.array(evaluation.measures(ranked, about.judged).ndcg_10)
    search = bootstrap(lambda at: float(reached[at].mean()), len(reached))
    return {
        "sts-b": similar.value,
        "sts-b/low": similar.low,
        "sts-b/high": similar.high,
        "scifact": search.value,
        "scifact/low": search.low,
        "scifact/high": search.high,
    }
