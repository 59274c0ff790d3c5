"""The JSON schema of filters, as the API's document shows it."""

from __future__ import annotations

from typing import Any

from verso_core.jobs.filters.bounds import MAX_LEAVES, MAX_VALUES
from verso_core.jobs.filters.nodes import ID, TIME
from verso_core.jobs.filters.times import MOMENT_SCHEMA
from verso_core.texts import MAX_METADATA_BYTES

BOUNDS = ("gt", "gte", "lt", "lte")
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
    **{name: {"type": "number"} for name in BOUNDS},
    "exists": {"type": "boolean"},
    "prefix": {"type": "string", "minLength": 1, "maxLength": MAX_METADATA_BYTES},
}
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


def describe(schema: dict[str, Any]) -> None:
    """Describe each form by itself; the model's own schema would allow any mixture."""
    inner = next(one for one in schema["properties"]["not"]["anyOf"] if "$ref" in one)
    several = {"type": "array", "maxItems": MAX_LEAVES, "items": inner}
    other = {"not": {"enum": [TIME, ID]}}
    leaf = _form(field=_FIELD_SCHEMA | other, **_OPERATOR_SCHEMAS)
    times = _form(
        field={"const": TIME},
        **dict.fromkeys(BOUNDS, MOMENT_SCHEMA),
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


def _form(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _equality(value: dict[str, Any]) -> dict[str, Any]:
    """Return the operators of values that are of one type."""
    one = {"anyOf": [value, {"type": "null"}]}
    some = {"type": "array", "maxItems": MAX_VALUES, "items": one}
    return {"eq": one, "ne": one, "in": some, "exists": {"type": "boolean"}}
