"""Would a decoder that computes in int8 pay: how much faster, for how many bits, and how steady?

The artifact's decoder is quantised *statically* (onnxruntime.quantization): weights to int8, one
scale a column, and what flows into every product with weights to uint8, with ranges from
calibration on training texts. Nothing is trained for it; training with quantisation in the loop
could make the bits fewer, not the steps faster. ONNX Runtime fuses the result into integer kernels
beforehand, and both are then loaded as the worker loads them. Weights of 7 bits are for processors
without instructions for the dot product of bytes: there sums of 8-bit weights overflow. Three
questions, in one run:

- speed: the decoder's step alone, with its cache, one record and many side by side, by turns;
- bits: cross-entropy of validation records, which is what a patch takes before rounding up;
- steadiness: the largest difference of a logit between configurations, and in brackets the records
  in which one is beyond what the artifact's margin bears. With ``--other`` on other processors as
  well, which QEMU's user mode emulates (see `bench_margin`): there the payloads are read with the
  logits of that processor. A patch's bits are reported with the artifact's margin and with the one
  it would need.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import sheet
import texts
from bench_restore import timed
from numpy.typing import NDArray
from onnxruntime import quantization

from studies.benches.codecs.bench_margin import samples_of
from studies.benches.codecs.scoring import Sample, Setting, load_scores, save_samples, scored
from verso_codecs import ranks
from verso_core import manifest
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_training.data import chunks, sources
from verso_training.data.sources import Split
from verso_worker.engine.decoder import Cache, Decoder, Scores
from verso_worker.engine.sessions import Device, Load, Sessions, open_session
from verso_worker.records.artifact import rank_tables

BATCHES = (1, 8, 32, 64)
_HOME = Setting("basic", 1, "whole", 32)
_ELSEWHERE = [_HOME, Setting("basic", 1, "stepwise", 7)]
_VARIANTS = (
    ("int8, weights of 8 bits", 8, True),
    ("int8, weights of 7 bits", 7, True),
    ("int8, 7 bits, float results", 7, False),
)
_OTHERS = [
    Setting("basic", threads, way, batch)
    for threads, way, batch in itertools.product((1, 2), ("whole", "stepwise"), (1, 7, 32))
]


@dataclass
class _Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
    """What the decoder is given for records, one at a time."""

    left: Iterator[dict[str, NDArray[Any]]]

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self.left, None)


def feeds(artifact: Artifact, samples: Sequence[Sample]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the decoder's inputs for records, one at a time: no padding among the ranges."""
    decoder, codec = decoder_of(artifact), artifact.manifest.codec
    for sample in samples:
        known = decoder.memory(sample.vector[None])
        tokens = np.array([[codec.bos, *sample.targets[:-1]]], np.int64)
        yield {
            "tokens": tokens,
            "positions": np.arange(tokens.shape[1])[None],
            "bias": known.bias,
            "past_mask": np.zeros((1, codec.slots), np.float32),
            **dict(zip(decoder.past_names, known.slots, strict=True)),
        }


def quantised(
    artifact: Artifact, samples: Sequence[Sample], *, weight_bits: int, results: bool
) -> Artifact:
    """Return the artifact with a statically quantised decoder, fused into integer kernels.

    samples: training records, for the ranges
    weight_bits: 8 or 7
    results: what the products give is rounded to 8 bits as well, which takes all of a product into
        one integer kernel; the logits stay float32, for of 256 levels too many would tie
    """
    with tempfile.TemporaryDirectory(prefix="verso-bench-") as name:
        folder = Path(name)
        plain, narrow, fused = (folder / f"{stage}.onnx" for stage in ("plain", "narrow", "fused"))
        _optimised(artifact.data["decoder.onnx"], plain, "basic")
        quantization.quantize_static(
            plain,
            narrow,
            _Feeds(feeds(artifact, samples)),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=_products(plain, head=not results),
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            reduce_range=weight_bits == 7,
            extra_options={
                "OpTypesToExcludeOutputQuantization": [] if results else ["MatMul"],
            },
        )
        _optimised(narrow.read_bytes(), fused, "extended")
        return replace(artifact, data={**artifact.data, "decoder.onnx": fused.read_bytes()})


