"""What does a collection's own decoder take? `verso train decoder --minutes`, on validation only.

Of the first 1,000 lines of a log system the decoder and the mixture know the first 800, and what
is measured are the next 200; of the first parts of other sets, which the shipped decoder was not
trained on either, the last 15 % are measured. No test part is opened. Bytes of payload a record:

- *n-gram*, *neural*: of the artifact as it is; *mixture*: fitted to the known texts;
- *trained*: neural, by the decoder that was trained on them for some processor minutes, exported
  and stored as it is published, by rank probabilities fitted to the other half of the records;
- *smallest before* and *after*: of raw, n-gram, mixture and neural, with the one and the other
  decoder, and the byte that names the codec; *of it neural* is how many records store the latter.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import record_sets
import sheet
import texts

from verso_codecs import mixture, ngram
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import manifest
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_training.artifact import tuning
from verso_training.artifact.collection import HELD_OUT, cut
from verso_training.config import Budget

KNOWN = 800
SETS = (
    *(f"loghub: {system}" for system in texts.LOGHUB),
    "clinc150", "sts-b", "abstracts", "corpus: paragraph",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One set's chunks: those to train on, and later ones to measure."""

    name: str
    known: list[bytes]
    measured: list[bytes]


def parts(data: Path, names: list[str]) -> Iterator[Part]:
    """Yield the named sets."""
    for found in record_sets.record_sets(data, names):
        of_logs = found.name.startswith("loghub")
        at = KNOWN if of_logs else int((1 - HELD_OUT) * len(found.fit))
        known, measured = (
            [chunk for text in part for chunk in cut(text)]
            for part in (found.fit[:at], found.fit[at:])
        )
        yield Part(found.name, known, measured)


def measure(part: Part, artifact: Artifact, *, minutes: float) -> dict[str, Any]:
    """Train; return the mean bytes of a record by every codec."""
    general = NgramTables.load(artifact.folder / "ngram.npz")
    fitted = MixtureTables.fit(part.known, general)
    budget = Budget(minutes, clock=time.process_time)
    with tempfile.TemporaryDirectory() as work:
        found = tuning.tune(artifact, part.known, part.measured, budget=budget, work=Path(work))
    records = [part.measured[at] for at in found.measured]
    sizes = {
        "raw": [len(text) for text in records],
        "n-gram": [len(ngram.encode(text, general)) for text in records],
        "mixture": [len(mixture.encode(text, fitted)) for text in records],
        "neural": found.before,
        "trained": found.after,
    }
    others = [min(row) for row in zip(sizes["raw"], sizes["n-gram"], sizes["mixture"], strict=True)]
    for when, one in (("before", found.before), ("after", found.after)):
        sizes[f"smallest {when}"] = [1 + min(row) for row in zip(others, one, strict=True)]
    count = len(records)
    means = {name: sum(of) / count for name, of in sizes.items()}
    return {
        "set": part.name,
        "known": len(part.known),
        "records": count,
        **means,
        "saved": 1 - means["smallest after"] / means["smallest before"],
        "of it neural": sum(map(int.__lt__, found.after, others)) / count,
        "steps": found.steps,
        "noise": found.noise,
    }


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--minutes", type=float, default=1.0, help="processor time of a training")
    arguments = parser.parse_args()
    paper = sheet.Sheet("tuning")
    artifact = manifest.load(arguments.artifact or find_artifact())
    rows = []
    for part in parts(arguments.data, arguments.sets):
        rows.append(measure(part, artifact, minutes=arguments.minutes))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    shares = ("saved", "of it neural")
    columns = [name for name in rows[0] if name != "noise"]
    sheet.table(
        "bytes a record",
        columns,
        [[f"{row[name]:.0%}" if name in shares else row[name] for name in columns] for row in rows],
    )
    paper.finish({"artifact": artifact.id, "minutes": arguments.minutes, "sets": rows})


if __name__ == "__main__":
    main()
