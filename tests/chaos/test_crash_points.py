"""A process ended at every named place, and every promise looked at afterwards."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.chaos.crash.sitecustomize import PLACES
from tests.chaos.load import text_of
from tests.e2e.conftest import ARTIFACT, Platform

from verso_client import Client, Document, StoredText
from verso_core.errors import DocumentUnknown
from verso_core.jobs import CollectionKind, Precision, Status
from verso_core.jobs.logs.lines import LineOrder, LinesRequest
from verso_core.registry import Channel, assign, read

COUNT = 12
_LOST_S = 300.0
_RELEASES = [name for name in PLACES if "release" in name or "artifact" in name]
_DELETED = "a collection is deleted, its vectors are there"
_HEAD = "a head is in its draft"  # tests/integration/verso_training
_FIRST = "the files for a first point are made, it is not in them"
_LINES = [name for name in PLACES if "lines" in name or "segments" in name]
_COLD = [name for name in PLACES if "an object" in name]
_APART = {*_RELEASES, _DELETED, _HEAD, _FIRST, *_LINES, *_COLD}
_WORK = [name for name in PLACES if name not in _APART]
_VERIFIED = [name for name in PLACES if "marked verified" in name or "texts are" in name]
# One on each side of the vector store's socket. A worker that dies again and again is started ever
# later, so all of them take minutes: ``make chaos`` asks for that.
_ALL = os.environ.get("CRASH_PLACES") == "all"
_CHOSEN = (
    _WORK
    if _ALL
    else [
        "points are applied, not flushed",
        "vectors are put, patches are not",
    ]
)


class Shot:
    """A platform that is ended at one place after another."""

    def __init__(self, platform: Platform, file: Path) -> None:
        self.platform = platform
        self._file = file
        self.jobs: set[str] = set()

    def arm(self, place: str) -> None:
        """Let the next process that comes by a place end there."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(place)
        draft.replace(self._file)

    def await_crash(self) -> None:
        """Wait until one did: a test that never came by has shown nothing."""
        deadline = time.monotonic() + _LOST_S
        while self._file.exists():
            assert time.monotonic() < deadline, "nothing came by this place"
            time.sleep(0.05)


def _shot(folder: Path, **settings: str) -> Iterator[Shot]:
    path = [str(Path(__file__).parent / "crash"), os.environ.get("PYTHONPATH", "")]
    platform = Platform(
        folder / "data",
        ARTIFACT,
        PYTHONPATH=os.pathsep.join(path),
        CRASH_FILE=str(folder / "place"),
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0.2",
        VERSO_LEASE_S="3",
        VERSO_RESULT_INLINE_BYTES="1000",
        **settings,
    )
    try:
        platform.start()
        yield Shot(platform, folder / "place")
    finally:
        platform.close()


@pytest.fixture(scope="module")
def shot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shot]:
    yield from _shot(tmp_path_factory.mktemp("crash"), VERSO_SCRUB_SHARE="0")


@pytest.fixture(scope="module")
def cold_shot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shot]:
    """Return a platform that moves blocks of lines to cold storage when it scrubs them."""
    settings = {"VERSO_COLD_AFTER_DAYS": "0", "VERSO_SCRUB_SHARE": "1"}
    yield from _shot(tmp_path_factory.mktemp("cold"), **settings)


@pytest.fixture
def client(shot: Shot) -> Iterator[Client]:
    with shot.platform.client(patience_s=_LOST_S) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("place", _CHOSEN)
