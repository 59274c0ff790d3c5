"""Embeddings as the clients of Cohere and of Text Embeddings Inference ask for them."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import (
    DIM,
    FakeWorker,
    Gateway,
    note_serving,
    post,
    vector,
)

from verso_gateway.protocols.cohere import embeddings_of

TEXTS = ["a", "b c"]
LONG = "long " * 200


def expected(text: str) -> list[float]:
    return list(struct.unpack(f"<{DIM}f", vector(text.encode())))


def test_cohere_has_a_vector_of_each_text_in_each_type(client: httpx2.Client) -> None:
    body = {
        "model": "verso", "texts": TEXTS, "input_type": "search_document", "truncate": "END",
        "embedding_types": ["float", "int8", "base64"], "output_dimension": DIM, "priority": 0,
        "max_tokens": 99, "own": {"key": 1},
    }  # fmt: skip
    found = client.post("/v2/embed", json=body).json()
    assert found["response_type"] == "embeddings_by_type"
    assert found["texts"] == TEXTS
    assert found["meta"]["billed_units"] == {"input_tokens": 7}
    made = found["embeddings"]
    assert made["float"] == [pytest.approx(expected(text)) for text in TEXTS]
    assert [base64.b64decode(one) for one in made["base64"]] == [vector(t.encode()) for t in TEXTS]
    assert made["int8"] == [[round(100 * v) for v in expected(text)] for text in TEXTS]


def test_codes_of_int8_have_the_scale_of_the_encoder_that_was_asked_for(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    own = {"name": "short", "space": "0ther", "codec": "c0", "dim": DIM, "int8_scale": 50.0}
    note_serving(worker, own)
    for path in ("/v2/embed", "/cohere/v2/embed"):
        body = {"model": "short", "texts": TEXTS, "embedding_types": ["int8"], "truncate": "END"}
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        made = answer.json()["embeddings"]
        assert made["int8"] == [[round(50 * v) for v in expected(text)] for text in TEXTS]


def test_codes_of_int8_stay_in_their_range() -> None:
    vectors = [struct.pack("<3f", -9.0, 0.004, 9.0)]
    assert embeddings_of(vectors, ["int8"], int8_scale=100.0) == {"int8": [[-127, 0, 127]]}


def test_cohere_takes_inputs_of_text_parts_and_nothing_but_defaults(client: httpx2.Client) -> None:
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    body = {"model": "verso", "inputs": [{"content": parts}], "texts": None}
    found = client.post("/v2/embed", json=body).json()
    assert found["texts"] == ["b\nc"]
    assert found["embeddings"] == {"float": [pytest.approx(expected("b\nc"))]}


def test_coheres_first_version_answers_as_it_did(client: httpx2.Client) -> None:
    found = client.post("/cohere/v1/embed", json={"texts": ["a"]}).json()
    assert found["response_type"] == "embeddings_floats"
    assert found["embeddings"] == [pytest.approx(expected("a"))]
    typed = {"texts": ["a"], "embedding_types": ["float"], "truncate": None}
    found = client.post("/cohere/v1/embed", json=typed).json()
    assert found["response_type"] == "embeddings_by_type"
    assert found["meta"]["api_version"] == {"version": "1"}


@pytest.mark.parametrize(
    "change",
    [
        {"embedding_types": ["ubinary"]},
        {"embedding_types": []},
        {"images": ["data:image/png;base64,AA"]},
        {"input_type": "image"},
        {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
        {"texts": []},
        {"texts": None},
        {"texts": ["\ud800"]},
        {"output_dimension": 3},
        {"texts": [LONG], "truncate": "NONE"},
        {"texts": [LONG], "truncate": "START"},
    ],
)
def test_what_cohere_cannot_have_is_400(client: httpx2.Client, change: dict[str, object]) -> None:
    body = {"model": "verso", "input_type": "search_document", "texts": ["a"]}
    answer = post(client, "/v2/embed", body | change)
    assert answer.status_code == 400
    assert answer.json().keys() == {"message"}
    assert answer.headers["x-should-retry"] == "false"


def test_cohere_cuts_the_end_of_a_long_text_where_that_is_allowed(client: httpx2.Client) -> None:
    for given in ({}, {"truncate": "END"}):
        assert client.post("/v2/embed", json={"texts": [LONG]} | given).status_code == 200


@pytest.mark.parametrize("path", ["/tei", "/tei/embed"])
def test_tei_embeds_a_text_or_several(client: httpx2.Client, path: str) -> None:
    ignored = {"normalize": True, "truncate": True, "truncation_direction": "Right", "own": 1}
    one = client.post(path, json={"inputs": "a"} | ignored).json()
    assert one == [pytest.approx(expected("a"))]
    several = client.post(path, json={"inputs": TEXTS, "dimensions": DIM}).json()
    assert several == [pytest.approx(expected(text)) for text in TEXTS]


@pytest.mark.parametrize("path", ["/tei", "/tei/similarity"])
def test_tei_compares_sentences(client: httpx2.Client, path: str) -> None:
    inputs = {"source_sentence": "a", "sentences": ["a", "b"]}
    same, other = client.post(path, json={"inputs": inputs, "parameters": {}}).json()
    first = expected("a")
    assert same == pytest.approx(sum(v * v for v in first))
    assert other == pytest.approx(sum(a * b for a, b in zip(first, expected("b"), strict=True)))


def test_tei_predicts_texts_and_pairs(client: httpx2.Client, worker: FakeWorker) -> None:
    assert client.post("/tei/predict", json={"inputs": ["aa", "bb"]}).json() == [
        {"score": 1.0, "label": "LABEL_0"}
    ]
    batch = client.post("/tei/predict", json={"inputs": [["aa", "bb"], ["aa", "b"]]}).json()
    assert [[one["score"] for one in row] for row in batch] == [[1.0], [0.5]]
    client.post("/tei/predict", json={"inputs": [["a"], ["b"]]})
    assert worker.seen[-1].params["heads"] == ["intents"]
    assert len(worker.seen[-1].items) == 2


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("embed", {"inputs": ["a"] * 2049}, 413, "Validation"),
        ("embed", {"inputs": []}, 400, "Empty"),
        ("embed", {"inputs": [1, 2]}, 422, "Validation"),
        ("embed", {"inputs": "a", "prompt_name": "query"}, 422, "Validation"),
        ("embed", {"inputs": "a", "dimensions": 3}, 422, "Validation"),
        ("embed", {"inputs": [LONG], "truncate": False}, 422, "Validation"),
        ("embed", {"inputs": [LONG], "truncation_direction": "left"}, 422, "Validation"),
        ("embed", {"inputs": "\ud800"}, 422, "Tokenizer"),
        ("predict", {"inputs": []}, 422, "Validation"),
        ("predict", {"inputs": [["a"], ["a", "b"]]}, 422, "Validation"),
        ("predict", {"inputs": ["a", "b", "c"]}, 422, "Validation"),
        ("rerank", {"query": "a", "texts": []}, 400, "Empty"),
        ("rerank", {"query": "a", "texts": ["b"] * 2049}, 413, "Validation"),
        ("similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "Empty"),
        ("nothing", {}, 404, "Validation"),
    ],
)
def test_teis_errors_have_its_types(
    client: httpx2.Client, path: str, body: dict[str, object], status: int, kind: str
) -> None:
    answer = post(client, f"/tei/{path}", body)
    assert answer.status_code == status
    assert answer.json().keys() == {"error", "error_type"}
    assert answer.json()["error_type"] == kind


def test_a_head_that_is_not_there_is_teis_failed_inference(
    valkey_url: str, start_gateway: Callable[..., Gateway], worker: FakeWorker
) -> None:
    client = start_gateway(valkey_url, tei_head="nothing").client
    answer = client.post("/tei/predict", json={"inputs": "a"})
    assert (answer.status_code, answer.json()["error_type"]) == (424, "Backend")


def test_tei_info_says_what_serves(client: httpx2.Client, worker: FakeWorker) -> None:
    early = client.get("/tei/info")
    assert (early.status_code, early.json()["error_type"]) == (429, "Overloaded")
    note_serving(worker)
    until = time.monotonic() + 60
    while (answer := client.get("/tei/info")).status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.1)
    found = answer.json()
    assert found["model_id"] == "minilm"
    assert found["model_sha"] == "5p4c3-c0d3c"
    assert found["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (found["max_input_length"], found["max_batch_tokens"]) == (256, 512)
    assert len(found) == 15


def test_tei_health_is_open_and_says_it_by_the_status(client: httpx2.Client) -> None:
    answer = client.get("/tei/health")
    assert answer.status_code == 503
    assert answer.json()["error_type"] == "Unhealthy"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "a"}),
        ("/v2/embed", {"texts": ["a"]}),
        ("/cohere/v1/embed", {"texts": ["a"]}),
        ("/tei/embed", {"inputs": "a"}),
        ("/tei/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
        ("/tei/predict", {"inputs": "a"}),
    ],
)
def test_a_full_queue_is_429_in_every_shape(
    valkey_url: str,
    start_gateway: Callable[..., Gateway],
    worker: FakeWorker,
    path: str,
    body: dict[str, object],
) -> None:
    worker.pause()
    client = start_gateway(valkey_url, queue_limit_slices=1, wait_max_s=0.5).client
    first = client.post("/v1/embed", json={"texts": ["a"]}, headers={"Prefer": "respond-async"})
    assert first.status_code == 202
    answer = client.post(path, json=body)
    assert answer.status_code == 429
    assert float(answer.headers["retry-after"]) >= 1
    assert set(answer.json()) in ({"error"}, {"message"}, {"error", "error_type"})
