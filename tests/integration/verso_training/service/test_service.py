"""The training service on a real ledger, with real trainings in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import redis
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from tests.wire import Item, Result, cut

from verso_core import heads, manifest, registry, tracing
from verso_core.errors import LabelsChanged, TrainingDataInvalid
from verso_core.heads import Reads
from verso_core.jobs import Collection, Kind, Precision, Queue, Status, TextPolicy
from verso_core.jobs.train import Labelled, pack_rows
from verso_core.registry import Channel
from verso_ledger import AsyncLedger, Ledger, NewJob, WorkSubscriber
from verso_ledger.keys import key
from verso_training.config import RecipeInvalid
from verso_training.service import job as training_job
from verso_training.service.main import _serve
from verso_training.service.metrics import Metrics
from verso_training.service.trainer import Trainer

TESTS = Path(__file__).parents[3]
ARTIFACT = TESTS / "data" / "artifact-tiny"
CRASH = TESTS / "chaos" / "crash"


def some_rows(count: int = 120, labels: tuple[str, ...] = ("disk", "login")) -> list[Labelled]:
    """Make log lines that tell their labels."""
    dice = random.Random(7)
    return [
        Labelled(f"{labels[n % len(labels)]} {dice.randrange(9999)} on host {n}", label)
        for n in range(count)
        for label in (labels[n % len(labels)],)
    ]


class Bench:
    """A trainer, and what a gateway would do around it."""

    def __init__(self, ledger: Ledger, root: Path) -> None:
        self.ledger = ledger
        self.models = root / "models"
        self.models.mkdir()
        (self.models / "tiny").symlink_to(ARTIFACT)
        registry.assign(self.models, Channel.STABLE, "tiny")
        self.work = root / "training"
        self.heartbeat = root / "heartbeat"
        self.figures = CollectorRegistry()
        self.trainer = Trainer(
            ledger, Metrics(self.figures), models=self.models, work=self.work, owner="t",
            lease_s=3.0, threads=1, heartbeat_file=self.heartbeat,
        )  # fmt: skip

    def ask(self, rows: list[Labelled], *, trace: str | None = None, **params: Any) -> str:
        wanted = {
            "head": "mood",
            "task": "classify",
            "source": {"collection": None, "label_key": None},
            "recipe": {},
            "share": 0.5,
            "new_labels": False,
            "licence": "CC0-1.0",
        }
        item = Item({"rows": len(rows)}, pack_rows(rows))
        slices = list(cut(Kind.TRAIN, wanted | params, [item]))
        return self.ledger.jobs.accept(NewJob(Kind.TRAIN, Queue.TRAIN, slices, trace=trace)).job_id

    def ended(self, outcome: str) -> float | None:
        """Return how many trainings are counted to have ended so."""
        return self.figures.get_sample_value("verso_trainings_total", {"status": outcome})

    def error(self, job_id: str) -> str:
        record = self.ledger.jobs.get(job_id)
        assert record.status is Status.FAILED
        assert record.error is not None
        return record.error["code"]

    def left_behind(self) -> list[Path]:
        return [*self.work.glob("*"), *(self.models / "heads").glob("*/.draft-*")]


@pytest.fixture
def bench(valkey_url: str, tmp_path: Path) -> Iterator[Bench]:
    ledger = Ledger.from_url(valkey_url)
    yield Bench(ledger, tmp_path)
    ledger.close()


def _when_training(work: Path, do: Callable[[psutil.Process], None]) -> threading.Thread:
    """Do something to the first training's process as soon as there is one."""

    def look() -> None:
        me = psutil.Process()
        until = time.monotonic() + 240
        while time.monotonic() < until:
            for child in me.children():
                if "verso_training.service.job" in child.cmdline():
                    do(child)
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def test_a_training_that_was_killed_in_mid_export_is_done_again_and_published_as_a_canary(
    bench: Bench, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CRASH), prepend=os.pathsep)
    monkeypatch.setenv("CRASH_FILE", str(tmp_path / "crash"))
    (tmp_path / "crash").write_text("a head is in its draft")
    job_id = bench.ask(some_rows())
    bench.trainer.heartbeat()

    place = bench.models / "heads" / "mood"
    assert bench.trainer.step()
    assert not (tmp_path / "crash").exists(), "it did not come by"
    bench.heartbeat.unlink()
    assert bench.ledger.jobs.get(job_id).status is Status.RUNNING
    assert registry.read(bench.models).heads == {}
    [draft] = place.iterdir()
    assert draft.name.startswith(".draft-")
    assert (draft / "head.onnx").exists()
    until = time.monotonic() + 240
    while not bench.trainer.step():
        assert time.monotonic() < until
        time.sleep(0.2)
    record = bench.ledger.jobs.get(job_id)
    assert (record.status, record.attempts) == (Status.SUCCEEDED, 2)
    assert bench.heartbeat.exists(), "expected a beat while the training ran"
    [item] = Result.unpack(bench.ledger.jobs.result(job_id) or b"").items
    rollout = registry.read(bench.models).heads["mood"]
    assert (rollout.stable, rollout.canary, rollout.share) == (None, item["version"], 0.5)
    loaded = heads.load(registry.head(bench.models, "mood", Channel.CANARY))
    assert loaded.head.labels == ("disk", "login")
    assert loaded.head.lineage.licence == "CC0-1.0"
    assert item["data_sha256"] == loaded.head.lineage.data_sha256
    assert item["metrics"]["accuracy"] == 1.0
    assert item["history"][-1] == {"stage": "publish", "share": 1.0}
    told = asyncio.run(_told(valkey_url, job_id))
    assert any(one and "validation_loss" in one.get("metrics", {}) for one in told)
    assert bench.left_behind() == []
    assert (bench.ended("retried"), bench.ended("done")) == (1, 1)


