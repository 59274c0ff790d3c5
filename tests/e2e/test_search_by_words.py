"""Hybrid search over HTTP: what the vector misses, the words find."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from verso_client import Client, Document
from verso_core.errors import CollectionExists, RequestInvalid
from verso_core.jobs import Filter, Precision, SearchMode

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform


@pytest.fixture
def hybrid(verso: Client, lines: Callable[[int], list[Document]]) -> Iterator[str]:
    """A collection as it is made by default, which keeps words, with forty lines in it."""
    name = f"hybrid-{uuid.uuid4().hex[:8]}"
    made = verso.create_collection(name)
    assert (made.search, made.precision) == (SearchMode.HYBRID, Precision.INT4)
    verso.ingest(lines(40), collection=name)
    yield name
    verso.delete_collection(name)


@pytest.fixture
def dense(verso: Client) -> Iterator[str]:
    """A collection that keeps no words."""
    name = f"dense-{uuid.uuid4().hex[:8]}"
    verso.create_collection(name, search=SearchMode.DENSE)
    yield name
    verso.delete_collection(name)


def test_a_rare_word_is_found_before_and_after_the_texts_are_dropped(
    platform: Platform, verso: Client, hybrid: str
) -> None:
    rare = "session 23 u137"  # 23 * 7919 % 1000

    def answers() -> list[list[tuple[str, float]]]:
        return [
            [(h.id, h.score) for h in verso.search(rare, collection=hybrid, mode=mode).hits]
            for mode in (None, *SearchMode)
        ]

    before = answers()
    platform.await_verified(hybrid, 40)
    assert answers() == before
    default, _, sparse, both = before
    assert default == both
    assert sparse[0][0] == both[0][0] == "line/23#0"
    assert 0.5 <= both[0][1] <= 1.0


def test_words_heed_filters_replacements_and_deletions(verso: Client, hybrid: str) -> None:
    where = Filter(metadata={"host": "host-2"})
    found = verso.search("session u137", collection=hybrid, limit=40, filter=where).hits
    assert {hit.document for hit in found} == {f"line/{n}" for n in range(40) if n % 7 == 2}
    verso.ingest([Document("quite another text", id="line/23")], collection=hybrid)
    verso.delete("line/24", collection=hybrid)
    found = verso.search("session", collection=hybrid, limit=60, mode=SearchMode.SPARSE).hits
    assert {hit.document for hit in found} == {f"line/{n}" for n in range(40)} - {
        "line/23",
        "line/24",
    }


def test_what_the_words_take_is_counted(verso: Client, hybrid: str, dense: str) -> None:
    stats = verso.stats(hybrid)
    assert stats.search is SearchMode.HYBRID
    assert 1000 < stats.bytes_terms < 20_000  # the files of the index
    bare = verso.stats(dense)
    assert bare.bytes_terms == 0
    assert stats.kept is not None
    assert bare.kept is not None
    assert stats.kept.bytes_words is not None
    assert stats.kept.bytes_words > stats.bytes_terms > 0 == bare.kept.bytes_words


def test_all_that_is_kept_is_counted(verso: Client, hybrid: str) -> None:
    stats = verso.stats(hybrid)
    kept = stats.kept
    assert kept is not None
    assert kept.bytes_vectors is not None
    assert kept.bytes_entries > stats.bytes_entries
    assert kept.bytes_vectors >= stats.bytes_vectors
    disk = (kept.bytes_vectors, kept.bytes_index, kept.bytes_words, kept.bytes_points)
    assert kept.bytes_disk == sum(size or 0 for size in disk)
    assert kept.bytes_memory == kept.bytes_entries + kept.bytes_texts
    assert kept.bytes_tables > 0


def test_words_are_refused_where_there_are_none(verso: Client, hybrid: str, dense: str) -> None:
    for mode in (SearchMode.SPARSE, SearchMode.HYBRID):
        with pytest.raises(RequestInvalid, match="keeps no words"):
            verso.search("session", collection=dense, mode=mode)
        with pytest.raises(RequestInvalid, match="a vector has no words"):
            verso.search(id="line/5", collection=hybrid, mode=mode)
    assert verso.search(id="line/5", collection=hybrid).hits[0].score > 0.9
    assert verso.search("the of", collection=hybrid, mode=SearchMode.SPARSE).hits == ()
    with pytest.raises(CollectionExists):
        verso.create_collection(hybrid, search=SearchMode.DENSE)
    assert verso.create_collection(hybrid).search is SearchMode.HYBRID


def test_retrieval_is_measured_on_what_is_served(
    headed: Platform, tmp_path: Path, lines: Callable[[int], list[Document]]
) -> None:
    """Every question is a line's own words, so each finds it; the collection is gone afterwards."""
    (tmp_path / "qrels").mkdir()
    documents, asked = lines(30), [3, 11, 27]
    rows = [{"_id": one.id, "text": str(one.text)} for one in documents]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": str(n), "text": rows[n]["text"]}) for n in asked)
    )
    judged = "".join(f"{n}\tline/{n}\t1\n" for n in asked)
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    command = [sys.executable, "-m", "verso_client", "--url", headed.url]
    ran = subprocess.run(
        [
            *(*command, "eval", "retrieval", str(tmp_path), "--json"),
            *("--rerank", "pairs", "--rerank", "alike"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    report = json.loads(ran.stdout)
    assert (report["documents"], report["questions"], report["verified_after"]) == (30, 3, 30)
    assert report["same_before_and_after"] is True
    ways = [(row["mode"], row.get("reranked_by")) for row in report["rows"]]
    plain = [(mode, None) for mode in ("dense", "sparse", "hybrid")]
    assert ways == [*plain, ("hybrid", "pairs"), ("hybrid", "alike")] * 2
    assert [way not in plain for way in ways] == ["gain" in row for row in report["rows"]]
    assert all(
        low <= row["ndcg"] <= high for row in report["rows"] for low, high in [row["ndcg_95"]]
    )
    by_words = [row for row, way in zip(report["rows"], ways, strict=True) if way in plain[1:]]
    assert all(row["ndcg"] == 1.0 for row in by_words)
    with headed.client() as client:
        assert not [one for one in client.collections() if one.name.startswith("eval-")]
