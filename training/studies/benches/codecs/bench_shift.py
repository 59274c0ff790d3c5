"""How much of a log does the decoder still guess when time has moved on? Given its true beginning.

Decodable Sentence-BERT (section 4) gives the share of tokens that the decoder recovers from a
vector: 0.92 on logs of the month it was trained on, 0.79 on those of the next. Here, for systems
of loghub in the order of their times:

- *known* are lines of a first part, of which every tenth is left out: the *same time*;
- the *next time* is the part behind it;
- *recovered* is the share of a line's tokens, and its end, that are the decoder's first guess,
  given the stored int8 vector and the true tokens before (`studies.quality.decoding`);
- *whole* is the share of lines of which every token is: those that are read without a correction;
- *bits saved* is what a line takes with the vector zeroed, less what it takes with it, ideal code
  lengths.

By the artifact's decoder, which saw none of these systems, and by that decoder after it was trained
on the known lines for some processor minutes, as `verso train decoder --minutes` does it; with
``--minutes 0`` by the former alone. Sets that the artifact was trained on (``"rcheck logs"``)
have no same time that it has not seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import record_sets
import sheet
import torch

from verso_core import manifest
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_training.artifact import neural, tuning
from verso_training.artifact.graphs import DecoderGraph, EncoderGraph, Pass
from verso_training.artifact.neural import Segments
from verso_training.config import Budget
from verso_training.decoder import train

SETS = (
    "loghub, whole: Linux", "loghub, whole: Proxifier", "loghub: Apache", "loghub: BGL",
    "loghub: HDFS", "loghub: OpenSSH", "loghub: Spark",
)  # fmt: skip
LEFT_OUT = 10
MEASURED = 300


def measure(
    found: record_sets.RecordSet, artifact: Artifact, *, minutes: float
) -> list[dict[str, Any]]:
    """Train on a set's known lines; measure both decoders on both times."""
    same = found.fit[::LEFT_OUT]
    known = [line for at, line in enumerate(found.fit) if at % LEFT_OUT]
    times = {"same time": same, "next time": found.test}
    cut = {
        name: _segments(artifact, list(record_sets.spread(lines, MEASURED))[:MEASURED])
        for name, lines in times.items()
    }
    rows = []
    with tempfile.TemporaryDirectory() as work:
        decoders = {"as it ships": artifact.folder}
        if minutes:
            budget = Budget(minutes, clock=time.process_time)
            tuned = tuning.tune(artifact, known, same, budget=budget, work=Path(work))
            decoders["trained"] = tuned.folder
        for decoder, folder in decoders.items():
            graph = DecoderGraph(folder, artifact.manifest.codec, threads=1)
            rows += [
                {"set": found.name, "decoder": decoder, "lines of the": name}
                | {"lines": len(segments.sizes)}
                | guessed(graph, segments)
                for name, segments in cut.items()
            ]
    return rows


def guessed(graph: DecoderGraph, segments: Segments) -> dict[str, float]:
    """Return the means of a set's lines."""
    records = [graph.tokens(text) for text in segments.texts]
    hits, saved = [], 0.0
    for _, seen in graph.passes(records, segments.vectors):
        hits.append(seen.logits.argmax(-1) == seen.targets)
        saved -= _bits(seen)
    saved += sum(_bits(seen) for _, seen in graph.passes(records, np.zeros_like(segments.vectors)))
    return {
        "recovered": float(np.mean([line.mean() for line in hits])),
        "whole": float(np.mean([line.all() for line in hits])),
        "bits saved": saved / len(segments.sizes),
    }


def _bits(seen: Pass) -> float:
    logits = seen.logits.astype(np.float64)
    top = logits.max(-1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
    own = logits[np.arange(len(seen.targets)), seen.targets]
    return float((total - own).sum() / np.log(2.0))


def _segments(artifact: Artifact, lines: Sequence[bytes]) -> Segments:
    """Cut lines for the decoder's window, with vectors as they are stored."""
    found = neural.cut(
        lines,
        tuning.tokenizer(artifact),
        EncoderGraph(artifact.folder, threads=1),
        window=artifact.manifest.codec.max_tokens,
    )
    stored = train.round_int8(torch.from_numpy(found.vectors), artifact.manifest.space.int8_scale)
    return replace(found, vectors=stored.numpy())


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--minutes", type=float, default=2.0, help="processor time of a training")
    arguments = parser.parse_args()
    paper = sheet.Sheet("shift")
    artifact = manifest.load(arguments.artifact or find_artifact())
    rows = []
    for found in record_sets.record_sets(arguments.data, arguments.sets):
        new = measure(found, artifact, minutes=arguments.minutes)
        rows += new
        for row in new:
            print(json.dumps(row), file=sys.stderr, flush=True)
    shown = [
        [*list(row.values())[:-3], f"{row['recovered']:.3f}", f"{row['whole']:.0%}",
         f"{row['bits saved']:.1f}"] for row in rows
    ]  # fmt: skip
    sheet.table("guesses", list(rows[0]), shown)
    paper.finish({"artifact": artifact.id, "minutes": arguments.minutes, "sets": rows})


if __name__ == "__main__":
    main()
