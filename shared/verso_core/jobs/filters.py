"""Filters: which documents a search, list, count, facet or delete is about.

A filter is a tree of JSON objects, each of one of these forms:

    {"and": [F, ...]}   {"or": [F, ...]}   {"not": F}
    {"field": "host", "eq": "a"}

Operators of a leaf are ``eq ne in gt gte lt lte exists prefix``. A leaf with several of them is the
``and`` of one leaf for each. ``{}`` holds for every document.

**Fields.** ``time`` and ``id`` are the document's own; every other name is a metadata key, nested
keys joined by dots. ``metadata.KEY`` is always the metadata key, also of one named ``time``.

**Values of a field** (:func:`values_of`): a scalar is one value, a list is its elements, null is
none. A missing field, null, an object and an empty list have no value.

**Operators**, for a field with the values V:

1. ``eq x`` holds if some v in V equals x; ``in`` if one of its values is equal to some v. Types do
   not mix: 1 is not "1", true is not 1. Numbers are equal by value, so 1 is 1.0; but an integer of
   2**53 or beyond, which float64 may not hold, equals nothing but the same integer.
2. ``ne x`` is the negation of ``eq x``: it holds for a document without the field.
3. ``gt gte lt lte`` hold if some number in V is on that side of the bound. Strings and booleans are
   on no side, nor are integers of 2**53 or beyond. A bound is taken as float64.
4. ``prefix`` holds if some string in V begins with it: code point by code point, with its case.
5. ``exists`` true holds if V is not empty. Null in ``eq``, ``ne`` and ``in`` stands for no value:
   ``eq null`` is ``exists false``.

``time`` has numbers only (Unix seconds; a filter may say RFC 3339 instead), ``id`` strings only.

A metadata key may itself have dots: "a.b" is the key "a.b" as well as b within a.

:func:`compiled` reduces a filter to four tests under ``and``, ``or`` and ``not``. Vector stores
translate those, and :func:`matches` is the reference that they are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from pydantic import ConfigDict, Field, model_serializer, model_validator

from verso_core.jobs.models import StrictModel
from verso_core.texts import MAX_METADATA_BYTES, Scalar, values_of

MAX_DEPTH = 8
"""Deepest nesting of a request's filter."""
MAX_LEAVES = 32
"""Most leaves of a request's filter."""
MAX_VALUES = 256
"""Most values in the lists of a request's filter, in all its leaves."""
MAX_FRACTIONS = 8
"""Most numbers with a fraction in its lists: stores compare each by itself, others at once."""

TIME, ID, METADATA = "time", "id", "metadata."
EXACT_BELOW = 1 << 53
"""Integers below it are float64 numbers too; see the rule of ``eq``."""

OPERATORS = ("eq", "ne", "in", "gt", "gte", "lt", "lte", "exists", "prefix")
_BOUNDS = ("gt", "gte", "lt", "lte")
_BRANCHES = ("and", "or", "not")
_OLD = ("metadata", "time_gte", "time_lt")
_BY_NAME = {"in_": "in", "and_": "and", "or_": "or", "not_": "not"}

Bound = float | str


_SCALAR_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_VALUE_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_FIELD_SCHEMA: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "description": "a metadata key, nested ones joined by dots; or time, or id",
    "examples": ["host"],
}
_OPERATOR_SCHEMAS: dict[str, dict[str, Any]] = {
    "eq": _VALUE_SCHEMA,
    "ne": _VALUE_SCHEMA,
    "in": {"type": "array", "maxItems": MAX_VALUES, "items": _VALUE_SCHEMA},
    **{name: {"type": "number"} for name in _BOUNDS},
    "exists": {"type": "boolean"},
    "prefix": {"type": "string", "minLength": 1, "maxLength": MAX_METADATA_BYTES},
}
MOMENT_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]}
"""Of a time that a request names: Unix seconds, or RFC 3339 with an offset."""
_OLD_SCHEMAS: dict[str, dict[str, Any]] = {
    "metadata": {
        "type": "object",
        "additionalProperties": {
            "anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA}]
        },
    },
    "time_gte": {"type": ["number", "null"], "description": "Unix seconds, inclusive"},
    "time_lt": {"type": ["number", "null"], "description": "Unix seconds, exclusive"},
}


