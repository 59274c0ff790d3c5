"""What the decoder says of a text, against its own logits."""

from pathlib import Path

import numpy as np
import pytest

from verso_core import manifest
from verso_core.heads import SignalName
from verso_training.artifact.graphs import DecoderGraph
from verso_training.heads import signals

TINY = Path(__file__).parents[3] / "data" / "artifact-tiny"


def test_bits_and_first_guesses_are_those_of_the_decoder_token_by_token() -> None:
    text = "The gateway restarted the worker."
    vectors = np.zeros((1, 384), np.float32)
    vectors[0, 3] = 1.0
    found = signals.decoder_signals([text], vectors, artifact=TINY)
    graph = DecoderGraph(TINY, manifest.load(TINY).manifest.codec, threads=1)
    ((_, seen),) = graph.passes([graph.tokens(text)], vectors)
    bits, hits = 0.0, 0
    for row, target in zip(seen.logits.astype(np.float64), seen.targets, strict=True):
        p = np.exp(row - row.max())
        bits -= float(np.log2(p[target] / p.sum()))
        hits += int(row.argmax() == target)
    assert found[SignalName.SELF_GENERATION][0] == pytest.approx(hits / len(seen.targets))
    given = found[SignalName.BITS_GIVEN_VECTOR][0]
    assert given == pytest.approx(-bits / len(text.encode()), rel=1e-4)
