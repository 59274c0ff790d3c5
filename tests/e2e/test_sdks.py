"""The SDKs that people have, unchanged, against a platform: OpenAI's, Cohere's, Hugging Face's.

Each also where the queue is full, where no worker answers, with a model that is not served, and
with a wrong key. LangChain's classes are tested by ``make integrations``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cohere
import httpx2
import huggingface_hub
import numpy as np
import openai
import pytest
from cohere.core.api_error import ApiError
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from tests.e2e.conftest import Platform, publish_heads

from verso_client import Document
from verso_core import api_keys
from verso_core.api_keys import Scope
from verso_core.errors import QueueFull

TEXTS = ["disk sda is full", "link eth0 is up", "worker 3 timed out"]
LONG = "one more word " * 400
NODE = Path(__file__).parents[1] / "support" / "node"
SLICES = 4


@dataclass(frozen=True)
class Served:
    """A platform with keys and heads; what its clients hold open is closed in the end."""

    platform: Platform
    key: str
    clients: ExitStack

    @property
    def url(self) -> str:
        return self.platform.url

    def openai(self, key: str | None = None) -> openai.OpenAI:
        """Return OpenAI's client, as a user would make it."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key, max_retries=0)

    def cohere(self, key: str | None = None) -> cohere.ClientV2:
        """Return Cohere's client."""
        client = cohere.ClientV2(key or self.key, base_url=self.url)
        self.clients.enter_context(client)
        return client

    def hugging_face(self, key: str | None = None, path: str = "") -> InferenceClient:
        """Return the client of Hugging Face."""
        return InferenceClient(f"{self.url}/tei{path}", token=key or self.key)

    def vectors(self, texts: list[str]) -> np.ndarray[Any, Any]:
        """Return the platform's own vectors. Shape: (texts, dim)."""
        headers = {"Authorization": f"Bearer {self.key}", "Prefer": "wait=60"}
        answer = httpx2.post(
            f"{self.url}/v1/embed", json={"texts": texts}, headers=headers, timeout=120
        )
        return np.array([one["embedding"] for one in answer.json()["results"]], np.float32)


@pytest.fixture(scope="module")
def served(
    new_platform: Callable[..., Platform], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A platform of this file's own: its queue is filled."""
    path = tmp_path_factory.mktemp("keys") / api_keys.FILE_NAME
    secret, key = api_keys.mint("app", scopes=[Scope.READ, Scope.INGEST])
    api_keys.add(path, key)
    platform = new_platform(
        VERSO_QUEUE_LIMIT_SLICES=str(SLICES),
        VERSO_WAIT_MAX_S="20",
        VERSO_MODEL_ALIASES="text-embedding-3-small,rerank-v3.5,embed-v4.0,similar=alike",
        VERSO_TEI_HEAD="kinds",
        VERSO_API_KEYS_FILE=str(path),
    )
    platform.key = secret
    platform.start()
    publish_heads(platform)
    with ExitStack() as clients:
        clients.callback(huggingface_hub.close_session)
        yield Served(platform, secret, clients)


@contextmanager
def stopped_worker(served: Served) -> Iterator[None]:
    """Stop the worker for a while, so that nothing is answered."""
    pid = served.platform.pid("worker")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def full(served: Served) -> Iterator[Served]:
    """The platform with a full queue."""
    headers = {"Authorization": f"Bearer {served.key}", "Prefer": "respond-async"}
    with stopped_worker(served):
        until, status = time.monotonic() + 60, 0
        while status != 429:
            assert time.monotonic() < until
            body = {"texts": ["late"]}
            answer = httpx2.post(f"{served.url}/v1/embed", json=body, headers=headers, timeout=60)
            status = answer.status_code
        yield served
    _await_answers(served)


def _await_answers(served: Served) -> None:
    until = time.monotonic() + 240
    headers = {"Authorization": f"Bearer {served.key}", "Prefer": "wait=60"}
    body = {"texts": ["back"]}
    while time.monotonic() < until:
        answer = httpx2.post(f"{served.url}/v1/embed", json=body, headers=headers, timeout=60)
        if answer.status_code == 200:
            return
        time.sleep(0.2)
    pytest.fail("the queue did not drain")


def test_openais_vectors_are_the_platforms(served: Served) -> None:
    with served.openai() as client:
        found = client.embeddings.create(model="text-embedding-3-small", input=TEXTS)
        assert "text-embedding-3-small" in [model.id for model in client.models.list()]
        assert client.models.retrieve("verso").id == "verso"
    vectors = np.array([one.embedding for one in found.data], np.float32)
    np.testing.assert_allclose(vectors, served.vectors(TEXTS), atol=1e-6)
    assert found.usage.total_tokens > 0


async def test_openais_asynchronous_client_is_served_too(served: Served) -> None:
    url = f"{served.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=served.key) as client:
        found = await client.embeddings.create(model="verso", input=TEXTS, encoding_format="float")
    assert len(found.data) == len(TEXTS)


def test_coheres_vectors_are_the_platforms_in_each_type(served: Served) -> None:
    found = served.cohere().embed(
        model="embed-v4.0",
        texts=TEXTS,
        input_type="search_document",
        embedding_types=["float", "int8", "base64"],
    )
    vectors = served.vectors(TEXTS)
    np.testing.assert_allclose(np.array(found.embeddings.float_), vectors, atol=1e-6)
    codes = np.array(found.embeddings.int8)
    cosines = (codes * vectors).sum(1) / np.linalg.norm(codes, axis=1)
    assert (cosines > 0.999).all()
    assert found.meta is not None


def test_cohere_reranks_by_scores_of_0_to_1(served: Served) -> None:
    for model in ("rerank-v3.5", "similar"):
        found = served.cohere().rerank(model=model, query=TEXTS[0], documents=TEXTS, top_n=2)
        scores = [one.relevance_score for one in found.results]
        assert found.results[0].index == 0
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)


@pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecationWarning")  # the SDK's own
def test_coheres_first_client_is_served_below_its_own_address(served: Served) -> None:
    with cohere.Client(served.key, base_url=f"{served.url}/cohere") as client:
        found = client.embed(texts=TEXTS, model="verso", embedding_types=["float"])
        plain = client.embed(texts=TEXTS, model="verso")
        ranked = client.rerank(model="verso", query=TEXTS[0], documents=TEXTS)
    assert found.embeddings.float_ == plain.embeddings
    assert ranked.results[0].index == 0


def test_what_cohere_asks_for_and_cannot_have_is_a_bad_request(served: Served) -> None:
    with pytest.raises(cohere.BadRequestError) as caught:
        served.cohere().embed(
            model="verso", texts=[LONG], input_type="search_query", truncate="NONE"
        )
    assert "tokens" in caught.value.body["message"]
    with pytest.raises(cohere.BadRequestError):
        served.cohere().embed(
            model="verso", texts=TEXTS, input_type="search_query", embedding_types=["binary"]
        )


@pytest.mark.parametrize("path", ["", "/embed"])
def test_hugging_faces_client_extracts_features(served: Served, path: str) -> None:
    found = served.hugging_face(path=path).feature_extraction(TEXTS, truncate=True, normalize=True)
    np.testing.assert_allclose(found, served.vectors(TEXTS), atol=1e-6)


@pytest.mark.parametrize("path", ["", "/similarity"])
def test_hugging_faces_client_compares_sentences(served: Served, path: str) -> None:
    found = served.hugging_face(path=path).sentence_similarity(TEXTS[0], TEXTS)
    first, *_ = vectors = served.vectors(TEXTS)
    np.testing.assert_allclose(found, vectors @ first, atol=1e-5)


def test_text_embeddings_inference_says_what_it_serves_and_classifies(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.key}"}
    with httpx2.Client(base_url=served.url, headers=headers, timeout=120) as client:
        info = client.get("/tei/info").json()
        assert info["model_id"]
        assert info["max_input_length"] == 256
        assert info["model_type"] == {"embedding": {"pooling": "mean"}}
        assert info["model_dtype"] == "float32"
        labels = client.post("/tei/predict", json={"inputs": TEXTS[2]}).json()
        scores = [one["score"] for one in labels]
        assert scores == sorted(scores, reverse=True)
        assert sum(scores) == pytest.approx(1.0, abs=1e-3)
        body = {"query": TEXTS[0], "texts": TEXTS}
        assert client.post("/tei/rerank", json=body).json()[0]["index"] == 0
    assert httpx2.get(f"{served.url}/tei/health", timeout=60).status_code == 200


def test_a_model_that_is_not_served_is_not_found_by_any_sdk(served: Served) -> None:
    with served.openai() as client, pytest.raises(openai.NotFoundError, match="verso"):
        client.embeddings.create(model="gpt-5", input="a")
    with pytest.raises(cohere.NotFoundError, match="verso"):
        served.cohere().embed(model="command", texts=["a"], input_type="search_query")
    with pytest.raises(cohere.NotFoundError, match="alike"):
        served.cohere().rerank(model="command", query="a", documents=["b"])
    with pytest.raises(HfHubHTTPError) as caught:
        served.hugging_face(path="/nothing").feature_extraction("a")
    assert caught.value.response.status_code == 404


