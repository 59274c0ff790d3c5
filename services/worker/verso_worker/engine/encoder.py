"""Texts to vectors."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_core.errors import ArtifactInvalid
from verso_core.manifest import Space
from verso_worker.engine.sessions import expect_names

_BYTES_PER_TOKEN = 64
"""Bytes of text looked at for each token the encoder can take; ordinary text has about 5.

Without a bound a text of a gigabyte would be tokenised whole to keep its first 256 tokens.
"""


class Encoder:
    """The sentence encoder and its tokenizer.

    Args:
        session: the graph on all cores, for a batch that runs alone: soonest done.
        tokenizer: content of ``encoder_tokenizer.json``.
        space: the encoder's settings.
        narrow: the graph on one core each run, for batches that run side by side: on two cores
            some 8 % more texts a second than the same batches one after another on both, as no
            core waits for the other. Runs on ``session`` where it is None.
        lanes: how many runs there may be side by side.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        tokenizer: bytes,
        space: Space,
        *,
        narrow: ort.InferenceSession | None = None,
        lanes: int = 1,
    ) -> None:
        for graph in (session, narrow or session):
            expect_names(
                graph, "encoder.onnx", inputs=["input_ids", "attention_mask"], outputs=["vector"]
            )
        self._session = session
        self._narrow = narrow or session
        self._running = 0
        self._lock = threading.Lock()
        self.lanes = lanes
        self._limit_bytes = _BYTES_PER_TOKEN * space.max_encoder_tokens
        try:
            self._tokenizer = Tokenizer.from_buffer(tokenizer)
        except Exception as exc:  # the library raises a bare Exception
            raise ArtifactInvalid(f"encoder_tokenizer.json: {exc}") from exc
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(space.max_encoder_tokens)

    def tokenise(self, texts: Sequence[bytes]) -> list[list[int]]:
        """Cut texts into encoder tokens, in parallel, keeping at most the encoder's limit.

        Bytes that are not UTF-8 are read as U+FFFD: a vector is for meaning, not for the bytes.
        """
        strings = [text[: self._limit_bytes].decode("utf-8", errors="replace") for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(strings)]

    def run(self, batch: Sequence[list[int]]) -> NDArray[np.float32]:
        """Encode a batch, padded to its longest row. Shape: (batch, dim), float32, unit length."""
        longest = max(1, *(len(ids) for ids in batch))
        tokens = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.int64)
        for row, ids in enumerate(batch):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        feeds = {"input_ids": tokens, "attention_mask": mask}
        with self._lock:
            self._running += 1
            session = self._session if self._running == 1 else self._narrow
        try:
            (vectors,) = session.run(["vector"], feeds)
        finally:
            with self._lock:
                self._running -= 1
        return np.asarray(vectors, np.float32)
