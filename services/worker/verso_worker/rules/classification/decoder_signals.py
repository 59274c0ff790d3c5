"""Measure how typical a text is of its vector, by what the decoder makes of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verso_core.heads import SignalName
from verso_worker.records.space import Vector
from verso_worker.rules.ports.models import Model


def decoder_signals(
    model: Model, texts: Sequence[bytes], vectors: Vector
) -> dict[SignalName, NDArray[np.float32]]:
    """Compute the decoder's signals of ``verso_core.heads``; NaN for one that cannot be computed.

    They say how typical a text is of its vector. Of each text the first chunk is used, cut into the
    decoder's segments, all of them with the text's one vector, as in the stored patch.

    Args:
        model: the artifact whose decoder is run.
        texts: any bytes.
        vectors: of the texts, as stored or as encoded. Shape: (texts, D).
    """
    firsts = [(model.cutter.cut(text) or [b""])[0] for text in texts]
    pieces = [model.recorder.segmenter.segments(first) if first else [] for first in firsts]
    sizes = [len(own) for own in pieces]
    flat = [piece for own in pieces for piece in own]
    rows = np.repeat(vectors, sizes, axis=0)
    engine = model.recorder.engine
    probed = model.heads.probe(flat, rows) if flat else []
    given = engine.code(flat, rows) if flat else []
    bare = engine.code(flat, np.zeros_like(rows)) if flat else []
    right, tokens, with_vector, without = (np.zeros(len(texts), np.float64) for _ in range(4))
    owners = np.repeat(np.arange(len(texts)), sizes).tolist()
    for owner, (hits, count), one, other in zip(owners, probed, given, bare, strict=True):
        whole = one is not None and other is not None and count > 0
        right[owner] += hits
        tokens[owner] += count if whole else np.nan
        with_vector[owner] += 8 * len(one or b"")
        without[owner] += 8 * len(other or b"")
    lengths = np.array([len(first) or np.nan for first in firsts])
    tokens[tokens == 0] = np.nan
    known = np.where(np.isnan(tokens), np.nan, 1.0)
    return {
        SignalName.SELF_GENERATION: (right / tokens).astype(np.float32),
        SignalName.BITS_GIVEN_VECTOR: (-with_vector / lengths * known).astype(np.float32),
        SignalName.BITS_SAVED: ((without - with_vector) / lengths * known).astype(np.float32),
    }
