"""Collections moved to another artifact while they are written, searched and shot at.

Real ledger, real vector engine, real (tiny) model, real dispatcher and migrator, in one process.
The other artifacts are the tiny one with another profile (another codec), and for another space
with another int8 scale.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.verso_worker.worker_parts import (
    ARTIFACT,
    BUCKETS,
    TEXTS,
    Stores,
    garble,
    make_pipeline,
)
from tests.wire import Item, cut

from verso_core import manifest
from verso_core.errors import CollectionUnknown, MigrationRefused, ModelUnknown
from verso_core.jobs import CodecPolicy, CollectionKind, Kind, Precision, Queue, Status, read_slice
from verso_core.jobs.collections import CollectionChangeParams, CollectionParams
from verso_core.jobs.migrate import Migration, Stage
from verso_core.record import MAX_SLOT, Codec, Entry, Flag
from verso_keeper.migrator import Migrator
from verso_ledger import Commit, DocumentWrite, Ledger, NewJob
from verso_ledger.connection import connect
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.rules.pipeline import Pipeline
from verso_worker.stores.edge.client import EdgeVectors


def other_artifact(folder: Path, *, space: bool) -> Path:
    """Make an artifact of another codec, and of another space if wanted, out of the tiny one."""
    shutil.copytree(ARTIFACT, folder)
    path = folder / manifest.MANIFEST_NAME
    row = json.loads(path.read_bytes())
    row["codec"]["profile"]["onnxruntime"] += f"+{folder.name}"
    if space:
        row["space"]["int8_scale"] *= 0.8
    read = manifest.Manifest.model_validate(row)
    row["space"]["id"] = manifest.space_id(read.space, read.files)
    row["codec"]["id"] = manifest.codec_id(read.codec, read.files)
    manifest.write(manifest.Manifest.model_validate(row), folder)
    return folder


class Killed(BaseException):
    """Nothing that follows is done any more, as after SIGKILL."""


CODED = CollectionParams(name="coded", precision=Precision.INT8, owner="ann")


class Fate:
    """Kills the caller of the stores: so many moments from now, before a call's effect or after it.

    left: moments that are survived; None lets everybody live
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self._patch = patch

    def over(self, store: object, *names: str) -> None:
        """Have these calls of a store be such moments."""
        for name in names:
            self._patch.setattr(store, name, self._deadly(getattr(store, name)))

    def _deadly(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def deadly(*args: Any, **options: Any) -> Any:
            self._moment()
            found = call(*args, **options)
            self._moment()
            return found

        return deadly

    def _moment(self) -> None:
        if self.left == 0:
            raise Killed
        if self.left is not None:
            self.left -= 1


class Moving(Stores):
    """Stores with a collection of int8 vectors, ``coded``, and a keeper's migrator."""

    def __init__(self, ledger: Ledger, pipeline: Pipeline, vectors: EdgeVectors) -> None:
        super().__init__(ledger, pipeline, vectors)
        self.migrator = Migrator(ledger, clock=time.time)

    def begin(self, artifact: str = "current", **settings: str) -> Status:
        params = {"collection": "coded", "step": "begin"}
        item = {"artifact": artifact} | ({"settings": settings} if settings else {})
        return self.do(Kind.MIGRATE, params, [Item(item)])[0]

    def remove(self) -> Status:
        return self.do(Kind.MIGRATE, {"collection": "coded", "step": "remove"}, [Item({})])[0]

    @property
    def state(self) -> Migration:
        state = self.ledger.migrations.get("coded")
        assert state is not None
        return state

    def advance(self, until: Stage | None = None) -> Migration:
        """Bring the migration to its end, or to a stage; every search and read on the way works."""
        for _ in range(200):
            state = self.state
            if not state.running or state.stage is until:
                return state
            self.migrator.step()
            self.dispatcher.run_queue(Queue.BULK)
            assert self.hits(b"open failed", "coded")[0]["score"] > 0.5
        raise AssertionError(self.state)

    def codecs(self) -> set[Codec]:
        """Return the codecs of the collection's records."""
        own = self.ledger.documents.collections()["coded"].name
        held = self.ledger.documents.holdings(own).codecs
        return {codec for codec, share in held.items() if share.records}

    def holds(self, texts: dict[str, bytes]) -> None:
        """Assert that the collection reads as these texts, has no more, and is sound."""
        if texts:
            assert self.read(*texts, collection="coded") == list(texts.values())
        collection = self.ledger.documents.collections()["coded"]
        assert collection.owner == CODED.owner
        assert dict(self.ledger.documents.entries(collection.name)).keys() == texts.keys()
        self.dispatcher.run_queue(Queue.SCRUB)
        found = self.scrub("coded")
        assert (found["sound"], found["damaged"]) == (len(texts), 0)


@pytest.fixture(scope="module")
def model_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArtifactStore]:
    """A model store whose current artifact is the tiny one; two others are kept."""
    folder = tmp_path_factory.mktemp("model_store")
    with closing(
        ArtifactStore(folder / "artifacts", folder, threads=1, device="cpu")
    ) as model_store:
        for name, space in (("space", True), ("codec", False)):
            model_store.open(other_artifact(folder / name, space=space))
        model_store.open(ARTIFACT)
        yield model_store


