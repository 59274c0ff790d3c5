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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
    parent = list(range(len(templates)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    # Of templates that are joined already nothing more is asked: versions of a text are all alike.
    for one, other in _alike(templates, lambda one, other: root(one) == root(other)):
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
    return list(_alike(templates, lambda _one, _other: False))


def _alike(
    templates: Sequence[str], is_known: Callable[[int, int], bool]
) -> Iterator[tuple[int, int]]:
    """Yield the pairs that are alike, but for those of which that is known when they come."""
    constants = [[w for w in one.split() if PARAMETER not in w] for one in templates]
    tagged = [_tagged(words) for words in constants]
    seen = Counter(tag for tags in tagged for tag in tags)
    # Prefix filter (Chaudhuri et al. 2006): two lists with c of n words in common share a word
    # among the n - c + 1 rarest of each. c follows from ALIKE: the other list has at least c words.
    holders: dict[_Tag, list[int]] = defaultdict(list)
    for number, words in enumerate(constants):
        least = math.ceil(ALIKE / (2 - ALIKE) * len(words))
        rare = sorted(tagged[number], key=lambda tag: (seen[tag], tag))[: len(words) - least + 1]
        for other in sorted({other for tag in rare for other in holders[tag]}):
            if is_known(other, number):
                continue
            wanted = ALIKE * (len(words) + len(constants[other])) / 2
            if len(tagged[number] & tagged[other]) >= wanted and (
                _Common.of(words, constants[other]).length(0, 0) >= wanted
            ):
                yield other, number
        for tag in rare:
            holders[tag].append(number)


def _tagged(words: _Words) -> set[_Tag]:
    """Number the occurrences of each word, so that a set holds them all."""
    counts: Counter[str] = Counter()
    tags = set()
    for word in words:
        counts[word] += 1
        tags.add((word, counts[word]))
    return tags


@dataclass(frozen=True, slots=True)
class _Common:
    """The lengths of the longest common subsequences of all pairs of suffixes of two lists.

    A row of the usual table is the bits of one integer, so that a row takes a few operations
    (Crochemore, Iliopoulos, Pinzon & Reid 2001; Hyyrö 2004): texts of 1,000 words would otherwise
    take 0.15 s for each pair.

    rows: of each suffix of the first list, which suffixes of the second have one word more in
        common with it than the next shorter one; the shortest is the lowest bit.
    size: of the second list.
    """

    rows: list[int]
    size: int

    @classmethod
    def of(cls, one: _Words, other: _Words) -> _Common:
        """Compare two lists."""
        places: dict[str, int] = {}
        for bit, word in enumerate(reversed(other)):
            places[word] = places.get(word, 0) | 1 << bit
        whole = (1 << len(other)) - 1
        rest, rows = whole, [0]
        for word in reversed(one):
            both = rest & places.get(word, 0)
            rest = ((rest + both) | (rest - both)) & whole
            rows.append(whole ^ rest)
        rows.reverse()
        return cls(rows, len(other))

    def length(self, i: int, j: int) -> int:
        """Return how many words the suffixes from ``i`` and ``j`` on have in common."""
        return (self.rows[i] & ((1 << (self.size - j)) - 1)).bit_count()


def _merged(one: _Words, other: _Words) -> _Words:
    """Return the common words of two templates, with a parameter for each difference."""
    common = _Common.of(one, other)
    made: _Words = []
    i = j = 0
    while i < len(one) or j < len(other):
        if i < len(one) and j < len(other) and one[i] == other[j]:
            word, i, j = one[i], i + 1, j + 1
        elif j == len(other) or (
            i < len(one) and common.length(i + 1, j) >= common.length(i, j + 1)
        ):
            word, i = PARAMETER, i + 1
        else:
            word, j = PARAMETER, j + 1
        if not (word == PARAMETER and made and made[-1] == PARAMETER):
            made.append(word)
    return made
