"""The errors of protocols: every code has an answer that fits its description and may be repeated
where the platform says so."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from tests.support.api_document import DOCUMENT

from verso_core.errors import CLASSES, error_body
from verso_gateway import openapi, problems
from verso_gateway.protocols import Protocol, cohere, openai, protocol_of, tei
from verso_gateway.settings import Aliases, Settings

MODULES = {Protocol.OPENAI: openai, Protocol.COHERE: cohere, Protocol.TEI: tei}
PATHS = {
    Protocol.OPENAI: "/v1/embeddings",
    Protocol.COHERE: "/v2/embed",
    Protocol.TEI: "/tei/embed",
}
DESCRIBED = {
    path: operation["responses"]
    for path, method, operation in openapi.operations(DOCUMENT)
    if method == "post"
}
NUMBERS = st.floats(-1, 1, width=32)


@pytest.mark.parametrize("protocol", MODULES)
@pytest.mark.parametrize("code", CLASSES)
def test_an_error_has_the_shape_and_the_status_that_are_described(
    protocol: Protocol, code: str
) -> None:
    module, path = MODULES[protocol], PATHS[protocol]
    error = CLASSES[code]("expected this, got that")
    answer = problems.answer({"type": "http", "path": path, "state": {}}, error)
    content = json.loads(bytes(answer.body))
    Draft202012Validator(module.ERROR_SCHEMA).validate(content)
    assert answer.status_code == module.status_of(code, problems.STATUSES[code])
    assert "expected this" in json.dumps(content)
    assert answer.media_type == "application/json"
    described = DESCRIBED[path].get(str(answer.status_code))
    if described is not None:
        schema = described["content"]["application/json"]["schema"]
        Draft202012Validator(schema).validate(content)


@pytest.mark.parametrize("protocol", MODULES)
def test_what_may_be_tried_again_says_so_and_nothing_else_does(protocol: Protocol) -> None:
    for code, cls in CLASSES.items():
        scope = {"type": "http", "path": PATHS[protocol], "state": {}}
        answer = problems.answer(scope, cls("why"))
        assert ("retry-after" in answer.headers) == cls.retryable, code
        assert (answer.status_code in (429, 503)) == cls.retryable, code
        assert error_body(cls("why"))["retryable"] == cls.retryable


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        ("/v1/embeddings", Protocol.OPENAI),
        ("/v1/models/minilm", Protocol.OPENAI),
        ("/v2/embed", Protocol.COHERE),
        ("/cohere/v1/embed", Protocol.COHERE),
        ("/tei", Protocol.TEI),
        ("/tei/embed", Protocol.TEI),
        ("/v1/embed", None),
        ("/v1/rerank", None),
        ("/v1/modelsx", None),
        ("/teiresias", None),
        ("/v20/embed", None),
    ],
)
def test_a_path_is_enough_to_know_the_protocol(path: str, protocol: Protocol | None) -> None:
    assert protocol_of(path) is protocol


@given(st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=5))
def test_every_type_of_cohere_is_of_the_same_vectors(rows: list[list[float]]) -> None:
    packed = [struct.pack("<4f", *row) for row in rows]
    made = cohere.embeddings_of(packed, ["float", "base64", "int8"], int8_scale=127.0)
    assert made["float"] == rows
    assert [list(struct.unpack("<4f", base64.b64decode(one))) for one in made["base64"]] == rows
    for codes, row in zip(made["int8"], rows, strict=True):
        assert all(
            abs(code / 127 - value) <= 0.5 / 127 + 1e-6
            for code, value in zip(codes, row, strict=True)
        )
        assert all(-127 <= code <= 127 for code in codes)


def test_aliases_stand_for_the_model_or_for_a_head() -> None:
    found = Aliases.parse("text-embedding-3-small, BAAI/bge-m3 ,best=alike")
    assert found.targets == {
        "text-embedding-3-small": "verso",
        "BAAI/bge-m3": "verso",
        "best": "alike",
    }
    assert Aliases.parse("").targets == {}


@pytest.mark.parametrize("given", ["=pairs", "a=", "a=Not A Head", "verso", "verso=pairs"])
def test_an_alias_that_says_nothing_sensible_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(ValidationError, match="name=head"):
        Settings(model_aliases=given)
