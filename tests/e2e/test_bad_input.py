"""Bad input gets a clear error with a stable code, and its neighbours get their result."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from verso_client import Client, Document
from verso_core.errors import (
    CollectionUnknown,
    DocumentUnknown,
    IdInvalid,
    JobUnknown,
    VectorInvalid,
)

MIB = 1 << 20


def ingest(http: httpx2.Client, collection: str, *documents: Any) -> list[dict[str, Any]]:
    answer = http.post(
        "/v1/ingest",
        content=json.dumps({"collection": collection, "documents": documents}),
        headers={"Content-Type": "application/json", "Prefer": "wait=60"},
    )
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"id": "b", "text": "lone \ud800 surrogate"}, "text_not_encodable"),
        ({"id": "b", "text": "x" * (4 * MIB + 1)}, "text_too_large"),
        ({"id": "a", "text": "the id of the first one again"}, "duplicate_id"),
        ({"id": "doc#3", "text": "an id like a record's"}, "id_invalid"),
        ({"id": "tab\there", "text": "x"}, "id_invalid"),
        ({"id": "i" * 257, "text": "x"}, "id_invalid"),
        ({"id": "b", "text": "x", "metadata": {"a": [{"deep": 1}]}}, "metadata_invalid"),
        ({"id": "b", "text": "x", "metadata": {"a": "x" * 5000}}, "metadata_invalid"),
        ({"id": "b", "text_base64": "not base64!"}, "request_invalid"),
        ({"id": "b"}, "request_invalid"),
        ({"id": "b", "text": 3}, "request_invalid"),
        ({"id": "b", "text": "x", "tetx": "y"}, "request_invalid"),
        ("no object", "request_invalid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_bad_document_fails_alone_with_its_code(
    http: httpx2.Client, verso: Client, collection: str, document: Any, code: str
) -> None:
    good = [{"id": "a", "text": "before"}, {"id": "c", "text": "after"}]
    first, bad, last = ingest(http, collection, good[0], document, good[1])
    assert bad["error"]["code"] == code
    assert bad["error"]["retryable"] is False
    assert "error" not in first
    assert "error" not in last
    assert verso.get("a", collection=collection).data == b"before"
    assert verso.get("c", collection=collection).data == b"after"


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 100, b"\xff" * 1000, b"a" * MIB, "e\u0301👍🏽".encode() * 10],
    ids=["empty", "nul", "no-utf8", "one-mebibyte-line", "combining"],
)
def test_a_strange_document_is_stored_exactly(verso: Client, collection: str, data: bytes) -> None:
    report = verso.ingest([Document(data, id="a")], collection=collection)
    assert report.failed == ()
    assert verso.get("a", collection=collection).data == data


def test_a_bad_line_of_an_upload_is_named_by_its_number(
    http: httpx2.Client, verso: Client, collection: str
) -> None:
    body = b'{"id": "a", "text": "one"}\n{"id": "b", "text": \n\n{"id": "c", "text": "three"}'
    answer = http.post(
        "/v1/ingest",
        params={"collection": collection},
        content=body,
        headers={"Content-Type": "application/x-ndjson", "Prefer": "wait=60"},
    )
    results = answer.json()["results"]
    assert [result.get("error", {}).get("code") for result in results] == [
        None,
        "request_invalid",
        None,
    ]
    assert "line 2" in results[1]["error"]["detail"]
    assert verso.get("c", collection=collection).data == b"three"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "request_invalid"),
        (b"[]", "request_invalid"),
        (b'{"query": "a", "limit": NaN}', "request_invalid"),
        (b'{"query": "a", "query": "b"}', "request_invalid"),
        (b'{"query": "a", "limit": 0}', "request_invalid"),
        (b'{"query": "a", "unknown": 1}', "request_invalid"),
        (b'{"query": "a", "vector": [1.0]}', "request_invalid"),
        (b"{}", "request_invalid"),
        (b'{"query": "\\ud800"}', "text_not_encodable"),
        (b'{"query": "a", "collection": "no-such"}', "collection_unknown"),
        (b'{"vector": [0.5, 0.5]}', "vector_invalid"),
        (b'{"id": "no-such-document"}', "document_unknown"),
    ],
)
def test_a_bad_search_is_a_problem_with_its_code(
    http: httpx2.Client, content: bytes, code: str
) -> None:
    answer = http.post("/v1/search", content=content, headers={"Content-Type": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == code
    assert problem["retryable"] is False
    assert problem["status"] == answer.status_code
    assert http.get(problem["type"]).status_code == 200


def test_unknown_names_are_404(http: httpx2.Client, verso: Client, collection: str) -> None:
    with pytest.raises(CollectionUnknown):
        verso.stats("no-such")
    with pytest.raises(CollectionUnknown):
        verso.ingest([Document("a")], collection="no-such")
    with pytest.raises(DocumentUnknown):
        verso.get("no-such", collection=collection)
    with pytest.raises(DocumentUnknown) as unknown:
        verso.get("no-such#0", collection=collection)
    assert collection not in unknown.value.detail  # a migrated one has another name inside
    with pytest.raises(DocumentUnknown):
        verso.delete("no-such", collection=collection)
    with pytest.raises(JobUnknown):
        verso.job("no-such")
    with pytest.raises(IdInvalid):
        verso.delete("doc#1", collection=collection)
    assert http.get("/v1/documents/no-such").status_code == 404


def test_vectors_of_the_wrong_shape_or_with_nan_are_refused(
    http: httpx2.Client, verso: Client, collection: str
) -> None:
    with pytest.raises(VectorInvalid):
        verso.search(vector=[1.0] * 383, collection=collection)
    with pytest.raises(VectorInvalid):
        verso.search(vector=[0.0] * 384, collection=collection)
    [guess] = verso.guess([[1.0] * 7])
    assert guess.error is not None
    assert guess.error.code == "vector_invalid"
    nan = http.post(
        "/v1/search",
        content=b'{"vector": [NaN]}',
        headers={"Content-Type": "application/json"},
    )
    assert nan.status_code == 422


def test_a_body_over_the_limit_is_413(http: httpx2.Client) -> None:
    body = b'{"query": "' + b"x" * (17 * MIB) + b'"}'
    answer = http.post("/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["code"] == "body_too_large"


def test_lone_surrogates_fail_alone_in_embed(http: httpx2.Client) -> None:
    answer = http.post(
        "/v1/embed",
        content=b'{"texts": ["fine", "\\ud800"]}',
        headers={"Content-Type": "application/json"},
    )
    fine, bad = answer.json()["results"]
    assert len(fine["embedding"]) == 384
    assert bad["error"]["code"] == "text_not_encodable"
