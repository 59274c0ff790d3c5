"""Join templates of log lines that are one statement with a word more or less.

A statement may write `(2 KB)` or leave it out, so that its lines differ in length, and what groups
lines of equal length finds several templates. Two templates are one statement if

1. nearly the same words stand in them, in the same order: the longest common subsequence of what
   is no parameter is at least ``ALIKE`` of both; and
2. their vectors are near: a cosine of at least ``NEAR``. One word that tells two statements apart
   moves the vector of a short template far, and that of a long one hardly.

Both were chosen on seven systems of loghub and measured on seven others (`bench_templates.py`).
Only templates that pass the first are encoded, which are few.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from verso_worker.records.space import Vector
from verso_worker.rules.grouping.templates import PARAMETER

ALIKE = 0.9
"""Least share of the words of two templates that they have in common, in their order."""

NEAR = 0.97
"""Least cosine of two templates."""

Encode = Callable[[Sequence[str]], Vector]
"""Gives the unit vectors of texts. Shape: (texts, dim)."""

_Words = list[str]
_Tag = tuple[str, int]


def joined(templates: Sequence[str], encode: Encode) -> dict[str, str]:
    """Return for each template that of its statement, which may be itself.

    Args:
        templates: distinct ones.
        encode: called with those that another one resembles, if there are any.
    """
    pairs = alike(templates)
    if not pairs:
        return {template: template for template in templates}
    asked = sorted({place for pair in pairs for place in pair})
    row = {place: number for number, place in enumerate(asked)}
    vectors = encode([templates[place] for place in asked])
    parent = list(range(len(templates)))

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    for one, other in pairs:
        if float(vectors[row[one]] @ vectors[row[other]]) >= NEAR:
            parent[max(root(one), root(other))] = min(root(one), root(other))
    statements: dict[int, _Words] = {}
    for place, template in enumerate(templates):
        words = template.split()
        known = statements.get(root(place))
        statements[root(place)] = words if known is None else _merged(known, words)
    return {template: " ".join(statements[root(place)]) for place, template in enumerate(templates)}


def alike(templates: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of templates that nearly the same words stand in, in the same order."""
    constants = [[w for w in one.split() if PARAMETER not in w] for one in templates]
    tagged = [_tagged(words) for words in constants]
    seen = Counter(tag for tags in tagged for tag in tags)
    # Prefix filter (Chaudhuri et al. 2006): c of n words in common means one in common among the
    # n - c + 1 rarest of each; from the share follows c, for the other has c words at least.
    holders: dict[_Tag, list[int]] = defaultdict(list)
    found = []
    for place, words in enumerate(constants):
        least = math.ceil(ALIKE / (2 - ALIKE) * len(words))
        rare = sorted(tagged[place], key=lambda tag: (seen[tag], tag))[: len(words) - least + 1]
        for other in sorted({other for tag in rare for other in holders[tag]}):
            wanted = ALIKE * (len(words) + len(constants[other])) / 2
            if len(tagged[place] & tagged[other]) >= wanted and (
                _common(words, constants[other])[0][0] >= wanted
            ):
                found.append((other, place))
        for tag in rare:
            holders[tag].append(place)
    return found


def _tagged(words: _Words) -> set[_Tag]:
    """Number the occurrences of each word, so that a set holds them all."""
    counts: Counter[str] = Counter()
    tags = set()
    for word in words:
        counts[word] += 1
        tags.add((word, counts[word]))
    return tags


def _common(one: _Words, other: _Words) -> list[list[int]]:
    """Return the length of the longest common subsequence of what is left from each two places
    on.
    """
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one) - 1, -1, -1):
        for j in range(len(other) - 1, -1, -1):
            lengths[i][j] = (
                lengths[i + 1][j + 1] + 1
                if one[i] == other[j]
                else max(lengths[i + 1][j], lengths[i][j + 1])
            )
    return lengths


def _merged(one: _Words, other: _Words) -> _Words:
    """Return what two templates have in common, a parameter where they differ."""
    lengths = _common(one, other)
    made: _Words = []
    i = j = 0
    while i < len(one) or j < len(other):
        if i < len(one) and j < len(other) and one[i] == other[j]:
            word, i, j = one[i], i + 1, j + 1
        elif j == len(other) or (i < len(one) and lengths[i + 1][j] >= lengths[i][j + 1]):
            word, i = PARAMETER, i + 1
        else:
            word, j = PARAMETER, j + 1
        if not (word == PARAMETER and made and made[-1] == PARAMETER):
            made.append(word)
    return made
