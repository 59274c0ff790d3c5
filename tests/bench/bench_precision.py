"""How well does search find with vectors of each precision?

Texts and questions are encoded once. For each precision the chunks are stored in a collection of
the embedded store as a worker stores them, words too, and searched by the store's own search, dense
and hybrid. Everything but the vectors' precision is the same, so differences between two precisions
are paired over the questions.

- *nDCG@10* of documents, each at the rank of its best chunk, as ``verso eval retrieval`` has it;
- *gain*: against int8, with the 95 % bootstrap interval over the questions; with ``--before``
  against the same precision in the run that had written that file with ``--scores``, as another
  version of the store or of the lexicon.

Limited by the encoder: 20 to 40 ms a chunk. With ``--keep`` the vectors stay in a folder, and an
interrupted run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import sheet

from verso_client.cli import evaluation
from verso_core import manifest
from verso_core.jobs import Precision, SearchMode
from verso_standalone.stack import find_artifact
from verso_worker.engine.loading import load_service
from verso_worker.engine.service import Service
from verso_worker.records.artifact import cutter
from verso_worker.records.points import packed
from verso_worker.records.space import Settings, Space, Vector
from verso_worker.stores.bm25 import Bm25
from verso_worker.stores.edge.collection import EdgeCollection

PART = 256
HITS = 300
"""Chunks asked for, enough for a hundred documents."""
MODES = (SearchMode.DENSE, SearchMode.HYBRID)


@dataclass(frozen=True)
class Encoded:
    """A set, its chunks with their documents, and the unit vectors. Shapes: (n, dim)."""

    given: evaluation.Set
    owners: list[str]
    chunks: list[bytes]
    vectors: Vector
    questions: Vector


def encoded(folder: Path, service: Service, keep: Path) -> Encoded:
    """Read a set and encode it, by parts that are kept."""
    given = evaluation.read(folder, split="test")
    cut = cutter(manifest.load(find_artifact())).cut
    rows = [(name, chunk) for name, text in given.documents.items() for chunk in cut(text.encode())]
    owners, chunks = [name for name, _ in rows], [chunk for _, chunk in rows]
    asked = [question.encode() for question in given.questions.values()]
    return Encoded(
        given,
        owners,
        chunks,
        _vectors(chunks, service, keep / f"{folder.name}-chunks"),
        _vectors(asked, service, keep / f"{folder.name}-questions"),
    )


def _vectors(texts: Sequence[bytes], service: Service, keep: Path) -> Vector:
    keep.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, len(texts), PART):
        path = keep / f"{start}.npy"
        if not path.exists():
            found = service.encode(texts[start : start + PART]).vectors
            with (keep / "draft").open("wb") as stream:
                np.save(stream, found)
            (keep / "draft").rename(path)
            print(f"{keep.name}: {start + len(found)} of {len(texts)}", file=sys.stderr, flush=True)
        parts.append(np.load(path))
    return np.concatenate(parts)


def rankings(one: Encoded, space: Space) -> dict[SearchMode, list[list[str]]]:
    """Return the documents that each question finds, best first, by mode."""
    with tempfile.TemporaryDirectory(prefix="verso-precision-") as name:
        folder = Path(name) / "points"
        EdgeCollection.create(folder, Settings(space, terms=True))
        collection = EdgeCollection(folder, index_above=10 * len(one.chunks))
        lexicon = Bm25()
        for start in range(0, len(one.chunks), PART):
            part = slice(start, start + PART)
            points = collection.prepare(
                [UUID(int=n) for n in range(start, start + len(one.chunks[part]))],
                space.round(one.vectors[part]),
                payloads=[packed({"d": owner, "n": 0}) for owner in one.owners[part]],
                terms=lexicon.documents(one.chunks[part]),
            )
            collection.put(points)
        collection.flush()
        found: dict[SearchMode, list[list[str]]] = {mode: [] for mode in MODES}
        asked = one.given.questions.values()
        for question, vector in zip(asked, one.questions, strict=True):
            for mode in MODES:
                terms = None if mode is SearchMode.DENSE else lexicon.query(question.encode())
                hits = collection.search(vector, terms=terms, limit=HITS, where=None)
                found[mode].append(list(dict.fromkeys(hit.payload["d"] for hit in hits)))
        collection.close()
    return found


Scores = dict[str, list[float]]
"""The nDCG@10 of each question, by set, precision and mode."""


def measure(
    one: Encoded,
    precisions: Sequence[Precision],
    dim: int,
    scale: float,
    *,
    scores: Scores,
    before: Scores,
) -> list[Any]:
    """Return a row for each precision and mode, and add its scores."""
    judged = [one.given.relevant[question] for question in one.given.questions]
    reached = {
        (precision, mode): evaluation.measures(ranked, judged)
        for precision in precisions
        for mode, ranked in rankings(one, Space(precision, dim, scale)).items()
    }
    rows = []
    for (precision, mode), found in reached.items():
        name = f"{one.given.name} {precision.value} {mode.value}"
        scores[name] = [float(value) for value in found.ndcg_10]
        other = before[name] if before else reached[Precision.INT8, mode].ndcg_10
        gain = evaluation.gain(found.ndcg_10, other)
        rows.append(
            {
                "set": one.given.name,
                "chunks": len(one.chunks),
                "questions": len(judged),
                "precision": precision.value,
                "mode": mode.value,
                "ndcg": 100 * float(np.mean(found.ndcg_10)),
                "recall_100": 100 * float(np.mean(found.recall_100)),
                "gain": 100 * gain.mean,
                "low": 100 * gain.low,
                "high": 100 * gain.high,
            }
        )
    return rows


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, help="sets in the layout of BEIR")
    parser.add_argument("--keep", type=Path, help="folder of vectors; an earlier run's are used")
    parser.add_argument("--scores", type=Path, help="file for the score of each question")
    parser.add_argument("--before", type=Path, help="such a file, to compare with")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    paper = sheet.Sheet("precision")
    artifact = manifest.load(find_artifact())
    settings = artifact.manifest.space
    service = load_service(artifact, threads=arguments.threads)
    rows = []
    scores: Scores = {}
    before: Scores = json.loads(arguments.before.read_text()) if arguments.before else {}
    with tempfile.TemporaryDirectory(prefix="verso-vectors-") as name:
        for folder in arguments.folders:
            one = encoded(folder, service, arguments.keep or Path(name))
            rows += measure(
                one,
                list(Precision),
                settings.dim,
                settings.int8_scale,
                scores=scores,
                before=before,
            )
    service.close()
    if arguments.scores:
        arguments.scores.write_text(json.dumps(scores))
    columns = ["set", "mode", "precision", "ndcg", "gain", "low", "high", "recall_100"]
    sheet.table(
        f"nDCG@10, and gain against {'before' if before else 'int8'}",
        columns,
        [[row[c] for c in columns] for row in rows],
    )
    paper.finish({"artifact": artifact.id, "rows": rows})


if __name__ == "__main__":
    main()
