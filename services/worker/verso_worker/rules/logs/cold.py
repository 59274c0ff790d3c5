"""Cold storage of lines: blocks of old segments in an object store, their fronts in the ledger.

The scrub decodes each segment. One whose lines arrived long enough ago has its blocks written to an
object (:mod:`verso_worker.rules.cold.storage`). Then a shorter value replaces the segment in the
ledger: where its blocks are, and its front. So searches for statements and values ask the ledger
alone, and only lines that are shown are read from the object store.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from verso_core.errors import PatchCorrupt
from verso_worker.records.segments import (
    COLD_BYTES,
    COLD_NAME_BYTES,
    VERSION,
    ColdBlocks,
    Front,
    corrected,
    mark_of,
)
from verso_worker.rules.cold.storage import ColdStorage, Written
from verso_worker.rules.ports.stores import Logs

LEAST_BYTES = 1024
"""Blocks of a segment that are smaller stay in the ledger: where they are takes bytes as well."""
_NS = 1e9


@dataclass(frozen=True, slots=True)
class ColdSegments:
    """Blocks of segments in cold storage."""

    storage: ColdStorage

    def whole(self, uid: str, rows: Sequence[bytes | None]) -> list[bytes | None]:
        """Return segments with their blocks, of those that the ledger has read.

        A segment whose object is not there, or is another's, is returned without its blocks: it is
        damaged.

        Raises:
            ObjectsUnavailable: the object store did not answer.
        """
        cold = {
            n: found
            for n, row in enumerate(rows)
            if row is not None and (found := ColdBlocks.read(row)) is not None
        }
        if not cold:
            return list(rows)
        whole = list(rows)
        blocks = self.storage.objects.get([_name(uid, one) for one in cold.values()])
        for (n, one), data in zip(cold.items(), blocks, strict=True):
            front = (rows[n] or b"")[COLD_BYTES:]
            whole[n] = front + (data if data is not None and _are(one, front, data) else b"")
        return whole

    def moved(self, uid: str, whole: bytes, front: Front) -> tuple[Written, bytes]:
        """Write the blocks of a segment to an object, and read it back.

        Args:
            uid: of its collection.
            whole: the segment with its blocks, as it was written.
            front: of the segment.

        Returns:
            The object, and what the ledger is to hold of the segment.

        Raises:
            DiskFull: the blocks cannot be written.
            ObjectsUnavailable: the object store did not answer, or returned other bytes.
        """
        blocks = whole[front.size_bytes :]
        end = mark_of(front.blocks(whole))
        made = self.storage.write(f"{uid}/", blocks, name_bytes=COLD_NAME_BYTES, end=end)
        where = ColdBlocks(len(blocks), made.name, checked=True)
        return made, where.pack(whole[: front.size_bytes])

    def is_due(self, front: Front) -> bool:
        """Whether the blocks of a segment are to be moved by now."""
        after_s = self.storage.after_s
        if after_s is None or sum(front.sizes) < LEAST_BYTES:
            return False
        return front.times.arrived_ns / _NS <= self.storage.clock() - after_s

    def sweep(self, logs: Logs, uid: str, places: Collection[tuple[int, int]]) -> None:
        """Remove objects that no segment names.

        Args:
            logs: the ledger's lines.
            uid: of the collection.
            places: of all its segments.
        """
        there = {name for name, _ in self.storage.objects.list(f"{uid}/")}
        if not there:
            return
        heads = logs.heads(uid, list(places), size=COLD_BYTES)
        found = {head: ColdBlocks.read(head) for head in heads if head}
        if any(one is None and head[0] != VERSION for head, one in found.items()):
            return  # the object of a segment whose first bytes are damaged may still be needed
        named = {_name(uid, one) for one in found.values() if one is not None}
        self.storage.remove(logs, f"{uid}/", there - named)


def _are(one: ColdBlocks, front: bytes, blocks: bytes) -> bool:
    """Whether the bytes of an object may be the blocks of the segment with this front."""
    try:
        read = Front.read(front) or Front.read(corrected(front) or b"")
        return read is None or one.are(read.blocks(front + blocks))
    except PatchCorrupt:  # who reads the segment says so
        return True


def _name(uid: str, one: ColdBlocks) -> str:
    return f"{uid}/{one.name.hex()}"
