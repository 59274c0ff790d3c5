"""Batches of whole records, bucketed by length.

Rows of like length share a batch: a window of shuffled chunks is sorted by length and cut into
batches of at most ``tokens_per_step`` tokens, padding included; then the batches are shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verso_training.dataset import Dataset

PADDING = -100
"""Target of a position that does not count; what cross-entropy ignores by default."""
_LENGTH_STEP = 8
_WINDOW_BATCHES = 64


@dataclass(frozen=True)
class Batch:
    """Some records, ready for the decoder.

    Attributes:
        tokens: bos and the record, padded with eos. Shape: (B, T), int64.
        targets: The record and eos, padded with ``PADDING``. Shape: (B, T), int64.
        vectors: Sentence vectors. Shape: (B, D), float32.
        indices: Rows of the data set. Shape: (B,), int64.
    """

    tokens: Tensor
    targets: Tensor
    vectors: Tensor
    indices: NDArray[np.int64]

    def to(self, device: str) -> Batch:
        """The same batch on another device."""
        return Batch(
            self.tokens.to(device),
            self.targets.to(device),
            self.vectors.to(device),
            self.indices,
        )


def collate(dataset: Dataset, indices: NDArray[np.int64], *, bos: int, eos: int) -> Batch:
    """One batch of the given rows. A row of n tokens takes n + 1 positions."""
    longest = int(dataset.lengths()[indices].max()) + 1
    length = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
    tokens = np.full((len(indices), length), eos, np.int64)
    targets = np.full((len(indices), length), PADDING, np.int64)
    for row, index in enumerate(indices):
        ids = dataset.tokens[dataset.offsets[index] : dataset.offsets[index + 1]]
        tokens[row, 0] = bos
        tokens[row, 1 : len(ids) + 1] = ids
        targets[row, : len(ids)] = ids
        targets[row, len(ids)] = eos
    vectors = np.asarray(dataset.vectors[indices], np.float32)
    return Batch(
        torch.from_numpy(tokens), torch.from_numpy(targets), torch.from_numpy(vectors), indices
    )


def plan(
    lengths: NDArray[np.int64], *, tokens_per_step: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """The batches of one epoch as row indices; every row comes exactly once."""
    order = rng.permutation(len(lengths))
    mean = float(lengths.mean()) + 1.0
    window = max(1, int(_WINDOW_BATCHES * tokens_per_step / mean))
    planned: list[NDArray[np.int64]] = []
    for start in range(0, len(order), window):
        part = order[start : start + window]
        planned.extend(
            _fill(part[np.argsort(lengths[part], kind="stable")], lengths, tokens_per_step)
        )
    return [planned[i] for i in rng.permutation(len(planned))]


def in_order(lengths: NDArray[np.int64], *, tokens_per_step: int) -> list[NDArray[np.int64]]:
    """Batches for evaluation: all rows by length, nothing random."""
    return list(_fill(np.argsort(lengths, kind="stable"), lengths, tokens_per_step))


def _fill(
    ordered: NDArray[np.int64], lengths: NDArray[np.int64], tokens_per_step: int
) -> Iterator[NDArray[np.int64]]:
    start = 0
    for stop in range(1, len(ordered) + 1):
        longest_next = lengths[ordered[stop]] + 1 if stop < len(ordered) else 0
        padded = -(-int(longest_next) // _LENGTH_STEP) * _LENGTH_STEP
        if stop == len(ordered) or (stop + 1 - start) * padded > tokens_per_step:
            yield ordered[start:stop]
            start = stop
