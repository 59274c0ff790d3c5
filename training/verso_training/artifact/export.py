"""Export the trained modules as the three graphs that a worker runs.

    encoder.onnx   input_ids, attention_mask -> vector
    memory.onnx    vector -> bias, key_0, value_0, key_1, ...
    decoder.onnx   tokens, positions, bias, past_mask, past_key_0, past_value_0, ...
                   -> logits, confidence, key_0, value_0, ...

One decoder graph serves the teacher-forced pass and the cached step. After the export every large
weight is stored as int8 with one scale per output channel (or as float16) and widened by a Cast
and a Mul. ONNX Runtime folds these into float32 constants when it loads the graph, so the file is
small and the arithmetic is plain float32: the weights are fixed here,
at publication, and no kernel choice of another machine can change them.
"""

from __future__ import annotations

import gc
import tempfile
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor, nn

from verso_core.errors import ArtifactInvalid
from verso_training.config import Storage
from verso_training.decoder.model import Decoder, confidence
from verso_training.encoder import SentenceEncoder
from verso_training.onnx_encoder import OnnxEncoder

OPSET = 20
_SMALLEST = 2048
"""Weights with fewer elements stay float32: they are small, and biases need the precision."""


class _Memory(nn.Module):
    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, vector: Tensor) -> tuple[Tensor, ...]:
        memory = self.decoder.memory(vector)
        pairs = zip(memory.keys, memory.values, strict=True)
        return (memory.bias, *(tensor for pair in pairs for tensor in pair))


class _Step(nn.Module):
    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, tokens: Tensor, positions: Tensor, bias: Tensor, past_mask: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        output = self.decoder(
            tokens,
            positions,
            bias=bias,
            past_mask=past_mask,
            past_keys=past[0::2],
            past_values=past[1::2],
        )
        logits = self.decoder.logits(output.states)
        pairs = zip(output.keys, output.values, strict=True)
        return (logits, confidence(logits), *(tensor for pair in pairs for tensor in pair))


