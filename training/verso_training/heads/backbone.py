"""The encoder that heads are trained on: the weights of an artifact's ``encoder.onnx``.

A head is served on the weights that the artifact stores: int8 codes with a scale per channel,
widened when the graph is loaded. It is trained on exactly these weights, which are read from the
graph and not from the checkpoint behind it. So an artifact alone is enough to train a head for it.

The exporter keeps the names of biases and norms but renames transposed matrices and merges equal
ones, so weights are found by their position: the n-th norm, the n-th product with a constant.

Low-rank adaptation changes every matrix of the shared encoder for one task (Hu et al. 2021, eq. 3).
With the stored matrix W_0 frozen,

    h = W_0 x + (alpha / r) B A x,        A in R^(r x in), B in R^(out x r),

A starts Gaussian and B at zero, so training starts at the encoder itself. All linear layers are
adapted, the feed-forward ones too: adapting attention alone is worse than full fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from tokenizers import Tokenizer
from torch import Tensor, nn

from verso_core.errors import ArtifactInvalid
from verso_core.heads import PlainWeight, WidenedWeight

if TYPE_CHECKING:
    from transformers import BertModel

_EMBEDDINGS = ("word_embeddings", "token_type_embeddings", "position_embeddings")
_PRODUCTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


@dataclass(frozen=True)
class Source:
    """The location of one weight in ``encoder.onnx``: a tensor, or codes times a scale."""

    tensor: str
    scale: str | None = None

    @classmethod
    def of(cls, weight: WidenedWeight | PlainWeight) -> Self:
        """Return the location that ``head.json`` names."""
        if isinstance(weight, PlainWeight):
            return cls(weight.tensor)
        return cls(weight.codes, weight.scale)

    def read(self, constants: Mapping[str, onnx.TensorProto]) -> NDArray[np.float32]:
        """Return the weight as it is served, float32."""
        value: NDArray[np.float32] = numpy_helper.to_array(constants[self.tensor]).astype(
            np.float32
        )
        if self.scale is not None:
            value = value * numpy_helper.to_array(constants[self.scale])
        return value

    def weight(self) -> WidenedWeight | PlainWeight:
        """Return the form of ``head.json``."""
        if self.scale is None:
            return PlainWeight(tensor=self.tensor)
        return WidenedWeight(codes=self.tensor, scale=self.scale)


@dataclass(frozen=True)
class Backbone:
    """A frozen encoder and the source of each of its weights.

    Attributes:
        bert: The transformer, weights as the artifact serves them, no gradient.
        tokenizer: WordPiece without truncation and padding.
        sources: By parameter name of ``bert``, with ``bert.`` before it.
    """

    bert: BertModel
    tokenizer: Tokenizer
    sources: Mapping[str, Source]

    @property
    def width(self) -> int:
        """Of a token state."""
        return int(self.bert.config.hidden_size)


def load(artifact: Path) -> Backbone:
    """Read the encoder of an artifact folder.

    Raises:
        ArtifactInvalid: the graph is not a BERT written by ``export_encoder``.
    """
    # It takes seconds to load, which heads on vectors save.
    from transformers import BertConfig, BertModel

    model = onnx.load(artifact / "encoder.onnx")
    sources = _sources(model.graph)
    constants = {i.name: i for i in model.graph.initializer}
    weights = {name: source.read(constants) for name, source in sources.items()}
    words, width = weights["embeddings.word_embeddings.weight"].shape
    layers = max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.")) + 1
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // _head_dim(model.graph, constants),
        intermediate_size=weights["encoder.layer.0.intermediate.dense.bias"].shape[0],
        max_position_embeddings=weights["embeddings.position_embeddings.weight"].shape[0],
        type_vocab_size=weights["embeddings.token_type_embeddings.weight"].shape[0],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    bert = BertModel(config, add_pooling_layer=False)
    state: dict[str, Tensor] = {}
    for name, value in weights.items():
        product = value.ndim == 2 and name.startswith("encoder.")
        state[name] = torch.from_numpy(value.T.copy() if product else value.copy())
    missing, unknown = bert.load_state_dict(state, strict=False)
    if missing or unknown:
        raise ArtifactInvalid(f"encoder.onnx: no BERT: missing {missing}, unknown {unknown}")
    bert.requires_grad_(requires_grad=False)
    tokenizer = Tokenizer.from_file(str(artifact / "encoder_tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    bert.train(mode=False)
    return Backbone(bert, tokenizer, {f"bert.{n}": s for n, s in sources.items()})


def _sources(graph: onnx.GraphProto) -> dict[str, Source]:
    """Return the source of every parameter, by its name in transformers' BertModel."""
    known = {i.name for i in graph.initializer}

    def source(name: str) -> Source | None:
        if name in known:
            return Source(name)
        if f"{name}.narrow" not in known:
            return None
        scale = f"{name}.scale"
        return Source(f"{name}.narrow", scale if scale in known else None)

    sources: dict[str, Source] = {}
    for name in _EMBEDDINGS:
        found = source(f"bert.embeddings.{name}.weight")
        if found is None:
            raise ArtifactInvalid(f"encoder.onnx: expected an initialiser for {name}")
        sources[f"embeddings.{name}.weight"] = found
    norms, products = 0, 0
    adders = {name: node for node in graph.node if node.op_type == "Add" for name in node.input}
    for node in graph.node:
        if node.op_type == "LayerNormalization":
            module = _norm_name(norms)
            norms += 1
            sources[f"{module}.weight"] = Source(node.input[1])
            sources[f"{module}.bias"] = Source(node.input[2])
        elif node.op_type == "MatMul" and (found := source(node.input[1])) is not None:
            module = f"encoder.layer.{products // 6}.{_PRODUCTS[products % 6]}"
            products += 1
            sources[f"{module}.weight"] = found
            adder = adders[node.output[0]]
            (bias,) = [name for name in adder.input if name in known]
            sources[f"{module}.bias"] = Source(bias)
    if products == 0 or products % 6 or norms != products // 3 + 1:
        raise ArtifactInvalid(f"encoder.onnx: no BERT: {products} products, {norms} norms")
    return sources


