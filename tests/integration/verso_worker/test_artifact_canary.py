"""An artifact's canary is withdrawn for a record that does not read back, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.integration.verso_worker.worker_parts import (
    ARTIFACT,
    BUCKETS,
    Stores,
    garble,
    make_pipeline,
)

from verso_core import registry
from verso_core.jobs import Queue, Status
from verso_core.jobs.collections import CollectionParams
from verso_core.registry import Channel
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.canary import ArtifactCanary
from verso_worker.models.comparison import Comparisons, Margins
from verso_worker.models.rollout import RegistryWatcher
from verso_worker.stores.edge.client import EdgeVectors

TEXTS = {
    f"line/{n}": f"Jan 12 10:00:{n:02} host sshd[4242]: Failed password for root".encode()
    for n in range(12)
}


class Place:
    """A worker with a canary of its artifact, which all jobs use; no time is compared."""

    def __init__(self, root: Path, vectors: EdgeVectors, ledger: Ledger) -> None:
        self.models = root / "models"
        self.models.mkdir()
        (self.models / "tiny").symlink_to(ARTIFACT)
        registry.assign(self.models, Channel.STABLE, "tiny")
        self.artifacts = ArtifactStore(root / "kept", root, threads=1, device="cpu")
        metrics = Metrics(CollectorRegistry())
        self.comparisons = Comparisons(ledger.trials, margins=Margins(slower=1e9))
        self.watcher = RegistryWatcher(
            self.models,
            self.artifacts,
            metrics,
            publish=lambda _state: None,
            comparisons=self.comparisons,
        )
        self.watcher.open()
        make = partial(make_pipeline, self.artifacts, vectors, ledger, buckets=BUCKETS)
        self.canary = ArtifactCanary(
            self.artifacts,
            metrics,
            make=lambda serving: make(serving=serving),
            withdraw=self.watcher.withdraw,
            comparisons=self.comparisons,
            trial=self.watcher.trial,
        )
        pipeline = make()
        pipeline.create_collection(CollectionParams(name="default"))
        self.stores = Stores(ledger, pipeline, vectors, canary=self.canary)

    def verify(self) -> None:
        """Run the verifies that are due, and let the worker look at its canary."""
        self.stores.dispatcher.run_queue(Queue.SCRUB)
        self.watcher.step()


@pytest.fixture
def place(
    tmp_path: Path, vectors: EdgeVectors, valkey_url: str, variant: Callable[..., Path]
) -> Iterator[Place]:
    with closing(Ledger(connect(valkey_url))) as ledger:
        place = Place(tmp_path, vectors, ledger)
        with closing(place.artifacts):
            variant(place.models / "next", 1)
            registry.assign(place.models, Channel.CANARY, "next", share=1.0)
            place.watcher.step()
            yield place


def test_a_record_that_does_not_read_back_withdraws_the_canary_that_wrote_it(
    place: Place,
) -> None:
    """Records before it were sound; the document is written again, so its text is not lost."""
    sound = dict(list(TEXTS.items())[:11])
    assert place.stores.ingest(sound) is Status.SUCCEEDED
    place.verify()
    trial = place.watcher.trial()
    assert trial is not None
    assert place.comparisons.described(trial)["read_back"] == len(sound)
    assert registry.read(place.models).canary == "next"

    assert place.stores.ingest(TEXTS) is Status.SUCCEEDED
    place.stores.alter("line/11", garble)
    place.verify()
    now = registry.read(place.models)
    assert now.canary is None
    assert now.withdrawn is not None
    assert now.withdrawn.version == "next"
    assert now.withdrawn.reason == "1 records did not read back"
    assert place.artifacts.canary("any job") is None
    assert place.stores.read(*TEXTS) == list(TEXTS.values())


def test_a_record_of_the_stable_artifact_that_does_not_read_back_withdraws_no_canary(
    place: Place,
) -> None:
    """The canary came after the ingest, or left it to the stable artifact as it failed itself."""
    registry.rollback(place.models)
    place.watcher.step()
    assert place.stores.ingest(TEXTS) is Status.SUCCEEDED
    assert {record.slot for record in place.stores.entry("line/11").records} == {0}
    place.stores.alter("line/11", garble)
    registry.assign(place.models, Channel.CANARY, "next", share=1.0)
    place.watcher.step()
    place.verify()
    assert registry.read(place.models).canary == "next"
    trial = place.watcher.trial()
    assert trial is not None
    assert place.comparisons.described(trial)["read_back"] == 0
    assert place.stores.read(*TEXTS) == list(TEXTS.values())


def test_of_a_canarys_ingest_both_versions_code_some_chunks_and_one_stores_them(
    place: Place,
) -> None:
    assert place.stores.ingest(TEXTS) is Status.SUCCEEDED
    place.verify()
    trial = place.watcher.trial()
    assert trial is not None
    found = place.comparisons.described(trial)
    assert min(found["p95_ms_canary"], found["p95_ms_stable"]) > 0
    assert found["pairs"] == 0  # they said nothing that could agree
    assert place.stores.vectors.count("default") == len(TEXTS)
    written = [record for name in TEXTS for record in place.stores.entry(name).records]
    assert {record.slot for record in written} == {1}  # 0 is the stable artifact's
    assert registry.read(place.models).canary == "next"
