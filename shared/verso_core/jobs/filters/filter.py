"""The filter of a request: a tree of JSON objects, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, Field, model_serializer, model_validator

from verso_core.jobs.filters.bounds import BRANCHES, MAX_LEAVES, MAX_VALUES
from verso_core.jobs.filters.nodes import ID, TIME
from verso_core.jobs.filters.schema import BOUNDS, describe
from verso_core.jobs.filters.times import seconds
from verso_core.jobs.models import StrictModel
from verso_core.texts import MAX_METADATA_BYTES, Scalar

OPERATORS = ("eq", "ne", "in", "gt", "gte", "lt", "lte", "exists", "prefix")
_BY_NAME = {"in_": "in", "and_": "and", "or_": "or", "not_": "not"}

Bound = float | str


class Filter(StrictModel):
    """Which documents are meant; the package says what holds when.

    In Python ``a & b``, ``a | b`` and ``~a`` join filters: ``Filter(field="host", eq="a") &
    ~Filter(field="level", prefix="debug")``.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, json_schema_extra=describe
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
        branches = [name for name in BRANCHES if name in given]
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
        if field == ID and (name in BOUNDS or not all(isinstance(v, str | None) for v in values)):
            if name != "exists":
                raise ValueError(f"expected a string with eq, ne, in or prefix of id, got {name}")
        elif field == TIME and name != "exists":
            if name == "prefix":
                raise ValueError("expected no prefix of time: it is a number")
            for one in values:
                _ = None if one is None else seconds(one)
        elif name in BOUNDS and isinstance(value, str):
            raise ValueError(f"expected a number with {name}")
