"""A classifier's canary beside its stable version: both are asked, and the worse one goes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from verso_core import heads, registry
from verso_core.errors import HeadUnknown
from verso_core.heads import Judged, named
from verso_core.jobs import Kind, Result, Slice
from verso_core.jobs.heads.classify import Classification, Classified, ClassifyItem, ClassifyParams
from verso_core.jobs.heads.feedback import FeedbackItem, FeedbackParams, FeedbackTaken
from verso_core.registry import Channel
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.comparison import UNIT, Comparisons, Margins
from verso_worker.models.heads import HeadStore
from verso_worker.models.rollout import RegistryWatcher
from verso_worker.records.outputs import Timings
from verso_worker.rules.classification.classify import Classify
from verso_worker.rules.classification.feedback import Feedback, Learned
from verso_worker.rules.classification.subjects import SubjectReader
from verso_worker.rules.ports.models import HeadEngine, StableRun

DATA = Path(__file__).parents[2] / "data"
ARTIFACT = DATA / "artifact-tiny"
[STABLE] = (DATA / "heads-tiny/heads/kinds").iterdir()
# A line of each label, the first two of which the canary takes for each other.
LINES = {
    "request": b"2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in 31 ms",
    "retry": b"2026-03-04T05:06:07Z WARN keeper: worker 3 of 8 timed out, retry in 4 s",
    "frame": b"\tat org.example.worker.queue.fetch(queue.java:77)",
}


class Labels:
    """Labels that people have checked, by version; they change nothing."""

    def __init__(self) -> None:
        self.taken: dict[str, list[bool]] = {}

    def add(self, head: str, version: str, rows: Mapping[bytes, Judged]) -> None:
        """Take feedback."""
        del head
        self.taken[version] = [one.right for one in rows.values()]

    def rows(self, head: str, version: str) -> list[Judged]:
        """Return no row."""
        del head, version
        return []


class Loading:
    """An engine that counts the heads that it is told to load."""

    def __init__(self, engine: HeadEngine) -> None:
        self.loads = 0
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def head_load(self, folder: Path) -> None:
        """Load and check a head."""
        self.loads += 1
        self._engine.head_load(folder)


class Sums:
    """The sums of all workers."""

    def __init__(self) -> None:
        self.kept: Counter[str] = Counter()

    def add(self, trial: str, counts: Mapping[str, int]) -> None:
        """Add to the sums of the one trial there is."""
        del trial
        self.kept.update(counts)

    def counts(self, trial: str) -> dict[str, int]:
        """Return the sums."""
        del trial
        return dict(self.kept)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A models folder whose head has a stable version and a canary with two labels swapped."""
    models = tmp_path / "models"
    shutil.copytree(STABLE, models / "heads/kinds" / STABLE.name)
    (models / "tiny").symlink_to(ARTIFACT)
    registry.assign(models, Channel.STABLE, "tiny")
    registry.assign(models, Channel.STABLE, STABLE.name, head="kinds")
    canary = swapped(models, "request", "retry")
    registry.assign(models, Channel.CANARY, canary, head="kinds", share=1.0)
    return models


def swapped(models: Path, one: str, another: str) -> str:
    """Make a version that takes two labels for each other; returns its name."""
    head = heads.load(STABLE).head
    other = {one: another, another: one}
    labels = tuple(other.get(label, label) for label in head.labels)
    made = named(head.model_copy(update={"labels": labels}))
    folder = Path(shutil.copytree(STABLE, models / "heads/kinds" / made.version))
    (folder / "head.json").write_text(made.model_dump_json())
    return made.version


def renamed(models: Path) -> str:
    """Make a version that says the same; returns its name."""
    head = heads.load(STABLE).head
    made = named(head.model_copy(update={"metrics": {"rows": 3.0}}))
    folder = Path(shutil.copytree(STABLE, models / "heads/kinds" / made.version))
    (folder / "head.json").write_text(made.model_dump_json())
    return made.version


