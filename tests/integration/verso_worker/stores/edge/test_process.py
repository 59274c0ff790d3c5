"""The shard process among others: killed, locked out, out of room, optimising."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from verso_core.errors import DiskFull, VectorsUnavailable
from verso_core.jobs import Filter, Precision
from verso_core.supervise import Process
from verso_worker.records.points import Point
from verso_worker.records.space import Space, Stored
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.client import EdgeVectors, shard_child

DIM = 64
SPACE = Space(Precision.INT8, DIM, 300.0)
Start = Callable[..., tuple[Process, EdgeVectors]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start shard processes on one folder, each with a socket of its own."""
    running: list[tuple[Process, EdgeVectors]] = []

    def run(**settings: Any) -> tuple[Process, EdgeVectors]:
        socket = tmp_path / f"{len(running)}.sock"
        child = shard_child(tmp_path / "vectors", socket_path=socket, **settings)
        vectors = EdgeVectors(socket)
        running.append((child, vectors))
        child.start()
        return child, vectors

    yield run
    for child, vectors in running:
        vectors.close()
        child.stop()


def create(vectors: EdgeVectors, name: str = "c") -> None:
    vectors.create(name, dim=DIM, precision=SPACE.precision, int8_scale=SPACE.int8_scale)


def batch(count: int, *, seed: int) -> list[Point]:
    rows = np.random.default_rng(seed).integers(-127, 128, (count, DIM)).astype(np.int8)
    return [Point(uuid4(), row, {"d": f"doc{n}", "n": 0}) for n, row in enumerate(rows)]


def same(found: dict[UUID, Stored], points: list[Point]) -> bool:
    return {i: row.tobytes() for i, row in found.items()} == {
        point.id: point.stored.tobytes() for point in points
    }


def read(vectors: EdgeVectors, points: list[Point]) -> dict[UUID, Stored]:
    return vectors.get("c", [point.id for point in points])