@pytest.fixture(scope="module")
def others(model_store: ArtifactStore) -> dict[str, str]:
    """Codec ids of the two other artifacts: of another space, and of the same."""
    mine = manifest.load(ARTIFACT).manifest
    found = {}
    for path in sorted(model_store._copies.root.glob("*/manifest.json")):
        read = manifest.Manifest.model_validate_json(path.read_bytes())
        if read.codec.id != mine.codec.id:
            found["codec" if read.space.id == mine.space.id else "space"] = read.codec.id
    return found


@pytest.fixture
def moving(model_store: ArtifactStore, vectors: EdgeVectors, valkey_url: str) -> Iterator[Moving]:
    with closing(Ledger(connect(valkey_url))) as ledger:
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS)
        pipeline.create_collection(CODED)
        yield Moving(ledger, pipeline, vectors)


def test_another_space_is_filled_checked_and_switched_to_under_writes(
    moving: Moving, others: dict[str, str]
) -> None:
    texts = {**TEXTS, **{f"n{n}": b"open failed %d times" % n for n in range(30)}}
    moving.fill(texts, "coded")
    before = moving.ledger.documents.collections()["coded"]
    hit = moving.hits(texts["n7"], "coded")[0]
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    assert moving.begin(others["space"]) is Status.SUCCEEDED  # finds the one under way
    assert moving.begin(others["codec"]) is Status.FAILED
    moving.migrator.step()
    moving.dispatcher.run_queue(Queue.BULK)
    moving.fill({"late": b"came while it was copied", "n3": b"written again"}, "coded")
    moving.do(Kind.DELETE, {"collection": "coded"}, [Item({"id": "n4"})])
    texts |= {"late": b"came while it was copied", "n3": b"written again"}
    del texts["n4"]
    assert moving.advance(Stage.SEAL).stage is Stage.SEAL
    assert moving.ledger.documents.collections()["coded"] == before
    assert moving.advance().stage is Stage.DONE
    after = moving.ledger.documents.collections()["coded"]
    assert after.space != before.space
    assert after.artifacts == (others["space"],)
    moving.holds(texts)
    found = moving.hits(texts["n7"], "coded")[0]
    assert (found["id"], found["metadata"]) == (hit["id"], hit["metadata"])
    moving.fill({"after": b"it takes texts in"}, "coded")
    moving.holds(texts | {"after": b"it takes texts in"})
    assert before.name in moving.vectors.names()
    assert moving.begin("current") is Status.FAILED  # the old side is still kept
    assert moving.remove() is Status.SUCCEEDED
    assert moving.remove() is Status.FAILED
    while moving.redis.llen("verso:dropped"):
        moving.ledger.maintenance.drop_due()
    assert moving.vectors.names() == [after.name]
    moving.holds(texts | {"after": b"it takes texts in"})
    assert moving.begin("current") is Status.SUCCEEDED  # and back again
    assert moving.advance().stage is Stage.DONE
    moving.holds(texts | {"after": b"it takes texts in"})