def test_a_process_that_ends_here_loses_nothing_and_does_nothing_twice(
    shot: Shot, client: Client, place: str
) -> None:
    collection = f"place-{_WORK.index(place)}"
    client.create_collection(collection)
    first = {f"{collection}/{n}": text_of(f"{n}") for n in range(COUNT)}
    then = {name: text_of(f"again {name}") for name in list(first)[: COUNT // 2]}
    gone = list(first)[-2:]
    ingest(client, first, collection)
    shot.platform.await_verified(collection, COUNT)
    shot.arm(place)
    jobs = ingest(client, then, collection)
    client.delete(gone[0], collection=collection)
    client.delete(gone[1], collection=collection)
    assert len(client.embed([f"text {n}" for n in range(20)])) == 20
    shot.await_crash()
    shot.platform.await_verified(collection, COUNT - 2, timeout_s=_LOST_S)
    # what came back is whole: new work is done, every record reads, nothing deleted comes back
    ingest(client, {f"{collection}/new": b"one more"}, collection)
    stored = first | then | {f"{collection}/new": b"one more"}
    for name in gone:
        del stored[name]
    assert shot.platform.read_all(collection, list(stored)) == stored
    assert client.stats(collection).documents == len(stored)
    for text in client.reconstruct(gone, collection=collection):
        assert isinstance(text, StoredText)
        assert text.error is not None
        assert text.error.code == DocumentUnknown.code
    assert_one_end(shot.platform, jobs)
    client.delete_collection(collection)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [*_LINES, *_VERIFIED] if _ALL else ["lines are coded, not committed"]
)
def test_a_process_that_ends_here_keeps_every_line_once_and_in_order(
    shot: Shot, client: Client, place: str
) -> None:
    collection = f"lines-{list(PLACES).index(place)}"
    client.create_collection(collection, kind=CollectionKind.LOGS)
    shot.arm(place)
    sent = b""
    for part in range(20):  # so many that small segments are merged
        count = 1200 if part == 0 else 5
        text = b"".join(
            b"2026-01-01T00:00:00Z step %d: took %d ms\n" % (n % 7, n * part) for n in range(count)
        )
        report = client.ingest_lines([text], collection=collection)
        assert report.lines == count
        sent += text
    shot.await_crash()
    deadline = time.monotonic() + _LOST_S
    while (held := client.stats(collection).lines) is None or held.verified < 1295:
        assert time.monotonic() < deadline, held
        time.sleep(0.2)
    assert (held.lines, held.verified, held.bytes_text) == (1295, 1295, len(sent))
    request = LinesRequest(collection=collection, limit=0, raw=True)
    assert b"".join(client.lines(request)) == sent
    newest_first = LinesRequest(collection=collection, order=LineOrder.NEWEST, limit=1)
    newest = json.loads(b"".join(client.lines(newest_first)).splitlines()[0])
    # Numbers that were reserved for a request that was sent again are a gap.
    assert client.get(newest["id"], collection=collection).data == sent.splitlines()[-1]
    client.delete_collection(collection)


@pytest.mark.slow
@pytest.mark.skipif(not _ALL, reason="starts one more platform: make chaos")
@pytest.mark.parametrize("place", [name for name in _COLD if "entries" not in name])
def test_a_worker_that_ends_while_it_moves_blocks_to_cold_storage_loses_no_line(
    cold_shot: Shot, place: str
) -> None:
    collection, platform = f"cold-{_COLD.index(place)}", cold_shot.platform
    sent = [
        b"".join(b"2026-01-01T00:00:00Z %d ms for user %d\n" % (n * n, n) for n in range(at, end))
        for at, end in ((0, 2048), (2048, 4096))
    ]
    with platform.client(patience_s=_LOST_S) as client:
        client.create_collection(collection, kind=CollectionKind.LOGS)
        for part in sent:
            assert client.ingest_lines([part], collection=collection).lines == 2048
        _move_to_cold(cold_shot, client, collection, place)
        request = LinesRequest(collection=collection, limit=0, raw=True)
        assert b"".join(client.lines(request)) == b"".join(sent)
        held = client.stats(collection)
        assert held.lines is not None
        assert (held.lines.lines, held.lines.verified) == (4096, 4096)
        # of the object that a killed worker wrote nothing is named: its blocks went to another
        assert held.lines.bytes_cold <= _in_cold(platform)
        client.delete_collection(collection)


@pytest.mark.slow
@pytest.mark.skipif(not _ALL, reason="starts one more platform: make chaos")
@pytest.mark.parametrize("place", [name for name in _COLD if "blocks" not in name])
def test_a_worker_that_ends_while_it_moves_entries_to_cold_storage_loses_no_text(
    cold_shot: Shot, place: str
) -> None:
    collection, platform = f"moved-{_COLD.index(place)}", cold_shot.platform
    texts = {f"{collection}/{n}": text_of(f"{n}") for n in range(150)}
    with platform.client(patience_s=_LOST_S) as client:
        client.create_collection(collection)
        ingest(client, texts, collection)
        platform.await_verified(collection, len(texts), timeout_s=_LOST_S)
        _move_to_cold(cold_shot, client, collection, place)
        assert platform.read_all(collection, list(texts)) == texts
        held = client.stats(collection)
        assert (held.documents, held.verified, held.unreadable) == (len(texts), len(texts), 0)
        assert held.kept is not None
        assert held.kept.bytes_cold <= _in_cold(platform)
        client.delete_collection(collection)


def _move_to_cold(shot: Shot, client: Client, collection: str, place: str) -> None:
    """Have a worker end while it moves a collection, and wait until all of it is moved."""
    shot.arm(place)
    client.scrub(now=True)
    shot.await_crash()
    deadline = time.monotonic() + _LOST_S
    while (kept := client.stats(collection).kept) is None or kept.bytes_cold == 0:
        assert time.monotonic() < deadline, kept
        time.sleep(0.2)
    wanted = client.scrub(now=True).number + 1
    while (state := client.scrub()).number < wanted or state.running:
        assert time.monotonic() < deadline, state
        time.sleep(0.2)
    assert (state.damaged, state.repaired) == (0, 0)


def _in_cold(platform: Platform) -> int:
    """Return the bytes of all objects of cold storage."""
    paths = (platform.data / "cold").rglob("*")
    return sum(path.stat().st_size for path in paths if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [_FIRST, "points are applied, not flushed", "points are flushed, unanswered"]
)
def test_a_store_that_ends_amid_the_first_record_of_a_log_collection_loses_nothing(
    shot: Shot, client: Client, place: str
) -> None:
    collection = f"first-{list(PLACES).index(place)}"
    client.create_collection(collection, kind=CollectionKind.LOGS)
    lines = b"".join(b"2026-01-01T00:00:00Z step %d is done\n" % n for n in range(200))
    assert client.ingest_lines([lines], collection=collection).records == 0
    files = shot.platform.data / "vectors" / collection
    assert [path.name for path in files.iterdir()] == ["collection.json"]
    shot.arm(place)
    text = text_of(place)
    jobs = ingest(client, {"note": text}, collection)
    shot.await_crash()
    assert shot.platform.read_all(collection, ["note"]) == {"note": text}
    assert client.stats(collection).points == 1
    request = LinesRequest(collection=collection, limit=0, raw=True)
    assert b"".join(client.lines(request)) == lines
    assert_one_end(shot.platform, jobs)
    client.delete_collection(collection)
    assert not files.exists()


@pytest.mark.slow
@pytest.mark.skipif(not _ALL, reason="makes a worker die once more: make chaos")
def test_a_worker_that_ends_while_it_deletes_a_collection_leaves_nothing_of_it(
    shot: Shot, client: Client
) -> None:
    texts = {f"gone/{n}": text_of(f"{n}") for n in range(COUNT)}
    client.create_collection("gone")
    ingest(client, texts, "gone")
    shot.arm(_DELETED)
    client.delete_collection("gone")
    shot.await_crash()
    # at once made again, with other settings: nothing of the first one is in its way or comes back
    client.create_collection("gone", precision=Precision.INT8)
    again = dict(list(texts.items())[:2])
    ingest(client, again, "gone")
    assert shot.platform.read_all("gone", list(again)) == again
    assert client.stats("gone").documents == client.stats("gone").points == len(again)
    with shot.platform.redis() as ledger:
        deadline = time.monotonic() + _LOST_S
        while ledger.zcard("verso:gc") or ledger.llen("verso:dropped"):
            assert time.monotonic() < deadline, "what is left is not removed"
            time.sleep(0.1)
    assert not (shot.platform.data / "vectors" / "gone").exists()
    client.delete_collection("gone")


@pytest.mark.slow
@pytest.mark.skipif(not _ALL, reason="takes minutes: make chaos")
@pytest.mark.parametrize("place", _RELEASES)
def test_a_worker_that_ends_while_models_change_changes_them_once(
    shot: Shot,
    client: Client,
    place: str,
    variant: Callable[..., Path],
) -> None:
    models = shot.platform.data / "models"
    name = f"other-{_RELEASES.index(place)}"
    before = read(models).stable
    draft = variant(models / f".{name}", 1 + _RELEASES.index(place))
    draft.rename(models / name)
    if "loaded" in place:
        shot.arm(place)
        assign(models, Channel.CANARY, name)
        shot.await_crash()
        client.embed(["while it comes back"])
        promoted = client.promote()
    else:
        assign(models, Channel.CANARY, name)
        shot.arm(place)
        promoted = client.promote()
        shot.await_crash()
    assert promoted.artifact.stable == name
    now = read(models)
    assert (now.stable, now.canary, now.previous) == (name, None, before)
    if "loaded" not in place:
        shot.arm(place)
    assert client.rollback().artifact.stable == before
    shot.await_crash()
    assert (read(models).stable, read(models).previous) == (before, name)
    assert len(client.embed(["after all of it"])) == 1


def ingest(client: Client, texts: dict[str, bytes], collection: str) -> list[str]:
    """Have documents stored; returns the jobs."""
    documents = [Document(text, id=name) for name, text in texts.items()]
    jobs = [job.id for job in client.submit(documents, collection=collection)]
    for job in jobs:
        ended = client.wait(job, timeout_s=_LOST_S)
        assert (ended.status, ended.failed) == (Status.SUCCEEDED, 0)
    return jobs


def assert_one_end(platform: Platform, jobs: list[str]) -> None:
    """Check that no job of the platform ended twice, and these at all."""
    with platform.redis() as ledger:
        known = [name.decode() for name in ledger.zrange("verso:jobs:default", 0, -1)]
        assert set(jobs) <= set(known)
        for job in known:
            rows = [row[b"status"].decode() for _, row in ledger.xrange(f"verso:events:{job}")]
            assert sum(Status(row).terminal for row in rows) == 1, (job, rows)
