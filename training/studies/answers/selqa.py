"""SelQA's questions as questions about a text: a part of a section,
whose sentences people marked.

The span is the reader's (:func:`studies.answers.round_trip.spans_within`); the part without the
marked sentences makes the same question one without an answer.
"""

from __future__ import annotations

from pathlib import Path

from studies.answers.round_trip import Read, spans_within
from studies.quality import pairsets
from studies.quality.pairsets import Ranking
from verso_training.heads.questions import Question

_MOST = 700
"""Characters of what is read of a section, as of a passage: about one window."""


def questions(root: Path, read: Read) -> list[Question]:
    """Return the questions of SelQA's test part that a reader finds a span of, and as many without.

    Its dev part stays for the figures of the head ``pairs``.
    """
    asked, marked, without = [], [], {}
    for number, row in enumerate(pairsets.selqa(root, "test")):
        key, places, size = f"selqa:{number}", [], 0
        near = around(row)
        for at in near:
            sentence = row.candidates[at]
            if at in row.right:
                places.append((size, size + len(sentence)))
            size += len(sentence) + 1
        context = " ".join(row.candidates[at] for at in near)
        asked.append(Question(key, row.question, context, ()))
        marked.append(places)
        rest = [row.candidates[at] for at in near if at not in row.right]
        if rest:
            without[key] = Question(f"{key}:without", row.question, " ".join(rest), ())
    found = spans_within(asked, marked, read)
    return [*found, *(without[row.key] for row in found if row.key in without)]


def around(row: Ranking) -> list[int]:
    """Return the sentence that answers a question first, and neighbours up to a passage."""
    first = min(row.right)
    near, size = [first], len(row.candidates[first])
    by_distance = sorted(range(len(row.candidates)), key=lambda at: (abs(at - first), at))
    for at in by_distance[1:]:
        size += len(row.candidates[at])
        if size > _MOST:
            break
        near.append(at)
    return sorted(near)