class Place:
    """A worker's heads, and what both versions of one say of the lines.

    ``told``: what was told of canary and stable version; ``sums`` what all workers know of them.
    No time is compared: it is this machine's.
    """

    def __init__(self, models: Path, model_store: ArtifactStore, **margins: float) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.sums = Sums()
        comparisons = Comparisons(self.sums, margins=Margins(**{"slower": 1e9} | margins))
        self.heads = HeadStore(
            models,
            model_store,
            comparisons=comparisons,
            on_compared=lambda *row: self.told.append(row),
        )
        self.watcher = RegistryWatcher(
            models,
            model_store,
            Metrics(CollectorRegistry()),
            publish=lambda _state: None,
            heads=self.heads,
            comparisons=comparisons,
        )
        none = cast(Any, None)  # texts need no stores
        self.labels = Labels()
        learned = Learned(self.labels)
        self._classify = Classify(SubjectReader(none, none, none), self.heads, learned)
        self._feedback = Feedback(self.heads, learned)

    def classified(self, *, job: str = "a" * 32) -> list[Classification]:
        """Classify the lines, and return what the caller is told."""
        params = ClassifyParams(heads=("kinds",), top_k=1)
        items = tuple(ClassifyItem(text=line) for line in LINES.values())
        work = Slice(Kind.CLASSIFY, params, items)

        def do(job: str | None) -> Result[Classified]:
            return self._classify.run(work, None, job=job, timings=Timings())

        beside = StableRun(work, partial(do, None))
        result = self.heads.run_job(["kinds"], do, job=job, beside=beside)
        return [item.heads[0] for item in result.items if isinstance(item, Classified)]

    def labelled(self, first: Callable[[], object] = lambda: None) -> None:
        """Send the right labels of the lines as feedback; ``first`` is called in the middle."""
        items = tuple(FeedbackItem(text=line, label=label) for label, line in LINES.items())
        work = Slice(Kind.FEEDBACK, FeedbackParams(head="kinds"), items)

        def classify(
            asked: Slice[ClassifyParams, ClassifyItem], job: str | None
        ) -> Result[Classified]:
            first()
            return self._classify.run(asked, None, job=job, timings=Timings())

        taken = self._feedback.run(work, None, classify=classify)
        assert {one.channel for one in taken.items if isinstance(one, FeedbackTaken)} == {"stable"}


def best(found: list[Classification]) -> list[str]:
    return [one.scores[0].label for one in found]


def test_what_a_canary_says_is_compared_with_what_the_stable_version_says(
    model_store: ArtifactStore, models: Path
) -> None:
    place = Place(models, model_store)
    found = place.classified()
    assert {one.channel for one in found} == {"canary"}
    assert best(found) == ["retry", "request", "frame"]
    assert place.told == [("kinds", 1, 2)]
    place.heads.review()
    assert place.sums.kept["differed"] == 2
    assert place.sums.kept["agreement:sum"] == round(UNIT * 2 / 3)


def test_a_stable_version_that_does_not_work_is_no_rival_and_no_fault(
    model_store: ArtifactStore, models: Path
) -> None:
    (models / "heads/kinds" / STABLE.name / "head.onnx").write_bytes(b"no graph")
    place = Place(models, model_store)
    assert best(place.classified()) == ["retry", "request", "frame"]
    assert place.told == []


def test_a_canary_is_loaded_once_and_so_as_fast_as_what_it_is_compared_with(
    model_store: ArtifactStore, models: Path
) -> None:
    engine = Loading(model_store.current().heads)
    model = replace(model_store.current(), heads=cast(Any, engine))
    place = Place(models, cast(Any, SimpleNamespace(current=lambda: model)))
    for number in range(3):
        assert {one.channel for one in place.classified(job=str(number))} == {"canary"}
    assert engine.loads == 2


