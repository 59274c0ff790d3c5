"""Training: train heads, and promote or roll back what was trained."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verso_client.exchange import Call, Steps
from verso_client.operations.jobs import get_job
from verso_client.retries import Retries, perform
from verso_core.heads import Task
from verso_core.jobs.admin import RegistryState
from verso_core.jobs.job import Job
from verso_core.registry import SHARE

CSV = "text/csv"
NDJSON = "application/x-ndjson"


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
