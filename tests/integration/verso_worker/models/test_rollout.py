"""What is published is taken up while serving; what fails is refused, and nothing else changes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from verso_core import registry
from verso_core.errors import ArtifactInvalid, EngineUnavailable, RequestInvalid
from verso_core.registry import Channel
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.canary import MOST_FAILURES, ArtifactCanary
from verso_worker.models.heads import HeadStore
from verso_worker.models.rollout import RegistryWatcher
from verso_worker.rules.cold.storage import ColdStorage
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.pipeline import Pipeline
from verso_worker.rules.ports.models import Models

DATA = Path(__file__).parents[3] / "data"
Variant = Callable[..., Path]
TEXT = b"Jan 12 10:00:01 host sshd[4242]: Failed password for root"


class Place:
    """A models folder, a model store and a watcher between them."""

    def __init__(self, root: Path, variant: Variant) -> None:
        self.models = root / "models"
        self.models.mkdir()
        self._variant = variant
        self.model_store = ArtifactStore(root / "keep", root, threads=1, device="cpu", idle_s=1.0)
        self.counts = CollectorRegistry()
        self.metrics = Metrics(self.counts)
        self.told: list[dict[str, Any]] = []
        self.watcher = RegistryWatcher(
            self.models, self.model_store, self.metrics, publish=self.told.append
        )

    def publish(self, number: int, *, spoilt: bool = False) -> str:
        """Write a variant; a spoilt one has golden samples that its graphs do not give."""
        folder = self._variant(self.models / f"v{number}", number)
        if spoilt:
            with (folder / "decoder.onnx").open("r+b") as graph:
                graph.seek(5000)
                graph.write(b"\xff" * 64)
        return folder.name

    def assign(
        self, name: str, channel: Channel = Channel.STABLE, *, share: float | None = None
    ) -> None:
        registry.assign(self.models, channel, name, share=share)

    def serves(self) -> str:
        state = self.watcher.state()["artifact"]["stable"]
        return str(state["name"])

    def count(self, name: str, status: str) -> float | None:
        return self.counts.get_sample_value(name, {"status": status})


@pytest.fixture
def place(tmp_path: Path, variant: Variant) -> Iterator[Place]:
    place = Place(tmp_path, variant)
    with closing(place.model_store):
        place.assign(place.publish(0))
        place.watcher.open()
        yield place


def test_a_published_artifact_is_taken_up_and_a_corrupt_one_is_refused(place: Place) -> None:
    """The calls that go on meanwhile all succeed, and the engines that are done are ended."""
    failures: list[Exception] = []
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            try:
                engine = place.model_store.current().recorder.engine
                assert len(engine.encode([TEXT]).vectors) == 1
            except Exception as error:  # noqa: BLE001 - the test counts them
                failures.append(error)

    caller = threading.Thread(target=load)
    caller.start()
    try:
        place.assign(place.publish(1))
        place.watcher.step()
        assert place.serves() == "v1"
        place.assign(place.publish(2, spoilt=True))
        place.watcher.step()
        assert place.serves() == "v1"
        registry.rollback(place.models)  # from what was refused to what serves
        place.watcher.step()
        assert place.watcher.state()["artifact"]["refused"] == []
        time.sleep(1.2)
        place.watcher.step()
    finally:
        over.set()
        caller.join()
    assert failures == []
    assert len(place.model_store.running()) == 1
    assert place.count("verso_model_swaps_total", "refused") == 1
    assert place.count("verso_model_swaps_total", "taken_up") == 2


def test_a_refusal_says_what_and_why(place: Place) -> None:
    place.assign(place.publish(1, spoilt=True))
    place.watcher.step()
    [refused] = place.told[-1]["artifact"]["refused"]
    assert (refused["channel"], refused["name"]) == ("stable", "v1")
    assert refused["error"]["code"] == "artifact_invalid"
    assert "decoder.onnx" in refused["error"]["detail"]


def test_what_changes_is_published_at_the_next_look(place: Place) -> None:
    place.assign(place.publish(1), Channel.CANARY)
    place.watcher.step()
    published = len(place.told)
    place.watcher.step()
    assert len(place.told) == published
    codec = place.told[-1]["artifact"]["canary"]["codec"]
    place.watcher.tried(codec, 3, 0)
    place.watcher.step()
    assert place.told[-1]["artifact"]["trial"] == {"passed": 3, "failed": 0}


def test_a_canary_that_another_replaces_serves_no_more_while_that_one_cannot_be_loaded(
    place: Place,
) -> None:
    """What it does would be counted in the trial of the next one."""
    place.assign(place.publish(1), Channel.CANARY, share=1.0)
    place.watcher.step()
    assert place.model_store.canary("job") is not None
    place.assign(place.publish(2), Channel.CANARY)
    kept = place.models.parent / "keep"
    shutil.rmtree(kept)
    kept.write_bytes(b"")  # no room for copies
    place.watcher.step()
    refused = {one["name"]: one["error"] for one in place.told[-1]["artifact"]["refused"]}
    assert refused["v2"]["code"] == "disk_full"
    assert registry.read(place.models).canary == "v2"
    assert place.told[-1]["artifact"]["canary"] is None
    assert place.model_store.canary("job") is None


def test_a_corrupt_canary_is_withdrawn_from_the_registry(place: Place) -> None:
    place.assign(place.publish(1, spoilt=True), Channel.CANARY)
    place.watcher.step()
    now = registry.read(place.models)
    assert (now.stable, now.canary) == ("v0", None)
    assert now.withdrawn is not None
    assert now.withdrawn.version == "v1"
    assert place.count("verso_model_swaps_total", "withdrawn") == 1


def test_a_worker_starts_with_what_was_stable_before_where_the_stable_one_is_broken(
    place: Place,
) -> None:
    place.assign(place.publish(1, spoilt=True))
    again = RegistryWatcher(
        place.models, place.model_store, place.metrics, publish=place.told.append
    )
    again.open()
    state = again.state()["artifact"]
    assert state["stable"]["name"] == "v0"
    assert [row["name"] for row in state["refused"]] == ["v1"]


def test_a_broken_registry_changes_nothing(place: Place) -> None:
    (place.models / registry.REGISTRY_NAME).write_text("{", encoding="utf-8")
    with pytest.raises(ArtifactInvalid):
        place.watcher.step()
    assert place.serves() == "v0"
    assert len(place.model_store.current().recorder.engine.encode([TEXT]).vectors) == 1


def test_a_canary_gets_its_share_by_job_and_is_taken_back_when_it_fails(place: Place) -> None:
    place.assign(place.publish(1), Channel.CANARY, share=0.5)
    place.watcher.step()
    stable, canary = place.model_store.current().codec, ""
    tried = []
    for n in range(100):
        models = place.model_store.canary(f"job-{n}")
        if models is not None:
            tried.append(n)
            canary = models.current().codec
    assert 30 < len(tried) < 70
    assert canary not in ("", stable)
    trials = _trials(place)
    job = f"job-{tried[0]}"
    assert trials.pipeline(job) is not None
    for _ in range(MOST_FAILURES):
        assert not trials.failed(RequestInvalid("the caller's fault"))
        assert trials.failed(EngineUnavailable("died"))
    place.watcher.step()
    assert registry.read(place.models).canary == "v1"  # this much may be chance
    assert trials.failed(EngineUnavailable("died"))
    place.watcher.step()
    assert trials.pipeline(job) is None
    now = registry.read(place.models)
    assert now.canary is None
    assert now.withdrawn is not None
    assert "3 of 3 slices failed, the last with engine_unavailable" in now.withdrawn.reason


def test_a_canary_that_wrote_a_record_which_does_not_read_back_goes_at_once(place: Place) -> None:
    place.assign(place.publish(1), Channel.CANARY, share=1.0)
    place.watcher.step()
    trials = _trials(place)
    assert trials.pipeline("job") is not None
    trials.passed()
    trials.misread(1)
    place.watcher.step()
    assert registry.read(place.models).canary is None
    assert place.model_store.canary("job") is None


def test_what_an_engine_that_was_ended_wrote_is_read_by_starting_it_again(place: Place) -> None:
    old = place.model_store.current()
    vectors = old.recorder.engine.encode([TEXT]).vectors
    [payload] = old.recorder.engine.code([TEXT], vectors)
    place.assign(place.publish(1))
    place.watcher.step()
    time.sleep(1.1)
    place.model_store.tidy()
    assert old.codec not in place.model_store.running()
    with pytest.raises(EngineUnavailable):
        old.recorder.engine.read([payload or b""], vectors)
    again = place.model_store.get(old.codec)
    assert again.recorder.engine.read([payload or b""], vectors) == [TEXT]


def test_a_damaged_copy_of_an_artifact_is_made_again_from_a_sound_one(place: Place) -> None:
    """And one that belongs to no record in question keeps nothing else from being found."""
    [kept] = place.model_store._copies.root.iterdir()
    graph = kept / "decoder.onnx"
    sound = graph.read_bytes()
    graph.write_bytes(sound[:5000] + bytes([sound[5000] ^ 1]) + sound[5001:])
    (place.model_store._copies.root / "broken").mkdir()
    (place.model_store._copies.root / "broken/manifest.json").write_text("{")
    again = ArtifactStore(
        place.model_store._copies.root, place.model_store._launcher.run, threads=1, device="cpu"
    )
    with closing(again):
        codec = again.open(place.models / "v0").codec
        assert graph.read_bytes() == sound
    once_more = ArtifactStore(
        place.model_store._copies.root, place.model_store._launcher.run, threads=1, device="cpu"
    )
    with closing(once_more):
        assert once_more.get(codec).codec == codec


def _trials(place: Place) -> ArtifactCanary:
    def make(models: Models) -> Pipeline:
        nothing: Any = None  # no slice is run
        others = dict.fromkeys(
            ("migrations", "lexicon", "registry", "heads", "feedback", "tables", "fitter"), nothing
        )
        logs = LogStore(nothing, ColdStorage(nothing))
        return Pipeline(models, nothing, nothing, logs=logs, **others)

    return ArtifactCanary(
        place.model_store, place.metrics, make=make, withdraw=place.watcher.withdraw
    )


def test_a_canary_of_a_head_that_fails_too_often_is_told_and_not_used_again(tmp_path: Path) -> None:
    [source] = (DATA / "heads-tiny" / "heads" / "kinds").iterdir()
    folder = tmp_path / "heads" / "kinds" / source.name
    shutil.copytree(source, folder)
    registry.assign(tmp_path, Channel.CANARY, source.name, head="kinds", share=1.0)
    artifacts = ArtifactStore(tmp_path / "keep", tmp_path, threads=1, device="cpu", idle_s=0.0)
    model_store = HeadStore(tmp_path, artifacts)
    assert model_store.canary("kinds", "7") == source.name
    fault = EngineUnavailable("head kinds failed on an input")
    for _ in range(2):
        model_store.tried("kinds", source.name, fault)
    assert model_store.canary("kinds", "7") == source.name
    model_store.tried("kinds", source.name, fault)
    assert model_store.canary("kinds", "7") is None
    [state] = model_store.states()
    assert "3 of 3 slices failed" in state["canary"]["error"]["detail"]