def export_encoder(encoder: SentenceEncoder | OnnxEncoder, path: Path, *, storage: Storage) -> None:
    """Write encoder.onnx and check it against the module; a graph is stored as it is."""
    if isinstance(encoder, OnnxEncoder):
        model = onnx.ModelProto.FromString(encoder.graph.SerializeToString())
        model = model if storage is Storage.FLOAT32 else store(model, storage)
        strip(model)
        onnx.save(model, path)
        return
    ids = torch.randint(5, 100, (3, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    _export(
        encoder,
        (ids, mask),
        path,
        inputs=["input_ids", "attention_mask"],
        outputs=["vector"],
        dynamic=(axes, axes),
        storage=storage,
    )


def export_memory(decoder: Decoder, path: Path, *, storage: Storage) -> None:
    """Write memory.onnx and check it against the module."""
    vector = nn.functional.normalize(torch.randn(3, decoder.config.vector_dim), dim=-1)
    _export(
        _Memory(decoder),
        (vector,),
        path,
        inputs=["vector"],
        outputs=["bias", *_cache_names("", decoder.config.layers)],
        dynamic=({0: torch.export.Dim.DYNAMIC},),
        storage=storage,
    )


def export_decoder(decoder: Decoder, path: Path, *, storage: Storage) -> None:
    """Write decoder.onnx and check it against the module."""
    config = decoder.config
    generator = torch.Generator().manual_seed(0)
    batch, length, past_length = 3, 5, config.prefix + 4
    cache_shape = (batch, config.kv_heads, past_length, config.head_dim)
    past_mask = torch.zeros(batch, past_length)
    past_mask[1, -2:] = -1e9
    tokens = torch.randint(0, config.vocab, (batch, length), generator=generator)
    positions = torch.arange(4, 4 + length).expand(batch, length).contiguous()
    widths = 1 if decoder.vector_memory is not None else 1 + config.layers
    bias = torch.randn(batch, widths * config.width, generator=generator) * 0.1
    past = [torch.randn(cache_shape, generator=generator) for _ in range(2 * config.layers)]
    dynamic = torch.export.Dim.DYNAMIC
    rows = {0: dynamic, 1: dynamic}
    _export(
        _Step(decoder),
        (tokens, positions, bias, past_mask, past),
        path,
        inputs=[
            *("tokens", "positions", "bias", "past_mask"),
            *_cache_names("past_", config.layers),
        ],
        outputs=["logits", "confidence", *_cache_names("", config.layers)],
        dynamic=(rows, rows, {0: dynamic}, rows, [{0: dynamic, 2: dynamic}] * len(past)),
        storage=storage,
    )


def store(
    model: onnx.ModelProto, storage: Storage, *, keep: Collection[str] = ()
) -> onnx.ModelProto:
    """Replace every large float32 weight by a narrow one, widened by Cast and Mul.

    A weight is scaled per output channel: per row where rows are looked up (an embedding, also
    when its transpose gives the logits) or the product transposes it, else per column. A weight
    that no product and no lookup reads, such as the table of rotary angles, stays float32, and so
    does what ``keep`` names.
    """
    graph = model.graph
    reduced_axis: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in ("Gather", "Transpose"):
            reduced_axis[node.input[0]] = 1
        elif node.op_type in ("MatMul", "Gemm"):
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            reduced_axis.setdefault(node.input[1], 1 if transposed else 0)
    for initializer in list(graph.initializer):
        if initializer.name in keep:
            continue
        weight = numpy_helper.to_array(initializer)
        if weight.dtype != np.float32 or weight.ndim != 2 or weight.size < _SMALLEST:
            continue
        if initializer.name in reduced_axis:
            axis = reduced_axis[initializer.name]
            _narrow(graph, initializer, axis=axis, storage=storage)
    onnx.checker.check_model(model)
    return model


def session(path: Path, *, threads: int = 1) -> ort.InferenceSession:
    """Open a graph exactly as a worker does: folding and other basic rewrites, nothing more."""
    options = session_options(threads=threads)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def session_options(*, threads: int) -> ort.SessionOptions:
    """Return a worker's options of a session."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


def _cache_names(prefix: str, layers: int) -> list[str]:
    return [f"{prefix}{part}_{layer}" for layer in range(layers) for part in ("key", "value")]


def _export(
    module: nn.Module,
    example: tuple[object, ...],
    path: Path,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: tuple[object, ...],
    storage: Storage,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        model = traced(module, example, plain, inputs=inputs, outputs=outputs, dynamic=dynamic)
        feeds = dict(zip(inputs, _flat(example), strict=True))
        with torch.inference_mode():
            expected = _flat((module(*example),))
        check(plain, feeds, dict(zip(outputs, expected, strict=True)), tolerance=2e-4)
    if storage is not Storage.FLOAT32:
        model = store(model, storage)
    strip(model)
    onnx.save(model, path)


def traced(
    module: nn.Module,
    example: tuple[object, ...],
    path: Path,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: tuple[object, ...],
) -> onnx.ModelProto:
    """Write the graph of a module to ``path`` as the exporter makes it, and return it.

    Args:
        module: Left in evaluation mode.
        example: Its arguments.
        path: Of the graph, all weights inside.
        inputs: Names of the arguments.
        outputs: Names of the results.
        dynamic: The axes of each argument that have no fixed size.
    """
    module.eval()
    with ExitStack() as after, warnings.catch_warnings():
        after.callback(gc.enable if gc.isenabled() else gc.disable)
        gc.disable()  # nearly all that the exporter makes is kept until its end
        # The exporter warns about its own coming changes; nothing here can act on them.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            example,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=dynamic,
            opset_version=OPSET,
            dynamo=True,
            optimize=True,
            verbose=False,
        )
    assert program is not None
    program.save(str(path), external_data=False)
    return onnx.load(path)


def check(
    path: Path,
    feeds: Mapping[str, NDArray[np.generic]],
    expected: Mapping[str, NDArray[np.generic]],
    *,
    tolerance: float,
) -> None:
    """Compare a graph with expected outputs: names, then shapes, then values.

    Raises:
        ArtifactInvalid: at the first difference.
    """
    graph = session(path)
    names = [o.name for o in graph.get_outputs()]
    if names != list(expected):
        raise ArtifactInvalid(f"{path.name}: expected outputs {list(expected)}, got {names}")
    for name, value in zip(names, graph.run(None, dict(feeds)), strict=True):
        want = expected[name]
        if value.shape != want.shape:
            raise ArtifactInvalid(f"{name}: expected shape {want.shape}, got {value.shape}")
        error = float(np.abs(value - want).max())
        if not error <= tolerance:
            raise ArtifactInvalid(f"{name}: expected within {tolerance}, got {error:.2e}")


def _flat(values: Sequence[object]) -> list[NDArray[np.generic]]:
    flat: list[NDArray[np.generic]] = []
    for value in values:
        if isinstance(value, Tensor):
            flat.append(value.detach().numpy())
        elif isinstance(value, (list, tuple)):
            flat.extend(_flat(value))
    return flat


def _narrow(
    graph: onnx.GraphProto, initializer: onnx.TensorProto, *, axis: int, storage: Storage
) -> None:
    """Store one weight narrow; ``axis`` is the one that the scale runs along (is reduced over)."""
    name = initializer.name
    narrow, scale = narrowed(numpy_helper.to_array(initializer), axis=axis, storage=storage)
    graph.initializer.remove(initializer)
    if scale is None:
        added = [onnx.helper.make_node("Cast", [f"{name}.narrow"], [name], to=1)]
    else:
        graph.initializer.append(numpy_helper.from_array(scale, f"{name}.scale"))
        added = [
            onnx.helper.make_node("Cast", [f"{name}.narrow"], [f"{name}.wide"], to=1),
            onnx.helper.make_node("Mul", [f"{name}.wide", f"{name}.scale"], [name]),
        ]
    graph.initializer.append(numpy_helper.from_array(narrow, f"{name}.narrow"))
    for node in reversed(added):
        graph.node.insert(0, node)


def narrowed(
    weight: NDArray[np.float32], *, axis: int, storage: Storage
) -> tuple[NDArray[np.generic], NDArray[np.float32] | None]:
    """Return a weight as it is stored, and for int8 its scale, of length 1 along ``axis``."""
    if storage is Storage.FLOAT16:
        return weight.astype(np.float16), None
    largest = np.abs(weight).max(axis=axis, keepdims=True)
    scale = np.maximum(largest / 127.0, np.finfo(np.float32).tiny).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale


def strip(model: onnx.ModelProto) -> None:
    """Drop the exporter's notes on its own source: they are half of a small file."""
    del model.metadata_props[:]
    model.doc_string = ""
    graph = model.graph
    del graph.metadata_props[:]
    del graph.value_info[:]
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
