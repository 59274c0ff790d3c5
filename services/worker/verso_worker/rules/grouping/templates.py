"""Log lines by the statement that wrote them: a template for each, its parameters masked.

1. Parameters that do not depend on the program are masked: numbers, addresses, identifiers, paths,
   names of days and months, every word with a digit in it. Lines that are equal then are counted as
   one, so that nearly all lines of a real log need a look-up only.
2. The rest is grouped as Drain does (He et al. 2017): a line belongs to the most similar template
   of as many tokens that begins with the same one, if enough tokens agree; where they differ the
   template gets a parameter.
3. Drain takes every differing word for a parameter, so `Started` and `Stopped` become one. So each
   group is split again, by the position with the fewest different words, as long as there is one
   with at most ``WORDS`` of them and all are plain words. (IPLoM, Makanju et al. 2009, splits by
   positions of few values as well, but before it knows which lines are alike.)
4. Templates that differ in how many parameters follow one another are joined: a list of names has
   as many tokens as names.
5. Lines of JSON, or of fields with quotes, may have what people write in one of them: every line
   would be a statement. What stands around quoted texts is a line's *frame*. Where a frame has as
   many groups as ``LIMITS`` say, further lines that join none of them are of one statement, its
   texts as parameters. (Drain bounds the children of a node likewise.)

Nothing is trained. Memory and steps 2 to 4 grow with the distinct masked lines, not with the lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PARAMETER = "<*>"

SIMILAR = 0.6
"""Share of tokens that must agree for a line to join a template, parameters of both left out."""

WORDS = 3
"""Most plain words at one position that make statements of their own; more are a parameter."""

LONGEST_WORD = 512
"""Characters; what is longer is data, such as a certificate in base64."""


class Limits(NamedTuple):
    """Most groups of one frame, by which quoted strings its parameters are.

    texts: those with a blank, as sentences have
    strings: all of them
    """

    texts: int
    strings: int


LIMITS = Limits(512, 4096)
"""A program has fewer statements, of one logger and level: the largest of the systems that people
have marked (Mac) has 341."""

_MASK = re.compile(
    r"""
    (?<![A-Za-z0-9])(?:
        [A-Za-z][A-Za-z0-9+.-]*://[^\s,;)\]}'"]+                    # URL
      | /(?:[\w.+@~%$-]+/)*[\w.+@~%$-]*\w(?!\w)                     # absolute path
      | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}        # UUID
      | 0[xX][0-9a-fA-F]+
      | [0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){3,}                       # hardware address
      | [-+]?\d+(?:[.,:/-]\d+)*                                     # number, date, time, address
      | (?=[a-f]*\d)[0-9a-f]{6,} | (?=[A-F]*\d)[0-9A-F]{6,}         # hexadecimal word
    )(?![A-Za-z0-9])
    | (?:[\w-]+\.)+[A-Za-z]{2,}:\d+                                 # host and port
    | (?<![\w.-])(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)
      (?![\w.-])
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"(\s*+:)?|\\?\Z)', re.DOTALL)
"""A quoted string, and the colon behind it if it is a key."""
_BLANK = re.compile(r"\s")
_DIGIT = re.compile(r"\d")
_PLAIN = re.compile(r"[^\w\s]?[^\W\d_]+|[^\W\d_]+[^\w\s]?")

_FIRST_GROUPS = 4

Tokens = tuple[str, ...]
Numbers = NDArray[np.int32]
"""Tokens by number; 0 stands for a parameter. Shape: (tokens,)."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A distinct masked line, and the group of similar ones that it joined."""

    tokens: Tokens
    group: int


