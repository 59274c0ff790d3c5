"""Figures of the report: rankings, probabilities of other label sets, the words baseline."""

import json
from pathlib import Path

import numpy as np
import pytest

from verso_core.heads import SignalName
from verso_training.config import ModelConfig
from verso_training.graphs import DecoderGraph
from verso_training.quality import baselines, decoding, selection
from verso_training.quality.baselines import Probabilities
from verso_training.quality.pairsets import Ranking

TINY = Path(__file__).parents[3] / "data" / "artifact-tiny"


def test_a_ranking_is_as_good_as_its_first_right_candidate() -> None:
    rankings = [
        Ranking("q", ("a", "b", "c"), frozenset({1})),
        Ranking("q", ("a", "b", "c"), frozenset({0, 2})),
    ]
    scores = [np.array([0.9, 0.8, 0.1], np.float32), np.array([0.1, 0.2, 0.3], np.float32)]
    mrr, first = selection.ranked(scores, rankings)
    assert mrr == pytest.approx(100 * (1 / 2 + 1) / 2)
    assert first == 50.0


def test_probabilities_follow_the_labels() -> None:
    given = Probabilities(np.array([[0.2, 0.8]], np.float32), ("b", "a"))
    assert given.aligned(("a", "b", "new"))[0] == pytest.approx([0.8, 0.2, 0.0])


def test_words_tell_what_words_can_tell() -> None:
    texts = ["disk full", "disk is full", "timed out", "it timed out"] * 5
    labels = ["disk", "disk", "time", "time"] * 5
    (found,) = baselines.tfidf(texts, labels, others=[["the disk", "has timed out"]])
    assert [found.labels[i] for i in found.values.argmax(-1)] == ["disk", "time"]


def test_bits_and_first_guesses_are_those_of_the_decoder_token_by_token() -> None:
    text = "The gateway restarted the worker."
    vectors = np.zeros((1, 384), np.float32)
    vectors[0, 3] = 1.0
    found = decoding.signals([text], vectors, artifact=TINY)
    codec = json.loads((TINY / "manifest.json").read_text())["codec"]
    config = ModelConfig(
        vocab=codec["vocab"],
        width=codec["width"],
        layers=codec["layers"],
        heads=codec["width"] // codec["head_dim"],
        kv_heads=codec["kv_heads"],
        head_dim=codec["head_dim"],
        slots=codec["slots"],
        max_tokens=codec["max_tokens"],
    )
    graph = DecoderGraph(TINY, config, threads=1)
    ((_, seen),) = graph.passes([graph.tokens(text)], vectors)
    bits, hits = 0.0, 0
    for row, target in zip(seen.logits.astype(np.float64), seen.targets, strict=True):
        p = np.exp(row - row.max())
        bits -= float(np.log2(p[target] / p.sum()))
        hits += int(row.argmax() == target)
    assert found[SignalName.SELF_GENERATION][0] == pytest.approx(hits / len(seen.targets))
    given = found[SignalName.BITS_GIVEN_VECTOR][0]
    assert given == pytest.approx(-bits / len(text.encode()), rel=1e-4)
