"""Measures of retrieval, and folders in BEIR's layout."""

from __future__ import annotations

import lzma
import math
import random
import statistics
from pathlib import Path

import pytest

from verso_client.retrieval import bounds, gain, ndcg, read, recall
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


def test_ndcg_is_what_the_formula_says() -> None:
    grades = {"a": 2, "b": 1}
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert ndcg(["a", "b"], grades) == pytest.approx(1.0)
    assert ndcg(["x", "b", "a"], grades) == pytest.approx((1 / math.log2(3) + 3 / 2) / ideal)
    assert ndcg(["x"] * 10 + ["a"], grades) == 0.0


def test_recall_is_the_share_found() -> None:
    assert recall(["x", "a", "b"], {"a": 1, "c": 1}, cut=2) == 0.5
    assert recall([], {"a": 1}, cut=10) == 0.0


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
        ("qrels/test.tsv", "a\tb\n1\t2\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\ta\tmuch\n"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n"),
    ],
)
def test_what_is_not_in_the_layout_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (layout(tmp_path) / name).write_text(content)
    with pytest.raises(RequestInvalid):
        read(tmp_path, split="test")


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestInvalid, match=r"dev\.tsv"):
        read(layout(tmp_path), split="dev")
