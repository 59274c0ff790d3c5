"""Files that were lost or damaged while nothing had them open: said, mended, and put again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from tests.integration.verso_worker.stores.edge.test_process import (
    SPACE,
    Start,
    batch,
    create,
    same,
    start,
)

from verso_core.errors import VectorsDamaged
from verso_core.jobs import Filter
from verso_worker.records.points import Point
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors
from verso_worker.stores.edge.optimise import Runner

__all__ = ["start"]

COUNT = 60
QUERY = np.ones(SPACE.dim, np.float32)
Damage = Callable[[Path], None]


def gone(pattern: str) -> Damage:
    def damage(folder: Path) -> None:
        found = list(folder.glob(pattern))
        assert found, pattern
        for path in found:
            path.unlink() if path.is_file() else shutil.rmtree(path)

    return damage


def empty(pattern: str) -> Damage:
    def damage(folder: Path) -> None:
        found = list(folder.glob(pattern))
        assert found, pattern
        for path in found:
            path.write_bytes(b"")

    return damage


OPEN = {
    "vectors gone": gone("edge/segments/*/vector_storage/vectors/chunk_0.mmap"),
    "vectors empty": empty("edge/segments/*/vector_storage/vectors/chunk_0.mmap"),
    "number of vectors gone": gone("edge/segments/*/vector_storage/vectors/status.dat"),
    "number of vectors empty": empty("edge/segments/*/vector_storage/vectors/status.dat"),
    "removed vectors empty": empty("edge/segments/*/vector_storage/deleted/status.dat"),
    "payloads gone": gone("edge/segments/*/payload_storage/page_0.dat"),
    "payloads empty": empty("edge/segments/*/payload_storage/page_0.dat"),
    "places of payloads empty": empty("edge/segments/*/payload_storage/tracker.dat"),
    "index empty": empty("edge/segments/*/payload_index/config.json"),
    "nulls empty": empty("edge/segments/*/payload_index/*/is_null/status.dat"),
    "segment not described": gone("edge/segments/*/segment.json"),
    "segment without version": empty("edge/segments/*/version.info"),
    "settings of the engine empty": empty("edge/edge_config.json"),
    "description gone": gone("collection.json"),
    "description empty": empty("collection.json"),
    "segments gone": gone("edge/segments/*"),
    "all of the engine gone": gone("edge"),
    "all but the folder gone": gone("*"),
    "all gone": shutil.rmtree,
}
CLOSED = {
    "vectors gone": gone("edge/segments/*/vector_storage/matrix.dat"),
    "vectors empty": empty("edge/segments/*/vector_storage/matrix.dat"),
    "graph gone": gone("edge/segments/*/vector_index/graph.bin"),
    "payloads gone": gone("edge/segments/*/payload_storage/page_0.dat"),
    "payloads empty": empty("edge/segments/*/payload_storage/page_0.dat"),
    "ids empty": empty("edge/segments/*/id_tracker.mappings"),
    "versions gone": gone("edge/segments/*/id_tracker.versions"),
}


def described(count: int) -> list[Point]:
    """Return points with metadata and times."""
    return [
        Point(one.id, one.stored, {**one.payload, "t": float(n), "m": {"k": n % 3}})
        for n, one in enumerate(batch(count, seed=1))
    ]


def mend(vectors: EdgeVectors, name: str = "c") -> bool:
    return vectors.mend(
        name, dim=SPACE.dim, precision=SPACE.precision, int8_scale=SPACE.int8_scale, points=True
    )


def put_again(vectors: EdgeVectors, points: Sequence[Point]) -> None:
    """Put the points that are not as they were put, as the scrub does."""
    ids = [point.id for point in points]
    found, payloads = vectors.get("c", ids), vectors.payloads("c", ids)
    assert len(vectors.page("c", UUID(int=0), limit=2 * COUNT)) == len(payloads)
    bad = [
        point
        for point in points
        if point.id not in found
        or not np.array_equal(found[point.id], point.stored)
        or payloads.get(point.id) != point.payload
    ]
    vectors.put("c", bad)


def whole(vectors: EdgeVectors, points: Sequence[Point]) -> None:
    """Check that all is found."""
    ids = [point.id for point in points]
    assert same(vectors.get("c", ids), list(points))
    assert vectors.payloads("c", ids) == {point.id: point.payload for point in points}
    assert len(vectors.search("c", QUERY, limit=COUNT, where=None)) == COUNT
    assert vectors.count("c", where=Filter(metadata={"k": 1})) == COUNT // 3
    assert len(vectors.by_time("c", None, descending=True, limit=2 * COUNT)) == COUNT
    assert vectors.count("c") == COUNT


def mended_and_whole(start: Start, points: Sequence[Point], *, others: int = 0) -> None:
    """Check that a damaged store is mended, says so, and is whole after a scrub.

    Of the collection ``other`` so many of the points are there from the start.
    """
    child, vectors = start()
    if others:
        assert len(vectors.get("other", [point.id for point in points])) == others
    assert mend(vectors)
    with pytest.raises(VectorsDamaged, match="'c' were lost"):
        vectors.search("c", QUERY, limit=3, where=None)
    with pytest.raises(VectorsDamaged, match="'c' were lost"):
        vectors.by_time("c", None, descending=True, limit=3)
    with pytest.raises(VectorsDamaged, match="'c' were lost"):
        vectors.count("c", where=Filter(metadata={"k": 1}))
    put_again(vectors, points)
    vectors.note_scrubbed("c", chunks=len(points))
    assert vectors.missing("c") == 0
    whole(vectors, points)
    child.stop()
    _, vectors = start()
    assert not mend(vectors)
    whole(vectors, points)


@pytest.mark.parametrize("damage", OPEN.values(), ids=OPEN)
def test_what_an_open_segment_has_lost_is_said_and_put_again(
    start: Start, tmp_path: Path, damage: Damage
) -> None:
    points = described(COUNT)
    child, vectors = start()
    create(vectors)
    create(vectors, "other")
    vectors.put("c", points)
    vectors.put("other", points[:3])
    child.stop()
    damage(tmp_path / "vectors" / "c")
    mended_and_whole(start, points, others=3)


@pytest.mark.parametrize("damage", CLOSED.values(), ids=CLOSED)
def test_what_a_closed_segment_has_lost_is_said_and_put_again(
    start: Start, tmp_path: Path, damage: Damage
) -> None:
    points = described(COUNT)
    child, vectors = start()
    create(vectors)
    vectors.put("c", points)
    child.stop()
    folder = tmp_path / "vectors" / "c"
    closed(folder)
    damage(folder)
    mended_and_whole(start, points)


def closed(folder: Path) -> None:
    """Close a collection's segment, with a graph."""
    lock = os.open(folder.parent / "lock", os.O_RDWR)
    assert Runner(lock).run(folder, index_above=10, graph=True, fields={})
    os.close(lock)


