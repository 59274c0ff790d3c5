"""What a collection holds, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verso_core.record import Codec


@dataclass(frozen=True, slots=True)
class Share:
    """Records of one codec, and the bytes of their payloads with one byte for the codec."""

    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the entries of a collection say in sum. Sizes are bytes.

    ``unreadable`` entries are no entries any more, and in no other count.
    """

    documents: int
    chunks: int
    verified: int
    unreadable: int
    bytes_text: int
    bytes_entries: int
    codecs: Mapping[Codec, Share]
