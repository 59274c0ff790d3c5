"""Run the exported graphs, for tables, golden samples and figures.

The arithmetic is exactly the worker's (same graphs, same session options, stored vectors), the
code is not: that both agree on the golden samples tests both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_codecs.ranks import RankTables, Streams
from verso_core.manifest import Codec
from verso_training import encoder
from verso_training.artifact import export
from verso_training.config import ModelConfig

Floats = NDArray[np.float32]
_TOKENS_PER_PASS = 2048
_CONFIDENCE_IN_USE = 10.0
"""Buckets end well inside: beyond, 1 - p has few float32 digits, and no decision depends on it."""


@dataclass(frozen=True)
class Pass:
    """The decoder's view of one record, given its true tokens.

    Attributes:
        logits: Row t was computed from the targets before t. Shape: (T, V), float32.
        confidence: Log-odds of the top token. Shape: (T,), float32.
        targets: The record's tokens and eos. Shape: (T,), int32.
    """

    logits: Floats
    confidence: Floats
    targets: NDArray[np.int32]


class EncoderGraph:
    """encoder.onnx and its tokenizer."""

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        self._session = export.session(folder / "encoder.onnx", threads=threads)
        self._tokenizer = Tokenizer.from_file(str(folder / "encoder_tokenizer.json"))

    def tokens(self, text: str) -> list[int]:
        """Return WordPiece ids with [CLS] and [SEP]."""
        return encoder.token_ids(self._tokenizer.encode(text).ids)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return unit vectors in the order of the texts. Shape: (texts, D), float32."""
        ids = [self.tokens(text) for text in texts]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        rows: list[Floats] = [np.empty(0, np.float32)] * len(ids)
        for start in range(0, len(order), 32):
            part = order[start : start + 32]
            batch = np.zeros((len(part), len(ids[part[-1]])), np.int64)
            mask = np.zeros_like(batch)
            for row, index in enumerate(part):
                batch[row, : len(ids[index])] = ids[index]
                mask[row, : len(ids[index])] = 1
            (vectors,) = self._session.run(None, {"input_ids": batch, "attention_mask": mask})
            for row, index in enumerate(part):
                rows[index] = vectors[row]
        return np.stack(rows)


