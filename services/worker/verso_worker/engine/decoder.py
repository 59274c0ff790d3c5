"""The decoder's graphs, run two ways: over whole records at once, or token by token with a cache.

Both ways feed the same ``decoder.onnx``. Over whole records (:meth:`Decoder.score`) the past is the
memory slots alone and attention inside the batch is causal. Token by token, :class:`Cache` holds
the past of every row: the slots first, then the keys and values of the tokens decoded so far, which
the graph returns and the cache writes into its arrays.

Letters in shapes: B rows, T tokens, P past entries, S memory slots, D vector dim, W width, G
key/value heads, H head dim, V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from verso_core.manifest import Codec
from verso_worker.engine.sessions import Sessions, expect_names

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_HIDDEN = np.float32(-1e9)
"""Added to the score of a past entry that a row does not have."""

_CACHE_LENGTHS = (32, 64, 96)
"""Lengths that a cache grows through: few copies, and short rows do not pay for long ones."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The decoder's view of vectors.

    bias: what its graph returns first, of the width that the decoder's graph takes; W, or more
        where each layer has a term of its own. Shape: (B, W or more), float32
    slots: keys and values of the memory slots; key of layer l at 2l, value at 2l + 1.
        Shape: (2L, B, G, S, H), float32
    """

    bias: Floats
    slots: Floats

    def __len__(self) -> int:
        return len(self.bias)

    def rows(self, index: Sequence[int]) -> Memory:
        """Return some rows, in the order of `index`."""
        where = list(index)
        return Memory(self.bias[where], self.slots[:, where])


@dataclass(frozen=True, slots=True)
class Scores:
    """The decoder's prediction of the next token.

    logits: Shape: (..., V), float32
    confidence: log-odds of the top token. Shape: (...,), float32
    """

    logits: Floats
    confidence: Floats


class Decoder:
    """The memory and the decoder graph of one artifact; shared by all threads."""

    def __init__(
        self, memory: ort.InferenceSession, decoder: Sessions, codec: Codec, *, dim: int
    ) -> None:
        names = [f"{what}_{layer}" for layer in range(codec.layers) for what in ("key", "value")]
        self.past_names = [f"past_{name}" for name in names]
        self.output_names = ["logits", "confidence", *names]
        expect_names(memory, "memory.onnx", inputs=["vector"], outputs=["bias", *names])
        fed = ["tokens", "positions", "bias", "past_mask", *self.past_names]
        expect_names(decoder.wide, "decoder.onnx", inputs=fed, outputs=self.output_names)
        self.codec = codec
        self.dim = dim
        self.session = decoder.wide
        self._graph = decoder
        self._memory = memory
        self.bias_width = int(memory.get_outputs()[0].shape[1])
        self._memory_names = ["bias", *names]

    def memory(self, vectors: Floats) -> Memory:
        """Return the memory of stored, widened vectors. Shape: (B, D), float32."""
        bias, *slots = self._memory.run(self._memory_names, {"vector": vectors})
        return Memory(bias, np.stack(slots))

    def score(self, rows: Sequence[Sequence[int]], memory: Memory) -> Scores:
        """Score whole records: row b, position t is the prediction after bos and t tokens of row b.

        Args:
            rows: each record's tokens, without bos and eos.
            memory: of the records' vectors.

        Returns:
            Scores of shape (B, T, V) and (B, T). T is the longest record's length + 1; positions
            after the end of a shorter row are meaningless.
        """
        length = 1 + max(len(row) for row in rows)
        tokens = np.full((len(rows), length), self.codec.eos, np.int64)
        tokens[:, 0] = self.codec.bos
        for index, row in enumerate(rows):
            tokens[index, 1 : 1 + len(row)] = row
        feeds: dict[str, NDArray[Any]] = {
            "tokens": tokens,
            "positions": np.broadcast_to(np.arange(length), tokens.shape).copy(),
            "bias": memory.bias,
            "past_mask": np.zeros((len(rows), self.codec.slots), np.float32),
        }
        feeds.update(zip(self.past_names, memory.slots, strict=True))
        logits, confidence = self._graph.run(["logits", "confidence"], feeds)
        return Scores(logits, confidence)


class Cache:
    """Up to `capacity` records decoded side by side, each at a position of its own.

    Rows 0..len-1 are live. Arrays belong to the cache and are bound to the session once per shape,
    so that a step allocates and copies only the new keys and values.
    """

    def __init__(self, decoder: Decoder, capacity: int) -> None:
        codec = decoder.codec
        self._decoder = decoder
        self._capacity = capacity
        self._live = 0
        self._slots = codec.slots
        longest = codec.slots + codec.max_tokens
        self._lengths = [length for length in _CACHE_LENGTHS if codec.slots < length < longest]
        self._lengths.append(longest)
        self.count = np.zeros(capacity, np.int64)  # tokens each row has read, bos included
        self._tokens = np.zeros((capacity, 1), np.int64)
        self._positions = np.zeros((capacity, 1), np.int64)
        self._bias = np.zeros((capacity, decoder.bias_width), np.float32)
        self._shape = (2 * codec.layers, capacity, codec.kv_heads)
        self._head_dim = codec.head_dim
        self._logits = np.zeros((capacity, 1, codec.vocab), np.float32)
        self._confidence = np.zeros((capacity, 1), np.float32)
        self._new = np.zeros((*self._shape, 1, codec.head_dim), np.float32)
        # Two stores, used in turn when the layout changes. Pages are touched only as rows need
        # them; zeros, because what a row must not see is masked but still multiplied by 0.
        size = int(np.prod(self._shape)) * longest * codec.head_dim
        self._stores = [np.zeros(size, np.float32), np.zeros(size, np.float32)]
        self._past, self._mask = self._lay_out(self._lengths[0])
        self._binding: ort.IOBinding | None = None
        self._bound = (0, 0)

    def __len__(self) -> int:
        return self._live

    def add(self, memory: Memory) -> None:
        """Append rows at position 0; the caller stays within the capacity."""
        start, end = self._live, self._live + len(memory)
        self._bias[start:end] = memory.bias
        self._past[:, start:end, :, : self._slots] = memory.slots
        self._mask[start:end] = _HIDDEN
        self._mask[start:end, : self._slots] = 0.0
        self.count[start:end] = 0
        self._live = end

    def remove(self, row: int) -> None:
        """End a row; the last row moves to its index."""
        last = self._live - 1
        if row != last:
            used = self._slots + int(self.count[last])
            self._past[:, row, :, :used] = self._past[:, last, :, :used]
            self._mask[row] = self._mask[last]
            self._bias[row] = self._bias[last]
            self.count[row] = self.count[last]
        self._live = last

    def arrange(self, origin: Sequence[int]) -> None:
        """Let row i continue the past of row `origin[i]`; there are then `len(origin)` rows."""
        if list(origin) != list(range(self._live)):
            where = list(origin)
            self._past[:, : len(where)] = self._past[:, where]
            self._mask[: len(where)] = self._mask[where]
            self._bias[: len(where)] = self._bias[where]
            self.count[: len(where)] = self.count[where]
        self._live = len(origin)

    def clear(self) -> None:
        """End all rows."""
        self._live = 0

    def step(self, tokens: Ints) -> Scores:
        """Feed one token to every live row and return the predictions of the next.

        Args:
            tokens: Shape: (rows,), int64.

        Returns:
            Views of the cache's own arrays, which the next step overwrites. Shape: (rows, V) and
                (rows,).
        """
        live = self._live
        self._fit(self._slots + int(self.count[:live].max()) + 1)
        self._tokens[:live, 0] = tokens
        self._positions[:live, 0] = self.count[:live]
        self._decoder.session.run_with_iobinding(self._bind(live))

        position = self._slots + self.count[:live]
        rows = np.arange(live)
        # Advanced indices around slices move the row axis to the front: (rows, 2L, G, H).
        self._past[:, rows, :, position] = self._new[:, :live, :, 0].transpose(1, 0, 2, 3)
        self._mask[rows, position] = 0.0
        self.count[:live] += 1
        return Scores(self._logits[:live, 0], self._confidence[:live, 0])

    def _fit(self, needed: int) -> None:
        """Lay the cache out for `needed` past entries.

        It shrinks only when it is more than twice too long: rows of all ages come and go, and a
        layout that followed each of them would copy more than it saves.
        """
        present = self._mask.shape[1]
        if needed <= present < 2 * needed:
            return
        length = next(length for length in self._lengths if length >= needed)
        if length == present:
            return
        live, kept = self._live, min(length, present)
        old_past, old_mask = self._past, self._mask
        self._past, self._mask = self._lay_out(length)
        self._past[:, :live, :, :kept] = old_past[:, :live, :, :kept]
        self._mask[:live, :kept] = old_mask[:live, :kept]
        self._binding = None

    def _lay_out(self, length: int) -> tuple[Floats, Floats]:
        """Return an empty past and its mask. Shape: (2L, capacity, G, P, H) and (capacity, P)."""
        self._stores.reverse()
        shape = (*self._shape, length, self._head_dim)
        past = self._stores[0][: int(np.prod(shape))].reshape(shape)
        return past, np.full((self._capacity, length), _HIDDEN, np.float32)

    def _bind(self, live: int) -> ort.IOBinding:
        """Bind the live part of every array, unless it is bound already."""
        shape = (live, self._mask.shape[1])
        if self._binding is not None and self._bound == shape:
            return self._binding
        binding = self._decoder.session.io_binding()
        inputs = [self._tokens, self._positions, self._bias, self._mask, *self._past]
        names = ["tokens", "positions", "bias", "past_mask", *self._decoder.past_names]
        for name, array in zip(names, inputs, strict=True):
            part = array[:live]
            binding.bind_input(name, "cpu", 0, part.dtype.type, part.shape, part.ctypes.data)
        outputs = [self._logits, self._confidence, *self._new]
        for name, array in zip(self._decoder.output_names, outputs, strict=True):
            part = array[:live]
            binding.bind_output(name, "cpu", 0, part.dtype.type, part.shape, part.ctypes.data)
        self._binding, self._bound = binding, shape
        return binding
