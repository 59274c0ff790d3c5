"""Reduce a filter to tests, and run it: the reference that stores are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.filters.nodes import (
    ID,
    METADATA,
    TIME,
    AllOf,
    AnyOf,
    Exists,
    Node,
    Not,
    OneOf,
    Prefix,
    Within,
    holds,
)
from verso_core.jobs.filters.times import seconds
from verso_core.texts import Scalar, values_of


def compiled(where: Filter | None) -> Node | bool:
    """Return a filter as tests under and, or and not; or whether all or no documents match."""
    if where is None:
        return True
    if where.and_ is not None:
        return _all_of([compiled(part) for part in where.and_])
    if where.or_ is not None:
        return _any_of([compiled(part) for part in where.or_])
    if where.not_ is not None:
        return _not(compiled(where.not_))
    if where.field is not None:
        return _all_of(list(_leaf(where.field, where.given)))
    return _all_of(list(_old(where)))


def matches(
    where: Filter | None,
    *,
    metadata: Mapping[str, Any],
    time: float | None,
    id: str,  # noqa: A002 - the API's own word
) -> bool:
    """Whether a filter holds for a document. Every vector store must agree with it."""
    node = compiled(where)
    if isinstance(node, bool):
        return node
    fields: dict[str, list[Scalar]] = {
        METADATA + path: values for path, values in values_of(metadata).items()
    }
    return holds(node, fields | {ID: [id]} | ({} if time is None else {TIME: [time]}))


def _leaf(field: str, given: Mapping[str, Any]) -> Iterator[Node | bool]:
    own = field if field in (TIME, ID) else METADATA + field.removeprefix(METADATA)
    read = seconds if field == TIME else _as_it_is
    bounds: dict[str, float] = {}
    for name, value in given.items():
        match name:
            case "eq":
                yield _equal(own, [value if value is None else read(value)])
            case "ne":
                yield _not(_equal(own, [value if value is None else read(value)]))
            case "in":
                yield _equal(own, [one if one is None else read(one) for one in value])
            case "exists":
                yield Exists(own) if value else Not(Exists(own))
            case "prefix":
                yield Prefix(own, value)
            case "field":
                pass
            case _:
                bounds[name] = seconds(value)
    if field == TIME and bounds:  # it has one value: one test says the same as several
        yield Within(own, **bounds)
    else:
        yield from (Within(own, **{name: bound}) for name, bound in bounds.items())


def _old(where: Filter) -> Iterator[Node | bool]:
    for key, value in where.metadata.items():
        yield _equal(METADATA + key, value if isinstance(value, list) else [value])
    if where.time_gte is not None or where.time_lt is not None:
        yield Within(TIME, gte=where.time_gte, lt=where.time_lt)


def _as_it_is(value: Scalar) -> Scalar:
    return value


def _equal(field: str, wanted: Sequence[Scalar | None]) -> Node | bool:
    values = tuple(value for value in wanted if value is not None)
    parts: list[Node | bool] = [OneOf(field, values)] if values else []
    return _any_of([*parts, Not(Exists(field))] if None in wanted else parts)


def _all_of(parts: Sequence[Node | bool]) -> Node | bool:
    if any(part is False for part in parts):
        return False
    left = tuple(part for part in parts if not isinstance(part, bool))
    return AllOf(left) if len(left) > 1 else left[0] if left else True


def _any_of(parts: Sequence[Node | bool]) -> Node | bool:
    if any(part is True for part in parts):
        return True
    left = tuple(part for part in parts if not isinstance(part, bool))
    return AnyOf(left) if len(left) > 1 else left[0] if left else False


def _not(part: Node | bool) -> Node | bool:
    if isinstance(part, bool):
        return not part
    return part.part if isinstance(part, Not) else Not(part)