def patiently(call: Callable[[], Any]) -> Any:
    """Call as the worker does: again while the store says it may come back."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except VectorsUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def kill(child: Process) -> None:
    """Kill the process in whatever it is doing, its start included."""
    deadline = time.monotonic() + 60
    while (pid := child.pid) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


def test_a_kill_right_after_a_put_loses_nothing(start: Start) -> None:
    child, vectors = start()
    create(vectors)
    kept: list[Point] = []

    def all_there() -> bool:
        return same(read(vectors, kept), kept) and vectors.count("c") == len(kept)

    for round_ in range(4):
        points = batch(30, seed=round_)
        vectors.put("c", points)
        kept += points
        vectors.remove("c", [kept.pop(0).id])
        kill(child)
        assert patiently(all_there)
    assert child.restarts == 4


def test_a_kill_amid_puts_loses_no_acknowledged_point(start: Start) -> None:
    child, vectors = start()
    create(vectors)
    acknowledged: list[Point] = []
    done = threading.Event()

    def write(seed: int) -> None:
        while not done.is_set():
            seed += 100
            points = batch(20, seed=seed)
            try:
                vectors.put("c", points)
            except VectorsUnavailable:
                time.sleep(0.05)
            else:
                acknowledged.extend(points)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(4):
        goal = len(acknowledged) + 40
        deadline = time.monotonic() + 60
        while len(acknowledged) < goal:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kill(child)
    done.set()
    for writer in writers:
        writer.join()
    assert same(patiently(lambda: read(vectors, acknowledged)), acknowledged)


def test_a_second_process_is_refused_and_the_first_goes_on(start: Start, tmp_path: Path) -> None:
    first, vectors = start()
    create(vectors)
    points = batch(10, seed=1)
    vectors.put("c", points)
    with pytest.raises(VectorsUnavailable, match=f"held by another process .*{first.pid}"):
        start()
    more = batch(10, seed=2)
    vectors.put("c", more)
    kill(first)
    assert same(patiently(lambda: read(vectors, points + more)), points + more)


def test_a_refused_process_says_why_in_one_line(start: Start, tmp_path: Path) -> None:
    start()
    second = subprocess.run(
        [
            *(sys.executable, "-m", "verso_worker.stores.edge.process"),
            *("--socket", str(tmp_path / "x.sock"), "--data", str(tmp_path / "vectors")),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode != 0
    assert len(second.stderr.splitlines()) == 1
    assert "vectors_unavailable" in second.stderr


def test_the_disk_floor_refuses_before_anything_is_stored(start: Start) -> None:
    child, vectors = start()
    create(vectors)
    points = batch(10, seed=1)
    vectors.put("c", points)
    child.stop()
    _, strict = start(floor_mib=1 << 40)
    with pytest.raises(DiskFull):
        strict.put("c", batch(1, seed=2))
    with pytest.raises(DiskFull):
        create(strict, "other")
    assert strict.names() == ["c"]
    strict.remove("c", [points[0].id])
    assert strict.count("c") == 9


def test_a_half_made_collection_is_cleared_at_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "vectors" / ".c.0123").mkdir(parents=True)
    _, vectors = start()
    assert vectors.names() == []
    assert not (tmp_path / "vectors" / ".c.0123").exists()


def test_a_collection_of_a_later_release_is_a_clear_refusal(start: Start, tmp_path: Path) -> None:
    child, vectors = start()
    create(vectors)
    child.stop()
    (tmp_path / "vectors" / "c" / "collection.json").write_text('{"format": 99}')
    with pytest.raises(VectorsUnavailable, match=r"format 1 to 4 in .*/c, got 99"):
        start()


def has_graph(segments: Path) -> bool:
    """Whether a segment has a graph; folders may come and go meanwhile."""
    return any("graph.bin" in names for _, _, names in os.walk(segments))


def test_a_worn_collection_is_optimised_in_a_quiet_moment(start: Start, tmp_path: Path) -> None:
    child, vectors = start(index_above=800, quiet_s=0.5)
    create(vectors)
    points = batch(1500, seed=3)
    vectors.put("c", points)
    removed = points[:100]
    vectors.remove("c", [point.id for point in removed])
    segments = tmp_path / "vectors" / "c" / "edge" / "segments"
    deadline = time.monotonic() + 240
    while not has_graph(segments) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert has_graph(segments)
    left = points[100:]
    assert same(patiently(lambda: read(vectors, points)), left)
    query = SPACE.widen(left[7].stored[None])[0]
    hits = vectors.search("c", query, limit=3, where=Filter())
    assert hits[0].id == left[7].id
    vectors.put("c", removed + left[:50])  # some are there, in a part that is indexed
    assert vectors.count("c") == 1500
    vectors.remove("c", [point.id for point in left[:10]])
    assert vectors.count("c") == 1490
    assert child.restarts == 0


def test_points_without_payload_lie_in_closed_segments_until_a_graph_pays(
    start: Start, tmp_path: Path
) -> None:
    child, vectors = start(index_above=4000, quiet_s=3600.0)
    create(vectors)
    points = [Point(point.id, point.stored, {}) for point in batch(2500, seed=5)]
    vectors.put("c", points)
    query = SPACE.widen(points[7].stored[None])[0]
    before = vectors.search("c", query, limit=20, where=None)
    disk = vectors.sizes("c").disk
    assert disk is not None
    assert disk.points / vectors.count("c") > 140
    child.stop()
    child, vectors = start(index_above=4000, quiet_s=0.5)
    segments = tmp_path / "vectors" / "c" / "edge" / "segments"

    def links() -> set[int]:
        indexes = segments.glob("*/vector_index*/hnsw_config.json")
        return {json.loads(path.read_text())["m"] for path in indexes}

    def beside_vectors() -> float:
        disk = vectors.sizes("c").disk
        assert disk is not None
        return disk.points / vectors.count("c")

    wait(lambda: patiently(beside_vectors) < 130)
    assert links() == {0}
    assert vectors.search("c", query, limit=20, where=None) == before
    assert same(read(vectors, points), points)
    more = [Point(point.id, point.stored, {}) for point in batch(2000, seed=6)]
    vectors.put("c", more)
    wait(lambda: links() == {16})
    assert same(patiently(lambda: read(vectors, points + more)), points + more)
    assert patiently(lambda: vectors.search("c", query, limit=1, where=None))[0].id == points[7].id
    assert child.restarts == 0


def wait(holds: Callable[[], bool]) -> None:
    """Wait until a fact holds, with longer pauses than a quiet moment takes."""
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(1.5)


MIXED = ["x", "y", 1, 2.0, 1.5, True, False, 2**60, "1", ""]
WANTED = ["x", 1, 1.0, 2, True, "1", 2**60, 2**60 + 1, [1, "x"], [False, 1.5], ["x", True, 2**60]]


def passes(value: Any, wanted: Any) -> bool:
    """Say what a filter means, in the plainest words there are."""
    choices = wanted if isinstance(wanted, list) else [wanted]
    return any(
        value == choice
        and isinstance(value, bool) == isinstance(choice, bool)
        and isinstance(value, str) == isinstance(choice, str)
        for choice in choices
    )


@pytest.mark.parametrize("first", ["x", 1], ids=["keyword", "float"])
def test_an_index_over_a_filtered_field_changes_no_answer(
    start: Start, tmp_path: Path, first: str | int
) -> None:
    child, vectors = start(quiet_s=0.5)
    create(vectors)
    rows = batch(2100, seed=5)
    points = [
        Point(p.id, p.stored, {"d": "d", "n": n, "t": float(n), "m": {"k": MIXED[n % len(MIXED)]}})
        for n, p in enumerate(rows)
    ]
    vectors.put("c", points)
    query = np.ones(DIM, np.float32)

    def answers() -> list[set[UUID]]:
        filters = [Filter(metadata={"k": w}) for w in [first, *WANTED]]
        filters.append(Filter(metadata={"k": "y"}, time_gte=1000.0, time_lt=1500.0))
        return [
            {hit.id for hit in vectors.search("c", query, limit=1000, where=where)}
            for where in filters
        ]

    expected = [{p.id for p in points if passes(p.payload["m"]["k"], w)} for w in [first, *WANTED]]
    expected.append({p.id for p in points[1000:1500] if p.payload["m"]["k"] == "y"})
    assert answers() == expected
    index = tmp_path / "vectors" / "c" / "edge" / "segments"
    deadline = time.monotonic() + 240
    while not any("-m_k-" in f"{entry}" for entry in os.walk(index)):  # folders come and go
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert patiently(answers) == expected
    assert child.restarts == 0


def test_the_process_ends_cleanly_on_sigterm_amid_puts(start: Start) -> None:
    child, vectors = start()
    create(vectors)
    points = batch(50, seed=4)
    vectors.put("c", points)
    process = child._process
    assert process is not None
    child.stop()
    assert process.returncode == 0
    _, again = start()
    assert same(again.get("c", [point.id for point in points]), points)


def test_optimising_changes_no_answer_of_a_search_by_words(start: Start, tmp_path: Path) -> None:
    child, vectors = start(index_above=800, quiet_s=0.5)
    vectors.create("c", dim=DIM, precision=SPACE.precision, int8_scale=SPACE.int8_scale, terms=True)
    words = Bm25().documents([b"block %d of disk sd%c" % (n, 97 + n % 26) for n in range(1500)])
    points = [
        Point(point.id, point.stored, point.payload, terms)
        for point, terms in zip(batch(1500, seed=3), words, strict=True)
    ]
    vectors.put("c", points)
    query, terms = SPACE.widen(points[7].stored[None])[0], Bm25().query(b"sdk 10")
    before = vectors.search("c", None, terms=terms, limit=20, where=None)
    segments = tmp_path / "vectors" / "c" / "edge" / "segments"
    deadline = time.monotonic() + 240
    while not has_graph(segments):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    after = patiently(lambda: vectors.search("c", None, terms=terms, limit=20, where=None))
    assert after[0].id == before[0].id == points[10].id
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before], rel=1e-4)
    assert vectors.differing("c", {p.id: p.terms for p in points}) == set()
    both = vectors.search("c", query, terms=terms, limit=2, where=None)
    assert {hit.id for hit in both} == {points[7].id, points[10].id}
    assert child.restarts == 0
