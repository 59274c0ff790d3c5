"""Kernel reports of later than the last test row, which no head was made with.

The public set ends in June 2024. The repository it is of goes on: reports that were added since are
rows of the same kind, with a label where their type is one that the set has. A clone of
google/syzkaller is read with git, at the commit that is checked out.

A head is asked as a worker asks it: chunks, rounded vectors and terms, the graph of its folder, and
the calibration beside it.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.documents import served, stored
from studies.quality.sets import LOG_FAMILIES
from verso_core import heads
from verso_training.heads import confidence
from verso_training.heads.confidence import Report
from verso_training.heads.rows import Row

_SET = "logs_syzkaller"
_REPORTS = "pkg/report/testdata"
_PATH = re.compile(rf"{_REPORTS}/\w+/report/\d+")
_UNLABELLED = "unlabelled"


@dataclass(frozen=True)
class Later:
    """Rows that were added after the set was made.

    Attributes:
        commit: That was read.
        rows: With the labels of the head, oldest first.
        since: The day after which they were added.
        left_out: Reports added since without a type that the set has.
    """

    commit: str
    rows: tuple[Row, ...]
    since: str
    left_out: int


def kernels(data: Path, clone: Path) -> Later:
    """Return the reports of a clone that are later than the set's last row."""
    known = []
    for part in ("train", "dev", "test"):
        with lzma.open(data / _SET / f"{part}.jsonl.xz", "rt", encoding="utf-8") as stream:
            known += [json.loads(line) for line in stream]
    label_of = {row["type"]: row["label"] for row in known if row["label"] != _UNLABELLED}
    since = max(row["date"] for row in known)
    rows: dict[str, Row] = {}
    left_out = 0
    for path in _added(clone, since):
        fields, text = _report(_git(clone, "show", f"HEAD:{path}"))
        label = label_of.get(fields.get("TYPE"))
        if label is None or not text.strip():
            left_out += 1
        else:
            rows.setdefault(text, Row(f"{LOG_FAMILIES[_SET]}/{label}", text))
    commit = _git(clone, "rev-parse", "HEAD").strip()
    return Later(commit, tuple(rows.values()), since, left_out)


def _added(clone: Path, since: str) -> Iterator[str]:
    """Yield the reports that were added after a day, in that order."""
    found = _git(
        clone, "log", "--reverse", "--diff-filter=A", "--format=@%cs", "--name-only", "--", _REPORTS
    )
    there = set(_git(clone, "ls-tree", "-r", "--name-only", "HEAD", _REPORTS).splitlines())
    day = ""
    for line in found.splitlines():
        if line.startswith("@"):
            day = line[1:]
        elif day > since and line in there and _PATH.fullmatch(line):
            yield line


def _report(file: str) -> tuple[dict[str, str], str]:
    """Return the header fields of a report and its log."""
    head, _, body = file.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    return fields, body.split("\nREPORT:\n")[0]


def _git(clone: Path, *command: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *command], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def report(rows: Sequence[Row], folder: Path, *, artifact: Path, work: Path) -> Report:
    """Return the figures of a head that reads documents, on rows with its labels."""
    loaded = heads.load(folder)
    head = loaded.head
    assert head.max_chunks is not None
    read = stored.documents(
        [str(row.text) for row in rows],
        artifact=artifact,
        cache=work / "documents" / f"later-{_SET}-{head.max_chunks}",
        most=head.max_chunks,
    )
    targets = np.array([head.labels.index(row.label) for row in rows], np.int64)
    return confidence.report(
        served.outputs(folder, read, targets),
        head.calibration,
        served.statistics(folder),
        labels=head.labels,
    )
