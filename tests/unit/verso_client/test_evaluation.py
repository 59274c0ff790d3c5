"""Measures of retrieval, and folders in BEIR's layout."""

from __future__ import annotations

import lzma
import math
import random
import statistics
from pathlib import Path

import pytest
from sklearn.metrics import ndcg_score

from verso_client.cli.evaluation import bounds, gain, measures, ndcg, read
from verso_core.errors import RequestInvalid


def layout(folder: Path) -> Path:
    (folder / "qrels").mkdir()
    corpus = '{"_id": "a", "title": "T", "text": "one"}\n{"_id": "b", "text": "two"}\n'
    with lzma.open(folder / "corpus.jsonl.xz", "wt") as file:
        file.write(corpus)
    (folder / "queries.jsonl").write_text(
        '{"_id": "1", "text": "first?"}\n{"_id": "2", "text": "nobody judged this"}\n'
    )
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n2\tb\t0\n"
    )
    return folder


def test_the_gain_of_ndcg_is_the_relevance() -> None:
    grades = {"a": 2, "b": 1}
    ideal = 2 / math.log2(2) + 1 / math.log2(3)
    assert ndcg(["a", "b"], grades) == pytest.approx(1.0)
    assert ndcg(["x", "b", "a"], grades) == pytest.approx((1 / math.log2(3) + 2 / 2) / ideal)
    assert ndcg([*"0123456789", "a"], grades) == 0.0


def test_graded_questions_count_as_scikit_learn_counts_them() -> None:
    draw = random.Random(3)
    documents = [f"d{number}" for number in range(40)]
    for _ in range(50):
        grades = {one: draw.randint(1, 3) for one in draw.sample(documents, 12)}
        ranked = draw.sample(documents, len(documents))
        truth = [[grades.get(one, 0) for one in ranked]]
        expected = ndcg_score(truth, [[-rank for rank in range(len(ranked))]], k=10)
        assert ndcg(ranked, grades) == pytest.approx(expected)


def test_recall_is_the_share_of_relevant_documents_found() -> None:
    ranked = [f"x{number}" for number in range(9)] + ["a", "b"]
    found = measures([ranked, []], [{"a": 1, "c": 1}, {"a": 1}])
    assert (found.recall_10, found.recall_100) == ([0.5, 0.0], [0.5, 0.0])


def test_a_gain_has_the_interval_of_a_mean() -> None:
    """Of many questions the bootstrap's is the normal one: 1.96 standard errors to either side."""
    draw = random.Random(5)
    without = [draw.random() for _ in range(400)]
    reached = [one + draw.gauss(0.02, 0.1) for one in without]
    gains = [one - other for one, other in zip(reached, without, strict=True)]
    found, error = gain(reached, without), statistics.stdev(gains) / math.sqrt(len(gains))
    assert found.mean == pytest.approx(statistics.fmean(gains), abs=1e-4)
    assert found.low == pytest.approx(found.mean - 1.96 * error, abs=0.001)
    assert found.high == pytest.approx(found.mean + 1.96 * error, abs=0.001)
    assert gain(reached, without) == found
    assert gain(without, without).high == 0.0
    assert bounds(gains) == (found.low, found.high)
    assert bounds([0.25]) == (0.25, 0.25)


def test_a_folder_is_read_and_only_judged_questions_count(tmp_path: Path) -> None:
    given = read(layout(tmp_path), split="test")
    assert given.documents == {"a": "T\none", "b": "two"}
    assert given.questions == {"1": "first?"}
    assert given.relevant == {"1": {"a": 2}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("queries.jsonl", "no json\n"),
        ("queries.jsonl", "[1]\n"),
        ("queries.jsonl", '{"_id": 1, "text": "x"}\n'),
        ("queries.jsonl", '{"_id": "1", "text": "\xff"}\n'),
        ("qrels/test.tsv", "a\tb\n1\t2\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\ta\tmuch\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n"),
    ],
)
def test_what_is_not_in_the_layout_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (layout(tmp_path) / name).write_text(content, "latin-1")
    with pytest.raises(RequestInvalid):
        read(tmp_path, split="test")


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestInvalid, match=r"dev\.tsv"):
        read(layout(tmp_path), split="dev")