def test_a_sound_segment_stays_beside_one_that_cannot_be_opened(
    start: Start, tmp_path: Path
) -> None:
    points = described(COUNT)
    child, vectors = start()
    create(vectors)
    vectors.put("c", points[:40])
    child.stop()
    folder = tmp_path / "vectors" / "c"
    closed(folder)
    child, vectors = start()
    vectors.put("c", points[40:])
    child.stop()
    [lost] = folder.glob("edge/segments/*/id_tracker.versions")
    name = lost.parent.name
    lost.unlink()
    child, vectors = start()
    assert mend(vectors)
    assert same(vectors.get("c", [point.id for point in points]), points[40:])
    assert [path.name for path in (folder / "aside").iterdir()] == [name]
    child.stop()
    mended_and_whole(start, points)


@pytest.mark.parametrize("name", ["graph.bin", "hnsw_config.json"])
@pytest.mark.parametrize("damage", [gone, empty])
def test_vectors_stay_whose_graph_is_lost(
    start: Start, tmp_path: Path, damage: Callable[[str], Damage], name: str
) -> None:
    points = described(COUNT)
    child, vectors = start()
    create(vectors)
    vectors.put("c", points)
    child.stop()
    folder = tmp_path / "vectors" / "c"
    closed(folder)
    damage(f"edge/segments/*/vector_index/{name}")(folder)
    child, vectors = start()
    if mend(vectors):
        vectors.note_scrubbed("c", chunks=COUNT)
    whole(vectors, points)
    child.stop()
    closed(folder)
    assert list(folder.glob("edge/segments/*/vector_index/graph.bin"))
    _, vectors = start()
    whole(vectors, points)


def page_of(start: Start, points: list[Point], place: Path) -> Path:
    """Store points in a collection, end the process, and return the page of their payloads."""
    child, vectors = start()
    create(vectors)
    vectors.put("c", points)
    child.stop()
    [page] = (place / "vectors" / "c").glob("edge/segments/*/payload_storage/page_0.dat")
    return page


def test_vectors_that_cannot_be_read_are_an_error_and_writes_are_judged_as_ever(
    start: Start, tmp_path: Path
) -> None:
    points = described(COUNT)
    page = page_of(start, points, tmp_path)
    with page.open("r+b") as file:
        file.write(bytes(1 << 14))
    _, vectors = start()
    for call in (
        lambda: vectors.payloads("c", [point.id for point in points]),
        lambda: vectors.page("c", UUID(int=0), limit=3),
        lambda: vectors.search("c", QUERY, limit=3, where=None),
        lambda: vectors.count("c", where=Filter(metadata={"k": 1})),  # the engine panics
    ):
        with pytest.raises(VectorsDamaged, match="of collection 'c' cannot be read"):
            call()


