"""Classifiers on vectors: what a row counts, and the fit beside scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight

from verso_training.heads import vectors
from verso_training.heads.recipe import ClassifyConfig, ClassWeights
from verso_training.heads.vectors import Part

RNG = np.random.default_rng(8)
TARGETS = np.repeat([0, 1, 2], [60, 30, 15])


def test_balanced_weights_are_scikit_learns_and_a_row_counts_1_in_the_mean() -> None:
    found = vectors.class_weights(TARGETS, classes=3, kind=ClassWeights.BALANCED).numpy()
    expected = compute_class_weight("balanced", classes=np.arange(3), y=TARGETS)
    assert found == pytest.approx(expected, rel=1e-6)
    for kind in ClassWeights:
        weight = vectors.class_weights(TARGETS, classes=3, kind=kind).numpy()
        assert weight[TARGETS].mean() == pytest.approx(1.0)
    root = vectors.class_weights(TARGETS, classes=3, kind=ClassWeights.SQRT).numpy()
    assert root[2] / root[0] == pytest.approx(2.0)  # sqrt(60 / 15)


def test_the_fit_is_the_weighted_penalised_likelihood_at_its_best() -> None:
    rows = RNG.normal(size=(len(TARGETS), 8)).astype(np.float32)
    rows[np.arange(len(TARGETS)), TARGETS] += 1.0
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    # Every label as often: its plain loss is the weighted one of the training rows.
    repeats = enumerate((1, 2, 4))
    evened = np.concatenate([np.tile(np.flatnonzero(c == TARGETS), n) for c, n in repeats])
    l2 = 0.03
    model = vectors.fit(
        ClassifyConfig(l2=(l2,), patience=100, class_weights=ClassWeights.BALANCED),
        train=Part(rows, TARGETS),
        validation=Part(rows[evened], TARGETS[evened]),
        classes=3,
        seed=0,
        on_progress=lambda _: None,
        should_stop=lambda: False,
    )
    reference = LogisticRegression(
        C=1.0 / (l2 * len(TARGETS)), class_weight="balanced", tol=1e-8, max_iter=1000
    ).fit(rows * np.sqrt(8.0), TARGETS)
    logits, features = vectors.outputs(model, rows)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    expected = reference.predict_proba(rows * np.sqrt(8.0))
    np.testing.assert_allclose(p / p.sum(-1, keepdims=True), expected, atol=0.01)
    assert features is rows
