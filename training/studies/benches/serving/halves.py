"""The output of a graph on a processor that computes in float16, found on one that does not.

ONNX Runtime has few kernels of float16 for x86: it computes in float32 between casts, and leaves
out casts that meet, so that a float16 graph is rounded in a few places only. A GPU adds up in
float32 and rounds each result of each operation. That is what :func:`rounded` does, by casts that
stand in the graph and are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from verso_worker.engine.batching import BATCH_ROWS, ENCODE_BUDGET, Pool
from verso_worker.engine.service import PADDING

_LARGEST = float(np.finfo(np.float16).max)
_SMALLEST = float(np.finfo(np.float16).smallest_subnormal)


def rounded(graph: bytes) -> bytes:
    """Return the graph with each weight and each result of an operation rounded to float16."""
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(graph))
    floats = {
        value.name
        for value in (*model.graph.value_info, *model.graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            near = _near(numpy_helper.to_array(weight))
            weight.CopyFrom(numpy_helper.from_array(near, weight.name))
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in floats:
                exact, half = f"{name}.exact", f"{name}.half"
                node.output[place] = exact
                nodes.append(helper.make_node("Cast", [exact], [half], to=TensorProto.FLOAT16))
                nodes.append(helper.make_node("Cast", [half], [name], to=TensorProto.FLOAT))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    made: bytes = model.SerializeToString()
    return made


def _near(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to what float16 has; too large becomes its largest, too small its smallest."""
    held = np.where(values == 0, 0, np.sign(values) * np.maximum(np.abs(values), _SMALLEST))
    return np.clip(held, -_LARGEST, _LARGEST).astype(np.float16).astype(np.float32)


def shapes(lengths: Sequence[int]) -> dict[str, float]:
    """Return how many shapes batches have, and what fewer would cost, if all texts came at once.

    A GPU replays what it has recorded for one shape only. Rows and lengths are brought to powers of
    two, lengths of 16 at least, to have few shapes.

    Args:
        lengths: of texts, in tokens.

    Returns:
        ``alone`` and ``batches``: shapes of texts alone and of the engine's batches; ``alone_few``
        and ``batches_few``: of those, when brought to few; ``alone_padding`` and
        ``batches_padding``: tokens then run for each token run now.
    """
    pool: Pool[None] = Pool()
    pool.put([None] * len(lengths), list(lengths))
    batches = []
    while items := pool.take_batch(budget=ENCODE_BUDGET, rows=BATCH_ROWS, padding=PADDING):
        batches.append((len(items), max(item.cost for item in items)))
    found: dict[str, float] = {}
    for name, made in (("alone", [(1, length) for length in lengths]), ("batches", batches)):
        few = [(_power(rows), max(16, _power(length))) for rows, length in made]
        found[name], found[f"{name}_few"] = len(set(made)), len(set(few))
        found[f"{name}_padding"] = sum(r * t for r, t in few) / sum(r * t for r, t in made)
    return found


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