def test_without_a_canary_nothing_is_compared(model_store: ArtifactStore, models: Path) -> None:
    registry.promote(models, head="kinds")
    place = Place(models, model_store)
    assert {one.channel for one in place.classified()} == {"stable"}
    assert place.told == []
    place.labelled()
    place.heads.review()
    assert not place.sums.kept


def test_a_canary_with_labels_swapped_withdraws_itself_by_what_it_says(
    model_store: ArtifactStore, models: Path
) -> None:
    place = Place(models, model_store, differ=0.3)
    place.watcher.open()
    for number in range(100):
        place.classified(job=str(number))
        place.watcher.step()
        if registry.read(models).rollout("kinds").canary is None:
            break
    gone = registry.read(models).rollout("kinds").withdrawn
    assert gone is not None
    assert "differs from the stable version on 67% of the texts" in gone.reason
    assert {one.channel for one in place.classified()} == {"stable"}


def test_a_canary_with_labels_swapped_withdraws_itself_by_labels_that_come_back(
    model_store: ArtifactStore, models: Path
) -> None:
    """However much it may differ: a better version differs too, but its score is no worse."""
    place = Place(models, model_store, differ=1.0)
    place.watcher.open()
    for _ in range(60):
        place.labelled()
        place.watcher.step()
        if registry.read(models).rollout("kinds").canary is None:
            break
    gone = registry.read(models).rollout("kinds").withdrawn
    assert gone is not None
    assert "Brier score" in gone.reason


def test_labels_that_come_in_a_promotion_are_of_the_version_that_said_what_they_judge(
    model_store: ArtifactStore, models: Path
) -> None:
    """Its mapping of confidence to probability is not that of the version before."""
    place = Place(models, model_store)
    canary = registry.read(models).rollout("kinds").canary

    def promote() -> None:
        if registry.read(models).rollout("kinds").canary is not None:
            registry.promote(models, head="kinds")

    place.labelled(promote)
    assert place.labels.taken == {canary: [False, False, True]}


def test_labels_that_come_while_a_canary_is_replaced_do_not_score_the_next_one(
    model_store: ArtifactStore, models: Path
) -> None:
    place = Place(models, model_store)
    calls: list[str | None] = []

    def replace_it() -> None:
        calls.append(registry.read(models).rollout("kinds").canary)
        if len(calls) == 2:  # the stable version has said what it says
            version = swapped(models, "frame", "retry")
            registry.assign(models, Channel.CANARY, version, head="kinds")

    place.labelled(replace_it)
    place.heads.review()
    assert len(calls) == 2
    assert not place.sums.kept


def test_a_canary_that_is_as_good_stays(model_store: ArtifactStore, models: Path) -> None:
    registry.assign(models, Channel.CANARY, None, head="kinds")
    again = renamed(models)
    registry.assign(models, Channel.CANARY, again, head="kinds", share=1.0)
    place = Place(models, model_store)
    place.watcher.open()
    for number in range(30):
        place.classified(job=str(number))
        place.labelled()
        place.watcher.step()
    assert registry.read(models).rollout("kinds").canary == again
    assert place.sums.kept["differed"] == 0
    assert place.sums.kept["score:n"] == 90
    assert place.sums.kept["brier:canary"] == place.sums.kept["brier:stable"]


def test_who_starts_a_model_store_has_its_heads_loaded(
    model_store: ArtifactStore, models: Path
) -> None:
    version = swapped(models, "frame", "prose")
    registry.assign(models, Channel.STABLE, version, head="kinds")
    model = model_store.current()
    vectors = np.zeros((1, model.dim), np.float32)
    with pytest.raises(HeadUnknown):
        model.heads.classify_vectors("kinds", version, vectors=vectors)
    served = HeadStore(models, model_store)
    served.start()
    try:
        assert len(model.heads.classify_vectors("kinds", version, vectors=vectors).logits) == 1
    finally:
        served.stop()