def test_settings_change_by_a_migration_in_the_same_space_and_back(moving: Moving) -> None:
    texts = {**TEXTS, **{f"n{n}": b"open failed %d times" % n for n in range(10)}}
    moving.fill(texts, "coded")
    before = moving.ledger.documents.collections()["coded"]
    settings = {"search": "hybrid", "precision": "float16", "codec_policy": "fast"}
    assert moving.begin(**settings) is Status.SUCCEEDED
    assert moving.begin(**settings) is Status.SUCCEEDED  # finds the one under way
    assert moving.begin(search="dense") is Status.FAILED
    assert moving.advance().stage is Stage.DONE
    after = moving.ledger.documents.collections()["coded"]
    assert {name: getattr(after, name) for name in settings} == settings
    assert (after.space, after.artifacts) == (before.space, before.artifacts)
    assert (after.created, after.owner) == (before.created, before.owner)
    moving.holds(texts)
    assert moving.codecs() <= {Codec.RAW, Codec.ZSTD}
    assert moving.vectors.sizes(after.name).terms > 0
    assert moving.remove() is Status.SUCCEEDED
    assert moving.begin(**settings) is Status.FAILED  # it has them already
    assert moving.begin(search="dense") is Status.SUCCEEDED
    assert moving.advance().stage is Stage.DONE
    moving.holds(texts)
    assert moving.vectors.sizes(moving.state.target).terms == 0


def test_a_change_is_kept_by_a_migration_that_runs(moving: Moving, others: dict[str, str]) -> None:
    moving.fill(TEXTS, "coded")
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    change = {"codec_policy": "fast", "retention_days": 3, "indexes": {"host": "keyword"}}
    change |= {"name": "coded"}
    assert moving.do(Kind.COLLECTION_CHANGE, change, [Item({})])[0] is Status.SUCCEEDED
    before = moving.ledger.documents.collections()["coded"]
    assert moving.advance().stage is Stage.DONE
    for found in (before, moving.ledger.documents.collections()["coded"]):
        kept = found.codec_policy, found.retention_days, found.indexes
        assert kept == ("fast", 3, {"host": "keyword"})
    moving.holds(TEXTS)


class Meanwhile:
    """The ledger's migrations; something else happens right before the first begin."""

    def __init__(self, migrations: Any, happens: Callable[[], object]) -> None:
        self._migrations = migrations
        self._happens: Callable[[], object] | None = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._migrations, name)

    def begin(self, *args: Any, **others: Any) -> bool:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        started: bool = self._migrations.begin(*args, **others)
        return started


def test_a_change_between_a_migrations_reading_and_its_begin_is_kept(
    moving: Moving, others: dict[str, str]
) -> None:
    moving.fill(TEXTS, "coded")
    change = {"name": "coded", "codec_policy": "fast", "auto_fit": False}
    meanwhile = Meanwhile(
        moving.ledger.migrations,
        lambda: moving.do(Kind.COLLECTION_CHANGE, change, [Item({})]),
    )
    migrate = replace(moving.pipeline._management.migrate, migrations=meanwhile)
    state = migrate.begin("coded", others["space"], {})
    for name in (state.source, state.target):
        found = moving.ledger.documents.collection(name)
        assert (found.codec_policy, found.auto_fit) == ("fast", False)
    assert moving.advance().stage is Stage.DONE
    moving.holds(TEXTS)


def test_a_migration_between_a_changes_reading_and_its_write_gets_it(
    moving: Moving, others: dict[str, str]
) -> None:
    statuses: list[Status] = []

    def sides() -> list[str]:
        names: list[str] = moving.pipeline._management.migrate.sides("coded")
        if not statuses:
            statuses.append(moving.begin(others["space"]))
        return names

    wanted = CollectionChangeParams(name="coded", codec_policy=CodecPolicy.FAST)
    moving.pipeline._management.collections.change(wanted, sides=sides)
    assert statuses == [Status.SUCCEEDED]
    for name in (moving.state.source, moving.state.target):
        assert moving.ledger.documents.collection(name).codec_policy is CodecPolicy.FAST


