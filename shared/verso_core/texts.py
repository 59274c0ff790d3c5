"""What users send, checked: texts, ids of documents and of their records, metadata."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from verso_core.errors import (
    IdInvalid,
    MetadataInvalid,
    RequestInvalid,
    TextNotEncodable,
    TextTooLarge,
)

MAX_TEXT_BYTES = 4 * 1024 * 1024
MAX_ID_BYTES = 256
MAX_METADATA_BYTES = 4096
MAX_METADATA_DEPTH = 8
MAX_INTEGER = (1 << 63) - 1
"""Largest integer in metadata, and the smallest negated: what vector stores keep as an integer."""

MAX_SENTENCES = 64
"""Most sentences of a text. A chunk has fewer; a longer text must not cost more than a chunk."""

PASSAGE_BYTES = 1024
"""Longest passage of several sentences: about 250 tokens, so that a window holds a question too."""

SHORT_SENTENCE_BYTES = 20
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|[\r\n\f]+")
"""What separates two sentences or lines."""

_SENTENCE_CHARACTERS = 300
"""Of a sentence, to each side of what it is around."""

PAGE_END = b"\f"
"""Ends every page but the last in the text of a file with pages, as pdftotext writes it."""

Scalar = str | int | float | bool
Metadata = dict[str, Any]
"""Metadata of a document: scalars, null, lists of scalars and null, and objects of the same."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SENTENCE_END_BYTES = re.compile(SENTENCE_END.pattern.encode())
_SENTENCES_WITHIN_BYTES = 32_768
_RECORD = re.compile(r"^(?P<document>.+)#(?P<chunk>\d{1,9})$", re.DOTALL)


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the sentence or line around characters [start, end), at most 300 to each side."""
    first = max(0, start - _SENTENCE_CHARACTERS)
    last = min(len(text), end + _SENTENCE_CHARACTERS)
    before = list(SENTENCE_END.finditer(text, first, start))
    after = SENTENCE_END.search(text, end, last)
    return (before[-1].end() if before else first), (after.start() if after else last)


def check_document_id(document: object) -> str:
    """Check a document id and return it.

    Raises:
        IdInvalid: it is not a string of 1..256 UTF-8 bytes without control characters, or it ends
            in ``#`` and digits, as the name of a record does.
    """
    if not isinstance(document, str):
        raise IdInvalid(f"expected a string as id, got {type(document).__name__}")
    try:
        size = len(document.encode())
    except UnicodeEncodeError as exc:
        raise IdInvalid("expected an id without lone surrogates") from exc
    if not 1 <= size <= MAX_ID_BYTES:
        raise IdInvalid(f"expected an id of 1..{MAX_ID_BYTES} bytes, got {size}")
    if _CONTROL.search(document):
        raise IdInvalid("expected an id without control characters")
    if _RECORD.match(document):
        raise IdInvalid("expected an id that does not end in '#' and digits: that names a record")
    return document


def split_record_id(name: str) -> tuple[str, int | None]:
    """Split ``doc#n`` into document and chunk; a plain document id has chunk None."""
    match = _RECORD.match(name)
    if match is None:
        return check_document_id(name), None
    return check_document_id(match["document"]), int(match["chunk"])


def text_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes of a JSON string.

    Raises:
        TextNotEncodable: it holds a lone surrogate.
        TextTooLarge: it passes ``MAX_TEXT_BYTES``.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise TextNotEncodable(f"lone surrogate at character {exc.start}; send base64") from exc
    return check_text(data)


