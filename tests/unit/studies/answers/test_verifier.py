"""A verifier is measured on articles that it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from studies.answers import verifier
from studies.answers.evidence import COLUMNS, Evidence, statement
from verso_training.heads import reader
from verso_training.heads.questions import Question
from verso_training.heads.signals import Interval


def _evidence(*, told: float, seed: int = 0) -> Evidence:
    """Return questions of four articles; a second reading tells what the margin does not."""
    rng = np.random.default_rng(seed)
    count = 400
    has = rng.random(count) < 0.5
    values = rng.normal(size=(count, len(COLUMNS))).astype(np.float32)
    values[:, COLUMNS.index(("margin", "margin"))] += has
    values[:, COLUMNS.index(("again", "alone"))] += told * has
    return Evidence(
        values,
        rng.normal(size=(count, 96)).astype(np.float16),
        np.where(has & (rng.random(count) < 0.8), 1.0, 0.0).astype(np.float32),
        has,
        np.array([f"article {at % 4}" for at in range(count)]),
        np.arange(count) // 4,
    )


def _gain(evidence: Evidence) -> Mapping[str, Interval]:
    """Return what a verifier with the second reading gains over the margin."""
    both = (verifier.margin, verifier.logistic(("margin", "again")))
    found = [verifier.decided(evidence, one) for one in both]
    return verifier.measured(evidence, found, rounds=100)[1].gain


def test_every_article_is_scored_by_a_verifier_that_did_not_see_it() -> None:
    evidence = _evidence(told=1.0)
    pairs = []

    def noting(fitted: Evidence, scored: Evidence) -> verifier.Floats:
        pairs.append((set(fitted.articles), set(scored.articles)))
        return verifier.margin(fitted, scored)

    verifier.decided(evidence, noting)
    assert len(pairs) == 4 * (1 + 3)
    assert all(not fitted & scored for fitted, scored in pairs)


def test_a_feature_that_tells_more_than_the_margin_gains() -> None:
    gain = _gain(_evidence(told=2.0))
    assert gain["AUROC"].low > 0
    assert gain["F1"].low > 0


def test_features_without_a_signal_do_not_gain() -> None:
    assert _gain(_evidence(told=0.0))["AUROC"].low < 0


def test_the_threshold_is_that_of_the_reader() -> None:
    evidence = _evidence(told=0.0)
    margins = verifier.margin(evidence, evidence)
    asked = [
        Question(str(at), "q", "c", ("a b",) if has else ()) for at, has in enumerate(evidence.has)
    ]
    answers = [
        reader.Answer("a b" if words else "c", margin, 0.0)
        for words, margin in zip(evidence.words, margins, strict=True)
    ]
    expected = reader.best_threshold(asked, answers)
    assert verifier.best_threshold(margins, evidence) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("When were the Normans in Normandy?", "1066 were the Normans in Normandy."),
        ("In what year did the war end?", "1066 the war end."),
        ("Name the ruler", "Name the ruler 1066."),
    ],
)
def test_a_question_becomes_a_statement_with_its_answer(question: str, said: str) -> None:
    assert statement(question, "1066") == said
