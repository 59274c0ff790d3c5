"""The decoder's tokenizer as a lossless map between bytes and token ids.

The vocabulary is a byte-level BPE: each entry is a byte string, written with one printable
character for each byte (Radford et al. 2019, the byte alphabet of GPT-2). Joining the entries'
bytes reproduces the text whatever the bytes are; the tokenizer library's own decoder would replace
bytes that are not UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from verso_core.errors import ArtifactInvalid

_BYTES_PER_TOKEN_MAX = 256


class Vocabulary:
    """Texts to tokens and back.

    Args:
        definition: a tokenizers file, JSON.
        size: ids of the decoder, the begin and end token included; they are its last two.
        max_tokens: tokens of the longest record, the end token included.

    Raises:
        ArtifactInvalid: the file is no byte-level vocabulary of that size.
    """

    def __init__(self, definition: bytes, *, size: int, max_tokens: int) -> None:
        try:
            self._tokenizer = Tokenizer.from_buffer(definition)
        except Exception as exc:  # the library raises a bare Exception
            raise ArtifactInvalid(f"decoder_tokenizer.json: {exc}") from exc
        self._max_tokens = max_tokens
        self._pieces = _pieces(self._tokenizer.get_vocab(), size - 2)

    def tokenise(self, texts: Sequence[bytes]) -> list[list[int] | None]:
        """Cut texts into tokens, in parallel; None for a text that a record cannot hold as tokens.

        Such a text is not UTF-8, has more tokens than a record, or its tokens would not reproduce
        the exact bytes.
        """
        strings = [_string(text, self._max_tokens * _BYTES_PER_TOKEN_MAX) for text in texts]
        known = [string for string in strings if string is not None]
        encodings = iter(self._tokenizer.encode_batch_fast(known, add_special_tokens=False))
        return [
            None if string is None else self._checked(text, next(encodings).ids)
            for text, string in zip(texts, strings, strict=True)
        ]

    def text(self, tokens: Sequence[int]) -> bytes | None:
        """Join tokens to bytes; None if one of them is not a piece of text."""
        pieces = self._pieces
        if tokens and not 0 <= min(tokens) <= max(tokens) < len(pieces):
            return None
        return b"".join([pieces[token] for token in tokens])

    def _checked(self, text: bytes, tokens: list[int]) -> list[int] | None:
        if len(tokens) >= self._max_tokens or self.text(tokens) != text:
            return None
        return tokens


def _string(text: bytes, limit_bytes: int) -> str | None:
    if len(text) > limit_bytes:
        return None
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _pieces(vocabulary: dict[str, int], size: int) -> list[bytes]:
    alphabet = _byte_alphabet()
    pieces = [b""] * size
    for entry, token in vocabulary.items():
        if not 0 <= token < size:
            raise ArtifactInvalid(f"decoder_tokenizer.json: expected ids below {size}, got {token}")
        try:
            pieces[token] = bytes([alphabet[character] for character in entry])
        except KeyError as exc:
            raise ArtifactInvalid(
                f"decoder_tokenizer.json: token {token} is not written in the byte alphabet"
            ) from exc
    return pieces


def _byte_alphabet() -> dict[str, int]:
    """Map GPT-2's printable characters to bytes: printable bytes stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet
