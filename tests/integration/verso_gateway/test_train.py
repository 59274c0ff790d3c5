"""Train jobs and releases over HTTP: what is accepted, and what is refused before that."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import httpx2
import pytest
from tests import made_up
from tests.integration.verso_gateway.conftest import FakeWorker
from tests.wire import read_slice

from verso_core import questions
from verso_core.jobs import Kind, Queue
from verso_core.jobs.train import (
    MAX_COLLECTION_ROWS,
    Labelled,
    unpack_groups,
    unpack_pairs,
    unpack_rows,
)
from verso_ledger import Ledger

ROWS = [{"text": f"text {n}", "label": "xy"[n % 2]} for n in range(10)]
BODY = {"head": "mood", "source": {"rows": ROWS}, "recipe": {"classify": {"hidden": 8}}}


LARGE_SCORE = {"text_1": "a", "text_2": "b", "score": 10**400}
ASKED_TWICE = {"data": made_up.squad()["data"] + made_up.squad(1)["data"]}


@pytest.fixture
def trainer(worker: FakeWorker) -> Ledger:
    """A ledger in which a trainer has just beaten."""
    worker.ledger.liveness.note_trainer("t")
    return worker.ledger


def _code(answer: httpx2.Response) -> str:
    return str(answer.json()["code"])


def test_without_a_trainer_nothing_is_accepted(client: httpx2.Client, worker: FakeWorker) -> None:
    answer = client.post("/v1/train", json=BODY)
    assert (answer.status_code, _code(answer)) == (503, "trainer_unavailable")
    assert answer.json()["retryable"] is True
    assert worker.ledger.maintenance.depths()[Queue.TRAIN].queued == 0


def test_a_training_that_is_sent_again_is_found_though_its_trainer_is_gone(
    client: httpx2.Client, trainer: Ledger
) -> None:
    def ask() -> httpx2.Response:
        return client.post("/v1/train", json=BODY, headers={"Idempotency-Key": "k"})

    first = ask()
    trainer.liveness.forget_trainer("t")
    again = ask()
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["id"] == first.json()["id"]


def test_rows_of_a_body_become_one_slice(client: httpx2.Client, trainer: Ledger) -> None:
    answer = client.post("/v1/train", json=BODY)
    assert answer.status_code == 202
    [lease] = trainer.leases.claim(Queue.TRAIN, owner="t")
    work = read_slice(lease.payload)
    assert work.kind is Kind.TRAIN
    assert (work.params["head"], work.params["recipe"]) == ("mood", {"classify": {"hidden": 8}})
    [item] = work.items
    assert unpack_rows(item.blob or b"")[1] == Labelled("text 1", "y")


@pytest.mark.parametrize(
    ("task", "source"),
    [
        ("answer", {"squad": made_up.squad()}),
        ("score", {"pairs": made_up.pairs()}),
        ("score", {"groups": made_up.groups()}),
    ],
)
def test_questions_pairs_and_groups_become_one_slice_each(
    client: httpx2.Client, trainer: Ledger, task: str, source: dict[str, Any]
) -> None:
    body = {"head": "mood", "task": task, "source": source, "recipe": {task: {"epochs": 1}}}
    answer = client.post("/v1/train", json=body)
    assert answer.status_code == 202, answer.text
    [lease] = trainer.leases.claim(Queue.TRAIN, owner="t")
    work = read_slice(lease.payload)
    assert (work.params["task"], work.params["recipe"]) == (task, {task: {"epochs": 1}})
    assert work.params["source"].keys() == {"collection", "label_key", "limit"}
    [item] = work.items
    if task == "answer":
        assert questions.unpack(item.blob or b"") == questions.read(made_up.squad())
    elif "groups" in source:
        assert unpack_groups(item.blob or b"")[0].question == "what timed out, case 0"
    else:
        assert [pair.score for pair in unpack_pairs(item.blob or b"")][:2] == [1.0, 0.0]


def test_records_of_a_collection_are_those_of_the_one_that_is_there_now(
    client: httpx2.Client, trainer: Ledger
) -> None:
    source = {"collection": "default", "label_key": "kind"}
    assert client.post("/v1/train", json={"head": "mood", "source": source}).status_code == 202
    [lease] = trainer.leases.claim(Queue.TRAIN, owner="t")
    found = read_slice(lease.payload).params["source"]
    created = trainer.documents.collection("default").created
    assert datetime.fromisoformat(found.pop("created")) == created
    assert found == {**source, "limit": MAX_COLLECTION_ROWS}


def test_a_file_of_pairs_names_its_task_in_the_query(
    client: httpx2.Client, trainer: Ledger
) -> None:
    lines = "\n".join(json.dumps(pair) for pair in made_up.pairs(20)).encode()
    kind = {"Content-Type": "application/x-ndjson"}
    query = {"head": "mood", "task": "score"}
    assert client.post("/v1/train", params=query, content=lines, headers=kind).status_code == 202
    query["task"] = "answer"  # a file of questions is JSON
    answer = client.post("/v1/train", params=query, content=lines, headers=kind)
    assert _code(answer) == "request_invalid"


@pytest.mark.parametrize("kind", ["text/csv", "application/x-ndjson"])
def test_a_file_is_the_body_and_the_rest_the_query(
    client: httpx2.Client, trainer: Ledger, kind: str
) -> None:
    if kind == "text/csv":
        lines = ["kind,message", *(f"{row['label']},{row['text']}" for row in ROWS)]
    else:
        lines = [json.dumps({"kind": row["label"], "message": row["text"]}) for row in ROWS]
    answer = client.post(
        "/v1/train",
        params={
            "head": "mood",
            "text_column": "message",
            "label_column": "kind",
            "settings": '{"share": 0.5}',
        },
        content="\n".join(lines).encode(),
        headers={"Content-Type": kind},
    )
    assert answer.status_code == 202, answer.text
    [lease] = trainer.leases.claim(Queue.TRAIN, owner="t")
    work = read_slice(lease.payload)
    assert work.params["share"] == 0.5
    assert len(unpack_rows(work.items[0].blob or b"")) == len(ROWS)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"source": {"rows": [{"text": "a", "label": "x"}]}}, "training_data_invalid"),
        ({"source": {"rows": [{"text": "a"}]}}, "training_data_invalid"),
        (
            {"source": {"rows": ROWS + [{**row, "label": "z"} for row in ROWS]}},
            "training_data_invalid",
        ),
        ({"source": {"collection": "nowhere", "label_key": "k"}}, "collection_unknown"),
        ({"source": {"collection": "default"}}, "request_invalid"),
        ({"task": "answer"}, "request_invalid"),
        ({"task": "answer", "source": {"squad": {"data": {}}}}, "training_data_invalid"),
        ({"task": "answer", "source": {"squad": {"data": []}}}, "training_data_invalid"),
        ({"task": "score", "source": {"squad": made_up.squad()}}, "request_invalid"),
        ({"task": "answer", "source": {"squad": ASKED_TWICE}}, "duplicate_id"),
        ({"task": "score", "source": {"pairs": made_up.pairs(4)}}, "training_data_invalid"),
        ({"task": "score", "source": {"pairs": [{"text_1": "a"}]}}, "training_data_invalid"),
        ({"task": "score", "source": {"pairs": [LARGE_SCORE]}}, "training_data_invalid"),
        ({"task": "score", "source": {"groups": made_up.groups(4)}}, "training_data_invalid"),
        ({"task": "score", "source": {"groups": [{"question": "a"}]}}, "training_data_invalid"),
        ({"head": "No Name"}, "request_invalid"),
        ({"task": "sing"}, "request_invalid"),
        ({"share": 1.5}, "request_invalid"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_at_once(
    client: httpx2.Client, trainer: Ledger, change: dict[str, Any], code: str
) -> None:
    answer = client.post("/v1/train", json={**BODY, **change})
    assert _code(answer) == code
    assert trainer.maintenance.depths()[Queue.TRAIN].queued == 0
