"""Is the encoder's graph run as fast as this processor can, with the vectors that its space allows?

The encoder of an artifact in this process, in several ways:

- *as served*: what the engine does;
- *no arena*: every tensor's memory is requested from the system each time;
- *bound*: inputs and output bound once for each shape (``IOBinding``);
- *all rewriting*: ONNX Runtime's highest optimisation level;
- *float16*: what ``VERSO_ENCODER_PRECISION=float16`` serves;
- *each result rounded*: the same as a GPU rounds it (:mod:`halves`), for its vectors, not its time;
- *static int8*: matrix products in 8 bits, ranges of the activations taken from texts that are not
  measured (ONNX Runtime's ``quantize_static``, a scale for each column of a weight).

For each: milliseconds of one text and of a text in batches of 16, how far its vectors are from
those served, how many of their int8 codes are others, and how near it comes to the golden samples.
A space allows a cosine of ``tolerance.vector_cosine`` there: vectors that are further off are those
of another space, and would have to be computed again for every record.

Last it counts the shapes of the batches: CUDA graphs are recorded for one shape each.

    bench_encoder.py --texts 512 --threads 1
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import sheet
import texts
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from rival_server import load_encoder

from studies.benches.serving import halves
from verso_core import manifest
from verso_core.manifest import Artifact
from verso_standalone.stack import find_artifact
from verso_worker.engine.encoder import halved
from verso_worker.records.artifact import golden_samples

Feeds = dict[str, NDArray[np.int64]]
Run = Callable[[Feeds], NDArray[np.float32]]
_ROWS = 16
_CALIBRATION = 256
_COLUMNS = (
    *("way", "ms a text, alone", f"in {_ROWS}"),
    *("cosine, least", "median", "of golden, least"),
    *("codes changed", "furthest"),
)
_LEVELS = ort.GraphOptimizationLevel


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Batches that the ranges of activations are taken from."""

    def __init__(self, batches: Sequence[Feeds]) -> None:
        self._left: Iterator[Feeds] = iter(batches)

    def get_next(self) -> Feeds | None:
        """Return the next batch; None at the end."""
        return next(self._left, None)


def options(threads: int, *, level: Any = _LEVELS.ORT_ENABLE_BASIC, arena: bool = True) -> Any:
    """Set a session up as the engine does, but for what is named."""
    made = ort.SessionOptions()
    made.graph_optimization_level = level
    made.intra_op_num_threads = threads
    made.inter_op_num_threads = 1
    made.log_severity_level = 3
    made.enable_mem_pattern = False
    made.enable_cpu_mem_arena = arena
    made.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return made


def plain(graph: bytes | str, setup: Any) -> Run:
    """Run by names and arrays."""
    session = ort.InferenceSession(graph, setup, providers=["CPUExecutionProvider"])

    def run(feeds: Feeds) -> NDArray[np.float32]:
        return np.asarray(session.run(["vector"], feeds)[0], np.float32)

    return run


def bound(graph: bytes, setup: Any) -> Run:
    """Run on tensors bound once for each shape."""
    session = ort.InferenceSession(graph, setup, providers=["CPUExecutionProvider"])
    bindings: dict[tuple[int, ...], tuple[Any, Feeds, NDArray[np.float32]]] = {}

    def run(feeds: Feeds) -> NDArray[np.float32]:
        shape = feeds["input_ids"].shape
        if shape not in bindings:
            binding, mine = session.io_binding(), {name: one.copy() for name, one in feeds.items()}
            vector = np.empty((shape[0], session.get_outputs()[0].shape[1]), np.float32)
            for name, one in mine.items():
                binding.bind_input(name, "cpu", 0, np.int64, shape, one.ctypes.data)
            binding.bind_output("vector", "cpu", 0, np.float32, vector.shape, vector.ctypes.data)
            bindings[shape] = (binding, mine, vector)
        binding, mine, vector = bindings[shape]
        for name, one in feeds.items():
            mine[name][:] = one
        session.run_with_iobinding(binding)
        return vector.copy()

    return run


def quantised(graph: bytes, folder: Path, samples: Sequence[Feeds]) -> str:
    """Write the graph with its matrix products in 8 bits."""
    source, folded = folder / "encoder.onnx", folder / "folded.onnx"
    source.write_bytes(graph)
    fold = options(1)  # stored weights are widened by the graph: folded, they are constants
    fold.optimized_model_filepath = str(folded)
    ort.InferenceSession(str(source), fold, providers=["CPUExecutionProvider"])
    made = folder / "int8.onnx"
    quantize_static(
        str(folded),
        str(made),
        Samples(samples),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"MatMulConstBOnly": True},
    )
    return str(made)


