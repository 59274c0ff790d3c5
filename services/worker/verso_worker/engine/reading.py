"""Payloads and vectors back to texts: one decoding loop for the records of all clients.

1. Free rows are filled with waiting records, from the request served least.
2. Every live row reads its last token; the decoder scores the next.
3. Each row's payload decides which token it really was.
4. Rows that end, with or without an error, are freed for waiting records at once.

The live rows are contiguous, so a step costs what its live rows cost. A corrupt payload decodes to
some tokens: it ends at the token limit at the latest, and does not affect other rows.

:class:`Checker` confirms a known text in one pass, without the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs.ranks import RankTables, Streams
from verso_core.manifest import Codec
from verso_worker.engine.batching import Closed, Item, Pool
from verso_worker.engine.decoder import Cache, Decoder, Memory, Scores
from verso_worker.engine.lanes import Tally, log_failure
from verso_worker.engine.vocabulary import Vocabulary

_GROUP_RECORDS = 256
"""Records whose memory is computed and held at once; about 34 KB each in the default model."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Records that came in one call: their payloads under way, their memory, and how to read."""

    streams: Streams
    memory: Memory
    disturbed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One record of a group."""

    group: Group
    index: int


class Reader:
    """The thread of the decoding loop, and the pool of records that wait for it."""

    def __init__(
        self, decoder: Decoder, tables: RankTables, vocabulary: Vocabulary, *, rows: int
    ) -> None:
        self._decoder = decoder
        self._tables = tables
        self._vocabulary = vocabulary
        self._noise = Noise(decoder.codec)
        self._cache = Cache(decoder, rows)
        self._rows = rows
        self._items: list[Item[Record]] = []  # of the live rows, in the cache's order
        self._last = np.zeros(rows, np.int64)
        self._texts = np.zeros((rows, decoder.codec.max_tokens), np.int32)
        self._pool: Pool[Record] = Pool()
        self._tally = Tally()
        self._thread = threading.Thread(target=self._work, name="lane-read", daemon=True)
        self._thread.start()

    def read(
        self, payloads: Sequence[bytes], vectors: NDArray[np.float32], *, disturbed: bool
    ) -> list[bytes | None]:
        """Decode payloads against stored, widened vectors; None for a payload that is no text.

        Args:
            payloads: any bytes; those that this artifact's neural codec wrote have a text.
            vectors: Shape: (payloads, D), float32.
            disturbed: move every logit and confidence by up to half the margin the payloads were
                coded with, as another machine might.
        """
        texts: list[bytes | None] = []
        for start in range(0, len(payloads), _GROUP_RECORDS):
            part = slice(start, start + _GROUP_RECORDS)
            texts += self._read_group(payloads[part], vectors[part], disturbed=disturbed)
        return texts

    def figures(self) -> dict[str, float]:
        """Return the counts so far, and how many records wait; a batch is one step."""
        return {**self._tally.figures(), "waiting": self._pool.waiting}

    def close(self) -> None:
        """Finish the waiting records and end the thread."""
        self._pool.close()
        self._thread.join()

    def _read_group(
        self, payloads: Sequence[bytes], vectors: NDArray[np.float32], *, disturbed: bool
    ) -> list[bytes | None]:
        streams = Streams(payloads, self._tables)
        group = Group(streams, self._decoder.memory(vectors), disturbed)
        records = [Record(group, index) for index in range(len(payloads))]
        # A longer payload mostly means more tokens: started first, it ends with the others.
        results = self._pool.run(records, [len(payload) for payload in payloads])
        failed = next((result for result in results if isinstance(result, Exception)), None)
        if failed is not None:
            raise failed
        return results

    def _work(self) -> None:
        while True:
            try:
                free = self._rows - len(self._items)
                items = self._pool.take_rows(free, wait=not self._items)
            except Closed:
                return
            try:
                with self._tally.batch(texts=len(items), tokens=len(self._items) + len(items)):
                    self._admit(items)
                    self._step()
            except Exception as exc:  # noqa: BLE001  (the lane must live on)
                # Nothing here depends on one payload alone; the whole step is lost, not the lane.
                log_failure("read", exc)
                self._tally.failed(len(self._items))
                for item in self._items:
                    item.finish(exc)
                self._items.clear()
                self._cache.clear()

    def _admit(self, items: Sequence[Item[Record]]) -> None:
        first = len(self._items)
        self._items += items
        self._last[first : len(self._items)] = self._decoder.codec.bos
        for item in items:
            self._cache.add(item.work.group.memory.rows([item.work.index]))

    def _step(self) -> None:
        codec = self._decoder.codec
        live = len(self._items)
        scores = self._cache.step(self._last[:live])
        tokens = self._decide(scores)
        self._last[:live] = tokens
        # The token read as number n is the text's token n: bos was number 0.
        position = self._cache.count[:live] - 1
        self._texts[np.arange(live), position] = tokens
        over = (tokens >= min(codec.bos, codec.eos)) | (position + 1 == codec.max_tokens)
        for row in np.flatnonzero(over)[::-1]:  # from the end: the last row takes a row's index
            self._end(int(row), int(position[row]), ended=tokens[row] == codec.eos)

    def _decide(self, scores: Scores) -> NDArray[np.int32]:
        """Let each row's payload choose its token. Shape: (rows,)."""
        rows_of: dict[Group, list[int]] = {}
        for row, item in enumerate(self._items):
            rows_of.setdefault(item.work.group, []).append(row)
        tokens = np.empty(len(self._items), np.int32)
        for group, rows in rows_of.items():
            alone = len(rows_of) == 1  # then the cache's own arrays serve, and nothing is copied
            logits = scores.logits if alone else scores.logits[rows]
            confidence = scores.confidence if alone else scores.confidence[rows]
            if group.disturbed:
                for index in range(len(rows)):
                    self._noise.add(logits[index], confidence[index : index + 1])
            indices = np.array([self._items[row].work.index for row in rows], np.int32)
            tokens[rows] = group.streams.step(indices, logits, confidence)
        return tokens

    def _end(self, row: int, length: int, *, ended: bool) -> None:
        """Return the result of a row of `length` tokens and free the row."""
        item = self._items[row]
        text = None
        # The coder wrote no payload that continues behind its end token.
        if ended and item.work.group.streams.unread(item.work.index) == 0:
            text = self._vocabulary.text(self._texts[row, :length].tolist())
        item.finish(text)
        last = len(self._items) - 1
        self._cache.remove(row)
        self._items[row] = self._items[last]
        self._items.pop()
        self._last[row] = self._last[last]
        self._texts[row] = self._texts[last]


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A payload with its stored vector, widened, and the tokens that it should decode to."""

    payload: bytes
    vector: NDArray[np.float32]
    tokens: list[int]
    disturbed: bool


class Checker:
    """Confirms drafts in batches, with one pass of the decoder; for one thread at a time.

    After coding a text, the worker knows what its payload should decode to. The decoder scores the
    whole draft at once, and the payload chooses token after token as in a read. As long as it
    chooses the draft's tokens, each score was computed from the same tokens as in a read. So a
    confirmed draft *is* the text of the payload; any other payload must be read step by step. This
    is block verification of speculative decoding (Stern et al. 2018), with a draft that is nearly
    always right. Scores of a block and of a step differ by float noise, for which the payload has
    its margins.
    """

    def __init__(self, decoder: Decoder, tables: RankTables, noise: Noise) -> None:
        self._decoder = decoder
        self._tables = tables
        self._noise = noise

    def run(self, batch: Sequence[Draft]) -> list[bool]:
        """Return for each draft whether its payload decodes to it."""
        memory = self._decoder.memory(np.stack([draft.vector for draft in batch]))
        scores = self._decoder.score([draft.tokens for draft in batch], memory)
        streams = Streams([draft.payload for draft in batch], self._tables)
        wanted = [np.array([*draft.tokens, self._decoder.codec.eos]) for draft in batch]
        open_rows = list(range(len(batch)))
        confirmed = [False] * len(batch)
        for position in range(scores.logits.shape[1]):
            logits, confidence = (
                scores.logits[open_rows, position],
                scores.confidence[open_rows, position],
            )
            for index, row in enumerate(open_rows):
                if batch[row].disturbed:
                    self._noise.add(logits[index], confidence[index : index + 1])
            chosen = streams.step(np.array(open_rows, np.int32), logits, confidence)
            going = []
            for row, token in zip(open_rows, chosen.tolist(), strict=True):
                if token != wanted[row][position]:
                    continue
                if position + 1 == wanted[row].size:
                    confirmed[row] = streams.unread(row) == 0
                else:
                    going.append(row)
            open_rows = going
            if not open_rows:
                break
        return confirmed


_SEED = 20_250_401
_BANK = 4  # times the vocabulary


class Noise:
    """Uniform noise of up to half the codec's margins, as if another machine had computed.

    A payload must still read under it. The noise is drawn once and used from a random offset each
    time, because drawing it for every logit would cost as much as the decoder. Each thread needs an
    instance of its own.
    """

    def __init__(self, codec: Codec) -> None:
        self._random = np.random.default_rng(_SEED)
        unit = self._random.random(_BANK * codec.vocab, dtype=np.float32) - np.float32(0.5)
        self._logits = unit * np.float32(codec.epsilon)
        self._confidence = unit * np.float32(codec.confidence_epsilon)

    def add(self, logits: NDArray[np.float32], confidence: NDArray[np.float32]) -> None:
        """Disturb one row, in place. Shape: (V,) and (1,)."""
        start = int(self._random.integers(self._logits.size - logits.size + 1))
        logits += self._logits[start : start + logits.size]
        confidence += self._confidence[start : start + 1]
