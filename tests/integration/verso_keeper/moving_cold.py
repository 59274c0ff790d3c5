"""A platform of two ledgers whose collection goes to cold storage, in a folder, bit by bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ValkeyServer
from tests.integration.verso_keeper.moving import NAME, World
from tests.wire import read_slice

from verso_core.errors import CollectionBusy, CollectionUnknown
from verso_core.jobs import BucketRange, CollectionKind, Kind, Result
from verso_core.jobs.scrub import Scrubbed
from verso_core.record import OBJECT_BYTES, Entry, Flag, Part
from verso_core.segments import Segment
from verso_ledger import Lease, Ledger
from verso_worker.records.segments import COLD_NAME_BYTES, ColdBlocks
from verso_worker.rules.cold.entries import ColdEntries
from verso_worker.rules.cold.storage import ENTRIES, UNNAMED_S, ColdStorage
from verso_worker.rules.logs.cold import ColdSegments
from verso_worker.stores.objects import local_objects


@dataclass
class ColdWorld(World):
    """A world whose documents and lines go to cold storage while other things happen.

    Attributes:
        cold: of each ledger.
        hours: that the sweeps' clock shows.
        away: whether the object store is away.
        moved: values that went to cold storage.
    """

    cold: dict[str, ColdEntries] = field(default_factory=dict)
    hours: int = 0
    away: bool = False
    moved: int = 0

    @classmethod
    def cooling(
        cls, servers: dict[str, ValkeyServer], folder: Path, *, seed: int, kind: CollectionKind
    ) -> ColdWorld:
        """Return a world with cold storage in a folder."""
        made = cls.of(servers, seed=seed, kind=kind)
        assert isinstance(made, cls)
        for name, ledger in made.ledgers.items():
            storage = ColdStorage(
                local_objects(folder, ledger=name), monotonic=lambda: made.hours * UNNAMED_S
            )
            made.cold[name] = ColdEntries(storage, ledger.documents, ledger.logs)
        return made

    def act(self, times: int = 1) -> None:
        """Let callers and workers do something, and values go to cold storage."""
        for _ in range(times):
            super().act()
            if self.draw.random() < 0.2:
                self.draw.choice((self.cool, self.cool, self.sweep))()

    def cool(self) -> None:
        """Move one value to cold storage, as the scrub does, at any ledger that lists it."""
        for ledger in self.ledgers.values():
            if not self.listed(ledger):
                continue
            try:
                if self.kind is CollectionKind.LOGS:
                    self._cool_lines(ledger)
                else:
                    self._cool_document(ledger)
            except (CollectionBusy, CollectionUnknown):
                self.refused += 1

    def _cool_document(self, ledger: Ledger) -> None:
        cold, uid = self.cold[ledger.name], ledger.documents.uid(NAME)
        rows = [
            (document, stored, entry)
            for document, stored in ledger.documents.entries(NAME)
            if (entry := Entry.unpack(stored)).cold is None and entry.flags == Flag.VERIFIED
        ]
        if not rows:
            return
        some = self.draw.sample(rows, min(3, len(rows)))
        parts = [entry.part() for _, _, entry in some]
        made = cold.storage.write(f"{uid}{ENTRIES}/", b"".join(parts), name_bytes=OBJECT_BYTES)
        left, at = [], 0
        for (document, stored, entry), part in zip(some, parts, strict=True):
            left.append((document, stored, entry.moved(Part(made.name, at, len(part))).pack()))
            at += len(part)
        ledger.documents.to_cold(NAME, uid, left, until=ledger.logs.now() + 60.0)
        self.moved += sum(Entry.unpack(row).cold is not None for row in _stored(ledger, left))

    def _cool_lines(self, ledger: Ledger) -> None:
        uid = ledger.logs.state(NAME).uid
        places = [Segment.unpack(one) for one in ledger.logs.segments(uid)]
        rows = ledger.logs.read(uid, [(one.stream, one.first) for one in places])
        hot = [
            (place, row)
            for place, row in zip(places, rows, strict=True)
            if row and ColdBlocks.read(row) is None
        ]
        if not hot:
            return
        place, row = self.draw.choice(hot)
        storage = self.cold[ledger.name].storage
        made = storage.write(f"{uid}/", row, name_bytes=COLD_NAME_BYTES)
        self.moved += ledger.logs.correct(
            NAME, uid, "segment", where=f"{place.stream}:{place.first}", old=row,
            new=ColdBlocks(len(row), made.name).pack(b""), until=ledger.logs.now() + 60.0,
        )  # fmt: skip

    def sweep(self) -> None:
        """Remove what nothing has named for an hour, at both ledgers, an hour later."""
        self.hours += 1
        for ledger in self.ledgers.values():
            cold = self.cold[ledger.name]
            cold.storage.sweep_deleted(ledger.logs)
            found = ledger.documents.here().get(NAME)
            if found is None:
                continue
            if self.kind is CollectionKind.LOGS:
                uid = ledger.logs.state(NAME).uid
                places = [Segment.unpack(one) for one in ledger.logs.segments(uid)]
                ColdSegments(cold.storage).sweep(
                    ledger.logs, uid, [(one.stream, one.first) for one in places]
                )
            else:
                cold.sweep(found)

    def _execute(self, ledger: Ledger, lease: Lease) -> None:
        found = read_slice(lease.payload)
        if found.kind is not Kind.SCRUB:
            super()._execute(ledger, lease)
            return
        asked = BucketRange(**found.items[0].header)
        # in several jobs, of which some copy nothing
        asked = BucketRange(asked.first, self.draw.choice((1, 99, 256)), 9.0, to=asked.to)
        uid, copy = ledger.documents.uid(NAME), self.cold[ledger.name].storage.copy
        parts = 0 if self.away else copy(uid, asked)
        if self.draw.random() < 0.1:  # the worker ends before it says so
            ledger.leases.release(lease)
            return
        result = Result([Scrubbed(buckets=0, parts=parts)]).pack()
        ledger.leases.commit(lease, result, ok=1, errors=0)

    def entries(self, ledger: Ledger) -> dict[str, Entry]:
        """Return the documents that a ledger has, read from its objects."""
        rows = super().entries(ledger)
        read = self.cold[ledger.name].whole(NAME, [*rows.values()])
        assert all(isinstance(one, Entry) for one in read), read
        return {name: one for name, one in zip(rows, read, strict=True) if isinstance(one, Entry)}

    def segments(
        self, ledger: Ledger, uid: str, where: list[tuple[int, int]]
    ) -> list[bytes | None]:
        """Return the segments of lines at these places, read from their objects."""
        rows = super().segments(ledger, uid, where)
        return ColdSegments(self.cold[ledger.name].storage).whole(uid, rows)

    def objects(self, ledger: str) -> set[str]:
        """Return the names of the objects of a ledger."""
        return {name for name, _ in self.cold[ledger].storage.objects.list("")}


def _stored(ledger: Ledger, rows: Iterable[tuple[str, bytes, bytes]]) -> Iterable[bytes]:
    return ledger.documents.entry(NAME, [document for document, _, _ in rows]).values()