def _norm_name(index: int) -> str:
    if index == 0:
        return "embeddings.LayerNorm"
    layer, second = divmod(index - 1, 2)
    part = "output" if second else "attention.output"
    return f"encoder.layer.{layer}.{part}.LayerNorm"


def _head_dim(graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto]) -> int:
    """Return the width of an attention head: the last entry of the first shape that splits
    heads."""
    made_by = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        if node.op_type == "Reshape":
            shape = made_by.get(node.input[1])
            if shape is not None and shape.op_type == "Concat" and len(shape.input) == 4:
                return int(numpy_helper.to_array(constants[shape.input[3]])[0])
    raise ArtifactInvalid("encoder.onnx: expected a Reshape that splits attention heads")


class LoraLinear(nn.Module):
    """A frozen linear layer with a trained low-rank change.

    ``weight`` has the layout (in, out) of the artifact's graph: the exported product then reads it
    without a transpose, and the serving process can share one copy among all heads.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.register_buffer("weight", linear.weight.detach().t().contiguous(), persistent=False)
        self.register_buffer("bias", linear.bias.detach().clone(), persistent=False)
        self.lora_a = nn.Parameter(torch.randn(linear.in_features, rank) * linear.in_features**-0.5)
        self.lora_b = nn.Parameter(torch.zeros(rank, linear.out_features))
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Shape: (..., in) to (..., out)."""
        change = ((self.dropout(x) @ self.lora_a) * self.scale) @ self.lora_b
        changed: Tensor = x @ self.weight + self.bias + change
        return changed


def adapt(backbone: Backbone, *, rank: int, alpha: float, dropout: float = 0.0) -> BertModel:
    """Add a new adapter to every linear layer of the backbone's transformer, in place."""
    bert = backbone.bert
    linears = [name for name, m in bert.encoder.named_modules() if isinstance(m, nn.Linear)]
    for name in linears:
        parent, _, leaf = name.rpartition(".")
        module = bert.encoder.get_submodule(parent)
        linear = getattr(module, leaf)
        setattr(module, leaf, LoraLinear(linear, rank=rank, alpha=alpha, dropout=dropout))
    return bert


def state(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that were trained, without the shared weights."""
    return {name: p.detach().cpu() for name, p in module.named_parameters() if p.requires_grad}


def restore(module: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Load the tensors that ``state`` returned; the names must be the same."""
    own = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if own.keys() != saved.keys():
        odd = sorted(own.keys() ^ saved.keys())
        raise KeyError(f"expected the adapter's {len(own)} tensors, differing in {odd[:3]}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])
