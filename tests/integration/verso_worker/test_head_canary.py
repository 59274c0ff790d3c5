"""A classifier's canary beside its stable version: both are asked, and what differs is counted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from verso_core import heads, registry
from verso_core.errors import HeadUnknown
from verso_core.heads import named
from verso_core.jobs import Kind, Slice
from verso_core.jobs.heads import Classification, Classified, ClassifyItem, ClassifyParams
from verso_core.registry import Channel
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.heads import HeadStore
from verso_worker.records.outputs import Timings
from verso_worker.rules.classify import Classify

DATA = Path(__file__).parents[2] / "data"
ARTIFACT = DATA / "artifact-tiny"
[STABLE] = (DATA / "heads-tiny/heads/kinds").iterdir()
# A line of each label, the first two of which the canary takes for each other.
LINES = {
    "request": b"2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in 31 ms",
    "retry": b"2026-03-04T05:06:07Z WARN keeper: worker 3 of 8 timed out, retry in 4 s",
    "frame": b"\tat org.example.worker.queue.fetch(queue.java:77)",
}


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
    """Make a version that takes two labels for each other; gives its name."""
    head = heads.load(STABLE).head
    other = {one: another, another: one}
    labels = tuple(other.get(label, label) for label in head.labels)
    made = named(head.model_copy(update={"labels": labels}))
    folder = Path(shutil.copytree(STABLE, models / "heads/kinds" / made.version))
    (folder / "head.json").write_text(made.model_dump_json())
    return made.version


def classified(
    models: Path, shelf: ArtifactStore
) -> tuple[list[Classification], list[tuple[str, int, int]]]:
    """Classify the lines; give what was said, and what was told of canary and stable version."""
    told: list[tuple[str, int, int]] = []
    served = HeadStore(models, shelf, on_compared=lambda *row: told.append(row))
    params = ClassifyParams(heads=("kinds",), top_k=1)
    items = tuple(ClassifyItem(text=line) for line in LINES.values())
    work = Slice(Kind.CLASSIFY, params, items)
    classify = Classify(cast(Any, None), cast(Any, None), served)  # texts need no stores
    result = classify.run(work, None, job="a" * 32, timings=Timings())
    return [item.heads[0] for item in result.items if isinstance(item, Classified)], told


def best(found: list[Classification]) -> list[str]:
    return [one.scores[0].label for one in found]


def test_what_a_canary_says_is_compared_with_what_the_stable_version_says(
    shelf: ArtifactStore, models: Path
) -> None:
    found, told = classified(models, shelf)
    assert {one.channel for one in found} == {"canary"}
    assert best(found) == ["retry", "request", "frame"]
    assert told == [("kinds", 1, 2)]


def test_a_stable_version_that_does_not_work_is_no_rival_and_no_fault(
    shelf: ArtifactStore, models: Path
) -> None:
    (models / "heads/kinds" / STABLE.name / "head.onnx").write_bytes(b"no graph")
    found, told = classified(models, shelf)
    assert best(found) == ["retry", "request", "frame"]
    assert told == []


def test_without_a_canary_nothing_is_compared(shelf: ArtifactStore, models: Path) -> None:
    registry.promote(models, head="kinds")
    found, told = classified(models, shelf)
    assert {one.channel for one in found} == {"stable"}
    assert told == []


def test_who_starts_a_shelf_has_its_heads_loaded(shelf: ArtifactStore, models: Path) -> None:
    version = swapped(models, "frame", "prose")
    registry.assign(models, Channel.STABLE, version, head="kinds")
    model = shelf.current()
    vectors = np.zeros((1, model.dim), np.float32)
    with pytest.raises(HeadUnknown):
        model.heads.classify_vectors("kinds", version, vectors=vectors)
    served = HeadStore(models, shelf)
    served.start()
    try:
        assert len(model.heads.classify_vectors("kinds", version, vectors=vectors).logits) == 1
    finally:
        served.stop()
