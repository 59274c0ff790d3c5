"""What the decoder says about a text given its vector: the paper's confidence, and bits.

Decodable Sentence-BERT, section 4 and table 7, takes the share of tokens that the decoder
recovers as the confidence of a classification. Here, for a text x with tokens t_1..t_n and the
stored vector v, teacher-forced:

    self_generation    = 1/n sum_i [ argmax p(. | t_<i, v) = t_i ]
    bits_given_vector  = - sum_i -log2 p(t_i | t_<i, v) / bytes(x)
    bits_saved         = ( sum_i -log2 p(t_i | t_<i, 0) ) / bytes(x) + bits_given_vector

bytes(x) are those of the tokens read: the first 127, which is one record. The bits are the
decoder's own code length. A worker counts what the coder writes, which is whole bytes, a little
more, and much more for a text that is unlike all that was learnt from; a head that will be served
is calibrated on that (``coder``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verso_codecs import ranks
from verso_codecs.ranks import RankTables
from verso_core import manifest
from verso_core.heads import SignalName
from verso_core.manifest import Codec
from verso_training.config import ModelConfig
from verso_training.graphs import DecoderGraph, Pass

Floats = NDArray[np.float32]


def signals(
    texts: Sequence[str],
    vectors: Floats,
    *,
    artifact: Path,
    threads: int = 1,
    coder: bool = False,
) -> dict[SignalName, Floats]:
    """The three signals of each text. Shape: (N,) each.

    Args:
        texts: Read up to the length of one record.
        vectors: As stored. Shape: (N, D).
        artifact: Whose decoder reads.
        threads: For its graphs.
        coder: Whether bits are those of the coder's payload, as served, or the decoder's own.
    """
    codec = manifest.load(artifact).manifest.codec
    tables = RankTables.load(artifact / "ranks.npz")
    bits_of = partial(_payload_bits, about=codec, tables=tables) if coder else _code_length
    config = ModelConfig(
        vocab=codec.vocab,
        width=codec.width,
        layers=codec.layers,
        kv_heads=codec.kv_heads,
        heads=codec.width // codec.head_dim,
        head_dim=codec.head_dim,
        slots=codec.slots,
        max_tokens=codec.max_tokens,
        vector_dim=vectors.shape[1],
    )
    graph = DecoderGraph(artifact, config, threads=threads)
    records = [graph.tokens(text)[: codec.max_tokens - 1] for text in texts]
    sizes = [max(1, len(graph.tokenizer.decode(ids).encode())) for ids in records]
    found = {name: np.zeros(len(texts), np.float32) for name in _NAMES}
    for index, seen in graph.passes(records, vectors):
        right = seen.logits.argmax(-1) == seen.targets
        found[SignalName.SELF_GENERATION][index] = right.mean()
        found[SignalName.BITS_GIVEN_VECTOR][index] = -bits_of(seen) / sizes[index]
    for index, seen in graph.passes(records, np.zeros_like(vectors)):
        saved = bits_of(seen) / sizes[index] + found[SignalName.BITS_GIVEN_VECTOR][index]
        found[SignalName.BITS_SAVED][index] = saved
    return found


_NAMES = (SignalName.SELF_GENERATION, SignalName.BITS_GIVEN_VECTOR, SignalName.BITS_SAVED)


def _code_length(seen: Pass) -> float:
    """- sum_i log2 p(t_i | t_<i, v)."""
    logits = seen.logits.astype(np.float64)
    places = np.arange(len(seen.targets))
    top = logits.max(-1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
    bits = (total - logits[places, seen.targets]) / np.log(2.0)
    return float(bits.sum())


def _payload_bits(seen: Pass, *, about: Codec, tables: RankTables) -> float:
    event = ranks.events(seen.logits, seen.confidence, targets=seen.targets, epsilon=about.epsilon)
    coded = ranks.encode_events(event, tables, confidence_epsilon=about.confidence_epsilon)
    return 8.0 * len(coded)