def test_another_codec_policy_is_for_what_is_written_from_then_on(moving: Moving) -> None:
    moving.fill({f"n{n}": b"open failed %d times" % n for n in range(10)}, "coded")
    before = moving.codecs()
    assert before - {Codec.RAW, Codec.ZSTD}
    change = {"name": "coded", "codec_policy": "fast"}
    assert moving.do(Kind.COLLECTION_CHANGE, change, [Item({})])[0] is Status.SUCCEEDED
    assert moving.codecs() == before
    moving.do(Kind.DELETE, {"collection": "coded"}, [Item({"id": f"n{n}"}) for n in range(10)])
    moving.fill({f"m{n}": b"open failed %d times" % n for n in range(10)}, "coded")
    assert moving.codecs() <= {Codec.RAW, Codec.ZSTD}


def test_work_done_before_the_switch_is_done_again_after_it(
    moving: Moving, others: dict[str, str]
) -> None:
    moving.fill(TEXTS, "coded")
    slices = list(cut(Kind.INGEST, {"collection": "coded"}, [Item({"id": "slow"}, b"slow one")]))
    waiting = list(cut(Kind.INGEST, {"collection": "coded"}, [Item({"id": "wait"}, b"waited")]))
    accept = moving.ledger.jobs.accept
    first = accept(NewJob(kind=Kind.INGEST, queue=Queue.BULK, slices=slices))
    [lease] = moving.ledger.leases.claim(Queue.BULK, owner="slow", lease_s=600.0)
    outcome = moving.pipeline.run(read_slice(lease.payload), seq=lease.seq)
    second = accept(NewJob(kind=Kind.INGEST, queue=Queue.INTERACTIVE, slices=waiting))
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    assert moving.advance().stage is Stage.DONE

    def commit() -> Commit:
        writes = [
            DocumentWrite(outcome.collection, one.document, one.entry) for one in outcome.writes
        ]
        result = outcome.result.pack()
        return moving.ledger.leases.commit(lease, result, ok=1, errors=0, documents=writes)

    assert commit() is Commit.SEALED
    assert moving.remove() is Status.SUCCEEDED
    assert commit() is Commit.SEALED
    assert moving.ledger.leases.release(lease) is Commit.DONE
    moving.dispatcher.run_queue(Queue.BULK)
    moving.dispatcher.run_queue(Queue.INTERACTIVE)
    for job in (first, second):
        assert moving.ledger.jobs.get(job.job_id).status is Status.SUCCEEDED
    moving.holds({**TEXTS, "slow": b"slow one", "wait": b"waited"})


def test_another_codec_of_the_same_space_codes_documents_again_where_they_lie(
    moving: Moving, others: dict[str, str]
) -> None:
    moving.fill(TEXTS, "coded")
    seqs = {name: moving.stored(name, "coded").seq for name in TEXTS}
    assert moving.begin(others["codec"]) is Status.SUCCEEDED
    assert moving.state.stage is Stage.RECODE
    assert moving.advance().stage is Stage.DONE
    slot = moving.ledger.documents.collections()["coded"].artifacts.index(others["codec"])
    for name, seq in seqs.items():
        entry = moving.stored(name, "coded")
        assert {record.slot for record in entry.records} <= {slot}
        assert (entry.seq, bool(entry.flags & Flag.VERIFIED)) == (seq, True)
    moving.holds(TEXTS)
    assert moving.remove() is Status.FAILED


