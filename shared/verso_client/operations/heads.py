"""Heads: classify, answer, score and rerank with them, train them, and roll them out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verso_client.exchange import Call, Steps, path_of
from verso_client.operations.jobs import answered, answered_one, checked, get_job, new_key, post
from verso_core.errors import ErrorBody, HeadUnknown, from_body
from verso_core.heads import Task
from verso_core.jobs.heads.answer import (
    Answered,
    AnswerEvent,
    AnswerHits,
    AnswerRequest,
    AnswerResponse,
    AnswerSpans,
)
from verso_core.jobs.heads.classify import Classified, ClassifyRequest
from verso_core.jobs.heads.feedback import FeedbackRequest, FeedbackTaken
from verso_core.jobs.heads.listing import HeadInfo
from verso_core.jobs.heads.report import HeadFigures, HeadReportView
from verso_core.jobs.heads.rerank import RankedDocument
from verso_core.jobs.job import Job, JobEvent, LedgerChange, LedgerList, LedgerView, StatusView
from verso_core.jobs.registry import RegistryState
from verso_core.registry import SHARE, Channel

CSV = "text/csv"
NDJSON = "application/x-ndjson"
_PATIENT = {"Prefer": "wait=60"}


def classify(request: ClassifyRequest) -> Steps[list[Classified]]:
    """Classify; each text or id has its own result or error."""
    row = yield from answered(post(path_of("classify"), request))
    return [Classified.model_validate(item) for item in row["results"]]


def feedback(request: FeedbackRequest) -> Steps[list[FeedbackTaken]]:
    """Send a head the right labels; each text or id has its own result or error."""
    row = yield from answered(post(path_of("feedback"), request))
    return [FeedbackTaken.model_validate(checked(item)) for item in row["results"]]


def answer(request: AnswerRequest) -> Steps[Answered]:
    """Answer a question."""
    return Answered.model_validate((yield from answered_one(post(path_of("answer"), request))))


def answer_call(request: AnswerRequest) -> Call:
    """Return the call that streams an answer; without a key, so that its work ends with it."""
    call = post(path_of("answer"), request)
    own = {name: value for name, value in call.headers.items() if name != "Idempotency-Key"}
    return replace(call, headers=own)


def answer_event(event: JobEvent) -> AnswerEvent | None:
    """Read an event of an answer; None of one that this client does not know.

    Raises:
        VersoError: it says that the job ended in an error.
    """
    match event.name:
        case "hits":
            return AnswerEvent(hits=AnswerHits.model_validate(event.data))
        case "spans":
            return AnswerEvent(spans=AnswerSpans.model_validate(event.data))
        case "end":
            return AnswerEvent(end=AnswerResponse.model_validate(event.data))
        case "error":
            raise from_body(ErrorBody(**event.data))  # type: ignore[typeddict-item]
    return None


def score(pairs: Sequence[tuple[str, str]], *, head: str) -> Steps[list[float]]:
    """Score pairs of texts, in their order."""
    body = {"head": head, "pairs": [list(pair) for pair in pairs]}
    row = yield from answered(post(path_of("score"), body))
    items = row["data"] if "data" in row else row["results"]
    return [float(checked(item)["score"]) for item in items]


def rerank(
    query: str, documents: Sequence[str], *, head: str, top_n: int | None
) -> Steps[list[RankedDocument]]:
    """Order texts by the score of each one's best part for a query, best first."""
    body: dict[str, Any] = {"head": head, "query": query, "documents": list(documents)}
    body |= {"return_documents": False} | ({} if top_n is None else {"top_n": top_n})
    call = post(path_of("rerank"), body)
    reply = yield replace(call, headers={**call.headers, **_PATIENT})
    return [RankedDocument.model_validate(row) for row in reply.json()["results"]]


def heads() -> Steps[list[HeadInfo]]:
    """List the heads by name."""
    row = yield from answered_one(Call("GET", path_of("heads"), headers=_PATIENT))
    return [HeadInfo.model_validate(one) for one in row["heads"]]


def head(name: str) -> Steps[HeadInfo]:
    """Describe one head.

    Raises:
        HeadUnknown: there is none of this name.
    """
    row = yield from answered_one(Call("GET", path_of("heads", name), headers=_PATIENT))
    for one in row.get("heads", [row]):  # of a job that took long: all of them
        if one["name"] == name:
            return HeadInfo.model_validate(one)
    raise HeadUnknown(f"no head {name!a}")


