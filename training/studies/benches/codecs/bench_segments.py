"""What does it cost that the segments of a chunk share its vector (ADR 10)?

The limit is the decoder. Chunks of several segments are taken from the shipped corpus; each segment
is coded against the vector of its chunk, as it is stored, against a vector of its own, and against
none. Real payload bytes, int8 vectors.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import sheet
import texts

from verso_core import manifest, registry
from verso_core.jobs import Precision
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import cutter
from verso_worker.records.space import Space


def main() -> None:
    """Run the measurements and print them."""
    arguments = parser().parse_args()
    paper = sheet.Sheet("segments")
    artifact = manifest.load(arguments.artifact or registry.resolve(Path("models")))
    service = load_service(artifact, threads=2)
    cuts, settings = cutter(artifact), artifact.manifest.space
    space = Space(Precision.INT8, settings.dim, settings.int8_scale)
    rows = []
    for kind, documents in texts.corpus_by_kind().items():
        whole = [chunk for text in documents for chunk in cuts.cut(text)]
        pieces = {
            chunk: cuts.segments(chunk) for chunk in texts.chosen(whole, 4 * arguments.chunks)
        }
        several = [c for c, parts in pieces.items() if len(parts) > 1][: arguments.chunks]
        if not several:
            continue
        flat = [part for chunk in several for part in pieces[chunk]]
        own = space.widen(space.round(service.encode(flat).vectors))
        vectors = space.widen(space.round(service.encode(several).vectors))
        shared = np.repeat(vectors, [len(pieces[chunk]) for chunk in several], axis=0)
        found = {"set": kind, "chunks": len(several), "segments": len(flat)}
        for name, given in (("own", own), ("chunk", shared), ("none", np.zeros_like(own))):
            size = sum(len(payload or b"") for payload in service.code(flat, given))
            found[name] = round(8 * size / sum(map(len, flat)), 3)
        rows.append(found)
        print(" | ".join(str(value) for value in found.values()))
    service.close()
    paper.finish({"artifact": artifact.id, "bits_per_byte": rows})


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    made.add_argument("--artifact", type=Path, help="default: the stable one")
    made.add_argument("--chunks", type=int, default=80, help="most chunks of a kind")
    return made


if __name__ == "__main__":
    main()