def test_points_without_a_vector_are_left_out_of_a_search(start: Start, tmp_path: Path) -> None:
    """A copy that was made while files changed may have such points beside sound ones."""
    settings = {"dim": SPACE.dim, "precision": SPACE.precision, "int8_scale": SPACE.int8_scale}
    points = described(COUNT)
    terms = Bm25().documents([b"disk %d failed" % n for n in range(COUNT)])
    child, vectors = start()
    vectors.create("c", terms=True, **settings)  # type: ignore[arg-type]
    points = [replace(one, terms=words) for one, words in zip(points, terms, strict=True)]
    vectors.put("c", points)
    child.stop()
    folder = tmp_path / "vectors" / "c"
    closed(folder)
    [path] = folder.glob("edge/segments/*/vector_storage/matrix.dat")
    os.truncate(path, path.stat().st_size // 2)
    _, vectors = start()
    found = len(vectors.get("c", [point.id for point in points]))
    assert 0 < found < COUNT
    for query, text in [(QUERY, None), (QUERY, b"failed"), (None, b"failed")]:
        asked = None if text is None else Bm25().query(text)
        hits = vectors.search("c", query, terms=asked, limit=COUNT, where=None)
        assert len(hits) == found


def test_a_page_of_payloads_that_a_crash_left_empty_takes_none_of_the_others_along(
    start: Start, tmp_path: Path
) -> None:
    points = described(COUNT)
    page = page_of(start, points, tmp_path)
    page.with_name("page_1.dat").touch()
    _, vectors = start()
    assert mend(vectors)
    ids = [point.id for point in points]
    assert vectors.payloads("c", ids) == {point.id: point.payload for point in points}
    vectors.note_scrubbed("c", chunks=COUNT)
    whole(vectors, points)


def test_what_was_set_aside_before_stays(start: Start, tmp_path: Path) -> None:
    points = described(COUNT)
    folder = tmp_path / "vectors" / "c"
    for before in range(2):
        child, vectors = start()
        if not before:
            create(vectors)
        vectors.put("c", points)
        child.stop()
        [page] = folder.glob("edge/segments/*/payload_storage/page_0.dat")
        os.truncate(page, 0)
        child, vectors = start()
        assert mend(vectors)
        assert len([*folder.glob("aside/*.payload_storage*")]) == before + 1
        vectors.note_scrubbed("c", chunks=COUNT)
        child.stop()


def test_a_folder_that_cannot_be_mended_is_an_error_of_its_collection(
    start: Start, tmp_path: Path
) -> None:
    _, vectors = start()
    create(vectors, "other")
    (tmp_path / "vectors" / "c").write_bytes(b"")  # a file in its place
    with pytest.raises(VectorsDamaged, match="'c' is not mended: File exists"):
        mend(vectors)
    with pytest.raises(VectorsDamaged, match="'c' is not mended"):
        vectors.count("c")
    assert vectors.count("other") == 0


def test_a_damaged_collection_can_be_removed_and_made_again(start: Start, tmp_path: Path) -> None:
    child, vectors = start()
    create(vectors)
    vectors.put("c", described(COUNT))
    child.stop()
    empty("edge/segments/*/segment.json")(tmp_path / "vectors" / "c")
    _, vectors = start()
    with pytest.raises(VectorsDamaged):
        create(vectors)
    assert vectors.names() == ["c"]
    vectors.drop("c")
    assert vectors.names() == []
    create(vectors)
    assert vectors.count("c") == 0


def test_what_a_scrub_could_not_put_again_is_counted_and_not_asked_for_again(start: Start) -> None:
    child, vectors = start()
    create(vectors)
    points = described(COUNT)
    vectors.put("c", points[5:])
    vectors.note_scrubbed("c", chunks=COUNT)
    child.stop()
    _, vectors = start()
    assert vectors.missing("c") == 5
    assert not mend(vectors)
    vectors.put("c", points[:3])
    vectors.note_scrubbed("c", chunks=COUNT)
    assert vectors.missing("c") == 2


def test_words_of_a_mended_collection_are_put_again(start: Start, tmp_path: Path) -> None:
    settings = {"dim": SPACE.dim, "precision": SPACE.precision, "int8_scale": SPACE.int8_scale}
    terms = Bm25().documents([b"disk sda failed", b"disk sdb is healthy"])
    points = [
        Point(one.id, one.stored, one.payload, words)
        for one, words in zip(batch(2, seed=1), terms, strict=True)
    ]
    child, vectors = start()
    vectors.create("c", terms=True, **settings)  # type: ignore[arg-type]
    vectors.put("c", points)
    child.stop()
    shutil.rmtree(tmp_path / "vectors" / "c")
    _, vectors = start()
    assert vectors.mend("c", terms=True, points=True, **settings)  # type: ignore[arg-type]
    vectors.put("c", points)
    vectors.note_scrubbed("c", chunks=2)
    hits = vectors.search("c", None, terms=Bm25().query(b"healthy"), limit=3, where=None)
    assert [hit.id for hit in hits] == [points[1].id]
