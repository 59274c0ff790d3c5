"""A collection has no files of the engine until its first point, and loses none for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
import qdrant_edge as qdrant
from tests.integration.verso_worker.stores.edge.test_process import (
    SPACE,
    Start,
    batch,
    create,
    kill,
    patiently,
    read,
    same,
    start,
)

from verso_core.errors import VectorsDamaged
from verso_core.jobs import Filter, IndexKind
from verso_worker.records.points import Disk, Point, Sizes
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors
from verso_worker.stores.edge.settings import engine_config

__all__ = ["start"]

_BLOCK_BYTES = 4096


def description(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "vectors/c/collection.json").read_text())
    return found


def found_nothing(vectors: EdgeVectors) -> None:
    """Ask everything of a collection that has no point."""
    query, words = np.ones(SPACE.dim, np.float32), Bm25().query(b"disk")
    where = Filter(metadata={"k": 1}, time_gte=1.0)
    assert vectors.get("c", [uuid4()]) == {}
    assert vectors.payloads("c", [uuid4()]) == {}
    assert vectors.terms("c", [uuid4()]) == {}
    assert vectors.page("c", UUID(int=0), limit=10) == []
    assert vectors.by_time("c", None, descending=True, limit=10) == []
    assert vectors.search("c", query, terms=words, limit=3, where=where) == []
    assert vectors.search("c", None, terms=words, limit=3, where=None) == []
    assert vectors.search("c", query, limit=3, where=None) == []
    assert vectors.neighbours("c", batch(1, seed=1)[0].stored[None], limit=3) == [[]]
    assert vectors.count("c") == vectors.count("c", where=where, first=True) == 0
    assert vectors.sizes("c") == Sizes(0, 0, 0, Disk(points=_BLOCK_BYTES))


@pytest.mark.parametrize("terms", [False, True], ids=["dense", "hybrid"])
def test_a_collection_without_a_point_is_one_small_file_and_every_call_finds_nothing(
    start: Start, tmp_path: Path, terms: bool
) -> None:
    for _ in range(2):
        child, vectors = start()
        vectors.create(
            "c",
            dim=SPACE.dim,
            precision=SPACE.precision,
            int8_scale=SPACE.int8_scale,
            terms=terms,
        )
        found_nothing(vectors)
        vectors.remove("c", [uuid4()])
        vectors.put("c", [])
        child.stop()
    assert [path.name for path in (tmp_path / "vectors" / "c").iterdir()] == ["collection.json"]
    _, vectors = start()
    vectors.drop("c")
    assert vectors.names() == []


def test_a_copy_without_a_point_opens_and_takes_its_first(start: Start, tmp_path: Path) -> None:
    child, vectors = start()
    create(vectors)
    assert vectors.copy("c", tmp_path / "saved") == 0
    child.stop()
    shutil.rmtree(tmp_path / "vectors" / "c")
    shutil.copytree(tmp_path / "saved", tmp_path / "vectors" / "c")
    child, vectors = start()
    found_nothing(vectors)
    points = batch(3, seed=1)
    vectors.put("c", points)
    assert vectors.copy("c", tmp_path / "later") == len(points)
    kill(child)
    assert same(patiently(lambda: read(vectors, points)), points)
    assert description(tmp_path)["format"] == 1


def test_fields_that_are_declared_before_the_first_point_are_indexed(
    start: Start, tmp_path: Path
) -> None:
    child, vectors = start()
    create(vectors)
    vectors.index("c", {"k": IndexKind.KEYWORD})
    child.stop()
    child, vectors = start()
    vectors.index("c", {"k": IndexKind.KEYWORD, "size": IndexKind.NUMBER})
    points = [
        Point(one.id, one.stored, {"d": f"d{n}", "n": 0, "t": float(n), "m": {"k": f"{n % 2}"}})
        for n, one in enumerate(batch(4, seed=1))
    ]
    vectors.put("c", points)
    assert vectors.count("c", where=Filter(metadata={"k": "1"})) == 2
    placed = vectors.by_time("c", None, descending=True, limit=2)
    assert [point for point, _ in placed] == [points[3].id, points[2].id]
    child.stop()
    edge = qdrant.EdgeShard.load(str(tmp_path / "vectors" / "c" / "edge"))
    assert sorted(edge.info().payload_schema) == ["m.k", "m.size", "t"]
    edge.close()


def test_files_of_a_first_point_that_was_not_acknowledged_are_removed(
    start: Start, tmp_path: Path
) -> None:
    """A crash before the flush leaves them, and the description of an empty collection."""
    child, vectors = start()
    create(vectors)
    empty = (tmp_path / "vectors/c/collection.json").read_bytes()
    vectors.put("c", batch(3, seed=1))
    child.stop()
    (tmp_path / "vectors/c/collection.json").write_bytes(empty)
    (tmp_path / "vectors/c/.collection.json.0123").write_bytes(b"{")
    _, vectors = start()
    found_nothing(vectors)
    points = batch(3, seed=2)
    vectors.put("c", points)
    assert same(read(vectors, points), points)
    assert vectors.count("c") == len(points)


@pytest.mark.parametrize("part", ["edge", "edge/segments", "edge/segments/*"])
def test_files_that_are_lost_after_the_first_point_are_an_error(
    start: Start, tmp_path: Path, part: str
) -> None:
    child, vectors = start()
    create(vectors)
    vectors.put("c", batch(3, seed=1))
    child.stop()
    for lost in (tmp_path / "vectors" / "c").glob(part):
        shutil.rmtree(lost)
    _, vectors = start()
    with pytest.raises(VectorsDamaged, match="'c' cannot be opened"):
        vectors.count("c")


def test_a_file_on_which_the_engine_panics_is_an_error_that_names_the_collection(
    start: Start, tmp_path: Path
) -> None:
    child, vectors = start()
    create(vectors)
    vectors.put("c", batch(3, seed=1))
    child.stop()
    for cut in (tmp_path / "vectors" / "c").rglob("is_null/status.dat"):
        cut.write_bytes(b"")
    _, vectors = start()
    with pytest.raises(VectorsDamaged, match="'c' cannot be opened"):
        vectors.count("c")


def test_a_folder_with_files_but_no_point_of_an_earlier_release_is_read(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "vectors" / "c"
    (folder / "edge").mkdir(parents=True)
    edge = qdrant.EdgeShard.create(str(folder / "edge"), engine_config(SPACE))
    edge.update(qdrant.UpdateOperation.create_field_index("t", qdrant.PayloadSchemaType.Float))
    edge.flush()
    edge.close()
    kept = {"format": 1, "dim": SPACE.dim, "precision": "int8", "int8_scale": SPACE.int8_scale}
    (folder / "collection.json").write_text(json.dumps(kept))
    child, vectors = start()
    create(vectors)
    assert vectors.count("c") == 0
    points = batch(3, seed=1)
    vectors.put("c", points)
    kill(child)
    assert same(patiently(lambda: read(vectors, points)), points)


def test_sparse_vectors_of_an_earlier_release_are_served_as_they_were(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "vectors" / "c"
    (folder / "edge").mkdir(parents=True)
    edge = qdrant.EdgeShard.create(str(folder / "edge"), engine_config(SPACE, sparse=True))
    edge.flush()
    edge.close()
    kept = {"format": 2, "dim": SPACE.dim, "precision": "int8", "int8_scale": SPACE.int8_scale}
    (folder / "collection.json").write_text(json.dumps(kept))
    terms = Bm25().documents([b"disk sda failed", b"disk sdb is healthy", b""])
    points = [
        Point(one.id, one.stored, one.payload, words)
        for one, words in zip(batch(3, seed=1), terms, strict=True)
    ]
    wanted = {point.id: point.terms for point in points}
    child, vectors = start()
    vectors.put("c", points)
    for _ in range(2):
        assert vectors.terms("c", list(wanted)) == wanted
        assert vectors.differing("c", wanted) == set()
        hits = vectors.search("c", None, terms=Bm25().query(b"healthy"), limit=3, where=None)
        assert [hit.id for hit in hits] == [points[1].id]
        assert vectors.sizes("c").terms == 8 * sum(len(one.ids) for one in terms)
        kill(child)
        patiently(vectors.names)
    assert description(tmp_path) == kept
    assert not (folder / "words").exists()