@pytest.mark.parametrize("to", ["space", "codec"])
def test_whatever_call_of_the_stores_was_the_last_one_it_goes_on(
    moving: Moving, others: dict[str, str], to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's step dies at its first call, at its second, ... until one lives; so do keepers."""
    texts = {**TEXTS, **{f"n{n}": b"open failed %d times" % n for n in range(8)}}
    moving.fill(texts, "coded")
    assert moving.begin(others[to]) is Status.SUCCEEDED
    fate = Fate(monkeypatch)
    fate.over(moving.ledger.migrations, "graft", "move")
    fate.over(moving.ledger.documents, "repair", "collection_artifact")
    fate.over(moving.ledger.jobs, "accept")
    fate.over(moving.vectors, "put")
    for survived in itertools.count():
        fate.left = survived
        try:
            moving.pipeline._management.migrate.step("coded", first=0, count=BUCKETS, spend_s=60.0)
            break
        except Killed:
            fate.left = None
            assert moving.read(*texts, collection="coded") == list(texts.values())
    assert survived > 6
    killed = 0
    for number in itertools.count():
        fate.left = number % 5
        try:
            moving.migrator.step()
        except Killed:
            killed += 1
        fate.left = None
        moving.dispatcher.run_queue(Queue.BULK)
        if not moving.state.running:
            break
    assert killed > 3
    assert moving.state.stage is Stage.DONE
    moving.holds(texts)


def test_what_cannot_be_read_blocks_the_switch_until_it_is_seen_to(
    moving: Moving, others: dict[str, str]
) -> None:
    texts = {**TEXTS, "broken": b"this one will not read"}
    moving.fill(texts, "coded")
    good = moving.stored("broken", "coded")
    moving.alter("broken", garble, "coded")
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    state = moving.advance()
    assert (state.stage, state.unread) == (Stage.BLOCKED, ("broken",))
    moving.alter("broken", lambda _: good.pack(), "coded")
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    assert moving.advance().stage is Stage.DONE
    moving.holds(texts)


def test_giving_up_leaves_the_collection_as_it_was(moving: Moving, others: dict[str, str]) -> None:
    moving.fill(TEXTS, "coded")
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    moving.advance(Stage.SEAL)
    assert moving.remove() is Status.SUCCEEDED
    assert moving.ledger.migrations.get("coded") is None
    assert moving.vectors.names() == ["coded"]
    moving.fill({"more": b"it takes texts in"}, "coded")
    moving.holds({**TEXTS, "more": b"it takes texts in"})


class Seen:
    """The ledger's migrations; the newest one is read as it was seen before."""

    def __init__(self, migrations: Any, seen: Migration) -> None:
        self._migrations = migrations
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._migrations, name)

    def get(self, _: str) -> Migration:
        return self._seen


def test_giving_up_a_migration_that_has_just_ended_removes_nothing(
    moving: Moving, others: dict[str, str]
) -> None:
    moving.fill(TEXTS, "coded")
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    seen = Seen(moving.ledger.migrations, moving.state)
    assert moving.advance().stage is Stage.DONE
    migrate = replace(moving.pipeline._management.migrate, migrations=seen)
    with pytest.raises(MigrationRefused):
        migrate.remove("coded")
    moving.holds(TEXTS)


def test_a_migration_whose_begin_is_repeated_by_its_client_begins_once(
    moving: Moving, others: dict[str, str]
) -> None:
    moving.fill(TEXTS, "coded")
    migrations = moving.ledger.migrations
    run = migrations._run

    def twice(step: str, args: Any) -> Any:
        run(step, args)  # the reply is lost
        return run(step, args)

    migrations._run = twice
    try:
        assert moving.begin(others["space"]) is Status.SUCCEEDED
    finally:
        migrations._run = run
    assert moving.advance().stage is Stage.DONE
    moving.holds(TEXTS)


def test_room_for_a_migration_that_did_not_come_to_begin_goes(
    moving: Moving, others: dict[str, str]
) -> None:
    moving.fill(TEXTS, "coded")
    pipeline = moving.pipeline
    source, model = (
        moving.ledger.documents.collections()["coded"],
        pipeline._management.fit.models.get(others["space"]),
    )
    target, _ = pipeline._management.migrate._target(source, model)  # and then its worker ends
    assert moving.vectors.names() == ["coded", target.name]
    moving.dispatcher.run_queue(Queue.SCRUB)
    assert moving.vectors.names() == ["coded", target.name]
    for room, _ in moving.redis.zscan_iter("verso:gc"):
        moving.redis.zadd("verso:gc", {room: 0})
    moving.dispatcher.run_queue(Queue.SCRUB)
    assert moving.vectors.names() == ["coded"]
    moving.holds(TEXTS)


def test_a_migrated_collection_is_deleted_with_both_its_sides(
    moving: Moving, others: dict[str, str]
) -> None:
    moving.fill(TEXTS, "coded")
    assert moving.begin(others["space"]) is Status.SUCCEEDED
    moving.advance()
    status, _ = moving.do(Kind.COLLECTION_DELETE, {"name": "coded"}, [Item({})])
    assert status is Status.SUCCEEDED
    assert (moving.ledger.documents.collections(), moving.vectors.names()) == ({}, [])
    moving.pipeline.create_collection(CODED)
    moving.holds({})
    moving.fill(TEXTS, "coded")
    moving.holds(TEXTS)


