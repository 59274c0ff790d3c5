"""Would the rival take less with a larger dictionary than `bench_storage.py` gives it?

There the size is chosen from 4 to 110 KiB. Here the same choice, on the end of the first part, is
made once more with 200 and 400 KiB among the sizes; a first part has at most 400 kB. Bytes a record
of the last part, by either choice.

With ``--fitted ROWS`` what `bench_storage.py --keep ROWS` found for each record by the fitted
artifact is compared with the rival that chose among the larger sizes: in sum, and at worst.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import record_codecs
import record_sets
import sheet

from verso_core import manifest
from verso_standalone.stack import find_artifact
from verso_training.collection import cut
from verso_worker.artifact import cutter as artifact_cutter
from verso_worker.chunking import Cutter

SHARES = ("less", "of it")
LARGER = (*record_codecs.DICTIONARIES, 200 << 10, 400 << 10)


def measure(found: record_sets.RecordSet, *, records: int) -> dict[str, Any]:
    """Code about so many records of the last part by both rivals."""
    fit = [chunk for text in found.fit for chunk in cut(text)]
    texts = record_sets.spread(found.test, records)
    test = [chunk for text in texts for chunk in cut(text)][:records]
    row: dict[str, Any] = {"set": found.name, "records": len(test)}
    for what, sizes in (("to 110 KiB", record_codecs.DICTIONARIES), ("to 400 KiB", LARGER)):
        rival = record_codecs.with_dictionary(fit, dictionaries=sizes)
        row[what] = sum(min(len(rival.encode(text)), len(text)) for text in test) / len(test)
        row[f"chosen {what}"] = rival.choice
    return row | {"less": 1 - row["to 400 KiB"] / row["to 110 KiB"]}


def against(
    found: record_sets.RecordSet, row: dict[str, Any], cutter: Cutter, *, records: int
) -> dict[str, Any]:
    """Compare a set's fitted payloads, each with its byte, with the larger rival's frames."""
    fit = [chunk for text in found.fit for chunk in cut(text)]
    rival = record_codecs.with_dictionary(fit, dictionaries=LARGER)
    frames: list[int] = []
    fitted: list[int] = []
    texts = record_sets.spread(found.test, records)
    for text, (_, *payloads) in zip(texts, row["documents"], strict=False):
        frames += [min(len(rival.encode(part)), len(part)) for part in cutter.cut(text)]
        fitted += payloads
    excess = [own - frame for own, frame in zip(fitted, frames, strict=True)]
    return {
        "set": found.name,
        "records": len(fitted),
        "chosen": rival.choice,
        "zstd+dict": sum(frames) / len(frames),
        "of it": sum(fitted) / sum(frames),
        "worst": max(excess),
        "above by more than a byte": sum(one > 1 for one in excess),
    }


def main() -> None:
    """Measure, print, hand in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all")
    parser.add_argument("--records", type=int, default=300, help="of each set")
    parser.add_argument("--fitted", type=Path, metavar="ROWS", help="and as many --records as then")
    arguments = parser.parse_args()
    paper = sheet.Sheet("dictionary")
    kept = _kept(arguments.fitted) if arguments.fitted else {}
    cutter = artifact_cutter(manifest.load(find_artifact()))
    rows = []
    for found in record_sets.record_sets(arguments.data, arguments.sets):
        if not arguments.fitted:
            rows.append(measure(found, records=arguments.records))
        elif found.name in kept:
            rows.append(against(found, kept[found.name], cutter, records=arguments.records))
        else:
            continue
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    columns = list(rows[0])
    shown = [row | {name: f"{row[name]:.1%}" for name in SHARES if name in row} for row in rows]
    sheet.table("bytes a record", columns, [[row[name] for name in columns] for row in shown])
    paper.finish({"sets": rows})


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["set"]: row for row in rows}


if __name__ == "__main__":
    main()
