"""Facts about errors as HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from verso_core import errors
from verso_gateway import problems


def _scope(path: str = "/v1/search", **state: Any) -> dict[str, Any]:
    return {"type": "http", "path": path, "state": state}


def test_every_error_code_has_a_status_and_an_explanation() -> None:
    assert set(problems.STATUSES) == set(errors.CLASSES)
    for code, status in problems.STATUSES.items():
        assert 400 <= status < 600
        assert "Raised when" in (problems.explanation(code) or "")


def test_retryable_errors_are_those_that_say_try_again() -> None:
    again = {code for code, status in problems.STATUSES.items() if status in (429, 503)}
    assert again == {code for code, cls in errors.CLASSES.items() if cls.retryable}


def test_a_problem_says_what_rfc_9457_asks() -> None:
    response = problems.answer(
        _scope(request_id="r1", pointer="/limit"), errors.RequestInvalid("expected 1")
    )
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert json.loads(bytes(response.body)) == {
        "type": "/docs/errors/request_invalid",
        "title": "request invalid",
        "status": 422,
        "detail": "expected 1",
        "instance": "/v1/search",
        "code": "request_invalid",
        "retryable": False,
        "request_id": "r1",
        "pointer": "/limit",
    }


def test_a_full_queue_says_when_to_come_back() -> None:
    response = problems.answer(_scope(), errors.QueueFull("full", retry_after_s=2.5))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "3"
    assert response.headers["retry-after-ms"] == "2500"


def test_a_final_error_tells_the_openai_client_not_to_retry() -> None:
    response = problems.answer(_scope(), errors.CollectionExists("exists"))
    assert response.headers["x-should-retry"] == "false"


def test_openai_routes_get_openai_errors() -> None:
    response = problems.answer(
        _scope("/v1/embeddings", pointer="/input"), errors.RequestInvalid("expected a string")
    )
    assert response.status_code == 400
    assert json.loads(bytes(response.body)) == {
        "error": {
            "message": "expected a string",
            "type": "invalid_request_error",
            "param": "input",
            "code": "request_invalid",
        }
    }


def test_a_foreign_exception_shows_its_class_and_no_message() -> None:
    body = json.loads(bytes(problems.answer(_scope(), KeyError("a secret text")).body))
    assert body["code"] == "internal"
    assert "secret" not in json.dumps(body)


def test_an_invalid_field_is_pointed_at_and_never_quoted() -> None:
    class Model(BaseModel):
        a: list[int]

    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"a": [1, "secret"]})
    error, pointer = problems.from_validation(caught.value)
    assert pointer == "/a/1"
    assert "secret" not in error.detail


def test_a_pointer_that_names_a_lone_surrogate_survives_json() -> None:
    response = problems.answer(_scope(pointer="/\ud800"), errors.TextNotEncodable("no bytes"))
    assert json.loads(bytes(response.body))["pointer"] == "/\ud800"
