"""Memory and time of a model with one head loaded after the other. (Table 2 of the Decodable
Sentence-BERT, whose heads are "loaded and saved separately".)

A process of its own loads the artifact and then the heads, as an engine does, and asks the kernel
for its resident memory after each. Milliseconds are of the processor, medians of calls of one text,
one thread, after the first; classifiers and scorers of vectors get vectors that are there.

    python -m studies.papers.loaded ARTIFACT HEADS
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from studies.papers.kept import Figures, Kept, Parts, table
from studies.quality.classification import Bench
from verso_core import manifest
from verso_core.heads import Head, Reads, Task
from verso_worker.engine.heads import Heads
from verso_worker.engine.loading import load_service
from verso_worker.records.outputs import Document

STUDY = "loaded"
_CALLS = 20
_TEXT = (
    "The worker stopped because its disk was full: three writes in a row had failed, and the "
    "ledger took no new records until an operator had removed the oldest files. "
)
_LONG, _QUESTION = 3 * _TEXT, "Why did the worker stop?"


def run(bench: Bench) -> Parts:
    """Measure in a process of its own; the heads are those beside the artifact."""
    folders = [str(bench.artifact), str(bench.artifact.parent / "heads")]
    command = [sys.executable, "-m", "studies.papers.loaded", *folders]

    def made() -> Figures:
        told = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
        return found

    return {"heads": Kept(bench.work / "papers" / STUDY).of("heads", made)}


def measured(artifact: Path, folder: Path) -> Figures:
    """Load an artifact and every head in a folder; return MB and ms of each."""
    about = manifest.load(artifact)
    figures = {"0 nothing/mb": resident_mb()}
    service = load_service(about, threads=1)
    text = _LONG.encode()
    figures["1 artifact/file_mb"] = sum(map(len, about.data.values())) / 1e6
    figures["1 artifact/mb"] = resident_mb()
    figures["1 artifact/ms"] = median_ms(lambda: service.encode([text]))
    heads = Heads(about, threads=1)
    vector = service.encode([text]).vectors
    found = sorted(path.parent for path in folder.glob("*/*/head.json"))
    for number, path in enumerate(sorted(found, key=_size), start=2):
        head = heads.load(path)
        name = f"{number} {head.name}"
        figures[f"{name}/file_mb"] = _size(path) / 1e6
        figures[f"{name}/mb"] = resident_mb()
        figures[f"{name}/ms"] = median_ms(_call(heads, head, vector))
    heads.close()
    service.close()
    return figures


def _call(heads: Heads, head: Head, vector: np.ndarray) -> Callable[[], object]:
    """Return a call of one text."""
    key = (head.name, head.version)
    texts = [_LONG.encode()]
    if head.task is Task.ANSWER:
        return lambda: heads.answer(*key, question=_QUESTION.encode(), contexts=[_LONG], count=1)
    if head.task is Task.SCORE and head.reads is Reads.VECTOR_PAIR:
        return lambda: heads.score_vectors(*key, pairs=np.stack([vector, vector], 1))
    if head.task is Task.SCORE:
        return lambda: heads.score_texts(*key, first=[_QUESTION.encode()], second=texts)
    if head.reads is Reads.VECTOR:
        return lambda: heads.classify_vectors(*key, vectors=vector)
    if head.reads is Reads.TOKENS:
        return lambda: heads.classify_texts(*key, texts=texts)
    terms = np.arange(1, 40, dtype=np.int64)
    document = Document(vector, terms, np.ones(len(terms), np.float32))
    return lambda: heads.classify_documents(*key, documents=[document])


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".onnx", ".npz"))


def resident_mb() -> float:
    """Return the resident memory of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kib) * 1024 / 1e6


def median_ms(call: Callable[[], object]) -> float:
    """Return the processor's milliseconds of a call, the median of some after the first."""
    call()
    spent = []
    for _ in range(_CALLS):
        began_s = time.process_time()
        call()
        spent.append(time.process_time() - began_s)
    return 1e3 * statistics.median(spent)


def page(found: Parts) -> str:
    """Return the table."""
    figures = found["heads"]
    rows = []
    before = figures["0 nothing/mb"]
    for name in dict.fromkeys(key.rpartition("/")[0] for key in figures if not key.startswith("0")):
        now = figures[f"{name}/mb"]
        cells = [f"{figures[f'{name}/file_mb']:.1f}", f"{now:.0f}", f"{now - before:+.1f}"]
        rows.append([name.partition(" ")[2], *cells, f"{figures[f'{name}/ms']:.2f}"])
        before = now
    return table(["loaded", "files, MB", "process, MB", "by this, MB", "ms a text"], rows)


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), Path(sys.argv[2]))))  # noqa: T201 - its output
