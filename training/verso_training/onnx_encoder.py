"""A sentence encoder that is there as an ONNX graph of token states.

Pooling and the division by the length are added to the graph, so that it maps token ids to unit
vectors as the graphs of artifacts do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, version_converter
from torch import Tensor

from verso_core.errors import ArtifactInvalid
from verso_training.pooling import Pooling

_OPSET = 20
_IDS, _MASK, _TYPES = "input_ids", "attention_mask", "token_type_ids"


class OnnxEncoder:
    """An encoder's graph, called as the module :class:`verso_training.encoder.SentenceEncoder` is.

    Args:
        graph: from ``input_ids`` and ``attention_mask`` to the states of the tokens.
        pooling: of the states.

    Raises:
        ArtifactInvalid: the graph has other inputs, or no states.
    """

    def __init__(self, graph: onnx.ModelProto, pooling: Pooling) -> None:
        self.graph = pooled(graph, pooling)
        self.pooling = pooling
        self._session = ort.InferenceSession(
            self.graph.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self.dim = int(self(torch.zeros(1, 2).long(), torch.ones(1, 2).long()).shape[1])

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return unit vectors. Shape: (batch, dim), float32."""
        feeds = {_IDS: input_ids.numpy(), _MASK: attention_mask.numpy()}
        (vectors,) = self._session.run(["vector"], feeds)
        return torch.from_numpy(np.asarray(vectors, np.float32))

    def to(self, _device: str) -> OnnxEncoder:
        """Return itself: it runs on the CPU, wherever a decoder is trained."""
        return self


def load(path: Path, pooling: Pooling) -> OnnxEncoder:
    """Load an encoder from an ONNX file.

    Raises:
        ArtifactInvalid: it cannot be read, has other inputs, or no states.
    """
    try:
        return OnnxEncoder(onnx.load(path), pooling)
    except (OSError, ValueError, RuntimeError) as exc:
        raise ArtifactInvalid(f"{path}: expected the graph of an encoder: {exc}") from exc


def pooled(graph: onnx.ModelProto, pooling: Pooling) -> onnx.ModelProto:
    """Return a graph of unit vectors from one of token states.

    Args:
        graph: its first output of three axes is the states. Shape: (batch, tokens, width).
        pooling: of the states.

    Raises:
        ArtifactInvalid: it has other inputs, or no states.
    """
    model = version_converter.convert_version(graph, _OPSET)
    body = model.graph
    given = {one.name for one in body.input} - {one.name for one in body.initializer}
    if not {_IDS, _MASK} <= given <= {_IDS, _MASK, _TYPES}:
        raise ArtifactInvalid(f"expected inputs {_IDS} and {_MASK}, got {sorted(given)}")
    ranks = {one.name: len(one.type.tensor_type.shape.dim) for one in body.output}
    states = next((name for name, rank in ranks.items() if rank == 3), None)
    if states is None:
        raise ArtifactInvalid(f"expected an output of token states, got {ranks}")
    if _TYPES in given:  # all of the first kind
        body.node.insert(0, helper.make_node("Sub", [_IDS, _IDS], [_TYPES]))
    constants: dict[str, NDArray[Any]] = {
        "pool.tokens": np.array([1], np.int64),
        "pool.width": np.array([2], np.int64),
        "pool.one": np.array(1.0, np.float32),
        "pool.least": np.array(1e-12, np.float32),
        "pool.lowest": np.array(np.finfo(np.float32).min, np.float32),
        "pool.first": np.array(0, np.int64),
    }
    body.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    node = helper.make_node
    body.node.extend([node("Cast", [_MASK], ["pool.cast"], to=TensorProto.FLOAT),
                      node("Unsqueeze", ["pool.cast", "pool.width"], ["pool.mask"])])  # fmt: skip
    if pooling is Pooling.MEAN:
        body.node.extend([
            node("Mul", [states, "pool.mask"], ["pool.kept"]),
            node("ReduceSum", ["pool.kept", "pool.tokens"], ["pool.sum"], keepdims=0),
            node("ReduceSum", ["pool.mask", "pool.tokens"], ["pool.count"], keepdims=0),
            node("Max", ["pool.count", "pool.one"], ["pool.some"]),
            node("Div", ["pool.sum", "pool.some"], ["pool.out"]),
        ])  # fmt: skip
    elif pooling is Pooling.CLS:
        body.node.append(node("Gather", [states, "pool.first"], ["pool.out"], axis=1))
    else:
        body.node.extend([
            node("Cast", ["pool.mask"], ["pool.there"], to=TensorProto.BOOL),
            node("Where", ["pool.there", states, "pool.lowest"], ["pool.kept"]),
            node("ReduceMax", ["pool.kept", "pool.tokens"], ["pool.out"], keepdims=0),
        ])  # fmt: skip
    body.node.extend([
        node("ReduceL2", ["pool.out", "pool.tokens"], ["pool.length"], keepdims=1),
        node("Max", ["pool.length", "pool.least"], ["pool.divisor"]),
        node("Div", ["pool.out", "pool.divisor"], ["vector"]),
    ])  # fmt: skip
    _declare(body)
    onnx.checker.check_model(model)
    return model


def _declare(body: onnx.GraphProto) -> None:
    """Name the inputs and the output of a pooled graph, of any batch and any number of tokens."""
    del body.input[:]
    del body.output[:]
    integers = ["batch", "tokens"]
    body.input.extend(
        helper.make_tensor_value_info(name, TensorProto.INT64, integers) for name in (_IDS, _MASK)
    )
    body.output.append(helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["batch", "dim"]))
