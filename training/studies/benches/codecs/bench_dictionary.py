"""What do dictionaries of more than 110 KiB, the size that zstd's own tool makes, change?

The rival of `bench_storage.py` chooses its size on the end of the first part, from 4 to 400 KiB; a
first part has at most 400 kB. Here it chooses from 4 to 110 KiB as well. Bytes a record of the last
part, by either choice.

With ``--fitted ROWS`` what `bench_storage.py --keep ROWS` found for each record by the fitted
artifact is compared with the rival that chose among all sizes: in sum, and at worst. *now*
is with the dictionary that `verso train decoder` chooses among the same sizes.
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

from verso_codecs.zstd import ZstdCodec
from verso_core import manifest
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_training.artifact.collection import best_dictionary, cut
from verso_worker.records.artifact import cutter as artifact_cutter

SHARES = ("less", "of it")


def measure(found: record_sets.RecordSet, *, records: int) -> dict[str, Any]:
    """Code about so many records of the last part by both rivals."""
    fit = [chunk for text in found.fit for chunk in cut(text)]
    texts = record_sets.spread(found.test, records)
    test = [chunk for text in texts for chunk in cut(text)][:records]
    row: dict[str, Any] = {"set": found.name, "records": len(test)}
    for what, sizes in (
        ("to 110 KiB", record_codecs.USUAL),
        ("to 400 KiB", record_codecs.DICTIONARIES),
    ):
        rival = record_codecs.with_dictionary(fit, dictionaries=sizes)
        row[what] = sum(min(len(rival.encode(text)), len(text)) for text in test) / len(test)
        row[f"chosen {what}"] = rival.choice
    return row | {"less": 1 - row["to 400 KiB"] / row["to 110 KiB"]}


def against(
    found: record_sets.RecordSet, row: dict[str, Any], artifact: Artifact, *, records: int
) -> dict[str, Any]:
    """Compare a set's fitted payloads, each with its byte, with the larger rival's frames."""
    fit = [chunk for text in found.fit for chunk in cut(text)]
    rival = record_codecs.with_dictionary(fit)
    dictionary, _ = best_dictionary(fit, own=artifact.data["zstd.dict"])
    own, cutter = ZstdCodec(dictionary), artifact_cutter(artifact)
    frames: list[int] = []
    fitted: list[int] = []
    now: list[int] = []
    texts = record_sets.spread(found.test, records)
    for text, (_, *payloads) in zip(texts, row["documents"], strict=False):
        parts = cutter.cut(text)
        frames += [min(len(rival.encode(part)), len(part)) for part in parts]
        fitted += payloads
        now += [
            min(payload, 1 + len(own.encode(part)))
            for payload, part in zip(payloads, parts, strict=True)
        ]
    excess = [one - frame for one, frame in zip(now, frames, strict=True)]
    before = [one - frame for one, frame in zip(fitted, frames, strict=True)]
    return {
        "set": found.name,
        "records": len(fitted),
        "chosen": rival.choice,
        "zstd+dict": sum(frames) / len(frames),
        "fitted": sum(fitted) / len(fitted),
        "worst": max(before),
        "dictionary, kB": len(dictionary) / 1e3,
        "fitted now": sum(now) / len(now),
        "of it": sum(now) / sum(frames),
        "worst now": max(excess),
    }


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all")
    parser.add_argument("--records", type=int, default=300, help="of each set")
    parser.add_argument("--fitted", type=Path, metavar="ROWS", help="and as many --records as then")
    arguments = parser.parse_args()
    paper = sheet.Sheet("dictionary")
    kept = _kept(arguments.fitted) if arguments.fitted else {}
    artifact = manifest.load(find_artifact())
    rows = []
    for found in record_sets.record_sets(arguments.data, arguments.sets):
        if not arguments.fitted:
            rows.append(measure(found, records=arguments.records))
        elif found.name in kept:
            rows.append(against(found, kept[found.name], artifact, records=arguments.records))
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
