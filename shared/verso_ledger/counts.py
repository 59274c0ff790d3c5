"""What a collection holds, as the ledger counts it.

The counts are a hash beside the entries, changed in the very step that changes an entry: they cost
nothing to read and are exact for whatever the ledger wrote, through crashes, restarts and restored
copies. An entry that rots in the store adds what it added when it was written until all is counted
anew. Counting anew walks the buckets a few at a time, while writes go on: ``count.lua`` says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from verso_core.holdings import Holdings, Share
from verso_core.record import Codec


class Counting(StrEnum):
    """What a part of a count came to.

    ``kept``: nothing is left to count. ``mended``: nor is here, but what was kept was wrong.
    """

    MORE = "more"
    KEPT = "kept"
    MENDED = "mended"
    MOVED = "moved"


def read(row: Mapping[bytes, bytes]) -> Holdings | None:
    """Read the hash; None where nothing has been counted yet."""
    if b"full" not in row:
        return None
    counts = {name.decode(): int(n) for name, n in row.items() if n.isdigit()}
    shares = {
        codec: Share(counts.get(f"records:{codec:d}", 0), counts.get(f"bytes:{codec:d}", 0))
        for codec in Codec
    }
    return Holdings(
        documents=counts.get("documents", 0),
        chunks=counts.get("chunks", 0),
        verified=counts.get("verified", 0),
        unreadable=counts.get("unreadable", 0),
        bytes_text=counts.get("bytes_text", 0),
        bytes_entries=counts.get("bytes_entries", 0),
        codecs={codec: share for codec, share in shares.items() if share.records},
    )
