"""Read the weights in an artifact's graphs back into their module, and replace them.

The graphs name few of their weights: of a matrix that is multiplied from the right they keep the
transpose under a number. Their order is that of the computation, though, so the products with a
weight are, layer by layer, query, key, value, out, up and down; in memory.onnx key and value. The
order is checked: the module's logits must equal the graphs'.

Replacing weights changes nothing else in the graphs: the computation, its order and the storage
stay as published, and so does the numeric profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

from verso_core.errors import ArtifactInvalid
from verso_core.manifest import Codec
from verso_training.artifact import export
from verso_training.artifact.graphs import Floats, feeds
from verso_training.config import Conditioning, ModelConfig, Storage
from verso_training.decoder.model import Decoder

GRAPHS = ("memory.onnx", "decoder.onnx")
_TOLERANCE = 2e-4
"""Of a logit, nats; the same as in `export`."""
_BLOCK = (
    *("attention.query", "attention.key", "attention.value", "attention.out"),
    *("feed_forward.up", "feed_forward.down"),
)
_PREFIX = ("attention.key", "attention.value")
_CROSS = ("cross.value", "cross.out")
_NAMED = ("vector_memory.slots.weight", "vector_memory.slots.bias", "vector_memory.bias.weight")


def decoder(folder: Path, codec: Codec, *, vector_dim: int) -> Decoder:
    """Load the module whose memory.onnx and decoder.onnx are in an artifact's folder.

    Weights are what the graphs compute with: those stored as int8 come back rounded.

    Args:
        folder: The artifact's.
        codec: From its manifest.
        vector_dim: D of its space.

    Raises:
        ArtifactInvalid: the graphs were not exported from this module.
    """
    memory, step = (_Graph(folder / name) for name in GRAPHS)
    locations = _locations(memory, step, codec)
    found = {name: where[0].read() for name, where in locations.items()}
    width = found["blocks.0.feed_forward.up.weight"].shape[0]
    crossed = "blocks.0.cross.value.weight" in locations
    made = Decoder(
        replace(
            _config(codec, vector_dim=vector_dim, mlp_ratio=width // codec.width),
            conditioning=Conditioning.CROSS if crossed else Conditioning.MEMORY,
        )
    )
    try:
        made.load_state_dict({name: torch.from_numpy(one.copy()) for name, one in found.items()})
    except RuntimeError as exc:
        raise ArtifactInvalid(f"expected the weights of a decoder: {exc}") from exc
    _check(made.eval(), folder)
    return made


def put(made: Decoder, codec: Codec, *, graphs: Path, folder: Path) -> None:
    """Write an artifact's graphs with a decoder's weights, each stored as before, and check them.

    Args:
        made: Of the same sizes.
        codec: From the artifact's manifest.
        graphs: The folder of the artifact.
        folder: Gets memory.onnx and decoder.onnx.

    Raises:
        ArtifactInvalid: the graphs were not exported from this module.
    """
    memory, step = (_Graph(graphs / name) for name in GRAPHS)
    state: dict[str, Tensor] = made.state_dict()
    for name, locations in _locations(memory, step, codec).items():
        for location in locations:
            location.write(state[name].detach().float().numpy())
    memory.save(folder / GRAPHS[0])
    step.save(folder / GRAPHS[1])
    decoder(folder, codec, vector_dim=made.config.vector_dim)


@dataclass(frozen=True)
class _Location:
    """One weight of the module in one of the graphs."""

    graph: _Graph
    name: str
    transposed: bool = False

    def read(self) -> Floats:
        found = self.graph.weight(self.name)
        if found is None:
            raise ArtifactInvalid(f"expected {self.name} in {self.graph.path.name}")
        return found.T if self.transposed else found

    def write(self, weight: Floats) -> None:
        self.graph.replace(self.name, weight.T if self.transposed else weight)


def _locations(memory: _Graph, step: _Graph, codec: Codec) -> dict[str, list[_Location]]:
    """Locate each of the module's weights, by its name in the module."""
    locations = {"embedding.weight": [_Location(step, "decoder.embedding.weight")]}
    crossed = [f"blocks.{layer}.{part}.weight" for layer in range(codec.layers) for part in _CROSS]
    if memory.weight(f"decoder.{crossed[0]}") is None:
        named, ordered = [*_NAMED], [(step, _BLOCK), (memory, _PREFIX)]
    else:
        named, ordered = crossed, [(step, _BLOCK)]
    locations |= {name: [_Location(memory, f"decoder.{name}")] for name in named}
    for graph, parts in ordered:
        products = list(graph.products())
        if len(products) != len(parts) * codec.layers:
            raise ArtifactInvalid(
                f"expected {len(parts) * codec.layers} products with weights in "
                f"{graph.path.name}, got {len(products)}"
            )
        for at, product in enumerate(products):
            name = f"blocks.{at // len(parts)}.{parts[at % len(parts)]}.weight"
            locations.setdefault(name, []).append(_Location(graph, product, transposed=True))
    return locations


