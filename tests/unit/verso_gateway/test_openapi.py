"""The OpenAPI document is complete: every operation, every status, with examples that fit."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.support.api_document import DOCUMENT

from verso_gateway import openapi, problems
from verso_gateway.protocols import protocol_of

OPERATIONS = {
    operation["operationId"]: (path, method, operation)
    for path, method, operation in openapi.operations(DOCUMENT)
}
FOREIGN = {name for name, (path, *_) in OPERATIONS.items() if protocol_of(path) is not None}
"""Operations of protocols that have their own shape of errors."""


def check(value: object, schema: dict[str, Any]) -> None:
    """Check a value against a schema that may refer to the document's components."""
    Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


def names(operation: dict[str, Any]) -> set[str]:
    return {parameter["name"] for parameter in operation.get("parameters", ())}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_a_typed_success_with_an_example_that_fits(name: str) -> None:
    _, _, operation = OPERATIONS[name]
    success = [one for status, one in operation["responses"].items() if status[0] == "2"]
    assert operation["summary"]
    assert operation["description"]
    assert success
    assert "X-Request-Id" in success[0]["headers"]
    if "204" in operation["responses"] or name == "teiHealth":  # answers by its status alone
        return
    content = next(iter(success[0]["content"].values()))
    assert content.get("schema") or content.get("itemSchema")
    assert "example" in content
    if "schema" in content:
        check(content["example"], content["schema"])


@pytest.mark.parametrize("name", [one for one in OPERATIONS if "requestBody" in OPERATIONS[one][2]])
def test_a_body_is_typed_and_has_an_example_that_fits(name: str) -> None:
    body = OPERATIONS[name][2]["requestBody"]["content"]["application/json"]
    check(body["example"], body["schema"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_its_problems(name: str) -> None:
    path, _, operation = OPERATIONS[name]
    found = operation["responses"]
    problem = {status: one for status, one in found.items() if status[0] in "45"}
    media_type = "application/json" if name in FOREIGN else "application/problem+json"
    assert all(list(one["content"]) == [media_type] for one in problem.values())
    assert all(int(status) in {*problems.STATUSES.values(), 400, 424} for status in problem)
    assert "default" not in found
    if re.match("/v[12]/", path):
        assert operation["security"]
        assert {"401", "500", "503", "400" if name in FOREIGN else "422"} <= problem.keys()
        assert "WWW-Authenticate" in problem["401"]["headers"]
        assert "Retry-After" in problem["503"]["headers"]
        assert "requestBody" not in operation or {"413", "429"} <= problem.keys()
        assert "{" not in path or "404" in problem
    if path.startswith("/tei/") and name != "teiHealth":
        assert {"401", "422", "424", "503"} <= problem.keys()
        assert name == "teiInfo" or {"413", "429"} <= problem.keys()


def test_an_operation_that_makes_a_job_says_how_it_is_awaited_and_found() -> None:
    jobs = {name for name, (_, _, one) in OPERATIONS.items() if "Prefer" in names(one)}
    assert {"ingest", "embed", "search", "train", "getDocument", "deleteCollection"} <= jobs
    for name in jobs:
        operation = OPERATIONS[name][2]
        assert {"Priority", "Verso-Deadline", "Verso-Webhook"} <= names(operation)
        if not OPERATIONS[name][0].startswith("/tei"):  # which has 424 for most of them
            assert {"404", "409", "410", "429", "504"} <= operation["responses"].keys()
        accepted = operation["responses"].get("202")
        if accepted is not None:
            assert accepted["headers"]["Location"]["required"]
            assert accepted["headers"]["Retry-After"]["required"]
            assert {"Verso-Job-Id", "RateLimit", "RateLimit-Policy"} <= accepted["headers"].keys()
    repeatable = {
        name for name, (_, _, one) in OPERATIONS.items() if "Idempotency-Key" in names(one)
    }
    read = {"ingest", "embed", "search", "createCollection", "promote", "train"}
    changes = {"updateDocument", "deleteDocument", "changeCollection", "deleteCollection"}
    others = {"moveCollection", "endMove", "changeLedger"}  # which no worker does
    assert read | changes | {"fitCollection", "migrate", "endMigration"} <= repeatable
    assert repeatable - jobs == others


def test_every_example_is_of_an_operation() -> None:
    from importlib.resources import files
    from json import loads

    examples = loads(files("verso_gateway").joinpath("examples.json").read_bytes())
    assert examples.keys() <= OPERATIONS.keys()
