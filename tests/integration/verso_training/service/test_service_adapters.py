"""The training service on questions and pairs: heads that read tokens, trained step by step."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tests import made_up
from tests.integration.verso_training.service.test_service import ARTIFACT, Bench, _when_training
from tests.wire import Item, Result, cut

from verso_core import heads, questions, registry
from verso_core.errors import HeadUnknown, QuestionTooLong, RequestInvalid
from verso_core.heads import Task, TextUnit
from verso_core.jobs import Kind, Queue, Status
from verso_core.jobs.train import Grouped, Scored, pack_groups, pack_pairs
from verso_core.registry import Channel
from verso_ledger import Ledger, NewJob
from verso_training.config import RecipeInvalid
from verso_training.service import job as training_job


@pytest.fixture
def bench(valkey_url: str, tmp_path: Path) -> Iterator[Bench]:
    ledger = Ledger.from_url(valkey_url)
    yield Bench(ledger, tmp_path)
    ledger.close()


def asked(document: dict[str, Any] | None = None) -> bytes:
    return questions.pack(questions.read(document or made_up.squad()))


def scored() -> bytes:
    return pack_pairs([Scored(*pair.values()) for pair in made_up.pairs()])  # type: ignore[arg-type]


def wanted(task: Task, **recipe: Any) -> dict[str, Any]:
    settings = made_up.SETTINGS if task is Task.ANSWER else {"rate": 4e-3, "rank": 8, "start": ""}
    return {
        "head": "manual",
        "task": task,
        "source": {"collection": None, "label_key": None},
        "recipe": {str(task): settings | recipe},
        "share": 0.5,
        "new_labels": False,
        "licence": "CC0-1.0",
    }


def folder(bench: Bench, task: Task, data: bytes, **recipe: Any) -> Path:
    """What a trainer lays out for the process of one training."""
    made = bench.work / "job"
    made.mkdir(parents=True, exist_ok=True)
    (made / "rows.jsonl").write_bytes(data)
    request = {"params": wanted(task, **recipe), "artifact": str(ARTIFACT)}
    (made / "request.json").write_text(
        json.dumps(request | {"models": str(bench.models), "threads": 1}), encoding="utf-8"
    )
    return made


def steps_done(run: Path) -> int:
    """Read how far the last checkpoint of a run is; 0 where there is none."""
    if not (run / "state.pt").exists():
        return 0
    state = torch.load(run / "state.pt", weights_only=True)
    return int(json.loads(state["place"])["step"])


def test_a_reader_that_was_killed_goes_on_from_its_checkpoint_and_becomes_a_canary(
    bench: Bench,
) -> None:
    slices = list(
        cut(Kind.TRAIN, wanted(Task.ANSWER, checkpoint_minutes=0.005), [Item({"rows": 1}, asked())])
    )
    job_id = bench.ledger.jobs.accept(NewJob(Kind.TRAIN, Queue.TRAIN, slices)).job_id
    run = bench.work / job_id / training_job.RUN_NAME

    def kill(child: psutil.Process) -> None:
        until = time.monotonic() + 240
        while steps_done(run) < 40:
            assert time.monotonic() < until
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)

    killer = _when_training(bench.work, kill)
    assert bench.trainer.step()
    killer.join()
    assert bench.ledger.jobs.get(job_id).status is Status.RUNNING
    assert steps_done(run) >= 40
    until = time.monotonic() + 240
    while not bench.trainer.step():
        assert time.monotonic() < until
        time.sleep(0.2)
    record = bench.ledger.jobs.get(job_id)
    assert (record.status, record.attempts) == (Status.SUCCEEDED, 2), record.error
    [item] = Result.unpack(bench.ledger.jobs.result(job_id) or b"").items
    # Every tenth step is reported: an attempt that had started again would have reported the
    # tenth. One that was killed near its end may have had no tenth step left.
    shares = [row["share"] for row in item["history"] if "loss" in row.get("metrics", {})]
    assert all(share > 0.2 for share in shares)
    loaded = heads.load(registry.head(bench.models, "manual", Channel.CANARY)).head
    assert (loaded.task, loaded.version) == (Task.ANSWER, item["version"])
    assert loaded.calibration.null_threshold is not None
    assert loaded.metrics["test_f1"] > 80
    assert sum(item["rows"].values()) >= 120
    assert bench.left_behind() == []


def test_a_scorer_is_trained_on_pairs(bench: Bench) -> None:
    result = training_job.train(folder(bench, Task.SCORE, scored(), epochs=12))
    head = heads.load(bench.models / "heads" / "manual" / result["version"]).head
    assert (head.task, head.lineage.recipe["score"]["rank"]) == (Task.SCORE, 8)
    assert head.metrics["test_auroc"] > 80
    assert result["rows"] == {"train": 84, "validation": 18, "test": 18}


def test_a_scorer_that_is_trained_on_groups_reads_passages(bench: Bench) -> None:
    groups = [
        Grouped(g["question"], tuple(g["right"]), tuple(g["wrong"])) for g in made_up.groups()
    ]
    result = training_job.train(folder(bench, Task.SCORE, pack_groups(groups), epochs=12))
    head = heads.load(bench.models / "heads" / "manual" / result["version"]).head
    assert (head.task, head.text_unit, head.max_tokens) == (Task.SCORE, TextUnit.PASSAGE, 256)
    assert head.metrics["test_mrr"] > 80
    assert result["rows"] == {"train": 42, "validation": 9, "test": 9}


def test_a_head_goes_on_from_one_that_serves(bench: Bench) -> None:
    """One step at a rate of almost nothing leaves it as good as the head that it began with."""
    first = training_job.train(folder(bench, Task.ANSWER, asked()))
    draft = bench.models / "heads" / "manual" / first["version"]
    loaded = heads.load(draft).head
    start = heads.named(loaded.model_copy(update={"name": "faults"}))
    place = bench.models / "heads" / "faults" / start.version
    place.parent.mkdir()
    draft.rename(place)
    (place / heads.HEAD_NAME).write_text(start.model_dump_json())
    registry.assign(bench.models, Channel.STABLE, start.version, head="faults")
    other = {"start": "faults", "layers": "4l-gelu-skip", "rank": 2, "epochs": 0.1, "rate": 1e-9}
    second = training_job.train(folder(bench, Task.ANSWER, asked(), **other))
    assert second["metrics"] == pytest.approx(first["metrics"], abs=0.5)
    made = heads.load(bench.models / "heads" / "manual" / second["version"]).head
    settings = made.lineage.recipe["answer"]
    assert settings["start"] == f"faults/{start.version}"
    assert (settings["layers"], settings["rank"]) == ("vanilla", 8)
    # Of the name of a head that answers no head of another task is made.
    with pytest.raises(RequestInvalid, match="start from, got faults"):
        training_job.train(folder(bench, Task.SCORE, scored(), start="faults"))
    registry.assign(bench.models, Channel.STABLE, second["version"], head="manual")
    with pytest.raises(RequestInvalid, match="manual is one to answer"):
        training_job.train(folder(bench, Task.SCORE, scored()))


@pytest.mark.parametrize(
    ("task", "recipe", "error"),
    [
        (Task.ANSWER, {"layers": "5l"}, RecipeInvalid),
        (Task.ANSWER, {"max_tokens": 5000, "tokens_per_step": 9000}, RecipeInvalid),
        (Task.ANSWER, {"max_tokens": 24}, QuestionTooLong),
        (Task.ANSWER, {"start": "nothing"}, HeadUnknown),
    ],
)
def test_what_cannot_be_followed_is_told_before_a_step_is_done(
    bench: Bench, task: Task, recipe: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        training_job.train(folder(bench, task, asked(), **recipe))
    assert bench.left_behind() == [bench.work / "job"]
