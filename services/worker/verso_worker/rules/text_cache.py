"""Texts that were read lately, kept in memory within a bound.

A text is decoded from its record and its vector; the same text asked for again need not be. What is
kept is named by everything that its bytes follow from: the collection's own key, the codec that
wrote the record, and the record itself, in which is the hash of the vector. So a name can never
stand for another text, and nothing has to be taken out when a document is replaced or deleted: a
read begins with the ledger's live entry, and an entry that is gone names no record.

Only reads for callers look here. Verify, scrub and migration judge what the stores give back, and
that is what they read.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from verso_core.jobs import Collection
from verso_core.record import Codec, Record

ENTRY_BYTES = 200
"""What a kept text takes besides its bytes: its name, and its place in the order."""

Told = Callable[[int, int, int], None]
"""Hears of hits, misses, and the bytes that are kept now."""


class TextCache:
    """The texts that were read last, up to a number of bytes; any number of threads may share it.

    Args:
        limit_bytes: most that is kept, names included; 0 keeps nothing.
        tell: counts.
    """

    def __init__(self, limit_bytes: int, *, tell: Told = lambda *_: None) -> None:
        self._limit = limit_bytes
        self._tell = tell
        self._lock = threading.Lock()
        self._texts: OrderedDict[bytes, bytes] = OrderedDict()
        self._size = 0

    def find(self, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the texts that are kept."""
        with self._lock:
            found = {name: self._texts[name] for name in names if name in self._texts}
            for name in found:
                self._texts.move_to_end(name)
            size = self._size
        if names:
            hits = sum(name in found for name in names)
            self._tell(hits, len(names) - hits, size)
        return found

    def keep(self, texts: Mapping[bytes, bytes]) -> None:
        """Keep texts, and let those go that were not read for longest."""
        with self._lock:
            for name, text in texts.items():
                if name in self._texts or len(text) + ENTRY_BYTES > self._limit:
                    continue
                self._texts[name] = text
                self._size += len(text) + ENTRY_BYTES
            while self._size > self._limit:
                _, text = self._texts.popitem(last=False)
                self._size -= len(text) + ENTRY_BYTES


def name_of(collection: Collection, record: Record) -> bytes | None:
    """Name a record's text; None where the record is the text and nothing would be saved."""
    if record.codec is Codec.RAW or record.slot >= len(collection.artifacts):
        return None
    digest = hashlib.blake2b(digest_size=16, key=bytes.fromhex(collection.checksum_key))
    for part in (collection.artifacts[record.slot].encode(), record.pack()):
        digest.update(len(part).to_bytes(4, "little") + part)
    return digest.digest()