def test_a_migration_to_what_it_is_or_to_nothing_is_refused(moving: Moving) -> None:
    moving.fill(TEXTS, "coded")
    for artifact, code in (("current", "migration_refused"), ("nothing", "migration_refused")):
        params = {"collection": "coded", "step": "begin"}
        accepted = moving.ledger.jobs.accept(
            NewJob(
                kind=Kind.MIGRATE,
                queue=Queue.BULK,
                slices=list(cut(Kind.MIGRATE, params, [Item({"artifact": artifact})])),
            )
        )
        moving.dispatcher.run_queue(Queue.BULK)
        error = moving.ledger.jobs.get(accepted.job_id).error
        assert error is not None
        assert error["code"] == code
        assert "/" not in error["detail"]  # no path of this machine
    assert moving.ledger.migrations.get("coded") is None
    with pytest.raises((MigrationRefused, CollectionUnknown)):
        moving.pipeline._management.migrate.remove("coded")
    assert Entry.unpack(moving.ledger.documents.entry("coded", ["short"])["short"]).records


@pytest.fixture
def promoted(model_store: ArtifactStore, others: dict[str, str]) -> Iterator[str]:
    """Let the other artifact of the same space serve; return its codec id."""
    mine, codec = model_store.current().codec, others["codec"]
    model_store.get(codec)
    model_store.serve(codec)
    yield codec
    model_store.serve(mine)


def test_an_artifact_without_a_free_slot_leaves_writing_to_the_one_before(
    moving: Moving, promoted: str
) -> None:
    [first] = moving.ledger.documents.collections()["coded"].artifacts
    full = (first, *(f"{first}.{n}" for n in range(MAX_SLOT)))
    moving.ledger.documents.collection_change(
        "coded", lambda old: old.model_copy(update={"artifacts": full})
    )
    moving.fill(TEXTS, "coded")
    moving.holds(TEXTS)
    assert moving.ledger.documents.collections()["coded"].artifacts == full
    assert moving.begin() is Status.FAILED
    free = (*full[:5], "", *full[6:])
    moving.ledger.documents.collection_change(
        "coded", lambda old: old.model_copy(update={"artifacts": free})
    )
    moving.fill(TEXTS, "coded")
    moving.holds(TEXTS)
    assert moving.ledger.documents.collections()["coded"].artifacts[5] == promoted


def test_a_record_in_a_slot_that_came_since_a_read_began_is_read(
    moving: Moving, promoted: str
) -> None:
    before = moving.ledger.documents.collections()["coded"]
    moving.fill(TEXTS, "coded")
    after = moving.ledger.documents.collections()["coded"]
    assert after.artifacts == (*before.artifacts, promoted)
    found = moving.pipeline._records.reader.texts(before, list(TEXTS))
    assert {name: one[1] for name, one in found.items() if isinstance(one, tuple)} == TEXTS


def test_a_partition_is_made_in_its_collections_space_whatever_serves(
    moving: Moving, others: dict[str, str], promoted: str
) -> None:
    """The artifact that made the partitions before serves no more, or none of their space."""
    [first] = moving.ledger.documents.collections()["coded"].artifacts
    own = moving.ledger.documents.collections()["coded"].space
    wanted = {"kind": CollectionKind.LOGS, "artifact": first}
    with pytest.raises(ModelUnknown):
        moving.pipeline.create_collection(CollectionParams(name="logs", **wanted))
    made = moving.pipeline.create_collection(CollectionParams(name="logs.1", space=own, **wanted))
    assert (made.space, made.artifacts) == (own, (promoted,))
    other = moving.pipeline._management.fit.models.get(others["space"]).space
    wanted["artifact"] = others["space"]
    made = moving.pipeline.create_collection(CollectionParams(name="logs.2", space=other, **wanted))
    assert (made.space, made.artifacts) == (other, (others["space"],))