def _config(codec: Codec, *, vector_dim: int, mlp_ratio: int) -> ModelConfig:
    return ModelConfig(
        vocab=codec.vocab,
        width=codec.width,
        layers=codec.layers,
        heads=codec.width // codec.head_dim,
        kv_heads=codec.kv_heads,
        head_dim=codec.head_dim,
        mlp_ratio=mlp_ratio,
        vector_dim=vector_dim,
        slots=codec.slots,
        max_tokens=codec.max_tokens,
    )


def _check(made: Decoder, folder: Path) -> None:
    """Compare module and graphs on random tokens and vectors."""
    config = made.config
    generator = torch.Generator().manual_seed(0)
    shape = (3, config.max_tokens)
    tokens = torch.randint(0, config.vocab, shape, generator=generator)
    vector = torch.nn.functional.normalize(
        torch.randn(3, config.vector_dim, generator=generator), dim=-1
    )
    with torch.inference_mode():
        expected = made.logits(made.teacher_forced(tokens, vector)).numpy()
    bias, *cache = export.session(folder / "memory.onnx").run(None, {"vector": vector.numpy()})
    positions = np.broadcast_to(np.arange(shape[1]), shape).astype(np.int64)
    inputs = feeds(tokens.numpy(), positions, bias, cache)
    (logits,) = export.session(folder / "decoder.onnx").run(["logits"], inputs)
    error = float(np.abs(logits - expected).max())
    if not error <= _TOLERANCE:
        raise ArtifactInvalid(
            f"logits: expected within {_TOLERANCE} of the graph's, got {error:.1e}"
        )


class _Graph:
    """One exported graph and its weights, stored narrow or in float32."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._model = onnx.load(path)
        self._stored = {one.name: one for one in self._model.graph.initializer}

    def products(self) -> Iterator[str]:
        """Return the names of the matrices that states are multiplied with, (inputs, outputs), in
        order."""
        for node in self._model.graph.node:
            if node.op_type == "MatMul" and self.weight(node.input[1]) is not None:
                yield node.input[1]

    def weight(self, name: str) -> Floats | None:
        """Return a weight as the graph computes with it, or None if no weight has the name."""
        if name in self._stored:
            return np.asarray(numpy_helper.to_array(self._stored[name]), np.float32)
        narrow = self._stored.get(f"{name}.narrow")
        if narrow is None:
            return None
        wide = numpy_helper.to_array(narrow).astype(np.float32)
        scale = self._stored.get(f"{name}.scale")
        return wide if scale is None else wide * numpy_helper.to_array(scale)

    def replace(self, name: str, weight: Floats) -> None:
        """Store another weight of the same shape, as the old one was stored."""
        if name in self._stored:
            self._set(name, weight)
            return
        scale = self._stored.get(f"{name}.scale")
        storage = Storage.FLOAT16 if scale is None else Storage.INT8
        axis = 0 if scale is None else list(scale.dims).index(1)
        narrow, new_scale = export.narrowed(weight, axis=axis, storage=storage)
        self._set(f"{name}.narrow", narrow)
        if new_scale is not None:
            self._set(f"{name}.scale", new_scale)

    def save(self, path: Path) -> None:
        onnx.save(self._model, path)

    def _set(self, name: str, data: NDArray[np.generic]) -> None:
        self._stored[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(data), name))