def test_a_wrong_key_is_refused_in_the_words_of_each_sdk(served: Served) -> None:
    with served.openai("vk_wrong") as client, pytest.raises(openai.AuthenticationError):
        client.embeddings.create(model="verso", input="a")
    with pytest.raises(cohere.UnauthorizedError, match="not known"):
        served.cohere("vk_wrong").embed(model="verso", texts=["a"], input_type="search_query")
    with pytest.raises(HfHubHTTPError) as caught:
        served.hugging_face("vk_wrong").feature_extraction("a")
    assert caught.value.response.status_code == 401


def test_a_full_queue_is_a_limit_of_rate_to_each_sdk(full: Served) -> None:
    with full.openai() as client, pytest.raises(openai.RateLimitError) as refused:
        client.embeddings.create(model="verso", input="a")
    assert int(refused.value.response.headers["retry-after"]) >= 1
    once: Any = {"max_retries": 0}
    with pytest.raises(cohere.TooManyRequestsError):
        full.cohere().rerank(model="verso", query="a", documents=["b"], request_options=once)
    with pytest.raises(HfHubHTTPError) as caught:
        full.hugging_face().feature_extraction("a")
    assert caught.value.response.status_code == 429
    assert caught.value.response.json()["error_type"] == "Overloaded"


def test_more_work_than_the_queue_may_hold_is_429_to_the_platforms_own_client(
    served: Served, lines: Callable[[int], list[Document]]
) -> None:
    with served.platform.client(patience_s=0.0) as verso:
        verso.ingest(lines(128))  # from now on the drain rate is known
        with stopped_worker(served), pytest.raises(QueueFull) as caught:  # noqa: PT012
            for _ in range(50):
                verso.submit(lines(128))
    assert caught.value.retry_after_s > 0
    with served.platform.client(patience_s=90.0) as patient:
        assert patient.ingest(lines(128)).documents == 128


def test_sdks_try_again_until_the_queue_has_room(served: Served) -> None:
    """OpenAI's and Cohere's clients repeat by themselves what was refused for the moment."""
    pid = served.platform.pid("worker")
    headers = {"Authorization": f"Bearer {served.key}", "Prefer": "respond-async"}
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(SLICES + 1):
            httpx2.post(
                f"{served.url}/v1/embed", json={"texts": ["late"]}, headers=headers, timeout=60
            )
        url = f"{served.url}/v1"
        later = threading.Timer(1.5, os.kill, (pid, signal.SIGCONT))
        later.start()
        with openai.OpenAI(base_url=url, api_key=served.key, max_retries=8) as sdk:
            assert sdk.embeddings.create(model="verso", input="a").data
        later.join()
    finally:
        os.kill(pid, signal.SIGCONT)
    _await_answers(served)


def test_what_no_worker_answers_is_an_overload_that_may_be_tried_again(served: Served) -> None:
    soon = {"Prefer": "wait=1"}
    with stopped_worker(served):
        with served.openai() as client, pytest.raises(openai.InternalServerError) as late:
            client.embeddings.create(model="verso", input="a", extra_headers=soon)
        assert late.value.status_code == 503
        options: Any = {"additional_headers": soon, "max_retries": 0}
        with pytest.raises(ApiError) as slow:
            served.cohere().rerank(
                model="verso", query="a", documents=["b"], request_options=options
            )
        assert slow.value.status_code == 503
        asked = InferenceClient(f"{served.url}/tei", token=served.key, headers=soon)
        with pytest.raises(HfHubHTTPError) as busy:
            asked.feature_extraction("a")
        assert busy.value.response.status_code == 429
    _await_answers(served)


def node(served: Served, *, key: str | None = None, model: str = "verso") -> dict[str, Any]:
    """Return what the clients of Node say."""
    if not shutil.which("node") or not (NODE / "node_modules" / "cohere-ai").is_dir():
        pytest.skip("needs node, and the packages of tests/support/node/package.json")
    command = ["node", "asking.cjs", served.url, key or served.key, model]
    done = subprocess.run(command, cwd=NODE, capture_output=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_nodes_clients_are_served_alike(served: Served) -> None:
    found = node(served, model="text-embedding-3-small")
    vectors = served.vectors(TEXTS[:2])
    for client in ("openai", "cohere"):
        assert "vectors" in found[client], found[client]
        np.testing.assert_allclose(np.array(found[client]["vectors"]), vectors, atol=1e-6)
    assert found["cohere"]["ranks"] == [1, 0]


def test_nodes_clients_say_what_was_wrong(served: Served) -> None:
    for said in node(served, model="gpt-5").values():
        assert said["status"] == 404
        assert "verso" in said["message"]
    assert {said["status"] for said in node(served, key="vk_wrong").values()} == {401}


def test_nodes_clients_see_a_full_queue(full: Served) -> None:
    assert {said["status"] for said in node(full).values()} == {429}
