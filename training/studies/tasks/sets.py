"""Sentiment, duplicate questions and similarity: the tasks of multi-task minBERT.

SST, CFIMDB, Quora and the texts of STS come with terms of their own: what is trained on them gives
figures and is not shipped. Where the test part has no labels (SST, CFIMDB), dev is reported and
nothing is chosen on it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from verso_training.heads.rows import RowSplit
from verso_training.heads.scoring import Pair

SENTIMENTS = 5


def sentiment(root: Path, part: str) -> list[tuple[str, int]]:
    """SST-5 sentences with their label, 0 to 4: ``train`` (8,544) or ``dev`` (1,101)."""
    return _rated(root / "cs224n" / f"ids-sst-{part}.csv")


def polarity(root: Path, part: str) -> list[tuple[str, int]]:
    """SST sentences that are not neutral, 1 if positive: ``train`` (6,920) or ``dev`` (872)."""
    neutral = SENTIMENTS // 2
    rows = sentiment(root, part)
    return [(text, int(label > neutral)) for text, label in rows if label != neutral]


def reviews(root: Path, part: str) -> list[tuple[str, int]]:
    """CFIMDB film reviews, 1 if positive: ``train`` (1,707) or ``dev`` (245)."""
    return _rated(root / "cs224n" / f"ids-cfimdb-{part}.csv")


def duplicates(root: Path) -> dict[RowSplit, list[Pair]]:
    """The 20,212 labelled Quora pairs that are at hand, 80/10/10.

    Split by connected component of the graph whose edges are pairs, so that no question of a test
    pair was trained on.
    """
    rows = [
        (row["sentence1"], row["sentence2"], float(row["is_duplicate"]))
        for row in _table(root / "cs224n" / "quora-dev.csv")
        if row["is_duplicate"]
    ]
    names = components([(a, b) for a, b, _ in rows])
    parts: dict[RowSplit, list[Pair]] = {split: [] for split in RowSplit}
    for (a, b, score), name in zip(rows, names, strict=True):
        parts[_part(name)].append(Pair(a, b, score))
    return parts


def components(edges: Sequence[tuple[str, str]]) -> list[str]:
    """For each edge the smallest node of its connected component."""
    near: dict[str, set[str]] = defaultdict(set)
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    name: dict[str, str] = {}
    for start in sorted(near):
        waiting = [] if start in name else [start]
        while waiting:
            node = waiting.pop()
            if node not in name:
                name[node] = start
                waiting += near[node]
    return [name[a] for a, _ in edges]


def extra_similarity(root: Path) -> list[Pair]:
    """SemEval 2012 to 2016 pairs that are not in STS-B; scores 0 to 5 become 0 to 1."""
    path = root / "sim_sts_extra" / "sts2012_2016_not_in_stsb.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return [Pair(row["sentence1"], row["sentence2"], row["score"] / 5.0) for row in rows]


def relatedness(root: Path, part: str) -> list[Pair]:
    """SICK: ``train``, ``trial`` or ``test_annotated``; scores 1 to 5 become 0 to 1."""
    rows = _table(root / "sim_sick" / f"SICK_{part}.txt")
    return [
        Pair(row["sentence_A"], row["sentence_B"], (float(row["relatedness_score"]) - 1.0) / 4.0)
        for row in rows
    ]


def _rated(path: Path) -> list[tuple[str, int]]:
    return [(row["sentence"], int(row["sentiment"])) for row in _table(path)]


def _part(name: str) -> RowSplit:
    tenth = hashlib.sha256(name.encode()).digest()[0] % 10
    return {8: RowSplit.VALIDATION, 9: RowSplit.TEST}.get(tenth, RowSplit.TRAIN)


def _table(path: Path) -> Iterable[dict[str, str]]:
    """Rows of a tab-separated file, compressed where it lies so."""
    packed = path.with_name(f"{path.name}.xz")
    data = lzma.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return csv.DictReader(io.StringIO(data.decode("utf-8"), newline=""), delimiter="\t")
