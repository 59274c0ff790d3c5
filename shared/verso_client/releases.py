"""Train heads, and roll out what was trained: steps without input or output of their own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verso_client.answers import Job, RegistryState
from verso_client.exchange import Call, Steps
from verso_client.operations import get_job
from verso_client.retries import Retries, perform
from verso_core.heads import Task
from verso_core.registry import SHARE

CSV = "text/csv"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Training:
    """What a head is to be trained on: rows, questions or pairs, a file of them, or a collection.

    Attributes:
        head: its name.
        rows: objects with ``text``, ``label`` and maybe ``split``; the head classifies.
        squad: content of a file of questions as SQuAD 2.0 lays it out; the head answers.
        pairs: objects with ``text_1``, ``text_2``, ``score`` in [0, 1]; the head scores.
        file: content of a CSV or JSON lines file of rows or pairs, of type ``media_type``.
        task: what the head of a ``file`` does: rows classify, pairs score.
        collection: whose records carry the label as metadata, under ``label_key``.
        recipe: settings of the training.
        share: of the jobs that try the new version, in [0, 1].
        new_labels: the labels may differ from those of the stable version.
        licence: of the data.
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
        """Make the request."""
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
        """Return what the examples are for, and the examples."""
        if self.collection is not None:
            return Task.CLASSIFY, {"collection": self.collection, "label_key": self.label_key}
        if self.squad is not None:
            return Task.ANSWER, {"squad": dict(self.squad)}
        if self.pairs is not None:
            return Task.SCORE, {"pairs": [dict(pair) for pair in self.pairs]}
        return Task.CLASSIFY, {"rows": [dict(row) for row in self.rows or ()]}


def train(training: Training, retries: Retries) -> Steps[Job]:
    """Ask for a training and give its job, without waiting for it."""
    reply = yield from perform(training.call(), retries)
    return (yield from get_job(str(reply.json()["id"]), retries))


def registry(retries: Retries) -> Steps[RegistryState]:
    """Yield which models serve."""
    reply = yield from perform(Call("GET", "/v1/registry"), retries)
    return RegistryState.model_validate(reply.json())


def change(what: str, retries: Retries, *, head: str | None) -> Steps[RegistryState]:
    """Promote or roll back a head, or the artifact where ``head`` is None."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f'"{uuid.uuid4()}"'}
    content = json.dumps({"head": head}).encode("ascii")
    call = Call("POST", f"/v1/registry/{what}", content=content, headers=headers)
    reply = yield from perform(call, retries)
    return RegistryState.model_validate(reply.json())
