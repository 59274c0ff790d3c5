"""What heads are asked over HTTP becomes jobs, and their results the shapes that clients know."""

from __future__ import annotations

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, post

from verso_core.jobs import Kind


def test_every_text_has_its_classes_or_its_error(client: httpx2.Client) -> None:
    body = {"head": "kinds", "texts": ["a", "\ud800", "b"]}
    items = post(client, "/v1/classify", body).json()["results"]
    assert [item.get("error", {}).get("code") for item in items] == [
        None,
        "text_not_encodable",
        None,
    ]
    assert items[0]["heads"][0]["label"] == "a"


def test_several_heads_and_ids_reach_the_worker(client: httpx2.Client, worker: FakeWorker) -> None:
    body = {"head": ["one", "two"], "ids": ["a", "b#3"], "accept_error": 0.1, "signals": True}
    body["chunk"] = "last"
    assert client.post("/v1/classify", json=body).status_code == 200
    [work] = [work for work in worker.seen if work.kind is Kind.CLASSIFY]
    assert work.params["heads"] == ["one", "two"]
    assert work.params["accept_error"] == 0.1
    assert work.params["chunk"] == "last"
    assert [item.header for item in work.items] == [{"id": "a"}, {"id": "b", "chunk": 3}]


def test_many_texts_are_bulk_work_in_slices(client: httpx2.Client, worker: FakeWorker) -> None:
    body = {"head": "kinds", "texts": ["text"] * 600}
    assert len(client.post("/v1/classify", json=body).json()["results"]) == 600
    assert len([work for work in worker.seen if work.kind is Kind.CLASSIFY]) == 3


def test_question_and_contexts_travel_as_they_are(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    body = {"question": "é?", "contexts": ["one", "two €"]}
    found = client.post("/v1/answer", json=body).json()
    [part] = found["answers"]
    assert (part["context"], part["text"]) == (0, "o")
    [work] = [work for work in worker.seen if work.kind is Kind.ANSWER]
    assert work.items[0].header["split"] == [3, 3, 7]
    assert work.items[0].blob == "é?onetwo €".encode()


def test_scores_keep_their_order_and_rerank_gives_the_best_first(client: httpx2.Client) -> None:
    scores = client.post("/v1/score", json={"text_1": "aa", "text_2": ["b", "bb"]}).json()["data"]
    assert [one["score"] for one in scores] == [0.5, 1.0]
    body = {"query": "aa", "documents": ["b", "bb", "bbb"], "top_n": 2, "return_documents": True}
    ignored = {"model": "verso", "truncate_prompt_tokens": 512, "raw_scores": False}
    ranked = client.post("/v1/rerank", json=body | ignored).json()["results"]
    assert ranked == [
        {"index": 1, "relevance_score": 1.0, "document": {"text": "bb"}},
        {"index": 0, "relevance_score": 0.5, "document": {"text": "b"}},
    ]


def test_a_head_is_described_or_unknown(client: httpx2.Client) -> None:
    assert client.get("/v1/heads").json()["heads"][0]["name"] == "kinds"
    assert client.get("/v1/heads/kinds").json()["share"] == 0.1
    assert client.get("/v1/heads/relevance").json()["name"] == "pairs"
    missing = client.get("/v1/heads/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "head_unknown")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("classify", {"head": [], "texts": ["a"]}),
        ("classify", {"head": "kinds", "texts": ["a"], "ids": ["b"]}),
        ("classify", {"head": "kinds", "texts": ["a"], "accept_error": 0}),
        ("classify", {"head": "kinds", "texts": ["a"], "chunk": "middle"}),
        ("classify", {"head": "kinds", "texts": ["a"], "chunk": 1}),
        ("classify", {"head": "No Name", "texts": ["a"]}),
        ("answer", {"question": "a"}),
        ("answer", {"question": "a", "contexts": ["b", " "]}),
        ("answer", {"question": "a", "context": "b", "filter": {}}),
        ("score", {"pairs": [["a"]]}),
        ("score", {"text_1": "a"}),
        ("score", {"text_1": "a", "text_2": []}),
        ("rerank", {"query": "", "documents": ["a"]}),
        ("rerank", {"query": "a", "documents": [{"text": 3}]}),
        ("search", {"id": "a", "rerank": "pairs"}),
    ],
)
def test_a_request_that_asks_nothing_sensible_is_refused(
    client: httpx2.Client, path: str, body: dict[str, object]
) -> None:
    answer = client.post(f"/v1/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")


def test_contexts_are_bounded_by_what_reading_them_takes(client: httpx2.Client) -> None:
    for field, value in (("context", "word " * 60_000), ("contexts", ["word " * 20_000] * 3)):
        answer = client.post("/v1/answer", json={"question": "a", field: value})
        assert answer.status_code == 422
        assert answer.json()["pointer"] == f"/{field}"
        assert "ingest them" in answer.json()["detail"]
