"""The OpenAPI document keeps the rules of docs/reference/conventions.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.api_document import DOCUMENT

from verso_gateway import openapi

SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
FOREIGN = ("/v1/embeddings", "/v1/models", "/v1/rerank", "/v2/", "/tei")
"""Routes of other protocols, which follow theirs."""
OPERATIONS = {
    operation["operationId"]: operation
    for path, _, operation in openapi.operations(DOCUMENT)
    if not path.startswith(FOREIGN)
}
MOMENTS = {"created", "started", "finished", "ended", "died", "expires", "deadline"}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference stands for."""
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return schema


def properties(schema: dict[str, Any], seen: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield all properties of a schema and of those within it, as name and schema."""
    if (name := schema.get("$ref")) is not None:
        if name in seen:
            return
        seen |= {name}
    whole = resolved(schema)
    for key, one in whole.get("properties", {}).items():
        yield key, one
        yield from properties(one, seen)
    inner = [*whole.get("anyOf", ()), *whole.get("oneOf", ()), *whole.get("prefixItems", ())]
    inner += [whole[key] for key in ("items", "additionalProperties") if key in whole]
    for one in inner:
        if isinstance(one, dict):
            yield from properties(one, seen)


def answers(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of an operation's successful answers in JSON."""
    found = [one for status, one in operation["responses"].items() if status[0] == "2"]
    contents = [one.get("content", {}).get("application/json", {}) for one in found]
    return [content["schema"] for content in contents if "schema" in content]


def in_and_out(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of an operation's body and answers."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return [*answers(operation), *([body["schema"]] if "schema" in body else [])]


def types(schema: dict[str, Any]) -> set[str]:
    """Return the types that a property may have, by format where it has one."""
    whole = resolved(schema)
    several = [*whole.get("anyOf", ()), *whole.get("oneOf", ())]
    if several:
        return set().union(*map(types, several))
    found = whole.get("format", whole.get("type"))
    return set(found) if isinstance(found, list) else {str(found)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_keys_are_snake_case_and_objects_of_others_are_named(name: str) -> None:
    for schema in in_and_out(OPERATIONS[name]):
        for key, _ in properties(schema):
            assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", key), key
            assert key not in ("job", "webhook", "collection_name", "document_id", "doc_id")


@pytest.mark.parametrize("name", OPERATIONS)
def test_times_of_the_platform_are_rfc_3339_and_those_of_documents_numbers(name: str) -> None:
    for schema in answers(OPERATIONS[name]):
        for key, one in properties(schema):
            if key in MOMENTS:
                assert types(one) <= {"date-time", "null"}, key
            if key in ("first_seen", "last_seen"):
                assert types(one) <= {"number", "null"}, key
            if key.endswith(("_s", "_ms")) and "object" not in types(one):
                assert types(one) <= {"number", "integer", "null"}, key


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_answer_is_a_bare_list_and_lists_are_named_in_the_plural(name: str) -> None:
    for schema in answers(OPERATIONS[name]):
        whole = resolved(schema)
        assert whole.get("type") != "array"
        if name.startswith("list"):
            lists = [key for key, one in whole["properties"].items() if "array" in types(one)]
            assert lists
            assert all(key.endswith("s") for key in lists)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_list_in_pages_takes_a_cursor_and_answers_the_next_one(name: str) -> None:
    operation = OPERATIONS[name]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    taken = {one["name"] for one in operation.get("parameters", ())}
    taken |= set(resolved(body.get("schema", {})).get("properties", {}))
    if "cursor" not in taken:
        return
    assert "limit" in taken
    pages = [resolved(schema)["properties"] for schema in answers(operation)]
    page = next(one for one in pages if "next_cursor" in one)
    assert types(page["next_cursor"]) == {"string", "null"}


def test_an_error_is_the_same_everywhere() -> None:
    errors = [
        (name, schema["properties"])
        for name, schema in SCHEMAS.items()
        if {"code", "detail"} <= schema.get("properties", {}).keys()
    ]
    assert errors
    for name, found in errors:
        assert "retryable" in found, name
