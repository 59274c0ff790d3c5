"""Objects of cold storage: written once, never changed, and removed when nothing names them.

1. An object is written under a new name and read back before the ledger names it in place of what
   it holds. One that nothing names now is named by nothing later, but for the moment between its
   write and that step.
2. Objects that nothing names, as what they held was deleted or written again, are removed once a
   worker has known that for an hour: who reads a value of the ledger may have read it before that.
   Nothing is removed while a backup copies the stores, while the ledger is read-only, as the newer
   one that takes its place names more, or of a collection in which a value that may name an object
   is damaged.
3. Before a collection moves to another ledger its objects are copied there, under the uid that it
   gets. Meanwhile it gets no new objects, so all that are named at the end were there before.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from verso_core.errors import ObjectsUnavailable, Unavailable
from verso_core.jobs import BucketRange
from verso_core.jobs.scrub import OBJECT_PARTS
from verso_worker.rules.ports.stores import Logs, Objects

UNNAMED_S = 3600.0
"""How long a worker has known that nothing names an object before it is removed."""
NAMED_S = UNNAMED_S / 2
"""How long after the start of its write an object may be named."""
ENTRIES = ".d"
"""What follows the uid of a collection in the names of objects that hold entries of documents."""
_COPIED_TOGETHER = 8
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """An object that was written and read back, and that nothing names yet.

    Attributes:
        name: the last part of its name.
        started: when the write started, seconds of the monotonic clock.
    """

    name: bytes
    started: float

    @property
    def is_fresh(self) -> bool:
        """Whether no worker can have removed the object as one that nothing names."""
        return time.monotonic() - self.started < NAMED_S


@dataclass(frozen=True, slots=True)
class ColdStorage:
    """The object store of a ledger's cold storage.

    Attributes:
        objects: the store.
        after_s: seconds until lines and documents are moved; None moves none.
        clock: Unix seconds.
        monotonic: seconds of a clock that does not jump.
    """

    objects: Objects
    after_s: float | None = None
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _unnamed: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, prefix: str, data: bytes, *, name_bytes: int, end: bytes = b"") -> Written:
        """Write an object of a new name, and read it back.

        Args:
            prefix: of its name, with a slash at the end.
            data: what it holds.
            name_bytes: length of the rest of its name, which is drawn at random: long enough that
                none is drawn twice.
            end: what the name ends with, of these bytes.

        Raises:
            DiskFull: it cannot be written.
            ObjectsUnavailable: the object store did not answer, or returned other bytes.
        """
        started, name = time.monotonic(), os.urandom(name_bytes - len(end)) + end
        whole = prefix + name.hex()
        self.objects.put(whole, data)
        if self.objects.get([whole]) != [data]:
            raise ObjectsUnavailable(f"the object {whole} does not read back as it was written")
        return Written(name, started)

    def copy(self, uid: str, asked: BucketRange) -> int:
        """Copy a collection's objects to another ledger and read each back.

        Returns:
            how many parts, from the first one asked for, are complete: 0 while the store is full,
            away or, as a folder that is not mounted, empty, since a caller knows of objects in it.
        """
        ledger, _, to = (asked.to or "").partition("/")
        there, end, done = self.objects.of(ledger), time.monotonic() + asked.spend_s, 0
        prefixes = {f"{uid.partition('.')[0]}/": f"{to}/", f"{uid}{ENTRIES}/": f"{to}{ENTRIES}/"}
        parts: dict[str, dict[str, str]] = defaultdict(dict)
        try:
            for prefix, new in prefixes.items():
                for name, _ in self.objects.list(prefix):
                    last = name.removeprefix(prefix)
                    parts[last[:2]][name] = new + last
            if not parts:
                raise ObjectsUnavailable(f"no object of collection {uid} is there")
            for part in range(asked.first, min(asked.first + asked.count, OBJECT_PARTS)):
                if done and time.monotonic() >= end:
                    break
                self._copy(there, [*parts.get(f"{part:02x}", {}).items()])
                done += 1
        except Unavailable as error:
            _log.warning("objects are not copied: %s", error.detail)
        return done

    def _copy(self, there: Objects, names: Sequence[tuple[str, str]]) -> None:
        for start in range(0, len(names), _COPIED_TOGETHER):
            some = names[start : start + _COPIED_TOGETHER]
            data = self.objects.get([old for old, _ in some])
            for (old, new), one in zip(some, data, strict=True):
                if one is None:  # the next job does not list one that was swept
                    raise ObjectsUnavailable(f"the object {old} is gone since it was listed")
                there.put(new, one)
            if there.get([new for _, new in some]) != data:
                raise ObjectsUnavailable(f"the objects from {some[0][1]} on do not read back")

    def sweep_deleted(self, logs: Logs) -> None:
        """Remove the objects of collections that were deleted.

        Raises:
            ObjectsUnavailable: the object store did not answer.
        """
        uids = logs.uids()
        known = {uid.partition(".")[0] for uid in uids} | {uid + ENTRIES for uid in uids}
        for prefix in self.objects.prefixes():
            if prefix.rstrip("/") not in known:
                self.remove(logs, prefix, {name for name, _ in self.objects.list(prefix)})

    def remove(self, logs: Logs, prefix: str, unnamed: Collection[str]) -> None:
        """Remove those of the objects of a prefix that nothing has named for long enough.

        Args:
            logs: say whether anything may be removed now.
            prefix: of all objects that were looked at.
            unnamed: those that nothing names.
        """
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
