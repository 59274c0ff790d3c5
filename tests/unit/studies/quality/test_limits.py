"""Limits that are added to a head are those that its training would have chosen."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from tests.support import tiny_artifact, tiny_heads

from studies.documents import classifier, stored
from studies.documents.data import Document
from studies.quality import limits
from studies.quality.job import command
from verso_core import heads
from verso_core.errors import HeadInvalid
from verso_core.heads import Reads
from verso_training.heads import shipping
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.recipe import ClassifyConfig, Folds, HeadRecipe
from verso_training.heads.rows import Row
from verso_training.heads.shipping import Provenance

ARTIFACT = Path(__file__).parents[3] / "data" / "artifact-tiny"
RECIPE = HeadRecipe(
    name="endings",
    reads=Reads.DOCUMENT,
    validation_share=0.45,
    test_share=0.1,
    classify=ClassifyConfig(l2=(1e-4,), iterations=20, hidden=0, buckets=251, max_chunks=4),
)


SHIFTS = {"gateway": "by time", "worker": "by project"}


@dataclass(frozen=True)
class Made:
    """A trained head, its rows, and what its training had."""

    trained: HeadReport
    rows: list[Row]
    context: TrainingContext
    read: Callable[[Sequence[str]], list[Document]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    rng = random.Random(1)
    rows = []
    for number in rng.choices((0, 1, 2, 4), k=560):
        label = tiny_heads.LABELS[number]
        source = "gateway" if number < 2 else "worker"
        rows.append(Row(f"{source}/{label}", tiny_artifact.line(rng, template=number)))
    provenance = Provenance(("made-up lines",), "Apache-2.0", "the command of the training")
    context = TrainingContext(ARTIFACT, tmp_path / "heads", provenance)

    def read(texts: Sequence[str]) -> list[Document]:
        cache = tmp_path / f"vectors-{len(texts)}"
        return stored.documents(texts, artifact=ARTIFACT, cache=cache, most=4)

    return Made(
        classifier.train_document_head(RECIPE, rows, context, read=read), rows, context, read
    )


def test_limits_added_to_a_head_are_those_that_its_training_chose(
    made: Made, tmp_path: Path
) -> None:
    trained, context = made.trained, made.context
    chosen = trained.head.calibration.source_limits
    assert chosen.keys() == {"gateway", "worker"}
    bare = trained.head.calibration.model_copy(update={"source_limits": {}})
    before = shipping.publish_again(
        trained.folder,
        trained.head.model_copy(update={"calibration": bare}),
        "A card.",
        artifact=ARTIFACT,
        out_dir=tmp_path / "before",
    )
    checked = context.checked(RECIPE, made.rows)
    publish = partial(limits.publish, before, read=made.read, shifts=SHIFTS)
    limited = publish(RECIPE, checked, context)
    assert limited.calibration.source_limits == pytest.approx(chosen, abs=1e-6)
    same = limited.calibration.model_copy(update={"source_limits": {}})
    assert same == bare
    assert limited.lineage.command == command(RECIPE, weights=before.name)
    assert limited.lineage.data_sha256 == trained.head.lineage.data_sha256
    assert limited.metrics == pytest.approx(dict(trained.head.metrics), abs=1e-4)
    first = heads.load(before).head
    assert {n for n in first.files if first.files[n] != limited.files[n]} == {heads.CARD}
    card = (tmp_path / "heads" / "endings" / limited.version / heads.CARD).read_text("utf-8")
    assert f"those of {before.name}" in card
    assert "Split: `gateway` by time; `worker` by project." in card
    assert "Points of coverage that the limits cost" in card
    with pytest.raises(HeadInvalid, match="other settings"):
        publish(replace(RECIPE, seed=9), checked, context)
    fewer = context.checked(RECIPE, made.rows[:500])
    with pytest.raises(HeadInvalid, match="other rows"):
        publish(RECIPE, fewer, context)


def test_a_head_that_was_calibrated_on_folds_keeps_its_limits(made: Made, tmp_path: Path) -> None:
    """The rows held out were said by other layers than the head has."""
    head, context = made.trained.head, made.context
    folded = replace(RECIPE, classify=replace(RECIPE.classify, folds={"worker": Folds.OTHERS}))
    lineage = head.lineage.model_copy(update={"recipe": folded.to_dict()})
    before = shipping.publish_again(
        made.trained.folder,
        head.model_copy(update={"lineage": lineage}),
        "A card.",
        artifact=ARTIFACT,
        out_dir=tmp_path / "before",
    )
    checked = context.checked(folded, made.rows)
    again = limits.publish(before, folded, checked, context, read=made.read, shifts=SHIFTS)
    assert again.calibration == head.calibration
    assert again.metrics == pytest.approx(dict(head.metrics), abs=1e-4)
    card = (tmp_path / "heads" / "endings" / again.version / heads.CARD).read_text("utf-8")
    assert "Split: `gateway` by time; `worker` by project." in card
    assert "Points of coverage that the limits cost" not in card