def _optimised(graph: bytes, path: Path, level: str) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = {
        "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    }[level]
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _products(path: Path, *, head: bool) -> list[str]:
    """Name the products with weights, the one that gives the logits among them or not."""
    import onnx

    graph = onnx.load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    found = [n for n in graph.node if n.op_type == "MatMul" and n.input[1] in weights]
    return [node.name for node in found if head or node.output[0] != "logits"]


def decoder_of(artifact: Artifact, *, threads: int = 1) -> Decoder:
    """Open an artifact's decoder as a worker does."""
    codec = artifact.manifest.codec
    memory, steps = (
        open_session(
            artifact.data[name],
            name,
            threads=threads,
            device=Device.CPU,
            optimisation=codec.profile.optimisation,
        )
        for name in ("memory.onnx", "decoder.onnx")
    )
    alone = Sessions(steps, None, load=Load())
    return Decoder(memory, alone, codec, dim=artifact.manifest.space.dim)


def step_through(decoder: Decoder, samples: Sequence[Sample], batch: int) -> None:
    """Step through records with known tokens, the longest first, `batch` side by side."""
    cache = Cache(decoder, batch)
    ordered = sorted(samples, key=lambda sample: -len(sample.targets))
    for start in range(0, len(ordered), batch):
        part = ordered[start : start + batch]
        cache.clear()
        cache.add(decoder.memory(np.stack([sample.vector for sample in part])))
        last = np.full(len(part), decoder.codec.bos, np.int64)
        for place in range(len(part[0].targets)):
            while len(part[len(cache) - 1].targets) <= place:
                cache.remove(len(cache) - 1)
            live = len(cache)
            cache.step(last[:live])
            last[:live] = [sample.targets[place] for sample in part[:live]]


def speed(
    artifacts: Mapping[str, Artifact], samples: Sequence[Sample], *, threads: int, repeats: int
) -> list[dict[str, Any]]:
    """Tokens a second of each decoder, by number of records side by side."""
    decoders = {name: decoder_of(one, threads=threads) for name, one in artifacts.items()}
    rows = []
    for batch in BATCHES:
        part = samples[: max(batch, 8)]
        tokens = sum(len(sample.targets) for sample in part)
        seconds: dict[str, list[float]] = {name: [] for name in decoders}
        for _ in range(repeats):  # by turns, so that other work falls on all of them
            for name, decoder in decoders.items():
                run: Callable[[], None] = partial(step_through, decoder, part, batch)
                seconds[name] += timed(run, repeats=1)
        rows.append(
            {"side by side": batch}
            | {name: tokens / statistics.median(took) for name, took in seconds.items()}
        )
    return rows


def bits(samples: Sequence[Sample], found: Sequence[Scores]) -> tuple[float, float]:
    """Return the mean bits of cross-entropy a record, and the share of right first guesses."""
    total, right, tokens = 0.0, 0, 0
    for sample, scores in zip(samples, found, strict=True):
        logits = scores.logits.astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        rows = np.arange(len(sample.targets))
        nats = np.log(np.exp(logits).sum(axis=1)) - logits[rows, sample.targets]
        total += float(nats.sum()) / np.log(2)
        right += int((logits.argmax(axis=1) == sample.targets).sum())
        tokens += len(sample.targets)
    return total / len(samples), right / tokens


def steadiness(
    artifact: Artifact, samples: Sequence[Sample], others: Mapping[str, str]
) -> dict[str, Any]:
    """Compare every configuration, and every other processor, with the one that codes.

    others: how to start a Python on another processor, by name
    """
    reference = scored(artifact, samples, _HOME)
    here = (scored(artifact, samples, setting) for setting in _OTHERS)
    epsilon = artifact.manifest.codec.epsilon
    differences = [_compared(here, reference, epsilon)]
    for command in others.values():
        with tempfile.TemporaryDirectory(prefix="verso-bench-") as folder:
            place = _saved(artifact, Path(folder) / "artifact")
            save_samples(samples, Path(folder) / "samples.npz")
            settings = json.dumps([asdict(setting) for setting in _ELSEWHERE])
            (Path(folder) / "settings.json").write_text(settings)
            program = Path(__file__).with_name("scoring.py")
            subprocess.run([*shlex.split(command), program, place, folder], check=True)
            there = (
                load_scores(samples, Path(folder) / f"scores-{number}.npz")
                for number in range(len(_ELSEWHERE))
            )
            differences.append(_compared(there, reference, epsilon))
    furthest = max(difference for difference, _ in differences)
    return {
        name: f"{difference:.1e} ({beyond})"
        for name, (difference, beyond) in zip(("this processor", *others), differences, strict=True)
    } | {
        "patch bits": patch_bits(artifact, samples, reference, artifact.manifest.codec.epsilon),
        "with the margin it needs": patch_bits(artifact, samples, reference, 2 * furthest),
    }


def patch_bits(
    artifact: Artifact, samples: Sequence[Sample], found: Sequence[Scores], epsilon: float
) -> float:
    """Return the mean bits of rank streams that read while no logit differs by more than half."""
    margin, tables = artifact.manifest.codec.confidence_epsilon, rank_tables(artifact)
    events = (
        ranks.events(
            score.logits, score.confidence, targets=np.array(sample.targets), epsilon=epsilon
        )
        for sample, score in zip(samples, found, strict=True)
    )
    total = sum(ranks.bits(event, tables, confidence_epsilon=margin) for event in events)
    return total / len(samples)


def _compared(
    found: Iterable[Sequence[Scores]], reference: Sequence[Scores], epsilon: float
) -> tuple[float, int]:
    """Return the largest difference of a logit, and the records in which one is beyond the
    margin.
    """
    furthest = np.zeros(len(reference))
    for scores in found:
        differences = [
            float(np.abs(one.logits - other.logits).max())
            for one, other in zip(scores, reference, strict=True)
        ]
        furthest = np.maximum(furthest, differences)
    return float(furthest.max()), int((furthest > epsilon / 2).sum())


def _saved(artifact: Artifact, folder: Path) -> Path:
    """Write an artifact as another process can load it, with the hashes of what it holds."""
    folder.mkdir()
    for name, data in artifact.data.items():
        (folder / name).write_bytes(data)
    files = {name: manifest.describe(folder / name) for name in artifact.data}
    codec = artifact.manifest.codec
    codec = codec.model_copy(update={"id": manifest.codec_id(codec, files)})
    manifest.write(artifact.manifest.model_copy(update={"files": files, "codec": codec}), folder)
    return folder


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--records", type=int, default=400, help="validation records")
    parser.add_argument("--calibration", type=int, default=256, help="training records")
    parser.add_argument("--steady", type=int, default=64, help="records of the configurations")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--other", action="append", default=[], metavar="NAME=COMMAND")
    arguments = parser.parse_args()
    paper = sheet.Sheet("int8")
    artifact = manifest.load(arguments.artifact or find_artifact())
    pool = list(sources.documents(arguments.data))
    train = [d.text.encode() for d in pool if d.split is Split.TRAIN and len(d.text) < 1000]
    held = chunks.draw_held_out(pool, fit_chunks=0, report_chunks=arguments.records).reporting
    ranges = samples_of(artifact, texts.chosen(train, arguments.calibration))
    validation = samples_of(
        artifact, texts.chosen([chunk.text.encode() for chunk in held], arguments.records)
    )
    artifacts = {"float32": artifact} | {
        name: quantised(artifact, ranges, weight_bits=width, results=results)
        for name, width, results in _VARIANTS
    }
    others = dict(pair.split("=", 1) for pair in arguments.other)
    rows = [
        _row(name, one, validation) | steadiness(one, validation[: arguments.steady], others)
        for name, one in artifacts.items()
    ]
    fast = speed(artifacts, validation, threads=arguments.threads, repeats=arguments.repeats)
    sheet.table(
        "bits a token, and agreement between configurations",
        list(rows[0]),
        [list(row.values()) for row in rows],
    )
    sheet.table(
        "decoder steps, tokens a second", list(fast[0]), [list(row.values()) for row in fast]
    )
    paper.finish({"artifact": artifact.id, "decoders": rows, "speed": fast})


def _row(name: str, artifact: Artifact, validation: Sequence[Sample]) -> dict[str, Any]:
    spent, right = bits(validation, scored(artifact, validation, _HOME))
    return {
        "decoder": name,
        "records": len(validation),
        "bits a record": spent,
        "right first guesses": f"{right:.1%}",
    }


if __name__ == "__main__":
    main()
