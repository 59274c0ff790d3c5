"""The labelled public sets, as rows with the split they come with.

Shift is part of the sets: ``logs_syzkaller`` and ``logs_rinstall`` are split by time,
``logs_defects4j`` by project. ``validation`` serves choices and calibration, ``test`` the figures.
"""

from __future__ import annotations

import csv
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs import Precision
from verso_training.artifact.graphs import EncoderGraph
from verso_training.heads.rows import Row, RowSplit
from verso_worker.records.space import Space

LOG_SETS = ("logs_syzkaller", "logs_defects4j", "logs_rinstall", "logs_rcheck")
OUT_OF_SCOPE = "out_of_scope"
LOG_FAMILIES = {
    "logs_syzkaller": "kernel",
    "logs_defects4j": "java-test",
    "logs_rinstall": "r-install",
    "logs_rcheck": "r-check",
}
_END = 700
"""About 256 tokens of an installation log, which is what a vector holds."""
_RCHECK_STEP = 3
"""Of the training rows of logs_rcheck, which are twice as many as those of the others together."""


@dataclass(frozen=True)
class LabelledSet:
    """Texts, labels and splits of one set.

    Attributes:
        name: Of the folder.
        licence: Of the data.
        shift: Between training and test rows.
    """

    name: str
    licence: str
    shift: str
    rows: tuple[Row, ...]

    def of(self, split: RowSplit) -> list[Row]:
        """The rows of one split."""
        return [row for row in self.rows if row.split is split]


def logs(root: Path, name: str) -> LabelledSet:
    """One of ``LOG_SETS``."""
    about = {
        "logs_syzkaller": ("Apache-2.0", "by time: before 2020, 2020-21, 2022-24"),
        "logs_defects4j": ("MIT", "by project"),
        "logs_rinstall": ("MIT", "by time: before July 2020, to July 2022, to 2024"),
        "logs_rcheck": ("MIT", "by time: before 2022, 2022, 2023-25"),
    }
    rows = []
    for part, split in (
        ("train", RowSplit.TRAIN),
        ("dev", RowSplit.VALIDATION),
        ("test", RowSplit.TEST),
    ):
        step = _RCHECK_STEP if (name, part) == ("logs_rcheck", "train") else 1
        read = list(_lines(root / name / f"{part}.jsonl.xz"))[::step]
        rows += [
            Row(str(row["label"]), str(row["text"]), split=split, fold=_fold(name, row))
            for row in read
        ]
    return LabelledSet(name, *about[name], tuple(rows))


def _fold(name: str, row: Mapping[str, object]) -> str | None:
    """Return what a row drifts with: a project, or three months."""
    if name == "logs_defects4j":
        return str(row["project"])
    if name == "logs_syzkaller":
        year, month = str(row["date"]).split("-")[:2]
        return f"{year}-{(int(month) + 2) // 3}"
    return None


def logs_ends(root: Path, name: str) -> LabelledSet:
    """The last ``_END`` characters of each text: what the last chunk of a stored log holds."""
    group = logs(root, name)
    rows = tuple(replace(row, text=str(row.text)[-_END:]) for row in group.rows)
    return replace(group, name=f"{name}-ends", rows=rows)


def clinc(root: Path) -> LabelledSet:
    """CLINC150; the out-of-scope rows carry the label ``OUT_OF_SCOPE``."""
    with lzma.open(root / "intent_clinc150" / "data_full.json.xz", "rt", encoding="utf-8") as f:
        data = json.load(f)
    parts = {
        RowSplit.TRAIN: ("train", "oos_train"),
        RowSplit.VALIDATION: ("val", "oos_val"),
        RowSplit.TEST: ("test", "oos_test"),
    }
    rows = [
        Row(OUT_OF_SCOPE if label == "oos" else str(label), str(text), split=split)
        for split, names in parts.items()
        for name in names
        for text, label in data[name]
    ]
    return LabelledSet("intent_clinc150", "CC BY 3.0", "none", tuple(rows))


def banking(root: Path) -> LabelledSet:
    """BANKING77; every tenth training row is held out for choices."""
    folder = root / "intent_banking77"
    with lzma.open(folder / "train.csv.xz", "rt", encoding="utf-8", newline="") as stream:
        train = list(csv.DictReader(stream))
    with (folder / "test.csv").open(encoding="utf-8", newline="") as stream:
        test = list(csv.DictReader(stream))
    rows = [
        Row(row["category"], row["text"], split=_tenth(number)) for number, row in enumerate(train)
    ]
    rows += [Row(row["category"], row["text"], split=RowSplit.TEST) for row in test]
    return LabelledSet("intent_banking77", "CC BY 4.0", "none", tuple(rows))


def stored_vectors(
    texts: Sequence[str],
    *,
    artifact: Path,
    cache: Path,
    scale: float,
    threads: int = 1,
    precision: Precision = Precision.INT8,
) -> NDArray[np.float32]:
    """Vectors as a collection returns them, encoded once and kept unrounded in ``cache``.

    Args:
        texts: To encode.
        artifact: Whose encoder.
        cache: A file without ending; written where it does not exist or does not fit.
        scale: Of the int8 space.
        threads: For the encoder.
        precision: Of the collection.
    """
    path = cache.with_suffix(".npy")
    if path.exists() and len(found := np.load(path)) == len(texts):
        vectors = found
    else:
        vectors = EncoderGraph(artifact, threads=threads).encode([t[:4000] for t in texts])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, vectors)
    space = Space(precision, vectors.shape[1], scale)
    return space.widen(space.round(vectors))


def _tenth(number: int) -> RowSplit:
    return RowSplit.VALIDATION if number % 10 == 9 else RowSplit.TRAIN


def _lines(path: Path) -> Iterator[dict[str, object]]:
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)