def padded(rows: Sequence[list[int]]) -> Feeds:
    """Make a batch of token rows."""
    longest = max(map(len, rows))
    ids = np.zeros((len(rows), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def timed(run: Run, batches: Sequence[Feeds]) -> tuple[float, NDArray[np.float32]]:
    """Return milliseconds a text, the median of its batches, and all vectors."""
    for feeds in batches:
        run(feeds)
    spent, found = [], []
    for feeds in batches:
        began = time.perf_counter()
        found.append(run(feeds))
        spent.append((time.perf_counter() - began) / len(found[-1]))
    return 1e3 * float(np.median(spent)), np.concatenate(found)


def near(found: NDArray[np.float32], wanted: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows of any length."""
    products = np.sum(found.astype(np.float64) * wanted, axis=1)
    cosines: NDArray[np.float64] = products / (
        np.linalg.norm(found.astype(np.float64), axis=1) * np.linalg.norm(wanted, axis=1)
    )
    return cosines


def compared(
    artifact: Artifact,
    ways: dict[str, Callable[[], Run]],
    *,
    alone: Sequence[Feeds],
    together: Sequence[Feeds],
    golden: Sequence[Feeds],
) -> list[dict[str, Any]]:
    """Measure every way; the first is the one that is served."""
    found: list[dict[str, Any]] = []
    served = np.zeros(0, np.float32)
    wanted = np.stack([sample.vector for sample in golden_samples(artifact)]).astype(np.float64)
    scale = artifact.manifest.space.int8_scale
    for way, make in ways.items():
        run = make()
        one_ms, _ = timed(run, alone)
        batch_ms, vectors = timed(run, together)
        served = served if len(served) else vectors
        cosines = near(vectors, served)
        codes = [np.clip(np.rint(rows * scale), -127, 127) for rows in (vectors, served)]
        found.append(
            {
                "way": way,
                "one_ms": one_ms,
                "batch_ms": batch_ms,
                "cosine_least": f"{cosines.min():.7f}",
                "cosine_median": f"{np.median(cosines):.7f}",
                "golden_least": f"{near(np.concatenate([*map(run, golden)]), wanted).min():.7f}",
                "codes_changed": float(np.mean(codes[0] != codes[1])),
                "codes_furthest": int(np.abs(codes[0] - codes[1]).max()),
            }
        )
    return found


def main() -> None:
    """Measure every way and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    paper = sheet.Sheet("encoder")
    artifact = manifest.load(find_artifact())
    graph = artifact.data["encoder.onnx"]
    encoder = load_encoder(find_artifact(), threads=1)
    chosen = texts.chosen(texts.corpus(), arguments.texts + _CALIBRATION)
    rows = encoder.tokenise(chosen)
    measured = sorted(rows[: arguments.texts], key=len)
    samples = [padded([row]) for row in rows[arguments.texts :]]
    threads = arguments.threads
    half = halved(graph, "encoder.onnx")
    with tempfile.TemporaryDirectory(prefix="verso-bench-") as name:
        folder = Path(name)
        ways: dict[str, Callable[[], Run]] = {
            "as served": lambda: plain(graph, options(threads)),
            "no arena": lambda: plain(graph, options(threads, arena=False)),
            "bound": lambda: bound(graph, options(threads)),
            "all rewriting": lambda: plain(graph, options(threads, level=_LEVELS.ORT_ENABLE_ALL)),
            "float16": lambda: plain(half, options(threads)),
            "each result rounded": lambda: plain(halves.rounded(graph), options(threads)),
            "static int8": lambda: plain(
                quantised(graph, folder, samples), options(threads, level=_LEVELS.ORT_ENABLE_ALL)
            ),
        }
        found = compared(
            artifact,
            ways,
            alone=[padded([row]) for row in measured[:: max(1, len(measured) // 128)]],
            together=[padded(measured[at : at + _ROWS]) for at in range(0, len(measured), _ROWS)],
            golden=[
                padded([row])
                for row in encoder.tokenise([sample.text for sample in golden_samples(artifact)])
            ],
        )
    tolerance = artifact.manifest.tolerance.vector_cosine
    sheet.table(
        f"{len(measured)} texts, {threads} threads; the space allows a cosine of {tolerance}",
        _COLUMNS,
        [
            [*list(row.values())[:6], f"{row['codes_changed']:.2%}", row["codes_furthest"]]
            for row in found
        ],
    )
    counted = halves.shapes([len(row) for row in measured])
    sheet.table(
        "shapes of the engine's runs",
        ["texts", "shapes", "in powers of two", "tokens run, as a multiple"],
        [
            [f"{name}", counted[name], counted[f"{name}_few"], counted[f"{name}_padding"]]
            for name in ("alone", "batches")
        ],
    )
    result = {"threads": threads, "texts": len(measured), "tolerance": tolerance, "ways": found}
    paper.finish(result | {"shapes": counted})


if __name__ == "__main__":
    main()
