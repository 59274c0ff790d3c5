"""The requests that schemathesis derives from the description of the API, and what must hold.

Apart from their test: schemathesis takes seconds to import, and every tester imports every test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)

from verso_gateway.extract.formats import MEDIA_TYPES
from verso_gateway.protocols import protocol_of

NDJSON, CSV = "application/x-ndjson", "text/csv"


def _lines(context: schemathesis.SerializationContext, value: object) -> bytes:
    """Send lines as they are: schemathesis has no form for them."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


schemathesis.serializer(NDJSON)(_lines)
schemathesis.serializer(CSV)(_lines)


class Operations:
    """The operations of a description, by name."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._schema: BaseSchema = schemathesis.openapi.from_dict(description)
        self._found: dict[str, APIOperation[Any, Any, Any, Any]] = {}
        for one in self._schema.get_all_operations():
            assert isinstance(one, Ok), one
            operation = one.ok()
            self._found[operation.label] = operation

    def test(self, name: str) -> Callable[..., None]:
        """Derive the test of an operation, as ``schema.parametrize`` does when it collects."""
        pool = make_constants_value_source(self._schema)
        test: Callable[..., None] = build_operation_test(
            config=self._schema.config,
            operation=self._found[name],
            test_func=_holds,
            given_kwargs={},
            feedback=FeedbackSources(constants_value_source=pool),
        )
        return test


class _Repeats:
    """Knows requests of which both halves were sent before: the filter, and all that is beside it.

    A filter is one schema in every operation that has one, and has over a thousand forms, which
    the coverage phase sends with each form of the rest. Of the repeats every sixteenth is sent.
    """

    def __init__(self) -> None:
        self._filters: set[str] = set()
        self._others: set[str] = set()
        self._found = 0

    def __contains__(self, case: schemathesis.Case[Any]) -> bool:
        if case.meta is None or not isinstance(case.meta.phase.data, CoveragePhaseData):
            return False
        if not isinstance(case.body, dict) or "filter" not in case.body:
            return False
        body = {**case.body}
        form = _form(case.meta.phase.data, body.pop("filter"))
        rest = [case.operation.label, case.path_parameters, case.query, {**case.headers}]
        other = json.dumps([*rest, case.media_type, body], sort_keys=True, default=str)
        repeated = form in self._filters and other in self._others
        self._filters.add(form)
        self._others.add(other)
        self._found += repeated
        return repeated and self._found % 16 != 0


def _form(covered: CoveragePhaseData, asked: object) -> str:
    """Return what is covered of a filter; the filter itself where the rest is covered.

    Operations have other examples, so that equal forms are of other values.
    """
    _, within, place = (covered.location or "").partition("/properties/filter")
    _, valid, form = covered.description.partition("'filter'")
    if within or valid:
        return f"{covered.scenario} {place} {form or covered.description}"
    return json.dumps(asked, sort_keys=True)


def _session() -> requests.Session:
    """Return a session that keeps its connection, but no cookie, and looks for no proxy."""
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


_LONG_HEAD = 24_000
"""Bytes; an address that is shorter is never refused for its length."""
_repeats = _Repeats()
_kept = _session()


@settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def _holds(case: schemathesis.Case[Any], url: str) -> None:
    """Send a request and compare the answer with the description."""
    if case in _repeats:
        return
    wait = {"Prefer": "wait=5"}  # most answer 200, not 202
    response = case.call(base_url=url, headers=wait, session=_kept)
    if response.status_code == 431:  # the head of a request is bounded below all operations
        assert len(str(response.request.url)) > _LONG_HEAD
        return
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
        or "as many labels as" in problem["detail"]
        or "in a filter" in problem["detail"]  # nor the sum of a tree's parts
        or "a filter of depth" in problem["detail"]  # nor how deep it is
        or "pass every document" in problem["detail"]  # nor what a tree amounts to
    ):
        off.append(positive_data_acceptance)
    if protocol_of(case.operation.path) is not None and 400 <= response.status_code < 500:
        off.append(positive_data_acceptance)  # their errors have no pointer that tells them apart
        if response.status_code == 413:  # which is none of those that the check expects
            off.append(negative_data_rejection)
    if case.media_type in {NDJSON, CSV, *MEDIA_TYPES}:  # its schema says nothing of what is within
        off += [positive_data_acceptance, negative_data_rejection]
    if problem.get("code") == "trainer_unavailable":
        off.append(not_a_server_error)  # none runs here
    return off
