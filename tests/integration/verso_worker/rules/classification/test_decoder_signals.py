"""The decoder's signals as a worker gives them, beside those that a head is calibrated with."""

from __future__ import annotations

import numpy as np
from tests.integration.verso_worker.worker_parts import ARTIFACT

from verso_core.heads import SignalName
from verso_training.heads import signals
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.rules.classification.decoder_signals import decoder_signals

TEXTS = (
    "2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in 31 ms",
    "2026-03-04T05:06:07Z WARN keeper: worker 3 of 8 timed out, retry in 4 s",
    "\tat org.example.worker.queue.fetch(queue.java:77)",
    "Le chat dort sur le canapé.",
)


def test_what_is_served_is_what_was_fitted(model_store: ArtifactStore) -> None:
    """A head's weights hold only where both sides mean the same by a signal."""
    model = model_store.current()
    encoded = [text.encode() for text in TEXTS]
    vectors = model.recorder.engine.encode(encoded).vectors
    served = decoder_signals(model, encoded, vectors)
    fitted = signals.decoder_signals(TEXTS, vectors, artifact=ARTIFACT, coder=True)
    assert served.keys() == fitted.keys()
    for name, values in served.items():
        np.testing.assert_allclose(values, fitted[name], atol=1e-5, err_msg=name)
    typical = served[SignalName.BITS_GIVEN_VECTOR]
    assert typical[:3].min() > typical[3]


def test_a_text_that_holds_nothing_has_no_such_signal(model_store: ArtifactStore) -> None:
    model = model_store.current()
    found = decoder_signals(model, [b""], np.zeros((1, 384), np.float32))
    assert all(np.isnan(values).all() for values in found.values())
