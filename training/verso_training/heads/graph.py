"""Export a head's module as ``head.onnx`` without the encoder's weights, and read a head back.

The head's own weights are stored as float16 and widened when the graph is loaded. Every weight of
the encoder is only a name, marked as external data in a file that does not exist: the process that
holds the encoder adds it to the session (``verso_core.heads``). An export succeeds only if graph
and module then agree.

A graph holds the weights of its task (adapter and layers) and names those of the encoder, so it is
a complete starting point for another training. The exporter keeps the names of most parameters and
transposes matrices of linear layers under new names; those are found as the factor of the product
that their bias is added to.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor, nn

from verso_core import heads
from verso_core.errors import HeadInvalid, SpaceMismatch
from verso_core.heads import BASE_LOCATION, GOLDEN_TOLERANCE, Head, Reads
from verso_training.artifact import export
from verso_training.config import Storage
from verso_training.heads.backbone import LoraLinear, Source
from verso_training.heads.modules import VectorClassifier
from verso_training.heads.recipe import AnswerConfig, ScoreConfig

Arrays = Mapping[str, NDArray[np.generic]]

_GOLDEN_PAIRS = 12

INPUTS: Mapping[Reads, tuple[str, ...]] = {
    Reads.VECTOR: ("vector",),
    Reads.VECTOR_PAIR: ("u", "v"),
    Reads.TOKENS: ("input_ids", "attention_mask"),
    Reads.TOKEN_PAIR: ("input_ids", "attention_mask", "token_type_ids"),
    Reads.DOCUMENT: ("vectors", "mask", "terms", "weights"),
}


@dataclass(frozen=True)
class HeadGraph:
    """A written graph and the encoder's weights that it lacks.

    Attributes:
        path: Of ``head.onnx``.
        base: The tensor of ``encoder.onnx`` for each missing initialiser.
    """

    path: Path
    base: Mapping[str, Source]


def write(
    module: nn.Module,
    path: Path,
    *,
    reads: Reads,
    outputs: Sequence[str],
    example: Sequence[Tensor],
    sources: Mapping[str, Source],
) -> HeadGraph:
    """Write the graph of ``module`` and compare it with the module on ``example``.

    Args:
        module: Maps tuples of tensors, as ``verso_core.heads`` states for ``reads``.
        path: Of ``head.onnx``.
        reads: Names the inputs.
        outputs: Their names.
        example: At least two rows; tokens padded in one of them.
        sources: From ``Backbone.sources``; may be empty for a head on vectors.

    Raises:
        HeadInvalid: the outputs of graph and module differ.
    """
    names = INPUTS[reads]
    if isinstance(module, VectorClassifier):
        model = _of_vectors(module, names, outputs)
    else:
        model = _traced(
            module, names, outputs, example, lengths=reads.tokens or reads is Reads.DOCUMENT
        )
    shared = _shared(module, model.graph, sources)
    values = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer if i.name in shared}
    export.store(model, Storage.FLOAT16, keep=shared.keys())
    for initializer in model.graph.initializer:
        if initializer.name in shared:
            _empty(initializer)
    export.strip(model)
    onnx.save(model, path)
    feeds = {name: value.numpy() for name, value in zip(names, example, strict=True)}
    with torch.inference_mode():
        expected = module(*example)
    _compare(session(path, values), feeds, dict(zip(outputs, expected, strict=True)))
    return HeadGraph(path, shared)


def _traced(
    module: nn.Module,
    inputs: Sequence[str],
    outputs: Sequence[str],
    example: Sequence[Tensor],
    *,
    lengths: bool,
) -> onnx.ModelProto:
    """Return the graph of a module as the exporter finds it; ``lengths``: axis 1 varies, too."""
    dynamic = dict.fromkeys((0, 1) if lengths else (0,), torch.export.Dim.DYNAMIC)
    with tempfile.TemporaryDirectory() as folder:
        return export.traced(
            module,
            tuple(example),
            Path(folder) / "plain.onnx",
            inputs=inputs,
            outputs=outputs,
            dynamic=tuple(dict(dynamic) for _ in inputs),
        )


def _of_vectors(
    module: VectorClassifier, inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    """Return the graph of a classifier on vectors, as the exporter finds it.

    To load the exporter, with its compiler and its table of operations, takes longer than to train
    such a classifier.
    """
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Mul", [*inputs, "scale"], ["scaled"])]
    feature, first = "scaled", module.out
    if module.hidden is not None:
        feature, first = outputs[1], module.hidden
        nodes.append(_linear("hidden", "scaled", "sums"))
        nodes.append(helper.make_node("Gelu", ["sums"], [feature]))
    nodes.append(_linear("out", feature, outputs[0]))
    constants = {name: value.numpy() for name, value in module.state_dict().items()}
    constants["scale"] = np.array(module.scale, np.float32)
    widths = (module.out.out_features, module.out.in_features)
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info(inputs[0], kind, ["rows", first.in_features])],
        [
            helper.make_tensor_value_info(name, kind, ["rows", width])
            for name, width in zip(outputs, widths, strict=False)  # not all have the feature
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", export.OPSET)]
    return helper.make_model(
        graph, opset_imports=opset, ir_version=helper.find_min_ir_version_for(opset)
    )


def _linear(layer: str, read: str, written: str) -> onnx.NodeProto:
    factors = [read, f"{layer}.weight", f"{layer}.bias"]
    return onnx.helper.make_node("Gemm", factors, [written], transB=1)


def session(path: Path, base: Arrays, *, threads: int = 1) -> ort.InferenceSession:
    """Open a head's graph with the encoder's weights, as a worker does.

    The values must live as long as the session: it reads them in place.
    """
    options = export.session_options(threads=threads)
    values = [ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(v)) for v in base.values()]
    if values:
        options.add_external_initializers(list(base), values)
    made = ort.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    made.base_values = values
    return made


def widened(encoder: Path, base: Mapping[str, Source]) -> Arrays:
    """Return the weights that ``base`` names, read from ``encoder.onnx``, float32."""
    constants = {i.name: i for i in onnx.load(encoder).graph.initializer}
    return {name: source.read(constants) for name, source in base.items()}


def golden_pairs(rows: Iterable[tuple[Sequence[int], int]]) -> list[dict[str, NDArray[np.generic]]]:
    """Return the inputs of golden samples: the shortest rows, since every worker runs them at
    start.

    Args:
        rows: Each ``[CLS] a [SEP] b [SEP]``, and the index of b.
    """
    shortest = sorted(rows, key=lambda row: len(row[0]))[:_GOLDEN_PAIRS]
    return [pair_inputs(ids, second=second) for ids, second in shortest]


def pair_inputs(ids: Sequence[int], *, second: int) -> dict[str, NDArray[np.generic]]:
    """Return one row of a graph that reads token pairs, without the batch axis.

    Args:
        ids: ``[CLS] a [SEP] b [SEP]``.
        second: Index of b.
    """
    types = np.zeros(len(ids), np.int64)
    types[second:] = 1
    return {
        "input_ids": np.array(ids, np.int64),
        "attention_mask": np.ones(len(ids), np.int64),
        "token_type_ids": types,
    }


def _shared(
    module: nn.Module, graph: onnx.GraphProto, sources: Mapping[str, Source]
) -> dict[str, Source]:
    """Return the initialisers that are weights of the encoder, checked by name and by value."""
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    transposed = {
        f"{name}.weight" for name, m in module.named_modules() if isinstance(m, LoraLinear)
    }
    shared = {}
    for initializer in graph.initializer:
        name = initializer.name
        if name not in sources:
            continue
        if name.startswith("bert.encoder.") and name.endswith("dense.weight"):
            assert name in transposed, f"{name}: only adapted layers keep the layout"
        if np.array_equal(numpy_helper.to_array(initializer), own[name].detach().numpy()):
            shared[name] = sources[name]
    return shared


def _empty(initializer: onnx.TensorProto) -> None:
    """Keep name, type and shape; mark the values as external."""
    initializer.ClearField("raw_data")
    initializer.ClearField("float_data")
    initializer.data_location = onnx.TensorProto.EXTERNAL
    del initializer.external_data[:]
    entry = initializer.external_data.add()
    entry.key, entry.value = "location", BASE_LOCATION


def _compare(graph: ort.InferenceSession, feeds: Arrays, expected: Mapping[str, Tensor]) -> None:
    names = [output.name for output in graph.get_outputs()]
    if names != list(expected):
        raise HeadInvalid(f"head.onnx: expected outputs {list(expected)}, got {names}")
    for name, value in zip(names, graph.run(None, dict(feeds)), strict=True):
        want = expected[name].detach().numpy()
        if value.shape != want.shape:
            raise HeadInvalid(f"head.onnx: {name}: expected shape {want.shape}, got {value.shape}")
        # float16 keeps eleven bits: a head with large logits may differ by a share of them.
        error = float(np.abs(value - want).max() / max(1.0, float(np.abs(want).max())))
        if not error <= 5 * GOLDEN_TOLERANCE:
            raise HeadInvalid(f"head.onnx: {name}: differs from the module by {error:.1e}")


_C = TypeVar("_C", AnswerConfig, ScoreConfig)
_SHAPE = ("layers", "rank", "alpha")


@dataclass(frozen=True)
class Start:
    """A published head to start from."""

    head: Head
    graph: onnx.ModelProto

    @property
    def name(self) -> str:
        """Return its name and version."""
        return f"{self.head.name}/{self.head.version}"

    def restore(self, module: nn.Module) -> None:
        """Copy the head's weights into a module of the same shape.

        Raises:
            HeadInvalid: the graph lacks one of them, or its shape differs.
        """
        linears = {name for name, m in module.named_modules() if isinstance(m, nn.Linear)}
        constants = {i.name: i for i in self.graph.graph.initializer}
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if not parameter.requires_grad:
                    continue
                value = _constant(name, constants)
                owner = name.removesuffix(".weight")
                if value is None and name != owner and owner in linears:
                    value = _transposed(self.graph.graph, constants, owner)
                if value is None or value.shape != tuple(parameter.shape):
                    raise HeadInvalid(
                        f"{self.name}: expected {name} of shape {tuple(parameter.shape)}, got "
                        f"{'none' if value is None else value.shape}"
                    )
                parameter.copy_(torch.from_numpy(value.astype(np.float32)))


def shaped(config: _C, start: Start | None) -> _C:
    """Return the effective settings: those of the recipe in the shape of the starting head."""
    if start is None:
        return dataclasses.replace(config, start="")
    made: Mapping[str, Any] = start.head.lineage.recipe.get(str(start.head.task), {})
    shape: dict[str, Any] = {
        name: type(getattr(config, name))(made[name])
        for name in _SHAPE
        if name in made and hasattr(config, name)
    }
    return dataclasses.replace(config, start=start.name, **shape)


def load(folder: Path, *, space: str) -> Start:
    """Read a head's folder.

    Raises:
        HeadInvalid: it cannot be served.
        SpaceMismatch: it reads another space than the one to be trained for.
    """
    found = heads.load(folder)
    if found.head.space != space:
        raise SpaceMismatch(f"expected a head of space {space}, got one of {found.head.space}")
    return Start(found.head, onnx.load_from_string(found.data[heads.GRAPH]))


def _constant(name: str, constants: Mapping[str, onnx.TensorProto]) -> NDArray[np.generic] | None:
    for stored in (name, f"{name}.narrow"):
        if stored in constants and constants[stored].data_location != onnx.TensorProto.EXTERNAL:
            value: NDArray[np.generic] = numpy_helper.to_array(constants[stored])
            return value
    return None


def _transposed(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], owner: str
) -> NDArray[np.generic] | None:
    made_by = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        if node.op_type == "Add" and f"{owner}.bias" in node.input:
            for name in node.input:
                product = made_by.get(name)
                if product is not None and product.op_type == "MatMul":
                    value = _constant(product.input[1], constants)
                    return None if value is None else value.T
    return None
