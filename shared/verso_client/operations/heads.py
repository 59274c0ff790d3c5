"""Heads: classify, answer, score and rerank with them, and describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from verso_client.exchange import Call, Steps
from verso_client.operations.jobs import ask
from verso_client.retries import Retries, perform
from verso_core.errors import from_body
from verso_core.heads import Portion
from verso_core.jobs import Filter
from verso_core.jobs.heads import Answered, Classified, HeadInfo, RankedDocument
from verso_core.registry import Channel


@dataclass(frozen=True, slots=True)
class Subjects:
    """What to classify: texts, or stored documents and records by id."""

    texts: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    collection: str = "default"

    def body(self) -> dict[str, Any]:
        """Return this part of the JSON body."""
        if self.ids is not None:
            return {"collection": self.collection, "ids": list(self.ids)}
        return {"texts": list(self.texts or ())}


@dataclass(frozen=True, slots=True)
class Question:
    """A question, with the texts or the collection to find its answer in."""

    question: str
    contexts: Sequence[str] | None = None
    collection: str | None = None
    head: str = "qa"
    limit: int = 5
    top_k: int = 3
    filter: Filter | None = None

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        body: dict[str, Any] = {"question": self.question, "head": self.head, "top_k": self.top_k}
        if self.contexts is not None:
            body["contexts"] = list(self.contexts)
        if self.collection is not None:
            body |= {"collection": self.collection, "limit": self.limit}
        if self.filter is not None:
            body["filter"] = self.filter.model_dump(exclude_none=True)
        return body


def classify(
    head: str | Sequence[str],
    subjects: Subjects,
    retries: Retries,
    *,
    top_k: int,
    signals: bool,
    accept_error: float | None,
    chunk: Portion | None = None,
) -> Steps[list[Classified]]:
    """Classify; each text or id has its own result or error."""
    body = subjects.body() | {
        "head": head if isinstance(head, str) else list(head),
        "top_k": top_k,
        "signals": signals,
        "accept_error": accept_error,
    }
    if chunk is not None:  # an older platform refuses the key
        body["chunk"] = chunk.value
    row = yield from ask("/v1/classify", body, retries)
    return [Classified.model_validate(item) for item in row["results"]]


def answer(question: Question, retries: Retries) -> Steps[Answered]:
    """Answer a question."""
    row = yield from ask("/v1/answer", question.body(), retries)
    if "results" in row:
        [row] = row["results"]
        _raise(row)
    return Answered.model_validate(row)


def score(pairs: Sequence[tuple[str, str]], retries: Retries, *, head: str) -> Steps[list[float]]:
    """Score pairs of texts, in their order."""
    body = {"head": head, "pairs": [list(pair) for pair in pairs]}
    row = yield from ask("/v1/score", body, retries)
    items = row["data"] if "data" in row else row["results"]
    for item in items:
        _raise(item)
    return [float(item["score"]) for item in items]


def rerank(
    query: str, documents: Sequence[str], retries: Retries, *, head: str, top_n: int | None
) -> Steps[list[RankedDocument]]:
    """Order texts by the score of each one's best sentence for a query, best first."""
    body = {"head": head, "query": query, "documents": list(documents)}
    row = yield from ask("/v1/rerank", body, retries)
    scores = {}
    for index, item in enumerate(row["results"]):  # after a 202 they are in order, without index
        _raise(item)
        late = "relevance_score" not in item
        scores[index if late else item["index"]] = item["score" if late else "relevance_score"]
    order = sorted(scores, key=lambda index: (-scores[index], index))
    return [RankedDocument(index=n, relevance_score=scores[n]) for n in order[:top_n]]


def heads(retries: Retries) -> Steps[list[HeadInfo]]:
    """List the heads by name."""
    reply = yield from perform(Call("GET", "/v1/heads", headers=_PATIENT), retries)
    return [HeadInfo.model_validate(row) for row in reply.json()["heads"]]


def head(name: str, retries: Retries) -> Steps[HeadInfo]:
    """Describe one head."""
    call = Call("GET", f"/v1/heads/{quote(name, safe='')}", headers=_PATIENT)
    reply = yield from perform(call, retries)
    return HeadInfo.model_validate(reply.json())


def report(name: str, retries: Retries, *, channel: Channel) -> Steps[str]:
    """Return a head's report, Markdown."""
    call = Call(
        "GET",
        f"/v1/heads/{quote(name, safe='')}/report",
        params={"channel": channel.value},
        headers=_PATIENT,
    )
    reply = yield from perform(call, retries)
    return str(reply.json()["report"])


_PATIENT = {"Prefer": "wait=60"}


def _raise(item: dict[str, Any]) -> None:
    if item.get("error") is not None:
        raise from_body(item["error"])
