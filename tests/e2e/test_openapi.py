"""Every native operation against its description, as schemathesis derives requests from it.

The OpenAI-compatible routes are left out: their description is OpenAI's, which the real client
checks (tests/integration/verso_gateway/test_openai.py). So is the event stream, which has no end
while its job has none; its test is in tests/integration/verso_gateway/test_jobs.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)
from tests.e2e.conftest import Platform, publish_heads

from verso_gateway.app import create_app
from verso_gateway.settings import Settings

pytestmark = pytest.mark.timeout(300)  # the platform starts within the first test

NDJSON, CSV = "application/x-ndjson", "text/csv"


def _lines(context: schemathesis.SerializationContext, value: object) -> bytes:
    """Send lines as they are: schemathesis has no form for them."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


schemathesis.serializer(NDJSON)(_lines)
schemathesis.serializer(CSV)(_lines)

schema = (
    schemathesis.openapi.from_dict(create_app(Settings()).openapi())
    .exclude(path_regex=r"^/v1/(embeddings|models)")
    .exclude(operation_id="followJob")
)


def _operations() -> dict[str, APIOperation[Any, Any, Any, Any]]:
    """Return the described operations by name."""
    found = {}
    for one in schema.get_all_operations():
        assert isinstance(one, Ok), one
        operation = one.ok()
        found[operation.label] = operation
    return found


OPERATIONS = _operations()


@pytest.fixture(scope="module")
def url(new_platform: Callable[..., Platform]) -> str:
    """Address of a platform of the test's own, as requests delete, migrate and promote."""
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    publish_heads(platform)
    return platform.url


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_what_its_description_says(name: str, url: str) -> None:
    # ``schema.parametrize`` would derive thousands of requests in every tester that collects this.
    test = build_operation_test(
        config=schema.config,
        operation=OPERATIONS[name],
        test_func=_holds,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
    )
    test(url=url)


@settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def _holds(case: schemathesis.Case[Any], url: str) -> None:
    """Send a request and compare the answer with the description."""
    response = case.call(base_url=url, headers={"Prefer": "wait=5"})  # most answer 200, not 202
    case.validate_response(response, excluded_checks=_off(case, response))


def _off(case: schemathesis.Case[Any], response: schemathesis.Response) -> list[Any]:
    """Return the checks that cannot hold for a response, each with its reason."""
    off: list[Any] = [
        ignored_auth,  # on loopback the platform needs no key; test_operation.py is about keys
    ]
    problem = {}
    if response.headers.get("content-type") == ["application/problem+json"]:
        problem = json.loads(response.content)
    if response.status_code == 422 and (
        "pointer" not in problem  # refused for what is stored, which no schema can say
        or "as many as of text_2" in problem["detail"]  # nor equal lengths
        or "in a filter" in problem["detail"]  # nor the sum of a tree's parts
        or "pass every document" in problem["detail"]  # nor what a tree amounts to
    ):
        off.append(positive_data_acceptance)
    if case.media_type in (NDJSON, CSV):  # the schema of a text says nothing of its lines
        off += [positive_data_acceptance, negative_data_rejection]
    if problem.get("code") == "trainer_unavailable":
        off.append(not_a_server_error)  # none runs here
    return off
