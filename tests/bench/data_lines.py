"""The lines of every set of a data folder but the systems of loghub, whose files are logs already.

The texts of a set stand one after the other, its parts in their published order, which is that of
time where there is one; repetitions count. Each of a text's lines that is not empty is one.
"""

from __future__ import annotations

import csv
import itertools
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

csv.field_size_limit(1 << 24)

Read = Callable[[Path], Iterator[str]]


def text_sets(folder: Path, *, lines: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and first lines of each set that is there."""
    for name, read in _SETS.items():
        try:
            found = (line for text in read(folder) for line in text.splitlines() if line.strip())
            yield name, b"".join(f"{one}\n".encode() for one in itertools.islice(found, lines))
        except FileNotFoundError:
            continue


def framed(data: bytes) -> bytes:
    """Return lines as the messages of GELF records, one a second, as an application writes them."""
    rows = []
    for n, line in enumerate(data.decode().splitlines()):
        row = {
            "version": "1.1", "host": f"web-{n % 4}", "short_message": line,
            "timestamp": 1_772_323_200 + n + n % 97 / 1000, "level": 4 + n % 3, "_app": "shop",
        }  # fmt: skip
        rows.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    return "".join(f"{row}\n" for row in rows).encode()


def _opened(folder: Path, names: Iterable[str]) -> Iterator[Iterator[str]]:
    for name in names:
        path = folder / name
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as stream:
            yield stream


def _rows(folder: Path, names: Sequence[str], fields: Sequence[str]) -> Iterator[str]:
    """Yield fields of the objects of files of JSON lines."""
    for stream in _opened(folder, names):
        for line in stream:
            row = json.loads(line)
            yield from (str(row[field]) for field in fields if row.get(field))


def _columns(
    folder: Path, names: Sequence[str], columns: Sequence[int], *, tabs: bool = True
) -> Iterator[str]:
    """Yield columns of tables; the first row of one may be its header, which is a line as well."""
    for stream in _opened(folder, names):
        table = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        for row in table if tabs else csv.reader(stream):
            yield from (row[column] for column in columns if column < len(row))


def _plain(folder: Path, names: Sequence[str]) -> Iterator[str]:
    for stream in _opened(folder, names):
        yield from stream


def _clinc(folder: Path) -> Iterator[str]:
    for stream in _opened(folder, ["intent_clinc150/data_full.json.xz"]):
        parts = json.loads("".join(stream))
        yield from (text for part in ("train", "val", "test") for text, _ in parts[part])


def _squad(folder: Path) -> Iterator[str]:
    for stream in _opened(folder, ["qa_squad/squad2_dev_shared.json.xz"]):
        for article in json.loads("".join(stream))["data"]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                yield from (one["question"] for one in paragraph["qas"])


def _parts(folder: str, *parts: str, fields: Sequence[str] = ("text",)) -> Read:
    return partial(_rows, names=[f"{folder}/{part}.jsonl.xz" for part in parts], fields=fields)


_TIMES = ("train", "dev", "test")
_SETS: Mapping[str, Read] = {
    "HDFS sessions": _parts("logs_hdfs_sessions", "train", "test"),
    "rcheck logs": _parts("logs_rcheck", *_TIMES),
    "install logs": _parts("logs_rinstall", *_TIMES),
    "failed tests": _parts("logs_defects4j", *_TIMES),
    "kernel crashes": _parts("logs_syzkaller", *_TIMES),
    "CI jobs": _parts("logs_ci_logdx", "dev", "stress", fields=("log", "text")),
    "failed builds": _parts("logs_ci_cidiff", "cases", fields=("fail_log", "pass_log")),
    "kernel boots": _parts("logs_kernelci", "cases"),
    "a test suite": partial(_plain, names=["logs_phptest/php_test_run.log.xz"]),
    "Banking77": partial(
        _columns,
        names=["intent_banking77/train.csv.xz", "intent_banking77/test.csv"],
        columns=[0],
        tabs=False,
    ),
    "CLINC150": _clinc,
    "STS-B": partial(
        _columns,
        names=["sim_stsb/stsb-en-train.csv.xz", "sim_stsb/stsb-en-test.csv"],
        columns=[0, 1],
        tabs=False,
    ),
    "other STS": _parts(
        "sim_sts_extra", "sts2012_2016_not_in_stsb", fields=("sentence1", "sentence2")
    ),
    "SICK": partial(
        _columns,
        names=["sim_sick/SICK_train.txt.xz", "sim_sick/SICK_test_annotated.txt.xz"],
        columns=[1, 2],
    ),
    "SNLI": partial(
        _columns, names=["nli_snli/validation.tsv.xz", "nli_snli/test.tsv.xz"], columns=[0, 1]
    ),
    "SST": partial(_columns, names=["cs224n/ids-sst-train.csv.xz"], columns=[2]),
    "CFIMDB": partial(_columns, names=["cs224n/ids-cfimdb-train.csv.xz"], columns=[2]),
    "Quora": partial(_columns, names=["cs224n/quora-dev.csv.xz"], columns=[2, 3]),
    "SQuAD": _squad,
    "SelQA": _parts("qa_selqa", "dev", "test", fields=("question",)),
    "QAMR": _parts("qa_qamr", "dev", "test", fields=("context", "question")),
    "SciFact": _parts("ir_scifact", "corpus", fields=("title", "text")),
    "CACM": _parts("ir_cacm", "corpus", fields=("title", "text")),
    "books": _parts("prose", *(f"books_{number}" for number in range(1, 5))),
    "factbook": _parts("prose", "factbook1995"),
    "documentation": _parts("prose", "techdocs"),
}
