"""Does a verifier tell better than the reader's margin whether an answer should be given?

A question is answered where its score is above a threshold. The margin of the reader is such a
score; a verifier is another, learnt from :mod:`studies.answers.evidence`.

1. The questions are those of SQuAD's dev articles: the reader was not trained on them, and a reader
   is surer of the questions that it was trained on. Articles of the final report are not read.
2. Each article is scored by a verifier that was fitted on the other ones.
3. Its threshold, that with the best word F1, is chosen on scores of those other articles, each in
   turn scored by a verifier fitted without it. The margin's threshold is chosen on the same ones.
4. Figures are of all questions together. Gains over the margin are paired; intervals are drawn over
   paragraphs, whose questions are right or wrong together.

The verifiers are logistic regressions on one more number, and on growing groups of features;
boosted trees on all of them; and a logistic regression on the reader's own states as well. A
learning curve shows whether more questions would help.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from studies.answers.evidence import Evidence, Models, document_frequencies, gathered, kept
from studies.papers.kept import table
from studies.quality import squad
from studies.quality.squad import Part
from verso_training.heads import signals
from verso_training.heads.reader import RIGHT_F1
from verso_training.heads.signals import Interval

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
Verifier = Callable[[Evidence, Evidence], Floats]
"""Fits on the first and scores the second: log odds, by which questions are ranked."""

_ALL = ("margin", "reader", "words", "vectors", "pairs", "again")
_STRENGTH = 0.1
"""Inverse strength of the penalty of a logistic regression: 1,400 rows, 42 columns."""
_STATES = 32
"""Principal components of the reader's states that a verifier reads."""
_SHARE = 0.393
"""Of questions that are given an answer as shipped: precision is compared at one share."""


def margin(_: Evidence, scored: Evidence) -> Floats:
    """Return the reader's margin: nothing is fitted."""
    return scored.columns(("margin",))[:, 0].astype(np.float64)


def logistic(names: Sequence[str], *, right: bool = False) -> Verifier:
    """Return a logistic regression on features.

    Args:
        names: Of features, or of groups of them.
        right: Whether it learns that the span is right, not that the question has an answer.
    """

    def verify(fitted: Evidence, scored: Evidence) -> Floats:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH, max_iter=2000))
        model.fit(fitted.columns(names), _target(fitted, right=right))
        return np.asarray(model.decision_function(scored.columns(names)), np.float64)

    return verify


def boosted(*, right: bool = False) -> Verifier:
    """Return a small table of boosted trees on all features."""

    def verify(fitted: Evidence, scored: Evidence) -> Floats:
        model = HistGradientBoostingClassifier(
            max_iter=80, learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=20,
            l2_regularization=1.0, early_stopping=False, random_state=0,
        )  # fmt: skip
        model.fit(fitted.columns(_ALL), _target(fitted, right=right))
        return np.asarray(model.decision_function(scored.columns(_ALL)), np.float64)

    return verify


def states(fitted: Evidence, scored: Evidence) -> Floats:
    """Score by a logistic regression on all features and on components of the reader's states."""
    reduced = make_pipeline(StandardScaler(), PCA(_STATES, whiten=True, random_state=0))
    own = np.hstack([fitted.columns(_ALL), reduced.fit_transform(fitted.states.astype(np.float32))])
    other = np.hstack([scored.columns(_ALL), reduced.transform(scored.states.astype(np.float32))])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH / 5, max_iter=2000))
    model.fit(own, _target(fitted, right=False))
    return np.asarray(model.decision_function(other), np.float64)


def _target(evidence: Evidence, *, right: bool) -> Flags:
    return evidence.words >= RIGHT_F1 if right else evidence.has


def part_of(verifier: Verifier, share: float, *, seed: int) -> Verifier:
    """Return a verifier that is fitted on the questions of a share of the paragraphs."""

    def verify(fitted: Evidence, scored: Evidence) -> Floats:
        every = sorted(set(fitted.texts.tolist()))
        drawn = random.Random(seed).sample(every, round(share * len(every)))
        return verifier(fitted.of(np.isin(fitted.texts, drawn)), scored)

    return verify


def verifiers() -> dict[str, Verifier]:
    """Return what is compared with the margin, by name."""
    found = {
        f"margin and {title}, learning what is right": logistic(("margin", name), right=True)
        for name, title in (
            ("cosine_sentence", "cosine of the sentence"),
            ("cosine_text", "cosine of the text"),
            ("pairs_sentence", "`pairs` of the sentence"),
            ("alone", "a reading of the sentence"),
        )
    }
    for count in range(2, len(_ALL) + 1):
        name = "reader's pass" if count == 2 else f"... and {_TITLES[_ALL[count - 1]]}"
        found[name] = logistic(_ALL[:count])
    return found | {
        "the same, learning what is right": logistic(_ALL, right=True),
        "boosted trees on all": boosted(),
        "boosted trees, learning what is right": boosted(right=True),
        "all and the reader's states": states,
    }


_TITLES = {
    "words": "words", "vectors": "cosines", "pairs": "`pairs`", "again": "second readings",
}  # fmt: skip


@dataclass(frozen=True)
class Decided:
    """Scores of questions and which of them are given an answer."""

    values: Floats
    given: Flags


def decided(evidence: Evidence, verifier: Verifier) -> Decided:
    """Score every article by the others, with the threshold that these choose."""
    values = np.zeros(len(evidence.has))
    given = np.zeros(len(values), np.bool_)
    for own in _apart(evidence):
        others = evidence.of(~own)
        held_out = np.zeros(len(others.has))
        for inner in _apart(others):
            held_out[inner] = verifier(others.of(~inner), others.of(inner))
        values[own] = verifier(others, evidence.of(own))
        given[own] = values[own] > best_threshold(held_out, others)
    return Decided(values, given)