def report(name: str, *, channel: Channel) -> Steps[str]:
    """Return a head's report, Markdown."""
    params = {"channel": channel.value}
    reply = yield Call("GET", path_of("heads", name, "report"), params=params, headers=_PATIENT)
    return str(reply.json()["report"])


def figures(name: str, *, channel: Channel) -> Steps[HeadFigures]:
    """Return the figures of a head's report; empty ones from a worker that gives none."""
    params = {"channel": channel.value}
    reply = yield Call("GET", path_of("heads", name, "report"), params=params, headers=_PATIENT)
    return HeadReportView.model_validate(reply.json()).figures or HeadFigures()


@dataclass(frozen=True, slots=True)
class Training:
    """A training: a head, and the rows, questions, pairs, file or collection to train it on.

    Attributes:
        head: its name.
        rows: objects with ``text``, ``label`` and optionally ``split``, for a head that classifies.
        squad: content of a file in the layout of SQuAD 2.0, for a head that answers.
        pairs: objects with ``text_1``, ``text_2``, ``score`` in [0, 1], for a head that scores.
        groups: objects with ``question``, and lists of passages that answer it (``right``) and do
            not (``wrong``), for a head that ranks passages.
        file: content of a CSV or JSON lines file of rows or pairs, or of a JSON lines file of
            groups, of type ``media_type``.
        task: task of the head for a ``file``: rows classify, pairs and groups score.
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
    groups: Sequence[Mapping[str, str | Sequence[str]]] | None = None
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
        if self.file is None:
            task, source = self._source()
            body = {"head": self.head, "task": task, "source": source, **settings}
            return post(path_of("train"), body)
        text, label = self.columns
        return Call(
            "POST",
            path_of("train"),
            params={
                "head": self.head,
                "task": str(self.task),
                "text_column": text,
                "label_column": label,
                "settings": json.dumps(settings),
            },
            content=self.file,
            headers={"Content-Type": self.media_type, "Idempotency-Key": new_key()},
        )

    def _source(self) -> tuple[Task, dict[str, Any]]:
        """Return the head's task, and the examples."""
        if self.collection is not None:
            return Task.CLASSIFY, {"collection": self.collection, "label_key": self.label_key}
        if self.squad is not None:
            return Task.ANSWER, {"squad": dict(self.squad)}
        if self.pairs is not None:
            return Task.SCORE, {"pairs": [dict(pair) for pair in self.pairs]}
        if self.groups is not None:
            return Task.SCORE, {"groups": [dict(group) for group in self.groups]}
        return Task.CLASSIFY, {"rows": [dict(row) for row in self.rows or ()]}


def train(training: Training) -> Steps[Job]:
    """Start a training and return its job, without waiting for it."""
    reply = yield training.call()
    return (yield from get_job(str(reply.json()["id"])))


def status() -> Steps[StatusView]:
    """Return whether the platform is ready, what waits, and what room its workers have."""
    reply = yield Call("GET", path_of("status"))
    return StatusView.model_validate(reply.json())


def ledgers() -> Steps[list[LedgerView]]:
    """Return the ledgers, the home ledger first."""
    reply = yield Call("GET", path_of("ledgers"))
    return list(LedgerList.model_validate(reply.json()).ledgers)


def drain(ledger: str, *, draining: bool, move: bool) -> Steps[list[LedgerView]]:
    """Make no new collection on a ledger, or make them there again; return the ledgers."""
    change = LedgerChange(draining=draining, move=move)
    reply = yield replace(post(path_of("ledgers", ledger), change), method="PATCH")
    return list(LedgerList.model_validate(reply.json()).ledgers)


def registry() -> Steps[RegistryState]:
    """Return which models serve."""
    reply = yield Call("GET", path_of("registry"))
    return RegistryState.model_validate(reply.json())


def change(action: str, *, head: str | None) -> Steps[RegistryState]:
    """Promote or roll back a head, or the artifact if ``head`` is None."""
    reply = yield post(path_of("registry", action), {"head": head})
    return RegistryState.model_validate(reply.json())
