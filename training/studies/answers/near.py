"""Questions without an answer: the right question with a near paragraph, as a search returns it.

``verso_training.heads.questions.mined`` takes the paragraph of the same article that shares most
words. Here the paragraph is that whose vector is nearest to the question's, of any article: what
the platform's own search puts in front of the reader when the right paragraph is not stored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from verso_training.heads.questions import Question
from verso_training.heads.reader import Encode, normalised

_AMONG = 10
"""Nearest paragraphs that are searched for one without the answer."""


def near(asked: Sequence[Question], encode: Encode, *, count: int, seed: int = 0) -> list[Question]:
    """Return questions whose text is the nearest paragraph that holds none of their answers.

    Args:
        asked: Questions with their paragraphs; only those with an answer are used.
        encode: Of texts to unit vectors.
        count: At most.
        seed: Of which questions are drawn.
    """
    texts = list(dict.fromkeys(row.context for row in asked))
    pool = [row for row in asked if row.answers]
    drawn = random.Random(seed).sample(pool, min(count, len(pool)))
    if not drawn:
        return []
    plain = [normalised(text) for text in texts]
    paragraphs = encode(texts)
    likeness = encode([row.question for row in drawn]) @ paragraphs.T
    made = []
    for row, values in zip(drawn, likeness, strict=True):
        for at in np.argsort(-values, kind="stable")[:_AMONG].tolist():
            if texts[at] != row.context and not _holds(plain[at], row):
                made.append(Question(f"{row.key}:near", row.question, texts[at], (), row.group))
                break
    return made


def _holds(plain: str, row: Question) -> bool:
    return any(normalised(answer) in plain for answer in row.answers)