def _apart(evidence: Evidence) -> Iterator[Flags]:
    for article in sorted(set(evidence.articles.tolist())):
        yield evidence.articles == article


def best_threshold(values: Floats, evidence: Evidence) -> float:
    """Return the threshold with the best F1: an answer is given where the value is above it."""
    gain = evidence.words - ~evidence.has
    order = np.argsort(-values, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(gain[order])])
    count = int(total.argmax())
    ranked = np.concatenate([[values.max() + 1.0], values[order], [values.min() - 1.0]])
    return float((ranked[count] + ranked[count + 1]) / 2)


@dataclass(frozen=True)
class Figures:
    """Figures of a verifier, each with its interval, and its gain over the margin."""

    of: Mapping[str, Interval]
    gain: Mapping[str, Interval]


def measured(evidence: Evidence, found: Sequence[Decided], *, rounds: int = 500) -> list[Figures]:
    """Return the figures of verifiers, the first of which the gains are over.

    Args:
        evidence: Of the questions.
        found: Scores and decisions of each verifier.
        rounds: Of drawing paragraphs; the same ones for all.
    """
    rng = np.random.default_rng(0)
    own = [np.flatnonzero(evidence.texts == text) for text in np.unique(evidence.texts)]
    drawn = [
        np.arange(len(evidence.texts)),
        *(
            np.concatenate([own[at] for at in rng.integers(0, len(own), len(own))])
            for _ in range(rounds)
        ),
    ]
    values = np.array(
        [
            [[measure(evidence, one, rows) for measure in _MEASURES.values()] for rows in drawn]
            for one in found
        ]
    )
    return [
        Figures(
            {name: _interval(own[:, at]) for at, name in enumerate(_MEASURES)},
            {name: _interval(own[:, at] - values[0, :, at]) for at, name in enumerate(_MEASURES)},
        )
        for own in values
    ]


def _interval(values: Floats) -> Interval:
    """Return the first value, with the middle 95 % of the others."""
    known = values[1:][~np.isnan(values[1:])]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan, np.nan)
    return Interval(float(values[0]), float(low), float(high))


def _auroc(evidence: Evidence, found: Decided, rows: Rows) -> float:
    has, values = evidence.has[rows], found.values[rows]
    if has.all() or not has.any():
        return float("nan")
    return 100 * signals.auroc(values[has], values[~has])


def _f1(evidence: Evidence, found: Decided, rows: Rows) -> float:
    marks = np.where(found.given[rows], evidence.words[rows], ~evidence.has[rows])
    return 100 * float(marks.mean())


def _precision(evidence: Evidence, found: Decided, rows: Rows) -> float:
    right = (evidence.words >= RIGHT_F1)[rows][found.given[rows]]
    return 100 * float(right.mean()) if len(right) else float("nan")


def _given(_: Evidence, found: Decided, rows: Rows) -> float:
    return 100 * float(found.given[rows].mean())


def _precision_at_share(evidence: Evidence, found: Decided, rows: Rows) -> float:
    """Return the precision if the surest questions are given an answer, as many as shipped."""
    best = np.argsort(-found.values[rows], kind="stable")[: round(_SHARE * len(rows))]
    return 100 * float((evidence.words >= RIGHT_F1)[rows][best].mean())


_MEASURES = {
    "AUROC": _auroc,
    "F1": _f1,
    "precision": _precision,
    "given": _given,
    "precision at one share": _precision_at_share,
}


def study(*, data: Path, artifact: Path, models: Path, work: Path) -> dict[str, Figures]:
    """Return the figures of the margin and of every verifier, and a learning curve."""
    asked = squad.read(data, Part.DEV)
    shown = dict.fromkeys(row.context for row in squad.read(data, Part.TRAIN))
    dev = kept(
        work / "dev.npz",
        asked,
        lambda: gathered(
            asked, Models.load(artifact, models), weights=document_frequencies(list(shown))
        ),
    )
    return compared(dev)


def compared(dev: Evidence) -> dict[str, Figures]:
    """Return the figures of the margin and of every verifier on held-out articles."""
    every = logistic(_ALL)
    named = {
        "the margin": margin,
        **verifiers(),
        **{
            f"all, {100 * share:.0f} % of the paragraphs": part_of(every, share, seed=0)
            for share in (0.25, 0.5)
        },
    }
    found = [decided(dev, one) for one in named.values()]
    return dict(zip(named, measured(dev, found), strict=True))


def page(found: Mapping[str, Figures]) -> str:
    """Return the table."""
    columns = ["verifier", "AUROC", "gain", "F1", "gain", "given, %", "right among it"]
    columns += [f"right among {100 * _SHARE:.0f} %", "gain"]
    rows = []
    for name, one in found.items():
        cells = [_value(one.of["AUROC"]), _gain(one.gain["AUROC"]), _value(one.of["F1"])]
        cells += [_gain(one.gain["F1"]), _value(one.of["given"]), _value(one.of["precision"])]
        cells += [
            _value(one.of["precision at one share"]), _gain(one.gain["precision at one share"])
        ]  # fmt: skip
        rows.append([name, *cells])
    return table(columns, rows)


def _value(found: Interval) -> str:
    return f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"


def _gain(found: Interval) -> str:
    if found.low == found.high == 0.0:
        return ""
    return f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
