"""Heads: classify, answer, score and rerank with them, train them, and roll them out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from verso_client.exchange import Call, Retries, Steps, perform
from verso_client.operations.jobs import ask, get_job
from verso_core.errors import from_body
from verso_core.heads import Portion, Task
from verso_core.jobs import Filter
from verso_core.jobs.admin import RegistryState
from verso_core.jobs.heads import Answered, Classified, HeadInfo, RankedDocument
from verso_core.jobs.job import Job
from verso_core.registry import SHARE, Channel

CSV = "text/csv"
NDJSON = "application/x-ndjson"
_PATIENT = {"Prefer": "wait=60"}


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


@dataclass(frozen=True, slots=True)
class Training:
    """A training: a head, and the rows, questions, pairs, file or collection to train it on.

    Attributes:
        head: its name.
        rows: objects with ``text``, ``label`` and optionally ``split``, for a head that classifies.
        squad: content of a file in the layout of SQuAD 2.0, for a head that answers.
        pairs: objects with ``text_1``, ``text_2``, ``score`` in [0, 1], for a head that scores.
        file: content of a CSV or JSON lines file of rows or pairs, of type ``media_type``.
        task: task of the head for a ``file``: rows classify, pairs score.
        collection: collection whose records have the label as metadata, under ``label_key``.
        recipe: settings of the training.
        share: share of jobs that use the new version, in [0, 1].
        new_labels: whether the labels may differ from those of the stable version.
        licence: licence of the data.
        columns: names of the file's text and label columns.
    """

    head: str
    rows: Sequence[Mapping[str, str]] | None = None
    squad: Mapping[str, Any] | None = None
    pairs: Sequence[Mapping[str, str | float]] | None = None
    file: bytes | None = None
    media_type: str = NDJSON
    task: Task = Task.CLASSIFY
    collection: str | None = None
    label_key: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    share: float = SHARE
    new_labels: bool = False
    licence: str = "unknown"
    columns: tuple[str, str] = ("text", "label")

    def call(self) -> Call:
        """Return the request."""
        settings: dict[str, Any] = {
            "recipe": dict(self.recipe),
            "share": self.share,
            "new_labels": self.new_labels,
            "licence": self.licence,
        }
        headers = {"Idempotency-Key": f'"{uuid.uuid4()}"', "Prefer": "respond-async"}
        if self.file is not None:
            text, label = self.columns
            return Call(
                "POST",
                "/v1/train",
                params={
                    "head": self.head,
                    "task": str(self.task),
                    "text_column": text,
                    "label_column": label,
                    "settings": json.dumps(settings),
                },
                content=self.file,
                headers={**headers, "Content-Type": self.media_type},
            )
        task, source = self._source()
        body = {"head": self.head, "task": str(task), "source": source, **settings}
        return Call(
            "POST",
            "/v1/train",
            content=json.dumps(body).encode("ascii"),
            headers={**headers, "Content-Type": "application/json"},
        )

    def _source(self) -> tuple[Task, dict[str, Any]]:
        """Return the head's task, and the examples."""
        if self.collection is not None:
            return Task.CLASSIFY, {"collection": self.collection, "label_key": self.label_key}
        if self.squad is not None:
            return Task.ANSWER, {"squad": dict(self.squad)}
        if self.pairs is not None:
            return Task.SCORE, {"pairs": [dict(pair) for pair in self.pairs]}
        return Task.CLASSIFY, {"rows": [dict(row) for row in self.rows or ()]}


def train(training: Training, retries: Retries) -> Steps[Job]:
    """Start a training and return its job, without waiting for it."""
    reply = yield from perform(training.call(), retries)
    return (yield from get_job(str(reply.json()["id"]), retries))


def registry(retries: Retries) -> Steps[RegistryState]:
    """Return which models serve."""
    reply = yield from perform(Call("GET", "/v1/registry"), retries)
    return RegistryState.model_validate(reply.json())


def change(action: str, retries: Retries, *, head: str | None) -> Steps[RegistryState]:
    """Promote or roll back a head, or the artifact if ``head`` is None."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f'"{uuid.uuid4()}"'}
    content = json.dumps({"head": head}).encode("ascii")
    call = Call("POST", f"/v1/registry/{action}", content=content, headers=headers)
    reply = yield from perform(call, retries)
    return RegistryState.model_validate(reply.json())


def _raise(item: dict[str, Any]) -> None:
    if item.get("error") is not None:
        raise from_body(item["error"])
