"""Slices of a collection that have not ended, as a move waits for them.

No index lists the slices of one collection. All open ones of the ledger are listed in one step, and
the collection of each is read from the head of its payload, once. While nothing new is accepted for
the collection, only those that were found are asked for again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from verso_core import frame
from verso_core.errors import FrameInvalid
from verso_core.jobs import Kind, Queue
from verso_ledger.codec import scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import Scripts

_HEAD_BYTES = 1024
_PAGE = 512
_UNREADABLE = "*"
"""Stands for the collection of a slice that cannot be read: it may be of any."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Slices of a collection that have not ended, and how many dead letters are among them."""

    slices: frozenset[str] = frozenset()
    dead: int = 0


@dataclass(frozen=True, slots=True)
class _Concern:
    """The collection that a slice concerns ('' for none), and whether it only reads."""

    collection: str
    is_read: bool


class OpenSlices:
    """Finds slices that have not ended; blocking calls."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._concerns: dict[str, _Concern] = {}

    def of(self, name: str, *, reads: bool = False) -> OpenWork:
        """Return the open slices of a collection, as users know it.

        Args:
            name: of the collection.
            reads: whether those count that only read.
        """
        sids = {scalars.text(row) for row in self._scripts.run("move_open", list(Queue))}
        self._concerns = {sid: found for sid, found in self._concerns.items() if sid in sids}
        new = [sid for sid in sids if sid not in self._concerns]
        for start in range(0, len(new), _PAGE):
            self._concerns |= self._read(new[start : start + _PAGE])
        return self.of_these(
            [
                sid
                for sid in sids
                if (found := self._concerns.get(sid)) is not None
                and found.collection in (name, _UNREADABLE)
                and (reads or not found.is_read)
            ]
        )

    def of_these(self, sids: Collection[str]) -> OpenWork:
        """Return those of some slices that have not ended."""
        rows: list[str] = []
        listed = sorted(sids)
        for start in range(0, len(listed), _PAGE):
            reply = self._scripts.run("move_waits", listed[start : start + _PAGE])
            rows += map(scalars.text, reply)
        return OpenWork(frozenset(rows[::2]), sum(map(int, rows[1::2])))

    def _read(self, sids: Sequence[str]) -> dict[str, _Concern]:
        """Return what each slice concerns."""
        heads = self._heads(sids, _HEAD_BYTES)
        sizes = {sid: frame.header_size(head) for sid, head in heads.items() if head}
        longer = [sid for sid, size in sizes.items() if size > len(heads[sid])]
        if longer:
            heads |= self._heads(longer, max(sizes[sid] for sid in longer))
        return {sid: _concern(head) for sid, head in heads.items()}

    def _heads(self, sids: Sequence[str], size: int) -> dict[str, bytes]:
        with translated(), self._scripts.client.pipeline(transaction=False) as pipe:
            for sid in sids:
                pipe.getrange(key("payload", sid), 0, size - 1)
            return dict(zip(sids, pipe.execute(), strict=True))


def _concern(head: bytes) -> _Concern:
    if not head:
        return _Concern("", is_read=True)
    try:
        header = frame.header(head)
        kind, params = Kind(header["kind"]), header["params"]
    except (FrameInvalid, KeyError, ValueError):
        return _Concern(_UNREADABLE, is_read=False)
    return _Concern(str(params.get("collection") or params.get("name") or ""), kind.is_read)
