"""The decoder's logits of records, in any configuration; a program for another processor.

    PYTHONPATH=training:tests/bench python -m studies.benches.codecs.scoring ARTIFACT FOLDER

reads ``FOLDER/samples.npz`` and ``FOLDER/settings.json`` and writes the scores of each setting, in
the same order, as ``FOLDER/scores-N.npz``. Nothing is imported that a bare Python with numpy, ONNX
Runtime and pydantic lacks, so that an emulated processor can run it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from verso_core import manifest
from verso_core.manifest import Artifact
from verso_worker.engine.decoder import Cache, Decoder, Floats, Memory, Scores
from verso_worker.engine.sessions import Load, Sessions

LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A configuration. ``way`` is whole records at once, or token by token."""

    level: str
    threads: int
    way: str
    batch: int


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A record: its targets, the end token last, and its widened vector."""

    targets: list[int]
    vector: Floats


def scored(artifact: Artifact, samples: Sequence[Sample], setting: Setting) -> list[Scores]:
    """Return each record's scores in a configuration. Shape: (tokens, V) and (tokens,)."""
    codec = artifact.manifest.codec
    memory, step = (
        _session(artifact.data[name], setting) for name in ("memory.onnx", "decoder.onnx")
    )
    steps = Sessions(step, None, load=Load())
    decoder = Decoder(memory, steps, codec, dim=artifact.manifest.space.dim)
    found: list[Scores | None] = [None] * len(samples)
    # Neighbours differ in length where records are scored whole, as they do in a worker; token by
    # token the longest come first, so that rows end from the back.
    order = list(range(len(samples)))
    if setting.way == "stepwise":
        order.sort(key=lambda row: -len(samples[row].targets))
    cache = Cache(decoder, setting.batch)
    for start in range(0, len(order), setting.batch):
        rows = order[start : start + setting.batch]
        part = [samples[row] for row in rows]
        known = decoder.memory(np.stack([sample.vector for sample in part]))
        scores = (
            _whole(decoder, part, known)
            if setting.way == "whole"
            else _stepwise(cache, part, known, bos=codec.bos)
        )
        for row, one in zip(rows, scores, strict=True):
            found[row] = one
    return [one for one in found if one is not None]


def save_samples(samples: Sequence[Sample], path: Path) -> None:
    """Write records so that :func:`load_samples` reads them."""
    np.savez(
        path,
        targets=np.concatenate([np.array(sample.targets) for sample in samples]),
        sizes=np.array([len(sample.targets) for sample in samples]),
        vectors=np.stack([sample.vector for sample in samples]),
    )


def load_samples(path: Path) -> list[Sample]:
    """Read records."""
    with np.load(path) as found:
        parts = np.split(found["targets"], np.cumsum(found["sizes"])[:-1])
        return [
            Sample(part.tolist(), vector)
            for part, vector in zip(parts, found["vectors"], strict=True)
        ]


def save_scores(scores: Sequence[Scores], path: Path) -> None:
    """Write the scores of records, one behind the other."""
    np.savez(
        path,
        logits=np.concatenate([one.logits for one in scores]),
        confidence=np.concatenate([one.confidence for one in scores]),
    )


def load_scores(samples: Sequence[Sample], path: Path) -> list[Scores]:
    """Read the scores of these records."""
    ends = np.cumsum([len(sample.targets) for sample in samples])[:-1]
    with np.load(path) as found:
        parts = (np.split(found[name], ends) for name in ("logits", "confidence"))
        return [Scores(*pair) for pair in zip(*parts, strict=True)]


def _session(graph: bytes, setting: Setting) -> ort.InferenceSession:
    """Open a graph as the engine does, at any level."""
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[setting.level]
    options.intra_op_num_threads = setting.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _whole(decoder: Decoder, part: Sequence[Sample], memory: Memory) -> Iterator[Scores]:
    scores = decoder.score([sample.targets[:-1] for sample in part], memory)
    for row, sample in enumerate(part):
        size = len(sample.targets)
        yield Scores(scores.logits[row, :size].copy(), scores.confidence[row, :size].copy())


def _stepwise(
    cache: Cache, part: Sequence[Sample], memory: Memory, *, bos: int
) -> Iterator[Scores]:
    cache.clear()
    cache.add(memory)
    found: list[list[Scores]] = [[] for _ in part]
    last = np.full(len(part), bos, np.int64)
    for place in range(len(part[0].targets)):
        live = sum(len(sample.targets) > place for sample in part)
        while len(cache) > live:
            cache.remove(len(cache) - 1)
        scores = cache.step(last[:live])
        for row in range(live):
            found[row].append(Scores(scores.logits[row].copy(), scores.confidence[row].copy()))
            last[row] = part[row].targets[place]
    for steps in found:
        yield Scores(
            np.stack([step.logits for step in steps]),
            np.stack([step.confidence for step in steps]),
        )


def main() -> None:
    """Score the records of a folder."""
    artifact, folder = manifest.load(Path(sys.argv[1])), Path(sys.argv[2])
    samples = load_samples(folder / "samples.npz")
    for number, row in enumerate(json.loads((folder / "settings.json").read_text())):
        save_scores(scored(artifact, samples, Setting(**row)), folder / f"scores-{number}.npz")


if __name__ == "__main__":
    main()
