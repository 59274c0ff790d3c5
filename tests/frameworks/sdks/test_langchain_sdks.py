"""LangChain's own classes for OpenAI, Cohere and Hugging Face, with another address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.frameworks.sdks.conftest import Served

_WHERE = "`make sdks` has it in an environment of its own"
langchain_cohere = pytest.importorskip("langchain_cohere", reason=_WHERE)
langchain_openai = pytest.importorskip("langchain_openai", reason=_WHERE)
langchain_huggingface = pytest.importorskip("langchain_huggingface", reason=_WHERE)
cohere = pytest.importorskip("cohere")
openai = pytest.importorskip("openai")
api_error = pytest.importorskip("cohere.core.api_error")
hub_errors = pytest.importorskip("huggingface_hub.errors")

TEXTS = ["The disk sda is full.", "The link of eth0 is up.", "Worker 3 timed out."]
QUESTION = "Which disk is full?"


def embeddings(served: Served, kind: str, *, key: str | None = None, model: str = "verso") -> Any:
    """Return LangChain's embeddings of a server, which do not try again."""
    key = key or served.key
    match kind:
        case "openai":
            return langchain_openai.OpenAIEmbeddings(
                base_url=f"{served.url}/v1",
                api_key=key,
                model=model,
                check_embedding_ctx_length=False,
                max_retries=0,
            )
        case "cohere":
            return langchain_cohere.CohereEmbeddings(
                base_url=f"{served.url}/cohere", cohere_api_key=key, model=model, max_retries=1
            )
    # The class takes names of the hub alone; the client that it makes can be given an address.
    made = langchain_huggingface.HuggingFaceEndpointEmbeddings(
        model="verso/verso", provider="hf-inference", huggingfacehub_api_token=key
    )
    for client in (made.client, made.async_client):
        client.model = f"{served.url}/tei"
    return made


def reranker(served: Served, *, key: str | None = None, model: str = "rerank-v3.5") -> Any:
    """Return LangChain's reranker of Cohere."""
    return langchain_cohere.CohereRerank(
        base_url=served.url, cohere_api_key=key or served.key, model=model, top_n=2
    )


def status_of(error: BaseException) -> int | None:
    """Return the status that an SDK's error has."""
    found = getattr(error, "status_code", None)
    return found or getattr(getattr(error, "response", None), "status_code", None)


KINDS = ["openai", "cohere", "hugging_face"]
ERRORS = (openai.APIStatusError, api_error.ApiError, hub_errors.HfHubHTTPError)


@pytest.mark.parametrize("kind", KINDS)
async def test_embeddings_are_the_platforms(served: Served, kind: str) -> None:
    made = embeddings(served, kind)
    expected = np.array(served.vectors(TEXTS))
    np.testing.assert_allclose(made.embed_documents(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(made.embed_query(TEXTS[0]), expected[0], atol=1e-6)
    np.testing.assert_allclose(await made.aembed_documents(TEXTS), expected, atol=1e-6)


def test_documents_are_ranked(served: Served) -> None:
    from langchain_core.documents import Document

    documents = [Document(text, metadata={"n": n}) for n, text in enumerate(TEXTS)]
    found = reranker(served).compress_documents(documents, QUESTION)
    assert len(found) == 2
    assert found[0].metadata["n"] == 0
    assert 0 <= found[1].metadata["relevance_score"] <= found[0].metadata["relevance_score"] <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_key_is_refused(served: Served, kind: str) -> None:
    with pytest.raises(ERRORS) as caught:
        embeddings(served, kind, key="vk_wrong").embed_query("a")
    assert status_of(caught.value) == 401
    with pytest.raises(cohere.UnauthorizedError):
        reranker(served, key="vk_wrong").rerank(TEXTS, QUESTION)


@pytest.mark.parametrize("kind", ["openai", "cohere"])
def test_a_model_that_is_not_served_is_not_found(served: Served, kind: str) -> None:
    with pytest.raises(ERRORS, match="text-embedding-3-small") as caught:
        embeddings(served, kind, model="gpt-5").embed_query("a")
    assert status_of(caught.value) == 404
    with pytest.raises(cohere.NotFoundError):
        reranker(served, model="gpt-5").rerank(TEXTS, QUESTION)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_queue_is_a_limit_of_rate(served: Served, kind: str) -> None:
    with served.full():
        with pytest.raises(ERRORS) as caught:
            embeddings(served, kind).embed_query("a")
        assert status_of(caught.value) == 429
