"""The real OpenAI SDK against a running gateway."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator

import httpx2
import openai
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, note_serving, post, vector


@pytest.fixture
def sdk(gateway: Gateway) -> Iterator[openai.OpenAI]:
    """The SDK as a user would set it up."""
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0) as found:
        yield found


def _expected(text: str) -> list[float]:
    return list(struct.unpack("<4f", vector(text.encode())))


def test_the_sdk_reads_base64_by_default_and_floats_on_demand(sdk: openai.OpenAI) -> None:
    default = sdk.embeddings.create(model="verso", input=["a", "b c"])
    assert [one.embedding for one in default.data] == [_expected("a"), _expected("b c")]
    assert [one.index for one in default.data] == [0, 1]
    assert default.usage.prompt_tokens == 3 + 4
    assert default.model == "verso"
    floats = sdk.embeddings.create(model="verso", input="a", encoding_format="float")
    assert floats.data[0].embedding == _expected("a")


def test_base64_is_little_endian_float32(client: httpx2.Client) -> None:
    body = {"input": "a", "model": "verso", "encoding_format": "base64", "user": "u", "truncate": 1}
    [one] = client.post("/v1/embeddings", json=body).json()["data"]
    assert base64.b64decode(one["embedding"]) == vector(b"a")


def test_the_dimensions_asked_for_must_be_the_models(sdk: openai.OpenAI) -> None:
    assert len(sdk.embeddings.create(model="verso", input="a", dimensions=4).data[0].embedding) == 4
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.embeddings.create(model="verso", input="a", dimensions=3)
    assert caught.value.param == "dimensions"


@pytest.mark.parametrize("given", [[1, 2, 3], [[1, 2], [3]]])
def test_token_ids_are_refused_by_the_name_of_the_clients_flag(
    sdk: openai.OpenAI, given: list[int]
) -> None:
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length") as caught:
        sdk.embeddings.create(model="v", input=given)
    assert (caught.value.param, caught.value.type) == ("input", "invalid_request_error")


@pytest.mark.parametrize("given", [[], ["\ud800"], {"a": 1}, None, ["a"] * 2049])
def test_bad_inputs_are_400(client: httpx2.Client, given: object) -> None:
    answer = post(client, "/v1/embeddings", {"model": "v", "input": given})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_conflict_is_not_tried_again(gateway: Gateway) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=3) as sdk:
        headers = {"Idempotency-Key": "k"}
        sdk.embeddings.create(model="verso", input="a", extra_headers=headers)
        with pytest.raises(openai.BadRequestError):
            sdk.embeddings.create(model="verso", input="b", extra_headers=headers)
    page = gateway.client.get("/metrics").text
    assert 'verso_requests_total{status="4xx",task="openai_embeddings"} 1.0' in page


def test_models_are_listed(sdk: openai.OpenAI, worker: FakeWorker) -> None:
    note_serving(worker)
    names = [model.id for model in sdk.models.list().data]
    assert names == ["verso", "5p4c3", "minilm"]
    assert sdk.models.retrieve("minilm").owned_by == "verso"
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("gpt")


def test_a_model_that_is_not_served_is_404_and_names_those_that_are(
    valkey_url: str, start_gateway: Callable[..., Gateway], worker: FakeWorker
) -> None:
    note_serving(worker)
    aliases = "text-embedding-3-small, best = alike"
    gateway = start_gateway(valkey_url, model_aliases=aliases)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0) as sdk:
        for name in ("verso", "text-embedding-3-small", "5p4c3", "minilm"):
            assert sdk.embeddings.create(model=name, input="a").model == name
        for name in ("text-embedding-ada-002", "best", "alike"):
            with pytest.raises(openai.NotFoundError) as caught:
                sdk.embeddings.create(model=name, input="a")
            assert (caught.value.code, caught.value.param) == ("model_unknown", "model")
            assert "verso, text-embedding-3-small, 5p4c3, minilm" in caught.value.message


def test_a_worker_that_does_not_answer_is_a_server_error(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    worker.pause()
    answer = client.post("/v1/embeddings", json={"input": "a"}, headers={"Prefer": "wait=1"})
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "server_error"
