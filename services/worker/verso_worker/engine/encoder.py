"""Texts to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_core.errors import ArtifactInvalid
from verso_core.manifest import Space
from verso_worker.engine.sessions import Sessions, expect_names

_BYTES_PER_TOKEN = 64
"""Bytes of text read for each token the encoder can take; ordinary text has about 5.

Without a bound a text of a gigabyte would be tokenised whole to keep its first 256 tokens.
"""


class Precision(StrEnum):
    """What the encoder's graph computes in.

    Records never depend on it: a record is coded against the vector that was *stored*, and the
    decoder's graphs always run as their artifact's profile says. Only searches could suffer, so the
    artifact's golden samples check a float16 encoder as they check any other.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"


@dataclass(frozen=True, slots=True)
class Cut:
    """The tokens of a text, and whether it has more than the encoder reads."""

    ids: list[int]
    truncated: bool


class Encoder:
    """The sentence encoder and its tokenizer.

    Args:
        graph: the encoder's graph.
        tokenizer: content of ``encoder_tokenizer.json``.
        space: the encoder's settings.
        lanes: how many runs there may be side by side.
        precision: what the graph computes in.
    """

    def __init__(
        self,
        graph: Sessions,
        tokenizer: bytes,
        space: Space,
        *,
        lanes: int = 1,
        precision: Precision = Precision.FLOAT32,
    ) -> None:
        expect_names(
            graph.wide, "encoder.onnx", inputs=["input_ids", "attention_mask"], outputs=["vector"]
        )
        self._graph = graph
        self.lanes = lanes
        self.precision = precision
        self._limit_bytes = _BYTES_PER_TOKEN * space.max_encoder_tokens
        try:
            self._tokenizer = Tokenizer.from_buffer(tokenizer)
        except Exception as exc:  # the library raises a bare Exception
            raise ArtifactInvalid(f"encoder_tokenizer.json: {exc}") from exc
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(space.max_encoder_tokens)

    def tokenise(self, texts: Sequence[bytes]) -> list[list[int]]:
        """Return the tokens of each text, as :meth:`cut` does."""
        return [cut.ids for cut in self.cut(texts)]

    def cut(self, texts: Sequence[bytes]) -> list[Cut]:
        """Cut texts into encoder tokens, in parallel, keeping at most the encoder's limit.

        Bytes that are not UTF-8 are read as U+FFFD: a vector is for meaning, not for the bytes.
        """
        limit = self._limit_bytes
        strings = [text[:limit].decode("utf-8", errors="replace") for text in texts]
        encodings = self._tokenizer.encode_batch_fast(strings)
        return [
            Cut(encoding.ids, len(text) > limit or bool(encoding.overflowing))
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def run(self, batch: Sequence[list[int]]) -> NDArray[np.float32]:
        """Encode a batch, padded to its longest row. Shape: (batch, dim), float32, unit length."""
        longest = max(1, *(len(ids) for ids in batch))
        tokens = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.int64)
        for row, ids in enumerate(batch):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        feeds = {"input_ids": tokens, "attention_mask": mask}
        (found,) = self._graph.run(["vector"], feeds)
        vectors = np.asarray(found, np.float32)
        if self.precision is Precision.FLOAT16:
            # The graph's last division is rounded as well: lengths are off by up to 5e-4.
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def halved(graph: bytes, name: str) -> bytes:
    """Return the same graph computing in float16, with the same inputs and outputs.

    The result is deterministic. Weights that are stored as int8 stay so and are widened to float16.
    A value that float16 cannot hold becomes the nearest one that it can: the mask's -3.4e38 becomes
    -65504.

    Args:
        graph: the ONNX file's content.
        name: the file's name, for errors.

    Raises:
        ArtifactInvalid: the bytes are not a graph that can be rewritten.
    """
    import onnx  # here, since an engine in float32 needs neither
    from onnxruntime.transformers.float16 import convert_float_to_float16

    try:
        model = convert_float_to_float16(onnx.load_from_string(graph), keep_io_types=True)
    except Exception as exc:  # the parser's and the rewriter's errors have no common class
        raise ArtifactInvalid(f"{name}: cannot be brought to float16: {exc!r}") from exc
    halved: bytes = model.SerializeToString()
    return halved
