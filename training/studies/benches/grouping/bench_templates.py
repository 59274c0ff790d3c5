"""Do log lines that one statement wrote end up together, and how fast?

The limit is one core: masking is a regular expression over each line. On the 2,000 lines of each
system of loghub (Zhu et al. 2023) whose statements people have marked: grouping accuracy (GA: share
of lines whose group is exactly a marked one), FGA (the same as an F1 over groups; Jiang et al.
2024), and the V measure (Rosenberg & Hirschberg 2007). One setting for all. Whole lines, as people
send them, or with --contents the part that people have marked as the message. Beside what the
worker does: templates not joined; the masks alone; the lines with their headers; and Drain3 with
the masks of its own example, where it is installed (drain3, cachetools, jsonpickle).

A statement is *right* if its lines are exactly one group, *split* if they are several groups of its
own, *merged* otherwise: other statements' lines are among them. Brackets are 95 % bootstrap
intervals over the systems.

With --url a running platform stores the lines as documents and groups them (``POST /v1/cluster``);
it must come to as many groups of the same sizes as the worker's code does here.

How alike joined templates are was chosen on every other system, the first included, and never on
the rest: the means of both halves are given apart.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import lzma
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sheet
from sklearn.metrics import v_measure_score

from verso_client import Client, Document
from verso_core.jobs import Precision, SearchMode
from verso_core.jobs.cluster import ClusterRequest, Method
from verso_worker.rules.grouping.messages import messages
from verso_worker.rules.grouping.statements import statements_of
from verso_worker.rules.grouping.templates import SIMILAR, WORDS, Miner

Grouper = Callable[[Sequence[str]], list[Any]]
_DRAWS = 10_000
_EDGE = r"((?<=[^A-Za-z0-9])|^)%s((?=[^A-Za-z0-9])|$)"
_DRAIN_MASKS = {
    "ID": r"(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))",
    "IP": r"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})",
    "SEQ": r"([0-9a-f]{6,} ?){3,}",
    "HEX": r"(0x[a-f0-9A-F]+)",
    "NUM": r"([\-\+]?\d+)",
}


def mined(*, similar: float, words: int, join: bool, headers: bool = False) -> Grouper:
    """Return what groups lines as the worker does; perhaps not joined, or headers and all."""

    def group(lines: Sequence[str]) -> list[str]:
        told = lines if headers else messages([line.encode() for line in lines])
        return statements_of(told, similar=similar, words=words, join=join)

    return group


def masks(lines: Sequence[str]) -> list[int]:
    """Group lines that are the same once masked, and no further."""
    miner = Miner()
    return [miner.add(line) for line in lines]


def drain(lines: Sequence[str]) -> list[int]:
    """Group lines by Drain3, similarity 0.4 as it comes."""
    config = importlib.import_module("drain3.template_miner_config").TemplateMinerConfig()
    masking = importlib.import_module("drain3.masking").MaskingInstruction
    config.masking_instructions = [masking(_EDGE % r, name) for name, r in _DRAIN_MASKS.items()]
    miner = importlib.import_module("drain3").TemplateMiner(config=config)
    return [miner.add_log_message(line)["cluster_id"] for line in lines]


def accuracy(found: Sequence[Any], marked: Sequence[str]) -> tuple[float, float, float]:
    """Return GA, FGA and V, each in [0, 1]."""
    groups, statements = _lines_of(found), _lines_of(marked)
    right = [lines for lines in groups if lines in set(statements)]
    ga = sum(map(len, right)) / len(marked)
    fga = 2 * len(right) / (len(groups) + len(statements))
    return ga, fga, float(v_measure_score(marked, found))


def faults(found: Sequence[Any], marked: Sequence[str]) -> dict[str, int]:
    """Count the statements that are right, split and merged."""
    statements: dict[Any, set[str]] = defaultdict(set)
    groups: dict[str, set[Any]] = defaultdict(set)
    for label, statement in zip(found, marked, strict=True):
        statements[label].add(statement)
        groups[statement].add(label)
    counts = {"right": 0, "split": 0, "merged": 0}
    for labels in groups.values():
        alone = all(len(statements[label]) == 1 for label in labels)
        counts["merged" if not alone else "right" if len(labels) == 1 else "split"] += 1
    return counts


def _lines_of(labels: Sequence[Any]) -> list[tuple[int, ...]]:
    lines = defaultdict(list)
    for number, label in enumerate(labels):
        lines[label].append(number)
    return [tuple(own) for own in lines.values()]


def read(folder: Path, *, contents: bool) -> tuple[list[str], list[str]]:
    """Read a system's lines, or their contents, and the statements that wrote them."""
    with lzma.open(folder / f"{folder.name}_2k.log_structured.csv.xz", "rt") as file:
        rows = list(csv.DictReader(file))
    lines = (folder / f"{folder.name}_2k.log").read_text("utf-8", "replace").split("\n")
    told = [row["Content"] for row in rows] if contents else lines[: len(rows)]
    return told, [row["EventId"] for row in rows]


