"""Baselines that cost seconds: words counted, and one linear layer on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

_CHARACTERS = 3000


@dataclass(frozen=True)
class Probabilities:
    """The outputs of a classifier for texts.

    Attributes:
        values: Shape: (N, C), float32.
        labels: In the order of the columns.
    """

    values: NDArray[np.float32]
    labels: tuple[str, ...]

    def aligned(self, labels: Sequence[str]) -> NDArray[np.float32]:
        """The columns in another order; a label that was never seen has probability zero."""
        found = np.zeros((len(self.values), len(labels)), np.float32)
        for column, label in enumerate(labels):
            if label in self.labels:
                found[:, column] = self.values[:, self.labels.index(label)]
        return found


def tfidf(
    texts: Sequence[str], labels: Sequence[str], *, others: Sequence[Sequence[str]]
) -> list[Probabilities]:
    """TF-IDF of words and logistic regression with balanced classes (scikit-learn).

    Args:
        texts: To train on; their first 3,000 characters.
        labels: Of the texts.
        others: Lists of texts to classify.
    """
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    model = LogisticRegression(C=10.0, max_iter=1000, class_weight="balanced")
    model.fit(words.fit_transform([text[:_CHARACTERS] for text in texts]), list(labels))
    classes = tuple(str(label) for label in model.classes_)
    return [
        Probabilities(
            model.predict_proba(words.transform([text[:_CHARACTERS] for text in part])).astype(
                np.float32
            ),
            classes,
        )
        for part in others
    ]
