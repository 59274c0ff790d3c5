"""Cold storage of lines: blocks of old segments in an object store, their fronts in the ledger.

1. The scrub decodes each segment. One whose lines arrived long enough ago has its blocks written
   to an object, which is read back and compared. Only then a shorter value replaces the segment in
   the ledger: where its blocks are, and its front. So searches for statements and values ask the
   ledger alone, and only lines that are shown are read from the object store.
2. Each write is an object of a new name, which is never changed: one that no segment names now is
   named by none later, but for the moment between its write and the step that names it.
3. Objects that no segment names, as its lines were deleted or coded again, are removed once a
   worker has known that for an hour: who reads a segment may have read its value before that.
   Nothing is removed while a backup copies the stores, while the ledger is read-only, as the newer
   one that takes its place names more, or of a collection one of whose segments is damaged.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from verso_core.errors import ObjectsUnavailable, Unavailable
from verso_worker.records.segments import COLD_BYTES, VERSION, ColdBlocks, Front
from verso_worker.rules.ports.stores import Logs, Objects

LEAST_BYTES = 1024
"""Blocks of a segment that are smaller stay in the ledger: where they are takes bytes as well."""
UNNAMED_S = 3600.0
"""How long a worker has known that no segment names an object before it is removed."""
_NS = 1e9
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moved:
    """The value of a segment whose blocks were written to an object.

    Attributes:
        value: the value.
        started: when the write started, seconds of the monotonic clock.
    """

    value: bytes
    started: float

    @property
    def is_fresh(self) -> bool:
        """Whether no worker can have removed the object as one that no segment names."""
        return time.monotonic() - self.started < UNNAMED_S / 2


@dataclass(frozen=True, slots=True)
class ColdStorage:
    """Blocks of segments in an object store.

    Attributes:
        objects: the store.
        after_s: seconds from the arrival of lines until their blocks are moved; None moves none.
        clock: Unix seconds.
        monotonic: seconds of a clock that does not jump.
    """

    objects: Objects
    after_s: float | None = None
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _unnamed: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def whole(self, uid: str, rows: Sequence[bytes | None]) -> list[bytes | None]:
        """Return segments with their blocks, of those that the ledger has read.

        A segment whose object is not there is returned without its blocks: it is damaged.

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
        blocks = self.objects.get([_name(uid, one) for one in cold.values()])
        for n, data in zip(cold, blocks, strict=True):
            whole[n] = (rows[n] or b"")[COLD_BYTES:] + (data or b"")
        return whole

    def moved(self, uid: str, whole: bytes, front: Front) -> Moved:
        """Write the blocks of a segment to an object, and read it back.

        Args:
            uid: of its collection.
            whole: the segment with its blocks, as it was written.
            front: of the segment.

        Returns:
            What the ledger is to hold of the segment.

        Raises:
            DiskFull: the blocks cannot be written.
            ObjectsUnavailable: the object store did not answer, or returned other bytes.
        """
        blocks = whole[front.size_bytes :]
        cold = ColdBlocks(len(blocks), uuid.uuid4().bytes)
        name, started = _name(uid, cold), time.monotonic()
        self.objects.put(name, blocks)
        if self.objects.get([name]) != [blocks]:
            raise ObjectsUnavailable(f"the object {name} does not read back as it was written")
        return Moved(cold.pack(whole[: front.size_bytes]), started)

    def is_due(self, front: Front) -> bool:
        """Whether the blocks of a segment are to be moved by now."""
        if self.after_s is None or sum(front.sizes) < LEAST_BYTES:
            return False
        return front.times.arrived_ns / _NS <= self.clock() - self.after_s

    def sweep(self, logs: Logs, uid: str, places: Collection[tuple[int, int]]) -> None:
        """Remove objects that no segment names.

        Args:
            logs: the ledger's lines.
            uid: of the collection.
            places: of all its segments.
        """
        there = {name for name, _ in self.objects.list(f"{uid}/")}
        if not there:
            return
        heads = logs.heads(uid, list(places), size=COLD_BYTES)
        found = {head: ColdBlocks.read(head) for head in heads if head}
        if any(one is None and head[0] != VERSION for head, one in found.items()):
            return  # the object of a segment whose first bytes are damaged may still be needed
        named = {_name(uid, one) for one in found.values() if one is not None}
        self._remove(logs, f"{uid}/", there - named)

    def sweep_deleted(self, logs: Logs) -> None:
        """Remove the objects of collections that were deleted."""
        uids = logs.uids()
        for prefix in self.objects.prefixes():
            if prefix.rstrip("/") not in uids:
                self._remove(logs, prefix, {name for name, _ in self.objects.list(prefix)})

    def _remove(self, logs: Logs, prefix: str, unnamed: Collection[str]) -> None:
        now = self.monotonic()
        with self._lock:
            known = {name: when for name, when in self._unnamed.items() if name in unnamed}
            for name in [name for name in self._unnamed if name.startswith(prefix)]:
                del self._unnamed[name]
            self._unnamed.update({name: known.get(name, now) for name in unnamed})
            old = [name for name in unnamed if self._unnamed[name] <= now - UNNAMED_S]
        if not old or logs.removal_paused():
            return
        try:
            self.objects.delete(old)
        except Unavailable as error:
            _log.warning("objects are not removed: %s", error.detail)


def _name(uid: str, one: ColdBlocks) -> str:
    return f"{uid}/{one.name.hex()}"