def sizes_through(client: Client, lines: Sequence[str], *, name: str) -> list[int]:
    """Return the sizes of the groups that a platform finds, the largest first."""
    client.create_collection(name, precision=Precision.INT4, search=SearchMode.DENSE)
    client.ingest(
        [Document(line, id=str(number)) for number, line in enumerate(lines)], collection=name
    )
    asked = ClusterRequest(collection=name, method=Method.TEMPLATES, limit=1000, representatives=0)
    sizes = [group.size for group in client.cluster(asked).groups]
    client.delete_collection(name)
    return sizes


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the loghub systems")
    parser.add_argument("--contents", action="store_true", help="without headers, as marked")
    parser.add_argument("--similar", type=float, default=SIMILAR)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--url", help="a platform that groups the lines as well")
    arguments = parser.parse_args()
    paper = sheet.Sheet("templates")
    setting = {"similar": arguments.similar, "words": arguments.words}
    groupers: dict[str, Grouper] = {
        "verso": mined(**setting, join=True),
        "not joined": mined(**setting, join=False),
        "with headers": mined(**setting, join=True, headers=True),
        "masks alone": masks,
    }
    if importlib.util.find_spec("drain3") is not None:
        groupers["drain3"] = drain
    rows = []
    spent = dict.fromkeys(groupers, 0.0)
    lines_read = 0
    systems = sorted(path for path in arguments.data.iterdir() if path.is_dir())
    for folder in systems:
        lines, marked = read(folder, contents=arguments.contents)
        lines_read += len(lines)
        row: dict[str, Any] = {"system": folder.name, "statements": len(set(marked))}
        for name, group in groupers.items():
            start = time.process_time()
            found = group(lines)
            spent[name] += time.process_time() - start
            ga, fga, v = accuracy(found, marked)
            row[name] = {"groups": len(set(found)), "ga": ga, "fga": fga, "v": v}
            row[name] |= faults(found, marked)
            if name == "verso" and arguments.url:
                with Client(arguments.url) as client:
                    sizes = sizes_through(client, lines, name=f"templates-{folder.name.lower()}")
                row["same through the platform"] = sizes == sorted(Counter(found).values())[::-1]
        rows.append(row)
    means: dict[str, dict[str, Any]] = {}
    print("system | statements | " + " | ".join(f"{n}: groups, GA, FGA, V" for n in groupers))
    for row in rows:
        cells = [_cells(row[name]) for name in groupers]
        through = row.get("same through the platform", "")
        print(f"{row['system']} | {row['statements']} | " + " | ".join(cells), through)
    for name in groupers:
        means[name] = {
            half: _means([row[name] for row in part])
            for half, part in {"all": rows, "chosen on": rows[::2], "others": rows[1::2]}.items()
        } | {"lines_per_cpu_s": round(lines_read / spent[name])}
        print(name, means[name])
    paper.finish({"means": means, "systems": rows})


def _means(found: Sequence[dict[str, float]]) -> dict[str, Any]:
    means: dict[str, Any] = {
        key: round(float(np.mean([one[key] for one in found])), 4)
        for key in ("groups", "ga", "fga", "v")
    }
    drawn = np.random.default_rng(0).integers(0, len(found), (_DRAWS, len(found)))
    for key in ("ga", "fga", "v"):
        values = np.array([one[key] for one in found])[drawn].mean(axis=1)
        means[f"{key}_95"] = [round(float(at), 3) for at in np.percentile(values, (2.5, 97.5))]
    return means | {key: sum(one[key] for one in found) for key in ("right", "split", "merged")}


def _cells(found: dict[str, float]) -> str:
    return f"{found['groups']}, {found['ga']:.3f}, {found['fga']:.3f}, {found['v']:.3f}"


if __name__ == "__main__":
    main()