def _form(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _equality(value: dict[str, Any]) -> dict[str, Any]:
    """Return the operators of values that are of one type."""
    one = {"anyOf": [value, {"type": "null"}]}
    some = {"type": "array", "maxItems": MAX_VALUES, "items": one}
    return {"eq": one, "ne": one, "in": some, "exists": {"type": "boolean"}}


def _schema(schema: dict[str, Any]) -> None:
    """Describe each form by itself; the model's own schema would allow any mixture."""
    inner = next(one for one in schema["properties"]["not"]["anyOf"] if "$ref" in one)
    several = {"type": "array", "maxItems": MAX_LEAVES, "items": inner}
    other = {"not": {"enum": [TIME, ID]}}
    leaf = _form(field=_FIELD_SCHEMA | other, **_OPERATOR_SCHEMAS)
    times = _form(
        field={"const": TIME},
        **dict.fromkeys(_BOUNDS, MOMENT_SCHEMA),
        **_equality(MOMENT_SCHEMA),
    )
    ids = _form(
        field={"const": ID}, **_equality({"type": "string"}), prefix=_OPERATOR_SCHEMAS["prefix"]
    )
    schema.clear()
    schema |= {
        "title": "Filter",
        "description": "A tree. Several operators of a leaf must all hold. The last form is that "
        "of earlier versions.",
        "anyOf": [
            *(_form(**{name: several}) | {"required": [name]} for name in ("and", "or")),
            _form(**{"not": inner}) | {"required": ["not"]},
            leaf | {"required": ["field"], "minProperties": 2},
            times | {"required": ["field"], "minProperties": 2},
            ids | {"required": ["field"], "minProperties": 2},
            _form(**_OLD_SCHEMAS),
        ],
    }


class Filter(StrictModel):
    """Which documents are meant; the module says what holds when.

    In Python ``a & b``, ``a | b`` and ``~a`` join filters: ``Filter(field="host", eq="a") &
    ~Filter(field="level", prefix="debug")``.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, json_schema_extra=_schema
    )

    and_: list[Filter] | None = Field(default=None, alias="and", max_length=MAX_LEAVES)
    or_: list[Filter] | None = Field(default=None, alias="or", max_length=MAX_LEAVES)
    not_: Filter | None = Field(default=None, alias="not")
    field: str | None = Field(default=None, min_length=1, max_length=512)
    eq: Scalar | None = None
    ne: Scalar | None = None
    in_: list[Scalar | None] | None = Field(default=None, alias="in", max_length=MAX_VALUES)
    gt: Bound | None = None
    gte: Bound | None = None
    lt: Bound | None = None
    lte: Bound | None = None
    exists: bool | None = None
    prefix: str | None = Field(default=None, min_length=1, max_length=MAX_METADATA_BYTES)
    metadata: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    time_gte: float | None = None
    time_lt: float | None = None

    @classmethod
    def one_of(cls, field: str, values: Sequence[Scalar | None]) -> Filter:
        """Return the leaf that says ``in``, which is no name in Python."""
        return cls.model_validate({"field": field, "in": list(values)})

    def __and__(self, other: Filter) -> Filter:
        return Filter.model_validate({"and": [self, other]})

    def __or__(self, other: Filter) -> Filter:
        return Filter.model_validate({"or": [self, other]})

    def __invert__(self) -> Filter:
        return Filter.model_validate({"not": self})

    @property
    def given(self) -> dict[str, Any]:
        """Return what was given, by the names that JSON uses."""
        return {
            _BY_NAME.get(name, name): getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set
        }

    @model_serializer(mode="plain")
    def _as_given(self) -> dict[str, Any]:
        # In full, null would be written for what was not given, and null means something.
        return {name: _as_json(value) for name, value in self.given.items()}

    @model_validator(mode="after")
    def _one_form(self) -> Filter:
        given = self.given
        branches = [name for name in _BRANCHES if name in given]
        if branches and len(given) > 1:
            raise ValueError(f"expected {branches[0]} alone, got {', '.join(given)}")
        if branches and given[branches[0]] is None:
            raise ValueError(f"expected a filter in {branches[0]}, got null")
        if self.field is not None:
            _check_leaf(self.field, given)
        elif mixed := [name for name in given if name in OPERATORS or name == "field"]:
            raise ValueError(f"expected a field beside {mixed[0]}")
        return self


def _as_json(value: Any) -> Any:
    if isinstance(value, Filter):
        return value.model_dump()
    return [_as_json(one) for one in value] if isinstance(value, list) else value


def _check_leaf(field: str, given: Mapping[str, Any]) -> None:
    """Check the operators of a leaf.

    Raises:
        ValueError: there is none, or one that the field or the form does not have.
    """
    asked = {name: value for name, value in given.items() if name != "field"}
    if foreign := [name for name in asked if name not in OPERATORS]:
        raise ValueError(f"expected only operators beside field, got {foreign[0]}")
    if not asked:
        raise ValueError(f"expected one of {', '.join(OPERATORS)} beside field")
    for name, value in asked.items():
        if value is None and name not in ("eq", "ne"):
            raise ValueError(f"expected a value of {name}, got null")
        values = value if name == "in" else [value]
        if field == ID and (name in _BOUNDS or not all(isinstance(v, str | None) for v in values)):
            if name != "exists":
                raise ValueError(f"expected a string with eq, ne, in or prefix of id, got {name}")
        elif field == TIME and name != "exists":
            if name == "prefix":
                raise ValueError("expected no prefix of time: it is a number")
            for one in values:
                _ = None if one is None else seconds(one)
        elif name in _BOUNDS and isinstance(value, str):
            raise ValueError(f"expected a number with {name}")


def seconds(value: object) -> float:
    """Return a time in a request as Unix seconds.

    Raises:
        ValueError: it is neither a number nor RFC 3339 with an offset.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise ValueError("expected Unix seconds, or RFC 3339 with an offset, as a time")
    return parsed.timestamp()


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


def oversize(where: object) -> tuple[str, str] | None:
    """Return where and how a filter passes the bounds of a request; None for one within them.

    For a filter that is not validated yet: its cost is limited by the bounds too.

    Returns:
        A JSON pointer to the part (RFC 6901), and what was expected.
    """
    leaves = values = fractions = 0
    waiting: list[tuple[str, int, object]] = [("", 1, where)]
    while waiting:
        place, depth, one = waiting.pop()
        if not isinstance(one, dict):
            continue  # the model says what is wrong
        if depth > MAX_DEPTH:
            return place, f"expected a filter of depth <= {MAX_DEPTH}"
        branches = [name for name in _BRANCHES if name in one]
        old = one.get("metadata")
        keys = len(old) if isinstance(old, dict) else 0
        leaves += 0 if branches else max(1, keys)
        if leaves > MAX_LEAVES:
            where_keys = "/metadata" if keys > 1 else ""
            return place + where_keys, f"expected <= {MAX_LEAVES} leaves in a filter"
        for key, compared in _lists(one):
            values += len(compared)
            if values > MAX_VALUES:
                return place + key, f"expected <= {MAX_VALUES} values in a filter"
            if one.get("field") != TIME:  # it always has an index
                fractions += sum(type(v) is float and not v.is_integer() for v in compared)
            if fractions > MAX_FRACTIONS:
                return place + key, f"expected <= {MAX_FRACTIONS} fractions in lists in a filter"
        for name in branches:
            parts = one[name] if isinstance(one[name], list) else [one[name]]
            if len(parts) > MAX_LEAVES:
                return f"{place}/{name}", f"expected <= {MAX_LEAVES} leaves in a filter"
            waiting += [
                (f"{place}/{name}/{n}" if name != "not" else f"{place}/not", depth + 1, part)
                for n, part in enumerate(parts)
            ]
    return None


def _lists(one: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists that a leaf compares with, each with a JSON pointer."""
    if isinstance(one.get("in"), list):
        yield "/in", one["in"]
    old = one.get("metadata")
    for key, value in old.items() if isinstance(old, dict) else ():
        if isinstance(value, list):
            yield "/metadata/" + key.replace("~", "~0").replace("/", "~1"), value


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
