"""Filters in the language of the engines.

The embedded engine and the client library of a server have the same conditions in classes of their
own: each adapter offers them as a :class:`Language`. Every test of
:mod:`verso_core.jobs.filters` has an exact translation, so nothing is filtered afterwards; only
numbers that engines do not tell apart (:mod:`verso_worker.records.numbers`) are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from verso_core.jobs import Filter
from verso_core.jobs.filters.compiled import compiled
from verso_core.jobs.filters.nodes import (
    EXACT_BELOW,
    ID,
    TIME,
    AllOf,
    AnyOf,
    Exists,
    Node,
    Not,
    OneOf,
    Prefix,
    Within,
)
from verso_core.texts import MAX_INTEGER, Scalar
from verso_worker.records.points import CHUNK, kept_string, kept_value, path_in_payload

C = TypeVar("C")
"""A condition of the engine."""


class Language(Protocol[C]):
    """The conditions of an engine. Those of a path hold if one of its values passes."""

    def all_of(self, parts: list[C]) -> C:
        """All parts hold."""

    def any_of(self, parts: list[C]) -> C:
        """Some part holds."""

    def none_of(self, parts: list[C]) -> C:
        """No part holds."""

    def strings(self, path: str, values: list[str]) -> C:
        """One of these strings."""

    def integers(self, path: str, values: list[int]) -> C:
        """One of these integers."""

    def within(self, path: str, bounds: Within) -> C:
        """A number within bounds."""

    def prefix(self, path: str, prefix: str) -> C:
        """A string with this beginning."""

    def empty(self, path: str) -> C:
        """No value at all."""


_NUMBERS = (TIME, CHUNK)  # kept as numbers that need no look-up: time is float64 and indexed

FIRST_CHUNK = Within(CHUNK, gte=0, lte=0)
"""Passes one point of each document."""


def node_of(where: Filter | None, *, first: bool = False) -> Node | bool:
    """Return what points must pass; with ``first`` only first chunks do."""
    node = compiled(where)
    if not first or node is False:
        return node
    return FIRST_CHUNK if node is True else AllOf((FIRST_CHUNK, node))


class Translator(Generic[C]):
    """Translates filters into the conditions of one engine."""

    def __init__(self, language: Language[C]) -> None:
        self._language = language

    def condition(self, node: Node) -> C:
        """Return the engine's condition that holds where ``node`` does."""
        say = self._language
        match node:
            case AllOf(parts):
                return say.all_of([self.condition(part) for part in parts])
            case AnyOf(parts):
                return say.any_of([self.condition(part) for part in parts])
            case Not(Exists(field)):
                return say.empty(path_in_payload(field))
            case Not(part):
                return say.none_of([self.condition(part)])
            case Exists(field):
                return say.none_of([say.empty(path_in_payload(field))])
            case Within(field):
                return say.within(path_in_payload(field), _kept(node))
            case Prefix(field, prefix):
                kept = prefix if field == ID else kept_string(prefix)
                return say.prefix(path_in_payload(field), kept)
            case OneOf(field, values):
                choices = list(self._choices(field, values))
                return choices[0] if len(choices) == 1 else say.any_of(choices)

    def _choices(self, field: str, values: Sequence[Scalar]) -> Iterator[C]:
        path = path_in_payload(field)
        kept = list(values) if field == ID else list(map(kept_value, values))
        strings = [value for value in kept if isinstance(value, str)]
        if strings:
            yield self._language.strings(path, strings)
        numbers = [value for value in kept if not isinstance(value, str)]
        if field in _NUMBERS or len(numbers) == 1:  # a range is true of 2.0 as well, as it was kept
            ranges = numbers
        else:
            ranges = [value for value in numbers if isinstance(value, float)]
            integers = [value for value in numbers if isinstance(value, int)]
            if integers:
                yield self._language.integers(path, integers)
        for number in ranges:
            yield self._language.within(path, Within(field, gte=number, lte=number))
        # As they were kept before: no range tells them apart.
        large = [v for v in values if type(v) is int and EXACT_BELOW <= abs(v) <= MAX_INTEGER]
        if large:
            yield self._language.integers(path, large)


def _kept(bounds: Within) -> Within:
    """Return bounds of numbers as the engines keep them."""
    gt, gte, lt, lte = (
        float(kept_value(one)) if isinstance(one, float) else one
        for one in (bounds.gt, bounds.gte, bounds.lt, bounds.lte)
    )
    return replace(bounds, gt=gt, gte=gte, lt=lt, lte=lte)
