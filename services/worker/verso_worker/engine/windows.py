"""Texts and pairs of texts as token rows for a head's graph, and the best spans of contexts.

    text    [CLS] a [SEP]
    pair    [CLS] a [SEP] b [SEP]; token types 0 up to the first [SEP], then 1

A text that does not fit is cut at the end. A context that is searched for an answer is read in
several windows that share ``stride`` tokens (Devlin et al. 2019, their SQuAD code).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_core.errors import HeadInvalid, QuestionTooLong
from verso_worker.records.outputs import Found, Span

ROOM_TOKENS = 16
"""Context tokens that every window must have room for."""

_BYTES_PER_TOKEN = 64  # read for each token that can be kept; ordinary text has about 5


_PIECE_CHARACTERS = 8192
"""Of a context, read at a time: about a millisecond with the interpreter held."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row of a graph's input.

    ids, types: of equal length, special tokens included.
    first: index of the context's first token, where the row is a window.
    offsets: characters of the context, [start, end), for each context token in the row.
    """

    ids: list[int]
    types: list[int]
    first: int = 0
    offsets: tuple[tuple[int, int], ...] = ()


class Windows:
    """Cuts texts for heads that read tokens.

    Args:
        tokenizer: content of the artifact's ``encoder_tokenizer.json``.
    """

    def __init__(self, tokenizer: bytes) -> None:
        self._tokenizer = Tokenizer.from_buffer(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._first, self._between = (self._special(name) for name in ("[CLS]", "[SEP]"))

    def single(self, texts: Sequence[bytes], *, max_tokens: int) -> list[Row]:
        """Return each text's beginning."""
        rows = []
        for ids in self._ids(texts, max_tokens=max_tokens):
            kept = [self._first, *ids[: max_tokens - 2], self._between]
            rows.append(Row(kept, [0] * len(kept)))
        return rows

    def pairs(
        self, first: Sequence[bytes], second: Sequence[bytes], *, max_tokens: int
    ) -> list[Row]:
        """Return pairs; if one does not fit, its longer text is cut first."""
        rows = []
        left = self._ids(first, max_tokens=max_tokens)
        right = self._ids(second, max_tokens=max_tokens)
        for a, b in zip(left, right, strict=True):
            room = max_tokens - 3
            keep_b = min(len(b), max(room - len(a), room // 2))
            rows.append(self._pair(a[: room - keep_b], b[:keep_b]))
        return rows

    def windows(self, question: bytes, context: str, *, max_tokens: int, stride: int) -> list[Row]:
        """Return the windows of a context, all with the question in front.

        Raises:
            QuestionTooLong: the question leaves no room for the context.
        """
        [asked] = self._ids([question], max_tokens=max_tokens)
        room = max_tokens - 3 - len(asked)
        if room < ROOM_TOKENS:
            most = max_tokens - 3 - ROOM_TOKENS
            raise QuestionTooLong(f"expected a question of <= {most} tokens, got {len(asked)}")
        ids, offsets = self._tokens_of(context)
        step = room - min(stride, room // 2)
        rows = []
        for start in range(0, max(1, len(ids)), step):
            part = slice(start, start + room)
            rows.append(self._pair(asked, ids[part], offsets=offsets[part]))
            if start + room >= len(ids):
                break
        return rows

    def _tokens_of(self, context: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a context and the characters of each.

        It is cut between words, where no token reaches across: reading 255 KiB as one would hold
        the interpreter for 0.1 s, and every other call of the engine with it.
        """
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        while start < len(context):
            end = _cut_between_words(context, start)
            # encode() holds the interpreter, encode_batch() does not
            [encoding] = self._tokenizer.encode_batch(
                [context[start:end]], add_special_tokens=False
            )
            ids += encoding.ids
            offsets += [(first + start, last + start) for first, last in encoding.offsets]
            start = end
        return ids, offsets

    def _pair(self, a: list[int], b: list[int], *, offsets: Sequence[tuple[int, int]] = ()) -> Row:
        ids = [self._first, *a, self._between, *b, self._between]
        types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        return Row(ids, types, first=len(a) + 2, offsets=tuple(offsets))

    def _ids(self, texts: Sequence[bytes], *, max_tokens: int) -> list[list[int]]:
        """Return tokens without special ones; bytes that are not UTF-8 are read as U+FFFD."""
        limit = _BYTES_PER_TOKEN * max_tokens
        strings = [text[:limit].decode("utf-8", errors="replace") for text in texts]
        encoded = self._tokenizer.encode_batch_fast(strings, add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def _special(self, name: str) -> int:
        found: int | None = self._tokenizer.token_to_id(name)
        if found is None:
            raise HeadInvalid(f"encoder_tokenizer.json: expected a token {name}")
        return found


def _cut_between_words(text: str, start: int) -> int:
    """Return where the next piece of a text ends: behind the last space of its characters."""
    end = start + _PIECE_CHARACTERS
    if end >= len(text):
        return len(text)
    space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
    if space < 0:  # one endless word: a piece ends with it
        found = [at for at in (text.find(" ", end), text.find("\n", end)) if at >= 0]
        space = min(found, default=len(text) - 1)
    return space + 1


def feeds(rows: Sequence[Row]) -> dict[str, NDArray[np.int64]]:
    """Pad rows to the longest. Shape of each array: (rows, tokens), int64; 0 is padding."""
    shape = (len(rows), max(len(row.ids) for row in rows))
    ids, mask, types = (np.zeros(shape, np.int64) for _ in range(3))
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = row.ids
        mask[index, : len(row.ids)] = 1
        types[index, : len(row.types)] = row.types
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


LONGEST_TOKENS = 30
"""Longest answer, as in the reference implementations for SQuAD."""

_CANDIDATES = 20  # starts and ends tried in each window, as in those implementations


def best_spans(
    rows: Sequence[Row],
    logits: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
    *,
    count: int,
) -> Found:
    """Return the best spans of one context, from the logits of all its windows.

    The score of the answer t..u is ``start[t] + end[u]``; "no answer" scores ``start[0] + end[0]``,
    the position of [CLS] (Devlin et al. 2019, section 4.3). The null score of a context is the
    smallest of its windows': an answer in one window counts even if the others hold none.

    Args:
        rows: the windows.
        logits: start and end of each. Shape: (tokens of the window,) each, without padding.
        count: most spans to return.
    """
    spans: list[Span] = []
    null_score = np.inf
    for row, (start, end) in zip(rows, logits, strict=True):
        null_score = min(null_score, float(start[0] + end[0]))
        spans += _window(row, start, end)
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (-span.score, span.start, span.end)):
        if len(kept) == count:
            break
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return Found(kept, null_score)


def _window(row: Row, start: NDArray[np.float32], end: NDArray[np.float32]) -> list[Span]:
    part = slice(row.first, row.first + len(row.offsets))
    starts, ends = start[part], end[part]
    spans = []
    last = np.argsort(-ends, kind="stable")[:_CANDIDATES].tolist()
    for first in np.argsort(-starts, kind="stable")[:_CANDIDATES].tolist():
        for final in last:
            if first <= final < first + LONGEST_TOKENS:
                score = float(starts[first] + ends[final])
                spans.append(Span(row.offsets[first][0], row.offsets[final][1], score))
    return [span for span in spans if span.start < span.end]
