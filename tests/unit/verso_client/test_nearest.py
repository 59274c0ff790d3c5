"""Documents nearest to a query have scores that say their order."""

from __future__ import annotations

import json

import httpx2
import pytest

from verso_client import Client
from verso_client.nearest import delete, nearest, read

HITS = [("b", 0.7, 0.9), ("a", 0.8, 0.1), ("b", 0.3, 0.2), ("c", 0.5, None), ("d", 0.4, None)]
"""Hits as a search gives them: the first three in the order that a head has put them into."""


def answer(request: httpx2.Request) -> httpx2.Response:
    asked = json.loads(request.content)
    if request.url.path == "/v1/reconstruct":
        return httpx2.Response(200, json={"results": [{"text": name} for name in asked["ids"]]})
    hits = [
        {"id": f"{name}#{n}", "document": name, "chunk": n, "score": score, "rerank_score": head}
        for n, (name, score, head) in enumerate(HITS)
    ]
    return httpx2.Response(200, json={"hits": hits[: asked.get("limit", 10)]})


@pytest.mark.parametrize("limit", [2, 9])
def test_scores_of_reranked_documents_say_their_order(limit: int) -> None:
    with Client("http://verso.test", transport=httpx2.MockTransport(answer)) as verso:
        found = nearest(verso, "a", limit=limit, rerank="alike")
    assert [one.document.id for one in found] == ["b", "a", "c", "d"][:limit]
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert scores[:2] == pytest.approx([0.88, 0.6])
    assert scores[2:] == [-0.5, -1.0][: limit - 2]


def test_ids_that_no_document_can_have_are_not_there() -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, request.url.path))
        if request.method == "POST":
            assert json.loads(request.content)["ids"] == ["b", "gone"]
            unknown = {"code": "document_unknown", "detail": "no document"}
            return httpx2.Response(200, json={"results": [{"text": "b"}, {"error": unknown}]})
        if request.url.path.endswith("/gone"):
            return httpx2.Response(404, json={"code": "document_unknown", "detail": "no document"})
        return httpx2.Response(200, json={"deleted": True})

    ids = ["", "gone", "b", "a#0", "x" * 257, "\n", "\udcff", "b"]
    with Client("http://verso.test", transport=httpx2.MockTransport(answer)) as verso:
        delete(verso, ids, collection="c")
        found = read(verso, ["b", *ids], collection="c")
        assert nearest(verso, "a", limit=0) == []
    assert [one.id for one in found] == ["b"]
    assert asked == [
        ("DELETE", "/v1/documents/gone"),
        ("DELETE", "/v1/documents/b"),
        ("POST", "/v1/reconstruct"),
    ]