class DecoderGraph:
    """memory.onnx and decoder.onnx with the decoder's tokenizer.

    Args:
        folder: Of the graphs.
        config: Window, vocabulary and layers: a recipe's, or the codec's of a manifest.
        threads: Of both sessions.
    """

    def __init__(self, folder: Path, config: ModelConfig | Codec, *, threads: int = 2) -> None:
        self.config = config
        self._memory = export.session(folder / "memory.onnx", threads=threads)
        self._decoder = export.session(folder / "decoder.onnx", threads=threads)
        self.tokenizer = Tokenizer.from_file(str(folder / "decoder_tokenizer.json"))

    def tokens(self, text: str) -> list[int]:
        """Return decoder ids without bos and eos."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def passes(self, records: Sequence[list[int]], vectors: Floats) -> Iterator[tuple[int, Pass]]:
        """Yield the teacher-forced pass of each record, as (index, pass), shortest records first.

        Args:
            records: Token ids without bos and eos.
            vectors: As stored, widened to float32; zeros for "no vector". Shape: (records, D).
        """
        lengths = [len(record) + 1 for record in records]
        for part in encoder.batches(lengths, tokens=_TOKENS_PER_PASS):
            yield from self._forced([records[i] for i in part], vectors[part], part)

    def decode(
        self, payloads: Sequence[bytes], vectors: Floats, tables: RankTables
    ) -> list[list[int]]:
        """Decode neural payloads token by token with a cache.

        Returns:
            Token ids of each record without eos.
        """
        config, batch = self.config, len(payloads)
        streams = Streams(payloads, tables)
        bias, *cache = self._memory.run(None, {"vector": vectors})
        tokens = np.full((batch, 1), config.bos, np.int64)
        records: list[list[int]] = [[] for _ in payloads]
        alive = np.arange(batch, dtype=np.int32)
        for position in range(config.max_tokens):
            inputs = feeds(tokens, np.full((len(alive), 1), position, np.int64), bias, cache)
            logits, confidence, *new = self._decoder.run(None, inputs)
            chosen = streams.step(alive, logits[:, 0], confidence[:, 0])
            for row, token in zip(alive, chosen, strict=True):
                records[row].append(int(token))
            going = chosen != config.eos
            alive, bias = alive[going], bias[going]
            cache = [
                np.concatenate([old[going], fresh[going]], axis=2)
                for old, fresh in zip(cache, new, strict=True)
            ]
            tokens = chosen[going].astype(np.int64)[:, None]
            if not len(alive):
                break
        return [record[:-1] if record[-1] == config.eos else record for record in records]

    def step_noise(self, whole: Pass, vector: Floats) -> tuple[float, float]:
        """Measure how far token-by-token passes differ from the pass over the whole record.

        The margins of the codec must be many times as large: a record is written with one kind
        and read with the other.

        Args:
            whole: From ``passes``, where the record shared a batch with others.
            vector: The same vector. Shape: (1, D).

        Returns:
            The greatest difference of a logit, and of a confidence inside [-10, 10], in nats.
        """
        bias, *cache = self._memory.run(None, {"vector": vector})
        logit_noise = confidence_noise = 0.0
        for position, token in enumerate([self.config.bos, *whole.targets[:-1]]):
            tokens = np.array([[token]], np.int64)
            inputs = feeds(tokens, np.array([[position]], np.int64), bias, cache)
            logits, confidence, *new = self._decoder.run(None, inputs)
            logit_noise = max(logit_noise, float(np.abs(logits - whole.logits[position]).max()))
            if abs(float(confidence[0, 0])) < _CONFIDENCE_IN_USE:
                strayed = abs(float(confidence[0, 0]) - float(whole.confidence[position]))
                confidence_noise = max(confidence_noise, strayed)
            cache = [np.concatenate(pair, axis=2) for pair in zip(cache, new, strict=True)]
        return logit_noise, confidence_noise

    def greatest_noise(self, records: Sequence[list[int]], vectors: Floats) -> tuple[float, float]:
        """Return the greatest step noise of logits and of confidence over records, in nats.

        The arguments are those of ``passes``.
        """
        found = [
            self.step_noise(seen, vectors[row : row + 1])
            for row, seen in self.passes(records, vectors)
        ]
        logits, confidences = zip((0.0, 0.0), *found, strict=True)
        return max(logits), max(confidences)

    def _forced(
        self, records: list[list[int]], vectors: Floats, indices: list[int]
    ) -> Iterator[tuple[int, Pass]]:
        config = self.config
        length = max(len(record) for record in records) + 1
        tokens = np.full((len(records), length), config.eos, np.int64)
        tokens[:, 0] = config.bos
        for row, record in enumerate(records):
            tokens[row, 1 : len(record) + 1] = record
        positions = np.broadcast_to(np.arange(length), tokens.shape).astype(np.int64)
        bias, *cache = self._memory.run(None, {"vector": vectors})
        names = ["logits", "confidence"]
        logits, confidence = self._decoder.run(names, feeds(tokens, positions, bias, cache))
        for row, (index, record) in enumerate(zip(indices, records, strict=True)):
            count = len(record) + 1
            targets = np.array([*record, config.eos], np.int32)
            yield index, Pass(logits[row, :count], confidence[row, :count], targets)


def feeds(
    tokens: NDArray[np.int64], positions: NDArray[np.int64], bias: Floats, cache: Sequence[Floats]
) -> dict[str, NDArray[np.generic]]:
    """Return the inputs of decoder.onnx.

    Args:
        tokens: Shape: (B, T).
        positions: Of the tokens in their records. Shape: (B, T).
        bias: From memory.onnx. Shape: (B, W).
        cache: Keys and values of each layer, from memory.onnx and earlier steps.
    """
    inputs: dict[str, NDArray[np.generic]] = {
        "tokens": tokens,
        "positions": positions,
        "bias": bias,
        "past_mask": np.zeros((len(tokens), cache[0].shape[2]), np.float32),
    }
    for at, past in enumerate(cache):
        inputs[f"past_{('key', 'value')[at % 2]}_{at // 2}"] = past
    return inputs