class _Leaf:
    """Groups of one number of tokens that begin alike, compared with a shape all at once.

    Texts make tens of thousands of groups, and each new shape is compared with every one.
    """

    def __init__(self, tokens: int) -> None:
        self._groups: list[int] = []
        self._columns = np.zeros((tokens, _FIRST_GROUPS), np.int32)

    def join(self, tokens: Numbers, *, similar: float) -> int | None:
        """Return the group that tokens join, whose differing tokens are parameters from then on.

        Of those that agree best it is the first; None if they agree with none enough.
        """
        if not self._groups:
            return None
        shares = self._agreements(tokens)
        place = int(shares.argmax())
        if shares[place] < similar:
            return None
        column = self._columns[:, place]
        column[column != tokens] = 0
        return self._groups[place]

    def add(self, tokens: Numbers, group: int) -> None:
        """Add a group of one shape."""
        count = len(self._groups)
        if count == self._columns.shape[1]:
            self._columns = np.concatenate((self._columns, np.zeros_like(self._columns)), axis=1)
        self._columns[:, count] = tokens
        self._groups.append(group)

    def _agreements(self, tokens: Numbers) -> NDArray[np.float64]:
        """Return the share of tokens that agree, of those that are no parameter in both.

        Two parameters say nothing: lines of many values would agree whatever their words are.
        Shape: (groups,).
        """
        equal = self._columns[:, : len(self._groups)] == tokens[:, None]
        is_word = tokens != 0
        same = np.add.reduce(equal[is_word].view(np.uint8), axis=0, dtype=np.int32)
        unsaid = np.add.reduce(equal[~is_word].view(np.uint8), axis=0, dtype=np.int32)
        told = len(tokens) - unsaid
        return np.where(told > 0, same / np.maximum(told, 1), 1.0)


class Miner:
    """Finds templates: lines are added one by one, then :meth:`templates` returns them.

    Args:
        similar: share of tokens that must agree, in [0, 1].
        words: most plain words at one position that make statements of their own.
        limits: most groups of one frame; None: any number.
    """

    def __init__(
        self, *, similar: float = SIMILAR, words: int = WORDS, limits: Limits | None = None
    ) -> None:
        self._similar = similar
        self._words = words
        self._limits = limits
        self._of_frame: dict[tuple[str, int], int] = {}
        self._rest_of: dict[str, int] = {}
        self._rests: set[int] = set()
        self._known: dict[str, int] = {}
        self._shapes: list[_Shape] = []
        self._by_tokens: dict[Tokens, int] = {}
        self._numbers: dict[str, int] = {PARAMETER: 0}
        self._groups = 0
        self._leaves: dict[tuple[int, str], _Leaf] = {}

    def add(self, line: str) -> int:
        """Add a line; return the number of its shape, an index into :meth:`templates`."""
        masked = _MASK.sub(PARAMETER, _shortened(line))
        shape = self._known.get(masked)
        if shape is None:
            shape = self._shape(masked)
            if shape not in self._rests:  # of these there are as many as lines
                self._known[masked] = shape
        return shape

    def group(self, shape: int) -> int:
        """Return the number of the group that a shape joined."""
        return self._shapes[shape].group

    def templates(self) -> list[str]:
        """Return the template of each shape; shapes of one statement have the same template."""
        members: dict[int, list[int]] = defaultdict(list)
        for number, shape in enumerate(self._shapes):
            members[shape.group].append(number)
        found = [""] * len(self._shapes)
        for group in members.values():
            for part in self._parts(group):
                template = " ".join(_template([self._shapes[n].tokens for n in part]))
                for number in part:
                    found[number] = template
        return found

    def is_rest(self, shape: int) -> bool:
        """Whether a shape stands for all lines of a frame that has as many groups as it may."""
        return shape in self._rests

    def _shape(self, masked: str) -> int:
        tokens = _tokens(masked)
        shape = self._by_tokens.get(tokens)
        if shape is None:
            group = self._joined(tokens)
            if group is None and (frame := self._full(masked)) is not None:
                return self._rest(frame)
            group = self._new_group(tokens) if group is None else group
            shape = self._by_tokens[tokens] = len(self._shapes)
            self._shapes.append(_Shape(tokens, group))
        return shape

    def _joined(self, tokens: Tokens) -> int | None:
        """Find the group that a shape joins."""
        leaf = self._leaves.get(_leaf_of(tokens))
        if leaf is None:
            return None
        numbers = np.array([self._numbers.get(one, -1) for one in tokens], np.int32)
        return leaf.join(numbers, similar=self._similar)

    def _new_group(self, tokens: Tokens) -> int:
        leaf = self._leaves.setdefault(_leaf_of(tokens), _Leaf(len(tokens)))
        known = self._numbers
        numbers = np.array([known.setdefault(one, len(known)) for one in tokens], np.int32)
        leaf.add(numbers, self._groups)
        self._groups += 1
        return self._groups - 1

    def _full(self, masked: str) -> str | None:
        """Return the frame of a line that may have no further group; else count one more."""
        if self._limits is None or '"' not in masked:
            return None
        frames = [(frame, n) for n, frame in enumerate(frames_of(masked)) if frame != masked]
        for frame, n in frames:
            if self._of_frame.get((frame, n), 0) >= self._limits[n]:
                return frame
        self._of_frame |= {one: self._of_frame.get(one, 0) + 1 for one in frames}
        return None

    def _rest(self, frame: str) -> int:
        """Return the shape of the lines of a frame that have no group of their own."""
        shape = self._rest_of.get(frame)
        if shape is None:
            shape = self._rest_of[frame] = len(self._shapes)
            self._rests.add(shape)
            self._shapes.append(_Shape(_tokens(frame), self._groups))
            self._groups += 1
        return shape

    def _parts(self, group: Sequence[int]) -> Iterator[list[int]]:
        """Split a group by plain words, as long as a position has few of them."""
        waiting = [list(group)]
        while waiting:
            part = waiting.pop()
            position = self._splitting(part)
            if position is None:
                yield part
                continue
            by_word: dict[str, list[int]] = defaultdict(list)
            for number in part:
                by_word[self._shapes[number].tokens[position]].append(number)
            waiting += by_word.values()

    def _splitting(self, part: Sequence[int]) -> int | None:
        """Return the position with the fewest different words, if they are few and plain."""
        best, fewest = None, self._words + 1
        for position, column in enumerate(
            zip(*(self._shapes[n].tokens for n in part), strict=True)
        ):
            different = set(column)
            if 1 < len(different) < fewest and all(_PLAIN.fullmatch(w) for w in different):
                best, fewest = position, len(different)
        return best


def frames_of(masked: str) -> tuple[str, str]:
    """Return what stands around the quoted strings of a masked line: those with a blank, and all.

    Keys, which a colon follows, stay.
    """

    def shown(found: re.Match[str], *, all_of_them: bool) -> str:
        is_parameter = not found[2] and (all_of_them or _BLANK.search(found[1]))
        return f'"{PARAMETER}"' if is_parameter else found[0]

    return (
        _QUOTED.sub(partial(shown, all_of_them=False), masked),
        _QUOTED.sub(partial(shown, all_of_them=True), masked),
    )


def _tokens(masked: str) -> Tokens:
    return tuple(PARAMETER if _DIGIT.search(t) else t for t in masked.split())


def _leaf_of(tokens: Tokens) -> tuple[int, str]:
    """Return how many tokens there are, and the first."""
    first = tokens[0] if tokens else ""
    return len(tokens), PARAMETER if PARAMETER in first else first


def _shortened(line: str) -> str:
    """Return a line whose overlong words are parameters: to mask one takes its length squared."""
    if len(line) <= LONGEST_WORD:
        return line
    return " ".join(w if len(w) <= LONGEST_WORD else PARAMETER for w in line.split())


def _merged(template: Tokens, tokens: Tokens) -> Tokens:
    return tuple(a if a == b else PARAMETER for a, b in zip(template, tokens, strict=True))


def _template(shapes: Sequence[Tokens]) -> list[str]:
    """Return the template of shapes, a run of parameters as one."""
    template = shapes[0]
    for tokens in shapes[1:]:
        template = _merged(template, tokens)
    return [b for a, b in pairwise(("", *template)) if not a == b == PARAMETER]
