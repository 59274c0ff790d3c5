"""Join templates of log lines that are one statement with a word more or less.

A statement may write `(2 KB)` or leave it out, so that its lines differ in length, and what groups
lines of equal length finds several templates. Two templates are one statement if nearly the same
words stand in them, in the same order: the longest common subsequence of what is no parameter is at
least ``ALIKE`` of both. The share was chosen on seven systems of loghub and measured on seven
others (`bench_templates.py`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from verso_worker.rules.grouping.templates import PARAMETER, SIMILAR, WORDS, Miner

ALIKE = 0.9
"""Least share of the words of two templates that they have in common, in their order."""

_Words = list[str]
_Tag = tuple[str, int]


def statements_of(
    messages: Sequence[str], *, similar: float = SIMILAR, words: int = WORDS, join: bool = True
) -> list[str]:
    """Return the template of the statement that wrote each message, whatever their order is.

    What Drain makes of a line depends on the lines before it, and a store returns lines in an order
    of its own. So the distinct messages are mined as they sort.

    Args:
        messages: as :func:`~verso_worker.rules.grouping.messages.messages` returns them.
        similar: share of tokens that must agree, in [0, 1].
        words: most plain words at one position that make statements of their own.
        join: whether templates of nearly the same words are one statement.
    """
    miner = Miner(similar=similar, words=words)
    shapes = {message: miner.add(message) for message in sorted(set(messages))}
    templates = miner.templates()
    found = sorted(set(templates))
    statement = joined(found) if join else {template: template for template in found}
    return [statement[templates[shapes[message]]] for message in messages]


def joined(templates: Sequence[str]) -> dict[str, str]:
    """Return for each distinct template the template of its statement, which may be itself."""
    pairs = alike(templates)
    if not pairs:
        return {template: template for template in templates}
    parent = list(range(len(templates)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for one, other in pairs:
        parent[max(root(one), root(other))] = min(root(one), root(other))
    statements: dict[int, _Words] = {}
    for number, template in enumerate(templates):
        words = template.split()
        known = statements.get(root(number))
        statements[root(number)] = words if known is None else _merged(known, words)
    return {
        template: " ".join(statements[root(number)]) for number, template in enumerate(templates)
    }


def alike(templates: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of templates with nearly the same words in the same order."""
    constants = [[w for w in one.split() if PARAMETER not in w] for one in templates]
    tagged = [_tagged(words) for words in constants]
    seen = Counter(tag for tags in tagged for tag in tags)
    # Prefix filter (Chaudhuri et al. 2006): two lists with c of n words in common share a word
    # among the n - c + 1 rarest of each. c follows from ALIKE: the other list has at least c words.
    holders: dict[_Tag, list[int]] = defaultdict(list)
    found = []
    for number, words in enumerate(constants):
        least = math.ceil(ALIKE / (2 - ALIKE) * len(words))
        rare = sorted(tagged[number], key=lambda tag: (seen[tag], tag))[: len(words) - least + 1]
        for other in sorted({other for tag in rare for other in holders[tag]}):
            wanted = ALIKE * (len(words) + len(constants[other])) / 2
            if len(tagged[number] & tagged[other]) >= wanted and (
                _common(words, constants[other])[0][0] >= wanted
            ):
                found.append((other, number))
        for tag in rare:
            holders[tag].append(number)
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
    """Return the lengths of the longest common subsequences of all pairs of suffixes."""
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
    """Return the common words of two templates, with a parameter for each difference."""
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
