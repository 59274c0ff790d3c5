"""Cut a text into chunks that one vector stands for, and these into segments that one pass decodes.

A **chunk** has a vector of its own, the largest part of a record. So it is as long as the encoder's
window allows: text beyond the window would not be in the vector, and no search would find it.
A **segment** is what the decoder codes at once, within its shorter window. The segments of a chunk
share its vector: against vectors of their own they would take 3 to 7 % less (ADR 10), but such a
vector takes many times what it saves.

Both end where a reader would end them: behind a paragraph, a line, a sentence or a word. Joined,
they are the text, every byte in order.

1. A text that is not UTF-8 is cut by size, behind line feeds if it has any: no tokenizer reads it,
   and the byte codecs need none.
2. Other texts are tokenised in blocks, which bounds a tokenizer's time and memory on hostile
   megabytes. The offsets of the tokens show how far each window reaches.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer

_BLOCK_CHARS = 8192
_BYTES_OF_BINARY = 1024
_SPECIAL_TOKENS = 2  # [CLS] and [SEP] of the encoder
_SPARE_TOKENS = 3  # a cut inside a word may split a token into more than it was
_MAX_SEGMENTS = 8  # text of which the encoder sees little must not make a chunk without end
_LEVEL = 1.2  # how much longer than an equal share a segment may be to end at a boundary
_BOUNDARIES = ("\n\n", "\n", ". ", " ")


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts texts for one artifact.

    Args:
        decoder: the lossless byte-level tokenizer.
        encoder: the encoder's tokenizer, without truncation.
        max_decoder_tokens: longest segment, tokens, the end token included.
        max_encoder_tokens: longest text of the encoder, tokens, special tokens included.
    """

    decoder: Tokenizer
    encoder: Tokenizer
    max_decoder_tokens: int
    max_encoder_tokens: int

    def cut(self, text: bytes) -> list[bytes]:
        """Cut a text; joined, the chunks are the text, and an empty text is one empty chunk."""
        if not text:
            return [b""]
        try:
            decoded = text.decode()
        except UnicodeDecodeError:
            return list(_cut_bytes(text))
        return [chunk.encode() for chunk in self._cut_text(decoded)]

    def first(self, text: bytes) -> bytes:
        """Return the first chunk of a text; the rest is not tokenised."""
        try:
            return next(self._cut_text(text.decode()), "").encode()
        except UnicodeDecodeError:
            return next(_cut_bytes(text))

    def tokens(self, text: bytes) -> int:
        """Return how many tokens a text has for the encoder, without the special ones."""
        read = text.decode(errors="replace")
        return len(self.encoder.encode(read, add_special_tokens=False))

    def segments(self, chunk: bytes) -> list[bytes]:
        """Cut a chunk into as few segments as the decoder's window allows, of about equal length.

        Bytes that are not UTF-8 are one segment, which the decoder will not take.
        """
        try:
            text = chunk.decode()
        except UnicodeDecodeError:
            return [chunk]
        window = self.max_decoder_tokens - 1
        if len(chunk) <= window:
            return [chunk]
        encoding = self.decoder.encode(text, add_special_tokens=False)
        if len(encoding) <= window:
            return [chunk]
        ends = _ends(encoding)
        count = -(-len(ends) // (window - _SPARE_TOKENS))
        budget = min(window - _SPARE_TOKENS, math.ceil(_LEVEL * len(ends) / count))
        parts, at = [], 0
        while at < len(text):
            reach = max(_reach(ends, at, budget=budget, size=len(text)), at + 1)
            end = reach if reach == len(text) else _boundary(text, at, reach)
            parts.append(text[at:end].encode())
            at = end
        return parts

    def _cut_text(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            block = text[start : start + _BLOCK_CHARS]
            last = start + len(block) >= len(text)
            windows = _Windows(self, block)
            at = 0
            while at < len(block):
                limit = windows.reach(at)
                if limit >= len(block):
                    # The rest of a block is cut again with what follows it.
                    if not last and at > 0:
                        break
                    yield block[at:]
                    at = len(block)
                    break
                end = _boundary(block, at, limit)
                yield block[at:end]
                at = end
            start += at


class _Windows:
    """How far the windows of both models reach in a block of text.

    A block is tokenised only if its number of bytes does not show already that all of it fits.
    """

    def __init__(self, cutter: Cutter, block: str) -> None:
        self._block = block
        self._decoder = cutter.decoder
        self._decoder_budget = _MAX_SEGMENTS * (cutter.max_decoder_tokens - 1 - _SPARE_TOKENS)
        self._decoder_ends: list[int] | None = None
        self._encoder_budget = cutter.max_encoder_tokens - _SPECIAL_TOKENS - _SPARE_TOKENS
        self._encoder_ends: list[int] | None = None
        # The encoder may take one character for several, but not one of ASCII.
        if not block.isascii() or len(block) > self._encoder_budget:
            encoding = cutter.encoder.encode(block, add_special_tokens=False)
            if len(encoding) > self._encoder_budget:
                self._encoder_ends = _ends(encoding)

    def reach(self, at: int) -> int:
        """Return where a chunk that starts at ``at`` ends at the latest."""
        size = len(self._block)
        reach = size
        if self._encoder_ends is not None:
            reach = _reach(self._encoder_ends, at, budget=self._encoder_budget, size=size)
        # The decoder's tokens join to the text: it has no more of them than bytes.
        if len(self._block[at:reach].encode()) > self._decoder_budget:
            if self._decoder_ends is None:
                self._decoder_ends = _ends(
                    self._decoder.encode(self._block, add_special_tokens=False)
                )
            ends, budget = self._decoder_ends, self._decoder_budget
            reach = min(reach, _reach(ends, at, budget=budget, size=size))
        return max(reach, at + 1)


def _ends(encoding: Encoding) -> list[int]:
    """Return where each token ends, in characters."""
    return [end for _, end in encoding.offsets]


def _reach(ends: list[int], at: int, *, budget: int, size: int) -> int:
    """Return where the ``budget``-th token behind ``at`` ends, or the size if there are fewer.

    Args:
        ends: where each token ends, ascending.
        at: where the piece starts.
        budget: most tokens of the piece.
        size: where the text ends.
    """
    first = bisect.bisect_right(ends, at)
    return ends[first + budget - 1] if len(ends) - first > budget else size


def _boundary(text: str, start: int, limit: int) -> int:
    """Find where to end a chunk in ``text[start:limit]``.

    Behind the last paragraph, line, sentence or word that ends in its second half, else at the
    limit: a chunk of less than half a window wastes a vector.
    """
    middle = start + (limit - start) // 2
    for mark in _BOUNDARIES:
        found = text.rfind(mark, middle, limit)
        if found >= 0 and found + len(mark) > start:
            return found + len(mark)
    return limit


def _cut_bytes(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        end = min(start + _BYTES_OF_BINARY, len(text))
        if end < len(text):
            line = text.rfind(b"\n", start + _BYTES_OF_BINARY // 2, end)
            end = line + 1 if line >= 0 else end
        yield text[start:end]
        start = end