async def _told(url: str, job_id: str) -> list[Any]:
    front = AsyncLedger.from_url(url)
    try:
        return [event.data.get("progress") async for event in front.follow(job_id)]
    finally:
        await front.close()


def test_a_trainer_that_lost_its_subscription_listens_again_and_does_not_spin(
    bench: Bench, valkey_url: str
) -> None:
    over = threading.Event()
    with redis.Redis.from_url(valkey_url) as client:

        def steps() -> int:
            told: Any = client.info("commandstats")
            return int(told["cmdstat_evalsha"]["calls"])

        def await_listener() -> None:
            until = time.monotonic() + 120
            while client.pubsub_numsub(key("wake", Queue.TRAIN))[0][1] != 1:
                assert time.monotonic() < until
                time.sleep(0.05)

        subscriber = WorkSubscriber(client, Queue.TRAIN)
        thread = threading.Thread(target=_serve, args=(bench.trainer, subscriber, over))
        thread.start()
        try:
            await_listener()
            client.client_kill_filter(_type="pubsub")
            await_listener()
            before = steps()
            time.sleep(3.0)
            assert steps() - before < 30
        finally:
            over.set()
            bench.trainer.close()
            thread.join()


def test_a_cancelled_training_is_ended_and_publishes_nothing(bench: Bench) -> None:
    job_id = bench.ask(some_rows())
    ledger = bench.ledger

    def cancel(_: psutil.Process) -> None:
        ledger.jobs.cancel(job_id)

    canceller = _when_training(bench.work, cancel)
    assert bench.trainer.step()
    canceller.join()
    assert bench.ledger.jobs.get(job_id).status is Status.CANCELLED
    assert registry.read(bench.models).heads == {}
    assert bench.left_behind() == []
    assert bench.ended("stale") == 1


def test_a_draft_of_another_machine_is_left_alone(bench: Bench) -> None:
    place = bench.models / "heads" / "mood"
    other, ended = (place / f".draft-{host}-{1 << 30}" for host in ("other", socket.gethostname()))
    other.mkdir(parents=True)
    ended.mkdir()
    bench.ask(some_rows())
    assert bench.trainer.step()
    assert other.exists()
    assert not ended.exists()


def test_a_training_begins_again_where_another_space_serves_since(bench: Bench) -> None:
    job_id = bench.ask(some_rows())
    folder = bench.work / job_id
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps({"space": "another"}))
    (folder / "result.json").write_text(json.dumps({"head": "mood", "version": "of-another"}))
    assert bench.trainer.step()
    assert bench.ledger.jobs.get(job_id).status is Status.SUCCEEDED
    made = heads.load(registry.head(bench.models, "mood", Channel.CANARY)).head
    assert made.space == manifest.read(ARTIFACT).space.id


def test_a_trainer_that_stops_gives_its_job_back_uncounted(bench: Bench) -> None:
    job_id = bench.ask(some_rows())
    stopper = _when_training(bench.work, lambda _: bench.trainer.close())
    assert bench.trainer.step()
    stopper.join()
    record = bench.ledger.jobs.get(job_id)
    assert not record.status.terminal
    assert bench.ledger.maintenance.depths()[Queue.TRAIN].queued == 1
    assert bench.ended("stopped") == 1
    assert (bench.work / job_id / "rows.jsonl").exists()


def test_a_disk_that_is_full_when_publishing_is_an_error_and_leaves_nothing(bench: Bench) -> None:
    job_id = bench.ask(some_rows())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, limits[1]))
    try:
        assert bench.trainer.step()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert bench.error(job_id) == "disk_full"
    assert registry.read(bench.models).heads == {}
    assert bench.left_behind() == []


@pytest.mark.parametrize("classify", [{"hiden": 3}, {"chunk": ["last"]}, {"chunk": "last"}])
def test_a_recipe_that_cannot_be_followed_fails_at_once(
    bench: Bench, classify: dict[str, object]
) -> None:
    """Rows of a request are texts, each with one vector: they have no last chunk."""
    job_id = bench.ask(some_rows(), recipe={"classify": classify})
    assert bench.trainer.step()
    assert bench.error(job_id) == "request_invalid"
    assert bench.left_behind() == []
    assert bench.ended("failed") == 1


