"""What a collection holds, counted from every entry of it: what the ledger's counts must equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from verso_core.errors import PatchCorrupt
from verso_core.jobs.statistics import Holdings, Share
from verso_core.record import Codec, Entry, Flag


def recounted(entries: Iterable[tuple[str, bytes]]) -> Holdings:
    """Read and count all entries."""
    counts: Counter[str] = Counter()
    records: Counter[Codec] = Counter()
    sizes: Counter[Codec] = Counter()
    slots: Counter[int] = Counter()
    for _, data in entries:
        try:
            entry = Entry.unpack(data)
        except PatchCorrupt:
            counts["unreadable"] += 1
            continue
        counts["documents"] += 1
        counts["chunks"] += len(entry.records)
        counts["bytes_text"] += entry.size_bytes
        counts["bytes_entries"] += len(data)
        counts["verified"] += bool(entry.flags & Flag.VERIFIED)
        for record in entry.records:
            records[record.codec] += 1
            sizes[record.codec] += 0 if entry.cold else 1 + len(record.payload)
            slots[record.slot] += 1
        if entry.cold is not None:
            counts["cold"] += entry.cold.size_bytes
            before = len(entry.head()) - 2 + len(entry.about or b"") + (len(entry.records) > 127)
            patches = entry.cold.size_bytes - 6 - before - 13 * len(entry.records)
            sizes[entry.records[0].codec] += max(0, patches)
    return Holdings(
        documents=counts["documents"],
        chunks=counts["chunks"],
        verified=counts["verified"],
        unreadable=counts["unreadable"],
        bytes_text=counts["bytes_text"],
        bytes_entries=counts["bytes_entries"],
        codecs={codec: Share(records[codec], sizes[codec]) for codec in records},
        slots=dict(slots),
        bytes_cold=counts["cold"],
    )
