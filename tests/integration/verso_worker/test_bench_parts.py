"""What benches build of the engine's parts for themselves still fits the engine."""

from __future__ import annotations

from pathlib import Path

import costs
import numpy as np
import pytest
from rival_server import load_encoder

from verso_codecs import mixture, mixture_fit
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import manifest
from verso_worker.engine.loading import load_service

TESTS = Path(__file__).parents[2]
ARTIFACT = TESTS / "data" / "artifact-tiny"
HEADS = TESTS / "data" / "heads-tiny" / "heads"


def test_a_rival_encodes_as_the_engine_does() -> None:
    encoder, texts = load_encoder(ARTIFACT, threads=1), [b"one text", b"another, a longer one"]
    service = load_service(manifest.load(ARTIFACT), threads=1)
    found = np.concatenate([encoder.run(encoder.tokenise([text])) for text in texts])
    assert found == pytest.approx(service.encode(texts).vectors, abs=1e-5)
    service.close()


def test_what_a_text_costs_is_told_by_what_the_known_texts_showed() -> None:
    known = [b"job %d of alice ended after %d ms" % (n, 7 * n % 50) for n in range(60)]
    fitted = MixtureTables.fit(known, NgramTables.load(ARTIFACT / "ngram.npz"))
    for text, kind in (
        (b"job 94217 of alice ended after 21 ms", "new values"),
        (b"job 14 of zebras ended after 21 ms", "new words"),
    ):
        found = costs.shares(known, [text], fitted)
        spent = costs.byte_costs(mixture_fit.decisions(text, fitted.tables)).sum() / 8
        assert sum(found.values()) == pytest.approx(spent)
        assert len(mixture.encode(text, fitted)) == pytest.approx(spent, abs=1)
        assert {name for name, share in found.items() if share} == {kind, "all else"}
        assert found[kind] > found["all else"] / 2
    nothing_new = costs.shares(known, [known[14]], fitted)
    assert nothing_new["new values"] == nothing_new["new words"] == 0
