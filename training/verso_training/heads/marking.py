"""Mark answers as SQuAD does: exact match and F1 over words, with a null threshold.

Rajpurkar et al. 2018 (their evaluation script, version 2.0): texts are lowercased, punctuation and
articles dropped, white space joined; F1 counts words as a multiset; a question without an answer
is right where none is given; the best gold answer counts.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verso_training.heads import selective
from verso_training.heads.reader import Answer
from verso_training.heads.squad import Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """The form that is compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(given: str, gold: Sequence[str]) -> float:
    """1.0 where the answer is one of the gold ones; no gold means that none is right."""
    return float(any(normalised(given) == normalised(one) for one in gold or ("",)))


def f1(given: str, gold: Sequence[str]) -> float:
    """The best word F1 against a gold answer."""
    return max(_f1(normalised(given).split(), normalised(one).split()) for one in gold or ("",))


def _f1(given: list[str], gold: list[str]) -> float:
    if not given or not gold:
        return float(given == gold)
    same = sum((Counter(given) & Counter(gold)).values())
    return 2.0 * same / (len(given) + len(gold))


@dataclass(frozen=True)
class Marks:
    """Means over questions, in percent.

    Attributes:
        exact: Exact match.
        f1: Word F1.
        answerable_f1: F1 over the questions that have an answer.
        refused: Share of the questions without an answer to which none was given.
    """

    exact: float
    f1: float
    answerable_f1: float
    refused: float


def marks(
    questions: Sequence[Question], answers: Sequence[Answer], *, null_threshold: float
) -> Marks:
    """Marks where an answer is given if its margin is above the threshold."""
    given = [a.text if a.margin > null_threshold else "" for a in answers]
    em = np.array([exact(g, q.answers) for g, q in zip(given, questions, strict=True)])
    words = np.array([f1(g, q.answers) for g, q in zip(given, questions, strict=True)])
    has = np.array([bool(q.answers) for q in questions])
    return Marks(
        100 * float(em.mean()),
        100 * float(words.mean()),
        100 * float(words[has].mean()) if has.any() else float("nan"),
        100 * float(em[~has].mean()) if (~has).any() else float("nan"),
    )


def answerable(questions: Sequence[Question], answers: Sequence[Answer]) -> float:
    """AUROC of the margin: questions with an answer against those without; NaN if one lacks."""
    margins = np.array([answer.margin for answer in answers])
    has = np.array([bool(question.answers) for question in questions])
    return selective.auroc(margins[has], margins[~has]) if 0 < has.sum() < len(has) else math.nan


def best_threshold(questions: Sequence[Question], answers: Sequence[Answer]) -> float:
    """The null threshold with the best F1 on these questions (never those that are reported)."""
    margins = np.array([answer.margin for answer in answers])
    gain = np.array([f1(a.text, q.answers) for a, q in zip(answers, questions, strict=True)])
    null = np.array([float(not q.answers) for q in questions])
    order = np.argsort(-margins, kind="stable")
    # Answering the n surest and refusing the rest: F1 as n grows.
    total = null.sum() + np.concatenate([[0.0], np.cumsum(gain[order] - null[order])])
    n = int(total.argmax())
    if n == 0:
        return float(margins.max())
    upper = margins[order[n - 1]]
    lower = margins[order[n]] if n < len(order) else upper - 1.0
    return float((upper + lower) / 2)
