"""Rerank as the clients of Jina, Cohere and Text Embeddings Inference ask for it."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, note_serving

from verso_core.jobs import Kind

BODY = {"query": "aa", "documents": ["b", "bb"]}
TEI = {"query": "aa", "texts": ["b", "bb"]}


def test_documents_come_as_the_clients_of_each_path_expect(client: httpx2.Client) -> None:
    for path, given, there in (
        ("/v1/rerank", {}, True),
        ("/v1/rerank", {"return_documents": False}, False),
        ("/v2/rerank", {}, False),
        ("/cohere/v2/rerank", {"return_documents": True}, True),
    ):
        [first, _] = client.post(path, json=BODY | given).json()["results"]
        assert ("document" in first) is there
    assert client.post("/tei/rerank", json=TEI | {"return_text": True}).json() == [
        {"index": 1, "score": 1.0, "text": "bb"},
        {"index": 0, "score": 0.5, "text": "b"},
    ]


def test_jinas_usage_counts_the_tokens_that_were_read(client: httpx2.Client) -> None:
    found = client.post("/v1/rerank", json=BODY).json()
    assert found["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


def test_coheres_answer_has_its_meta(client: httpx2.Client) -> None:
    body = BODY | {"model": "verso", "top_n": 1, "max_tokens_per_doc": 9, "priority": 3, "own": 1}
    found = client.post("/v2/rerank", json=body).json()
    assert found.keys() == {"id", "results", "meta"}
    assert found["results"] == [{"index": 1, "relevance_score": 1.0}]
    assert found["meta"] == {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}


def test_scores_are_in_0_to_1_where_the_protocol_says_so(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    """The head `alike` gives cosines, which may be below 0."""
    scores = [
        one["relevance_score"]
        for one in client.post("/v2/rerank", json=BODY | {"model": "alike"}).json()["results"]
    ]
    assert scores == [0.0, 0.0]
    own = client.post("/v1/rerank", json=BODY | {"head": "alike"}).json()["results"]
    assert [one["relevance_score"] for one in own] == [-0.5, -1.0]


def test_the_head_follows_from_the_name_of_the_model(
    valkey_url: str, start_gateway: Callable[..., Gateway], worker: FakeWorker
) -> None:
    note_serving(worker)
    client = start_gateway(valkey_url, model_aliases="rerank-v3.5,jina-reranker=alike").client
    for model, head in (
        ("verso", "relevance"),
        ("rerank-v3.5", "relevance"),
        ("jina-reranker", "alike"),
        ("alike", "alike"),
        ("minilm", "relevance"),
    ):
        assert client.post("/v2/rerank", json=BODY | {"model": model}).status_code == 200
        assert worker.seen[-1].params["head"] == head
        assert worker.seen[-1].kind is Kind.SCORE


@pytest.mark.parametrize("model", ["gpt", "kinds", "BAAI/bge-reranker-v2-m3"])
def test_a_model_that_is_not_served_is_404_and_names_those_that_are(
    client: httpx2.Client, worker: FakeWorker, model: str
) -> None:
    note_serving(worker)
    jina = client.post("/v1/rerank", json=BODY | {"model": model})
    cohere = client.post("/v2/rerank", json=BODY | {"model": model})
    assert (jina.status_code, cohere.status_code) == (404, 404)
    assert cohere.json().keys() == {"message"}
    for detail in (jina.json()["detail"], cohere.json()["message"]):
        assert "verso, 5p4c3, minilm, alike, pairs" in detail


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/rerank", BODY, 503, None),
        ("/v2/rerank", BODY, 503, None),
        ("/cohere/v1/rerank", BODY, 503, None),
        ("/tei/rerank", TEI, 429, "Overloaded"),
        ("/tei", TEI, 429, "Overloaded"),
    ],
)
def test_what_does_not_come_in_time_is_an_overload_and_never_a_202(
    valkey_url: str,
    start_gateway: Callable[..., Gateway],
    worker: FakeWorker,
    path: str,
    body: dict[str, object],
    status: int,
    kind: str | None,
) -> None:
    worker.pause()
    client = start_gateway(valkey_url, wait_max_s=1.0).client
    for headers in ({}, {"Prefer": "respond-async"}, {"Prefer": "wait=1"}):
        late = client.post(path, json=body, headers=headers)
        assert late.status_code == status
        assert int(late.headers["retry-after"]) >= 1
        assert "x-should-retry" not in late.headers
        assert late.json().get("error_type") == kind
