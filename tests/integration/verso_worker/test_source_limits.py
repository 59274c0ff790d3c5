"""A worker accepts no label of a text whose source the head is unsure of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from verso_core import heads, registry
from verso_core.jobs import Kind, Slice
from verso_core.jobs.heads.classify import Classification, Classified, ClassifyItem, ClassifyParams
from verso_core.registry import Channel
from verso_training.heads import shipping
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.heads import HeadStore
from verso_worker.records.outputs import Timings
from verso_worker.rules.classification.classify import Classify
from verso_worker.rules.classification.subjects import SubjectReader
from verso_worker.stores.bm25 import Bm25

DATA = Path(__file__).parents[2] / "data"
[ENDINGS] = (DATA / "heads-tiny" / "heads" / "endings").iterdir()
CLEAR = b"2026-03-04T05:06:07Z INFO gateway[812]: request 0badcafe finished in 31 ms"
OTHERS = (b"zinc umbrella", b"SYZFATAL: executor 0 failed 11 times", b"ok", b"12 of 40 plums")


def classified(models: Path, store: ArtifactStore, *texts: bytes) -> list[Classification]:
    """Return what a worker with these models says of texts, at an error rate of 20 %."""
    none = cast(Any, None)  # texts need no stores
    classify = Classify(
        SubjectReader(none, none, cast(Any, Bm25())),
        HeadStore(models, store),
        cast(Any, SimpleNamespace(head=lambda head: head)),
    )
    params = ClassifyParams(heads=("endings",), top_k=4, accept_error=0.2)
    work = Slice(Kind.CLASSIFY, params, tuple(ClassifyItem(text=text) for text in texts))
    found = classify.run(work, None, job=None, timings=Timings()).items
    return [item.heads[0] for item in found if isinstance(item, Classified)]


def certain(one: Classification) -> float:
    """Return the probability of the source of the best label."""
    source = heads.source_of(one.scores[0].label)
    return sum(at.score for at in one.scores if heads.source_of(at.label) == source)


def published(models: Path, artifact: Path, **limits: float) -> None:
    """Publish the head as one that accepts whatever its limits of sources allow."""
    head = heads.load(ENDINGS).head
    calibration = head.calibration.model_copy(
        update={"temperature": 1.0, "conformal": {"0.2": 0.0}, "source_limits": limits}
    )
    folder = shipping.publish_again(
        ENDINGS,
        head.model_copy(update={"calibration": calibration}),
        "Made for tests.",
        artifact=artifact,
        out_dir=models / "heads",
    )
    registry.assign(models, Channel.STABLE, folder.name, head="endings")


def test_a_text_of_an_unsure_source_is_not_accepted(
    model_store: ArtifactStore, tmp_path: Path
) -> None:
    published(tmp_path, DATA / "artifact-tiny")
    clear, *others = classified(tmp_path, model_store, CLEAR, *OTHERS)
    assert clear.label == "gateway/request"
    assert not any(one.abstained for one in others)
    unsure = min(others, key=certain)
    assert certain(unsure) < certain(clear)
    limit = (certain(unsure) + certain(clear)) / 2
    published(tmp_path, DATA / "artifact-tiny", gateway=limit, worker=limit)
    again, *rest = classified(tmp_path, model_store, CLEAR, *OTHERS)
    assert (again.label, again.abstained) == ("gateway/request", False)
    withheld = rest[others.index(unsure)]
    assert (withheld.label, withheld.abstained) == (None, True)
    assert withheld.scores == unsure.scores
    assert withheld.confidence == unsure.confidence