def test_a_training_goes_on_in_the_trace_of_its_job(bench: Bench) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    try:
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        bench.ask(some_rows(), trace=f"00-{trace}-00f067aa0ba902b7-01", recipe={"nonsense": 1})
        assert bench.trainer.step()
    finally:
        tracing.use(None)
    made = exporter.get_finished_spans()
    assert {f"{one.context.trace_id:032x}" for one in made if one.context is not None} == {trace}
    assert {"train work", "rows", "train", "ledger fail"} <= {one.name for one in made}
    assert "on host" not in "".join(one.to_json() for one in made)  # words of every text


def ask_for_rows(bench: Bench, **source: Any) -> str:
    params = {
        "head": "mood",
        "task": "classify",
        "source": {"label_key": "kind", "limit": 10} | source,
        "recipe": {},
        "share": 0.1,
    }
    slices = list(cut(Kind.TRAIN, params, [Item({"rows": None})]))
    return bench.ledger.jobs.accept(NewJob(Kind.TRAIN, Queue.TRAIN, slices)).job_id


def test_a_collection_that_is_not_there_fails_at_once(bench: Bench) -> None:
    job_id = ask_for_rows(bench, collection="nowhere")
    assert bench.trainer.step()
    assert bench.error(job_id) == "collection_unknown"
    assert bench.left_behind() == []


def test_a_collection_that_was_made_again_is_not_read(bench: Bench) -> None:
    """The new one may be another tenant's."""
    made = Collection(
        name="notes",
        precision=Precision.INT8,
        text_policy=TextPolicy.PATCH,
        space=manifest.read(ARTIFACT).space.id,
        dim=4,
        int8_scale=0.1,
        artifacts=("codec",),
        buckets=16,
        checksum_key="00ff",
        created=datetime.now(UTC),
    )
    bench.ledger.documents.collection_put(made)
    before = made.created - timedelta(seconds=1)
    job_id = ask_for_rows(bench, collection="notes", created=before.isoformat())
    assert bench.trainer.step()
    assert bench.error(job_id) == "collection_unknown"


def _folder(bench: Bench, rows: list[Labelled], **params: Any) -> Path:
    folder = bench.work / "job"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_bytes(pack_rows(rows))
    wanted = {"head": "mood", "task": "classify", "recipe": {}, "new_labels": False} | params
    request = {"params": wanted, "artifact": str(ARTIFACT), "models": str(bench.models)}
    (folder / "request.json").write_text(json.dumps(request | {"threads": 1}), encoding="utf-8")
    return folder


def test_rows_of_one_label_are_refused_before_anything_is_loaded(bench: Bench) -> None:
    with pytest.raises(TrainingDataInvalid, match="at least two labels, got 'disk'"):
        training_job.train(_folder(bench, some_rows(labels=("disk",))))


def test_other_labels_than_those_of_the_stable_version_are_refused(bench: Bench) -> None:
    """Whoever reads the labels of a head must not meet new ones unawares."""
    stable = ARTIFACT.parent / "heads-tiny"
    found = next(path for path in stable.rglob(heads.HEAD_NAME) if b"classify" in path.read_bytes())
    known = heads.load(found.parent).head
    place = bench.models / "heads" / "mood" / known.version
    shutil.copytree(found.parent, place)
    registry.assign(bench.models, Channel.STABLE, known.version, head="mood")
    with pytest.raises(LabelsChanged, match="new: "):
        training_job.train(_folder(bench, some_rows(labels=("disk", "a-new-label"))))
    # All labels are there, and one of them in too few rows to be trained on.
    rare, rows = known.labels[0], some_rows(labels=known.labels)
    few = [row for row in rows if row.label == rare][:2]
    with pytest.raises(LabelsChanged, match=rf"missing: \['{rare}'\]"):
        training_job.train(_folder(bench, [row for row in rows if row.label != rare] + few))
    assert [path.name for path in place.parent.iterdir()] == [known.version]


def test_a_classifier_of_tokens_is_trained_on_texts_and_on_nothing_else(bench: Bench) -> None:
    settings = {"epochs": 20, "rate": 4e-3, "rank": 8, "dropout": 0.0, "tokens_per_step": 400}
    recipe = {"reads": "tokens", "classify": settings | {"max_tokens": 48}}
    source = {"collection": None}
    folder = _folder(bench, some_rows(60), recipe=recipe, licence="CC0-1.0", source=source)
    result = training_job.train(folder)
    head = heads.load(bench.models / "heads" / "mood" / result["version"]).head
    assert (head.reads, head.max_tokens, head.labels) == (Reads.TOKENS, 48, ("disk", "login"))
    assert result["metrics"]["accuracy"] > 0.8
    assert (folder / training_job.RUN_NAME / "state.pt").exists()
    (folder / "rows.jsonl").unlink()
    np.zeros((24, 384), "<f4").tofile(folder / "rows.f32")
    about = {
        "labels": ["disk", "login"] * 12,
        "documents": [f"d{n}" for n in range(24)],
        "dim": 384,
    }
    (folder / "rows.json").write_text(json.dumps(about))
    with pytest.raises(RecipeInvalid, match="got vectors"):
        training_job.train(folder)
