"""The index of words against BM25 by brute force, and its files against damage."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import word_index

from verso_core.errors import VectorsUnavailable
from verso_worker.records.points import NO_TERMS, Terms
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge import words as under_test
from verso_worker.stores.edge.word_files import fault_of
from verso_worker.stores.edge.words import LOST_NAME, WORDS_NAME, Words, Writers, opened

WORDS = ["disk", "sector", "socket", "kernel", "fan", "42"]
POINTS = [UUID(int=n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128) for n in range(12)]

texts = st.lists(st.sampled_from(WORDS), max_size=30).map(lambda found: " ".join(found).encode())
# A batch puts some points, new ones or again with other words, and removes others.
batches = st.lists(
    st.dictionaries(st.sampled_from(POINTS), st.none() | texts, max_size=8),
    min_size=1,
    max_size=6,  # fewer segments than are merged
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / WORDS_NAME


@pytest.fixture(params=[20, 1], ids=["", "most ids fold to the same number"])
def folds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_FOLD_BITS", request.param)


def terms_of(text: bytes) -> Terms:
    return Bm25().documents([text])[0]


def change(words: Words, put: dict[UUID, Terms] | None = None, gone: Sequence[UUID] = ()) -> None:
    """Change the index as a collection does whose engine has the change too."""
    words.put(put or {})
    words.remove(gone)
    words.log()
    words.flushed()


def committed(
    words: Words, put: dict[UUID, Terms] | None = None, gone: Sequence[UUID] = ()
) -> None:
    change(words, put, gone)
    words.commit()


@pytest.mark.usefixtures("folds")
@settings(max_examples=30)
@given(batches, st.sets(st.sampled_from(WORDS), min_size=1, max_size=4))
def test_a_search_weighs_as_brute_force_does(
    changes: list[dict[UUID, bytes | None]], asked: set[str]
) -> None:
    query = Bm25().query(" ".join(sorted(asked)).encode())
    segments: list[dict[UUID, Terms]] = []
    live: dict[UUID, tuple[int, Terms]] = {}
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as name:
        words = Words(Path(name) / WORDS_NAME, Writers())
        for batch in changes:
            put = {point: terms_of(text) for point, text in batch.items() if text is not None}
            committed(words, put, [point for point, text in batch.items() if text is None])
            for point in batch:
                live.pop(point, None)
            live |= {point: (len(segments), terms) for point, terms in put.items()}
            segments.append(put)
        # Chunks that were removed count until their segment is merged, or none of it is left.
        there = {at for at, _ in live.values()}
        kept = [segment if n in there else {} for n, segment in enumerate(segments)]
        weighed = word_index.weights(kept, query)
        expected = {
            point: weighed[at][point] for point, (at, _) in live.items() if point in weighed[at]
        }
        found = words.best(query, 100)
        assert dict(found) == pytest.approx(expected, abs=1e-4, rel=1e-5)
        assert found == sorted(found, key=lambda hit: (-hit[1], hit[0].bytes))
        assert words.weigh(query, POINTS) == dict(found)
        assert words.count == len(live)
        for term in query.ids:
            assert words.having(term) == sum(
                term in terms.ids for segment in kept for terms in segment.values()
            )
        given = {point: terms for point, (_, terms) in live.items()}
        assert words.differing(given) == set()
        assert words.differing(dict.fromkeys(POINTS, NO_TERMS)) == {
            point for point in POINTS if given.get(point, True)
        }
        words.end_merges()


def test_equal_hits_come_by_id_whatever_segment_they_are_in(folder: Path) -> None:
    words = Words(folder, Writers())
    for point in reversed(POINTS):
        committed(words, {point: terms_of(b"disk")})
    words.end_merges()
    found = [point for point, _ in words.best(Bm25().query(b"disk"), 3)]
    assert found[:3] == sorted(POINTS)[:3]


def test_segments_are_merged_and_few_writers_stay_open(tmp_path: Path) -> None:
    writers = Writers(most=2)
    kept = [Words(tmp_path / f"{n}", writers) for n in range(4)]
    for n in range(40):
        for words in kept:
            committed(words, {UUID(int=n + 1): terms_of(b"disk %d" % n)})
            assert len(writers._open) <= 2
    for words in kept:
        words.end_merges()
        assert words.count == 40
        assert words.best(Bm25().query(b"17"), 1)[0][0] == UUID(int=18)
    assert not writers._open
    assert len(list((tmp_path / "0").glob("*.idx"))) < 10


def recovered(folder: Path, points: Collection[UUID], *, killed: Words | None = None) -> Words:
    """Open an index again whose process was killed, beside an engine that has these points."""
    if killed is not None:
        killed._writers.abandon(killed)  # lets the files go without another write
    words = opened(folder, Writers())
    words.recover(lambda ids: {point for point in ids if point in points})
    return words


def test_what_was_not_logged_is_not_there(folder: Path) -> None:
    words = Words(folder, Writers())
    committed(words, {POINTS[0]: terms_of(b"disk")})
    words.put({POINTS[1]: terms_of(b"disk")})
    words.remove([POINTS[0]])
    assert words.count == 1
    again = recovered(folder, POINTS[:1], killed=words)
    assert again.count == 1
    assert not again.lost
    assert again.differing({POINTS[0]: terms_of(b"disk")}) == set()


@given(batches, st.sets(st.sampled_from(POINTS)), st.booleans())
@settings(max_examples=30)
def test_each_point_of_the_engine_has_its_words_after_a_crash_and_no_other_has(
    changes: list[dict[UUID, bytes | None]], undone: set[UUID], commits: bool
) -> None:
    """The engine may have nothing of the last change, all of it, or a part."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as name:
        folder = Path(name) / WORDS_NAME
        words = Words(folder, Writers())
        engine: set[UUID] = set()
        before: set[UUID] = set()
        last: dict[UUID, Terms] = {}
        for batch in changes:
            before = set(engine)
            put = {point: terms_of(text) for point, text in batch.items() if text is not None}
            words.put(put)
            words.remove([point for point, text in batch.items() if text is None])
            words.log()
            if batch is not changes[-1]:
                words.flushed()
                if commits:
                    words.commit()
            last |= put
            engine = engine - batch.keys() | put.keys()
        engine = (engine - undone) | (before & undone)
        again = words
        for _ in range(2):
            again = recovered(folder, engine, killed=again)
            assert again.count == len(engine)
            assert again.differing({point: last[point] for point in engine}) == set()
        again.end_merges()