def text_from_base64(text: str) -> bytes:
    """Return the bytes of a base64 field; they need not be UTF-8.

    Raises:
        RequestInvalid: it is not base64 (RFC 4648, section 4, padded).
        TextTooLarge: the bytes pass ``MAX_TEXT_BYTES``.
    """
    try:
        return check_text(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as exc:
        raise RequestInvalid("expected padded base64 (RFC 4648) in text_base64") from exc


def check_text(data: bytes) -> bytes:
    """Check the size of a text and return the text.

    Raises:
        TextTooLarge: it passes ``MAX_TEXT_BYTES``.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise TextTooLarge(f"expected a text of <= {MAX_TEXT_BYTES} bytes, got {len(data)}")
    return data


def check_metadata(metadata: object) -> Metadata:
    """Check a document's metadata and return it.

    Raises:
        MetadataInvalid: it is no :data:`Metadata`, or is too large or too deep.
    """
    if not isinstance(metadata, dict):
        raise MetadataInvalid(f"expected an object, got {type(metadata).__name__}")
    size = 0
    waiting: list[tuple[int, Mapping[str, object]]] = [(1, metadata)]
    while waiting:
        depth, part = waiting.pop()
        if depth > MAX_METADATA_DEPTH:
            raise MetadataInvalid(f"expected metadata of depth <= {MAX_METADATA_DEPTH}")
        for key, value in part.items():
            size += _size_of(key)
            if isinstance(value, dict):
                waiting.append((depth + 1, value))
                continue
            values = value if isinstance(value, list | tuple) else [value]
            size += sum(map(_size_of, values))
        if size > MAX_METADATA_BYTES:
            raise MetadataInvalid(f"expected <= {MAX_METADATA_BYTES} bytes, got {size}")
    return metadata


def _size_of(value: object) -> int:
    """Return the bytes that a key or a scalar of metadata counts for, at least 1.

    Raises:
        MetadataInvalid: it is no scalar, or one that JSON or a vector store does not hold.
    """
    if value is not None and not isinstance(value, str | int | float | bool):
        raise MetadataInvalid(
            f"expected scalars, lists of scalars or objects, got {type(value).__name__}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise MetadataInvalid(f"expected finite numbers, got {value}")
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise MetadataInvalid("expected integers above -2^63 and below 2^63")
    try:
        return max(1, len(str(value).encode()))
    except UnicodeEncodeError as exc:
        raise MetadataInvalid("expected metadata without lone surrogates") from exc


def values_of(metadata: Mapping[str, Any]) -> dict[str, list[Scalar]]:
    """Return the values of each metadata key that has some; nested keys are joined by dots.

    A scalar is one value, a list is its elements, null is none.
    """
    found: dict[str, list[Scalar]] = {}
    for key, value in metadata.items():
        if isinstance(value, Mapping):
            for inner, values in values_of(value).items():
                found.setdefault(f"{key}.{inner}", []).extend(values)
        else:
            values = list(value) if isinstance(value, list | tuple) else [value]
            known = [one for one in values if one is not None]
            if known:
                found.setdefault(key, []).extend(known)
    return found


def sentence_spans(text: bytes) -> list[tuple[int, int]]:
    """Return where a text's first sentences are, for heads that score how well one fits a question.

    A text is cut after a full stop, question or exclamation mark, and at line ends. A part of up to
    ``SHORT_SENTENCE_BYTES``, such as the number of a heading, is left out.

    Returns:
        Start and end of at most ``MAX_SENTENCES`` sentences of the first 32 KiB, bytes; or of these
        32 KiB if they have none.
    """
    beginning = sentence_source(text)
    found = [(start, end) for start, end in _parts(beginning) if end - start > SHORT_SENTENCE_BYTES]
    return found[:MAX_SENTENCES] or [(0, len(beginning))]


def passage_spans(text: bytes) -> list[tuple[int, int]]:
    """Return where a text's first passages are, for heads that read more than one sentence.

    A passage is as many whole sentences, cut as by :func:`sentence_spans`, as ``PASSAGE_BYTES``
    hold; a longer sentence is a passage.

    Returns:
        Start and end of the passages of the first 32 KiB, bytes; or of these 32 KiB if they have
        none.
    """
    beginning = sentence_source(text)
    found: list[tuple[int, int]] = []
    for start, end in _parts(beginning):
        if found and end - found[-1][0] <= PASSAGE_BYTES:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found or [(0, len(beginning))]


def utf16_units(text: str) -> int:
    """Return how many code units of UTF-16 a text has: two for what is beyond U+FFFF."""
    return len(text) + sum(character > "\uffff" for character in text)


def _parts(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of what stands between the ends of sentences, bytes."""
    start = 0
    for separator in _SENTENCE_END_BYTES.finditer(text):
        if separator.start() > start:
            yield start, separator.start()
        start = separator.end()
    if start < len(text):
        yield start, len(text)


def sentence_source(text: bytes) -> bytes:
    """Return the first 32 KiB of a text, in which sentences are looked for; no character is cut."""
    end = _SENTENCES_WITHIN_BYTES
    while end < len(text) and end > _SENTENCES_WITHIN_BYTES - 4 and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]
