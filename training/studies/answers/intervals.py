"""Figures of answers with intervals: paragraphs are drawn, whose questions are right together.

Readers or thresholds that are compared are drawn together, so that their difference has an
interval of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_training.heads import reader, signals
from verso_training.heads.questions import Question
from verso_training.heads.reader import RIGHT_F1, Answer
from verso_training.heads.signals import Interval

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
_ROUNDS = 2000
_ROUNDS_AUROC = 500
SURE_SHARE = 0.28
"""Of questions that are given an answer about a text by default: precision at one share."""


@dataclass(frozen=True, eq=False)
class Marked:
    """Best answers, marked as if each were given. Shape of all: (N,).

    Attributes:
        margins: Of the answer over none.
        words: Word F1 against people's answers; 0 where there is none.
        same: Exact match, likewise.
        has: Whether the question has an answer.
        texts: Number of the text that each question is asked about.
    """

    margins: Floats
    words: Floats
    same: Floats
    has: Flags
    texts: NDArray[np.int64]

    @classmethod
    def of(cls, asked: Sequence[Question], answers: Sequence[Answer]) -> Marked:
        """Mark the best answer of each question."""
        has = np.array([bool(row.answers) for row in asked])
        pairs = [(one.text, row.answers) for row, one in zip(asked, answers, strict=True)]
        return cls(
            np.array([one.margin for one in answers], np.float64),
            np.array([reader.f1(*pair) for pair in pairs]) * has,
            np.array([reader.exact(*pair) for pair in pairs]) * has,
            has,
            reader.texts(asked),
        )

    def figures(self, given: Flags) -> dict[str, tuple[Floats, Floats]]:
        """Return each figure as what its numerator and denominator add up.

        Args:
            given: Whether each question is given its answer. Shape: (N,).
        """
        one, has = np.ones(len(self.has)), self.has.astype(np.float64)
        right = (self.words >= RIGHT_F1).astype(np.float64)
        sure = np.zeros(len(one))
        sure[np.argsort(-self.margins, kind="stable")[: round(SURE_SHARE * len(one))]] = 1.0
        return {
            "F1": (np.where(given, self.words, ~self.has), one),
            "EM": (np.where(given, self.same, ~self.has), one),
            "F1 over no answer": (np.where(given, self.words, ~self.has) - ~self.has, one),
            "F1, with an answer": (self.words * given * has, has),
            "F1, with an answer, all given": (self.words * has, has),
            "no answer, refused": ((~given & ~self.has).astype(np.float64), 1.0 - has),
            "given": (given.astype(np.float64), one),
            "right among it": (right * given, given.astype(np.float64)),
            f"right among {SURE_SHARE:.0%}": (right * sure, sure),
        }

    def separations(self, times: Floats) -> Floats:
        """Return the AUROC of the margin, answerable or not, of each draw of texts."""
        return reader.separations(self.margins, self.has, self.texts, times)


@dataclass(frozen=True)
class Compared:
    """Figures in percent, and by how much they exceed those of the first that is compared."""

    of: Mapping[str, Interval]
    gain: Mapping[str, Interval]


def compared(found: Sequence[tuple[Marked, Flags]], *, seed: int = 0) -> list[Compared]:
    """Return the figures of decisions about the same questions.

    Args:
        found: Answers, and which of them are given; gains are over the first.
        seed: Of the paragraphs that are drawn.
    """
    texts = found[0][0].texts
    times = signals.drawn(texts, rounds=_ROUNDS, seed=seed)
    values = [
        {
            name: 100 * signals.ratios(*pair, texts, times)
            for name, pair in marked.figures(given).items()
        }
        | {"AUROC": 100 * marked.separations(times[: _ROUNDS_AUROC + 1])}
        for marked, given in found
    ]
    return [
        Compared(
            {name: signals.middle(one) for name, one in own.items()},
            {name: signals.middle(one - values[0][name]) for name, one in own.items()},
        )
        for own in values
    ]
