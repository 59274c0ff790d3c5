"""Go on from a head that was published: its weights, read back from its graph.

A graph holds what its task owns (adapter and layers) and names the encoder's weights, so it is a
complete starting point. The exporter keeps the names of most parameters and transposes matrices of
linear layers under names of its own; those are found as the factor of the product that their bias
is added to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import nn

from verso_core import heads
from verso_core.errors import HeadInvalid, SpaceMismatch
from verso_core.heads import Head
from verso_training.heads.recipe import AnswerConfig, ScoreConfig

_C = TypeVar("_C", AnswerConfig, ScoreConfig)
_SHAPE = ("layers", "rank", "alpha")


@dataclass(frozen=True)
class Start:
    """A published head to go on from."""

    head: Head
    graph: onnx.ModelProto

    @property
    def name(self) -> str:
        """Its name and version."""
        return f"{self.head.name}/{self.head.version}"

    def restore(self, module: nn.Module) -> None:
        """Return a module of the head's shape the head's weights.

        Raises:
            HeadInvalid: the graph lacks one of them, or has it in another shape.
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
    """The settings as they will be lived by: named after what is started from, in its shape."""
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
        HeadInvalid: it is none that can be served.
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