def test_the_log_is_emptied_by_a_commit_and_kept_until_then(folder: Path) -> None:
    log = folder / "changes.log"
    words = Words(folder, Writers())
    change(words, {point: terms_of(b"disk") for point in POINTS})
    kept = log.read_bytes()
    assert kept
    assert not list(folder.glob("*.idx"))
    assert words.count == len(POINTS)  # a search commits
    assert not log.read_bytes()
    words.end_merges()
    log.write_bytes(kept)  # as after a power cut: it is made again
    again = recovered(folder, POINTS)
    assert again.count == len(POINTS)
    again.end_merges()


def test_a_commit_leaves_the_log_of_a_change_that_is_not_flushed(folder: Path) -> None:
    words = Words(folder, Writers())
    change(words, {POINTS[0]: terms_of(b"disk")})
    words.put({POINTS[1]: terms_of(b"fan")})
    words.log()
    assert words.best(Bm25().query(b"disk fan"), 9)[0][0] == POINTS[0]
    assert words.count == 1
    again = recovered(folder, POINTS[:2], killed=words)
    assert again.differing({POINTS[1]: terms_of(b"fan")}) == set()


def test_many_changes_are_committed_without_a_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "COMMIT_AT", 5)
    words = Words(folder, Writers())
    for n in range(7):
        change(words, {POINTS[n]: terms_of(b"disk")})
    assert list(folder.glob("*.idx"))
    assert len(words._flushed) == 2


def test_changes_that_the_index_does_not_take_are_kept_and_a_search_says_why(
    folder: Path,
) -> None:
    words = Words(folder, Writers())
    change(words, {POINTS[0]: terms_of(b"disk")})
    held = Writers()
    other = Words(folder, held)
    committed(other, {POINTS[1]: terms_of(b"fan")})  # its writer holds the folder
    with pytest.raises(VectorsUnavailable, match="not written"):
        words.best(Bm25().query(b"disk"), 1)
    words.end_merges()
    change(words, {POINTS[2]: terms_of(b"disk")})
    other.end_merges()
    assert {point for point, _ in words.best(Bm25().query(b"disk"), 9)} == {POINTS[0], POINTS[2]}
    words.end_merges()


def records(folder: Path) -> tuple[Path, list[dict[UUID, Terms]]]:
    """Write three records; return the log and what each has."""
    words = Words(folder, Writers())
    kept = [{POINTS[n]: terms_of(b"disk %d" % n)} for n in range(3)]
    for one in kept:
        change(words, one)
    return folder / "changes.log", kept


def test_a_record_that_was_cut_is_left_out_and_the_others_are_kept(folder: Path) -> None:
    log, kept = records(folder)
    whole = log.read_bytes()
    for end in range(2 * len(whole) // 3 + 1, len(whole)):
        log.write_bytes(whole[:end])
        again = recovered(folder, POINTS)
        assert not again.lost
        assert again._flushed == kept[0] | kept[1]
        change(again, kept[2])
        assert recovered(folder, POINTS)._flushed == kept[0] | kept[1] | kept[2]


def test_a_flipped_bit_of_the_log_is_found(folder: Path) -> None:
    log, kept = records(folder)
    whole = log.read_bytes()
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        log.write_bytes(data)
        again = recovered(folder, POINTS)
        assert again.lost
        assert all(again._flushed[point] == words for point, words in _joined(kept, again))
        again.all_found()


def _joined(kept: list[dict[UUID, Terms]], words: Words) -> list[tuple[UUID, Terms]]:
    return [
        (point, terms) for one in kept for point, terms in one.items() if point in words._flushed
    ]


def damaged(folder: Path, suffix: str, at: int) -> None:
    path = next(folder.glob(f"*.{suffix}"))
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", ["idx", "term", "fast", "fieldnorm", "pos", "store", "del"])
@pytest.mark.parametrize("at", [0, 10, -1, -20], ids=str)
def test_altered_files_are_found(folder: Path, suffix: str, at: int) -> None:
    words = Words(folder, Writers())
    committed(words, {point: terms_of(b"disk %d" % n) for n, point in enumerate(POINTS)})
    committed(words, gone=POINTS[:2])
    words.end_merges()
    assert fault_of(folder) is None
    damaged(folder, suffix, at)
    assert fault_of(folder) is not None
    again = opened(folder, Writers())
    assert (again.count, again.lost) == (0, True)
    assert (folder.parent / LOST_NAME).exists()
    again.all_found()
    assert not opened(folder, Writers()).lost


@pytest.mark.parametrize("lost", ["meta.json", "*.idx", "*.term", "*.fast"])
def test_missing_files_are_found(folder: Path, lost: str) -> None:
    words = Words(folder, Writers())
    committed(words, {POINTS[0]: terms_of(b"disk")})
    words.end_merges()
    next(folder.glob(lost)).unlink()
    assert opened(folder, Writers()).lost


def test_an_altered_list_of_files_is_found_or_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    words = Words(source, Writers())
    committed(words, {point: terms_of(b"disk %d" % n) for n, point in enumerate(POINTS)})
    committed(words, gone=POINTS[:2])
    words.end_merges()
    query = Bm25().query(b"disk 3")
    kept = (source / "meta.json").read_bytes()
    found = 0
    for bit in range(0, 8 * len(kept), 43):
        data = bytearray(kept)
        data[bit // 8] ^= 1 << bit % 8
        folder = tmp_path / f"{bit}" / WORDS_NAME
        shutil.copytree(source, folder)
        (folder / "meta.json").write_bytes(data)
        again = opened(folder, Writers())
        found += again.lost
        if not again.lost:
            assert again.best(query, 20) == words.best(query, 20)
            assert again.count == words.count
    assert found > 100
