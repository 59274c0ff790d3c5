"""What a filter is reduced to: tests of fields under and, or and not, and whether they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from verso_core.texts import Scalar

TIME, ID, METADATA = "time", "id", "metadata."
EXACT_BELOW = 1 << 53
"""Integers below it are float64 numbers too; see the rule of ``eq``."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """Some value of the field equals one of these; never empty."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """Some number of the field is within all bounds that are given."""

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None

    def holds(self, number: float) -> bool:
        """Whether a number is within the bounds."""
        return (
            (self.gt is None or number > self.gt)
            and (self.gte is None or number >= self.gte)
            and (self.lt is None or number < self.lt)
            and (self.lte is None or number <= self.lte)
        )


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value."""

    field: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """Some string of the field begins with this; never empty."""

    field: str
    prefix: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold; there are at least two."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some part holds; there are at least two."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Node


Test = OneOf | Within | Exists | Prefix
Node = Test | AllOf | AnyOf | Not


def tests_in(node: Node) -> Iterator[Test]:
    """Yield the tests that a filter is made of."""
    match node:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from tests_in(part)
        case Not(part):
            yield from tests_in(part)
        case _:
            yield node


def path_of(field: str) -> str | None:
    """Return the metadata key, dotted, that a test's field means; None for a document's own."""
    return field.removeprefix(METADATA) if field.startswith(METADATA) else None


def holds(node: Node, fields: Mapping[str, Sequence[Scalar]]) -> bool:
    """Whether a filter holds for the values of a document's fields."""
    match node:
        case AllOf(parts):
            return all(holds(part, fields) for part in parts)
        case AnyOf(parts):
            return any(holds(part, fields) for part in parts)
        case Not(part):
            return not holds(part, fields)
        case OneOf(field, wanted):
            return any(_same(one, value) for one in fields.get(field, ()) for value in wanted)
        case Within(field):
            numbers = [one for one in fields.get(field, ()) if _is_ordered(one)]
            return any(map(node.holds, numbers))
        case Exists(field):
            return bool(fields.get(field))
        case Prefix(field, prefix):
            found = fields.get(field, ())
            return any(isinstance(one, str) and one.startswith(prefix) for one in found)


def _is_ordered(value: Scalar) -> TypeGuard[float]:
    if isinstance(value, bool | str):
        return False
    return isinstance(value, float) or abs(value) < EXACT_BELOW


def _same(one: Scalar, other: Scalar) -> bool:
    if isinstance(one, bool | str) or isinstance(other, bool | str):
        return type(one) is type(other) and one == other
    if _is_ordered(one) and _is_ordered(other):
        return one == other
    return isinstance(one, int) and isinstance(other, int) and one == other
