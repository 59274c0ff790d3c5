"""Do log lines that one statement wrote end up together, and how fast?

Limited by one core: masking is a regular expression over each line. On the 2,000 lines of each
system of loghub (Zhu et al. 2023) whose statements people have marked: grouping accuracy (GA: share
of lines whose group is exactly a marked one), FGA (the same as an F1 over groups; Jiang et al.
2024), and the V measure (Rosenberg & Hirschberg 2007). One setting for all. Beside it Drain3 with
the masks of its own example, where it is installed (drain3, cachetools, jsonpickle), and the masks
alone.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import lzma
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sheet
from sklearn.metrics import v_measure_score

from verso_worker.templates import Miner

Grouper = Callable[[Sequence[str]], list[Any]]
_EDGE = r"((?<=[^A-Za-z0-9])|^)%s((?=[^A-Za-z0-9])|$)"
_DRAIN_MASKS = {
    "ID": r"(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))",
    "IP": r"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})",
    "SEQ": r"([0-9a-f]{6,} ?){3,}",
    "HEX": r"(0x[a-f0-9A-F]+)",
    "NUM": r"([\-\+]?\d+)",
}


def ours(lines: Sequence[str]) -> list[str]:
    """Group lines as the worker does."""
    miner = Miner()
    shapes = [miner.add(line) for line in lines]
    templates = miner.templates()
    return [templates[shape] for shape in shapes]


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
    """Give GA, FGA and V, each in [0, 1]."""
    groups, statements = _lines_of(found), _lines_of(marked)
    right = [lines for lines in groups if lines in set(statements)]
    ga = sum(map(len, right)) / len(marked)
    fga = 2 * len(right) / (len(groups) + len(statements))
    return ga, fga, float(v_measure_score(marked, found))


def _lines_of(labels: Sequence[Any]) -> list[tuple[int, ...]]:
    lines = defaultdict(list)
    for number, label in enumerate(labels):
        lines[label].append(number)
    return [tuple(own) for own in lines.values()]


def read(folder: Path) -> tuple[list[str], list[str]]:
    """Read the contents of a system's lines, and the statements that wrote them."""
    with lzma.open(folder / f"{folder.name}_2k.log_structured.csv.xz", "rt") as file:
        rows = list(csv.DictReader(file))
    return [row["Content"] for row in rows], [row["EventId"] for row in rows]


def main() -> None:
    """Measure, print, hand in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the loghub systems")
    arguments = parser.parse_args()
    paper = sheet.Sheet("templates")
    groupers: dict[str, Grouper] = {"verso": ours, "masks alone": masks}
    if importlib.util.find_spec("drain3") is not None:
        groupers["drain3"] = drain
    rows = []
    spent = dict.fromkeys(groupers, 0.0)
    lines_read = 0
    systems = sorted(path for path in arguments.data.iterdir() if path.is_dir())
    for folder in systems:
        lines, marked = read(folder)
        lines_read += len(lines)
        row: dict[str, Any] = {"system": folder.name, "statements": len(set(marked))}
        for name, group in groupers.items():
            start = time.process_time()
            found = group(lines)
            spent[name] += time.process_time() - start
            ga, fga, v = accuracy(found, marked)
            row[name] = {"groups": len(set(found)), "ga": ga, "fga": fga, "v": v}
        rows.append(row)
    means = {}
    print("system | statements | " + " | ".join(f"{n}: groups, GA, FGA, V" for n in groupers))
    for row in rows:
        cells = [_cells(row[name]) for name in groupers]
        print(f"{row['system']} | {row['statements']} | " + " | ".join(cells))
    for name in groupers:
        means[name] = {
            key: round(float(np.mean([row[name][key] for row in rows])), 4)
            for key in ("groups", "ga", "fga", "v")
        }
        means[name]["lines_per_cpu_s"] = round(lines_read / spent[name])
        print(name, means[name])
    paper.finish({"means": means, "systems": rows})


def _cells(found: dict[str, float]) -> str:
    return f"{found['groups']}, {found['ga']:.3f}, {found['fga']:.3f}, {found['v']:.3f}"


if __name__ == "__main__":
    main()
