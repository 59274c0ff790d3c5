"""Words, filters and what a crash leaves: the index and the engine together."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest
from tests.support import word_index
from tests.support.killed_collection import FIRST, LATER, PLACES, made

from verso_core.jobs import Filter, Precision
from verso_worker.records.points import Terms, packed
from verso_worker.records.space import Settings, Space
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge import lexical
from verso_worker.stores.edge.collection import EdgeCollection

SPACE = Space(Precision.INT8, 16, 300.0)
COUNT = 3000
QUERY = Bm25().query(b"disk sector fan")
Kept = dict[UUID, Terms]


@pytest.fixture
def kept() -> Kept:
    """Chunks of which all have the first word, and some the others, at different lengths."""
    texts = [
        b"disk" + b" sector" * (n % 3) + b" fan" * (n % 7 == 0) + b" word" * (n % 40)
        for n in range(COUNT)
    ]
    return dict(zip((uuid4() for _ in texts), Bm25().documents(texts), strict=True))


@pytest.fixture
def collection(tmp_path: Path, kept: Kept) -> Iterator[EdgeCollection]:
    """A collection of them in one segment; each host has a hundredth, and one is rare."""
    EdgeCollection.create(tmp_path / "c", Settings(SPACE, terms=True))
    made = EdgeCollection(tmp_path / "c", index_above=10 * COUNT)
    rows = np.random.default_rng(1).integers(-127, 128, (COUNT, 16)).astype(np.int8)
    made.put(
        made.prepare(
            list(kept),
            rows,
            payloads=[
                packed({"d": f"{n}", "n": 0, "m": {"host": n % 100, "rare": n in (7, 900, 2950)}})
                for n in range(COUNT)
            ],
            terms=list(kept.values()),
        )
    )
    made.flush()
    yield made
    made.close()


def best(kept: Kept, *, passing: list[UUID], limit: int) -> list[tuple[UUID, float]]:
    [weighed] = word_index.weights([kept], QUERY)
    rows = [(point, round(weighed[point], 4)) for point in passing]
    return sorted(rows, key=lambda row: (-row[1], row[0].bytes))[:limit]


@pytest.mark.parametrize("few", [10_000, 0], ids=["weighed", "looked for"])
@pytest.mark.parametrize("limit", [1, 5, 50])
def test_what_passes_a_filter_is_found_however_low_it_ranks(
    collection: EdgeCollection, kept: Kept, monkeypatch: pytest.MonkeyPatch, few: int, limit: int
) -> None:
    monkeypatch.setattr(lexical, "_FEW", few)
    ids = list(kept)
    for where, passing in (
        (Filter(metadata={"rare": True}), [ids[n] for n in (7, 900, 2950)]),
        (Filter(metadata={"host": 13}), ids[13::100]),
        (Filter(metadata={"host": -1}), []),
        (None, ids),
    ):
        hits = collection.search(None, terms=QUERY, limit=limit, where=where)
        expected = best(kept, passing=passing, limit=limit)
        assert [hit.score for hit in hits] == pytest.approx([s for _, s in expected], abs=2e-4)
        assert {hit.id for hit in hits} <= set(passing)
        both = collection.search(np.ones(16, np.float32), terms=QUERY, limit=limit, where=where)
        assert len(both) == len(hits)
        assert {hit.id: hit.weight for hit in both} == pytest.approx(
            {hit.id: dict(best(kept, passing=passing, limit=COUNT))[hit.id] for hit in both},
            abs=2e-4,
        )


def test_words_whose_point_was_removed_meanwhile_take_no_place_among_the_hits(
    collection: EdgeCollection, kept: Kept
) -> None:
    before = collection.search(None, terms=QUERY, limit=20, where=None)
    [loud] = Bm25().documents([b"disk sector sector fan"])
    collection._lexical.put({uuid4(): loud for _ in range(100)})
    collection._lexical.flushed()
    after = collection.search(None, terms=QUERY, limit=20, where=None)
    assert len(after) == 20
    assert {hit.id for hit in after} <= kept.keys()
    assert after[0].id in {hit.id for hit in before}


@pytest.mark.parametrize("commits", [False, True], ids=["in the log", "in the index"])
@pytest.mark.parametrize("place", PLACES)
def test_a_process_that_is_killed_leaves_each_point_with_its_words_and_no_others(
    tmp_path: Path, place: str, commits: bool
) -> None:
    folder = tmp_path / "c"
    argv = [sys.executable, "-m", "tests.support.killed_collection", str(folder), place]
    argv += ["--commits"] if commits else []
    root = Path(__file__).parents[5]
    assert subprocess.run(argv, cwd=root, check=False).returncode == -signal.SIGKILL
    points = made(FIRST) | made(LATER)
    acknowledged = dict.fromkeys(list(made(FIRST))[10:])
    for _ in range(2):
        again = EdgeCollection(folder, index_above=10**6)
        there = set(again.get(list(points))[0])
        assert acknowledged.keys() <= there
        assert there.isdisjoint(list(made(FIRST))[:5])
        if place in PLACES[2:]:
            assert there == set(points) - set(list(made(FIRST))[:10])
        hits = again.search(None, terms=Bm25().query(b"disk"), limit=100, where=None)
        assert sorted(hit.id for hit in hits) == sorted(there)
        assert again.differing({point: points[point] for point in there}) == set()
        gone = {point: points[point] for point in points.keys() - there}
        assert again.differing(gone) == gone.keys()
        again.close()


def test_the_words_are_counted_and_copied_with_the_points(
    collection: EdgeCollection, kept: Kept, tmp_path: Path
) -> None:
    sizes = collection.sizes()
    assert sizes.disk is not None
    assert sizes.terms > 0
    assert sizes.disk.words >= sizes.terms
    assert collection.copy(tmp_path / "copy") == COUNT
    copied = EdgeCollection(tmp_path / "copy", index_above=10 * COUNT)
    assert copied.differing(kept) == set()
    found, there = (
        one.search(None, terms=QUERY, limit=20, where=None) for one in (copied, collection)
    )
    assert found == there
    copied.close()
