"""What the model holds besides jobs: documents and their garbage, lines, and the scrub's cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verso_core.record import seq_of
from verso_ledger.models import DocumentDelete, DocumentWrite, NewJob
from verso_ledger.scrub import Move

if TYPE_CHECKING:
    from tests.simulation.model import Model


@dataclass
class Stored:
    """A document's entry as it was written, and whether it was verified since."""

    entry: bytes
    text: bytes | None
    verified: bool = False

    @property
    def seq(self) -> int:
        """Return the number of the slice that wrote it."""
        return seq_of(self.entry)


class Documents:
    """The documents of one collection: of two writes the one that was accepted later stands."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.stored: dict[str, Stored] = {}
        self.tombs: dict[str, int] = {}
        self.garbage: dict[int, tuple[int, str, int]] = {}
        self.frozen: tuple[str, int] | None = None
        self._deleted: dict[str, int] = {}  # never forgotten: tombs may be, and must not be missed
        self._tokens = 0

    def current(self, writes: Sequence[DocumentWrite | DocumentDelete]) -> bool:
        """Whether every entry that a write was worked out from is still stored."""
        return all(
            write.document in self.stored and self.stored[write.document].seq == write.replaces
            for write in writes
            if write.replaces is not None
        )

    def write(self, writes: Sequence[DocumentWrite | DocumentDelete], seq: int) -> bool:
        """Apply writes; return whether one of them has texts to verify."""
        for write in writes:
            self._apply(write, seq)
        return any(isinstance(w, DocumentWrite) and w.replaces is None for w in writes)

    def _apply(self, write: DocumentWrite | DocumentDelete, seq: int) -> None:
        name = write.document
        old = self.stored.get(name)
        if (old.seq if old else self._deleted.get(name, -1)) > seq:
            if isinstance(write, DocumentWrite):
                self._discard(name, seq_of(write.entry))
            return
        if old:
            self._discard(name, old.seq)
        if isinstance(write, DocumentDelete):
            self.stored.pop(name, None)
            self.tombs[name] = self._deleted[name] = seq
            return
        meta = write.replaces is not None and old is not None
        self.stored[name] = Stored(write.entry, old.text if old and meta else write.text)
        self.tombs.pop(name, None)
        self._deleted.pop(name, None)

    def _discard(self, name: str, seq: int) -> None:
        self._tokens += 1
        due = self._model.now + self._model.policy.gc_delay_ms
        self.garbage[self._tokens] = (due, name, seq)

    def mark_verified(self, names: Sequence[str], seq: int) -> None:
        """Mark entries of a slice that read back right."""
        for name in names:
            if name in self.stored and self.stored[name].seq == seq:
                self.stored[name].verified = True

    def to_cold(self, rows: Sequence[tuple[str, bytes, bytes]], until: int) -> bool:
        """Replace verified entries that are still what was read; nothing after ``until``, ms."""
        if self._model.read_only or self._model.now > until:
            return False
        for name, old, new in rows:
            one = self.stored.get(name)
            if one is not None and one.verified and one.entry == old:
                one.entry = new
        return True

    def rewrite(self, writes: Sequence[DocumentWrite], seq: int) -> None:
        """Replace entries of a slice that did not read back."""
        for write in writes:
            if write.document in self.stored and self.stored[write.document].seq <= seq:
                self.stored[write.document] = Stored(write.entry, write.text)

    def tidy(self, oldest: int | None) -> None:
        """Forget deletes that no write can arrive after."""
        self.tombs = {
            name: seq for name, seq in self.tombs.items() if oldest is not None and seq >= oldest
        }

    def take_garbage(self, n: int, lease_ms: int) -> list[tuple[int, str, int]]:
        """Take garbage that is due; it comes again unless it is reported removed."""
        now = self._model.now
        if self._model.read_only or (self.frozen and now <= self.frozen[1]):
            return []
        due = sorted((row[0], str(token)) for token, row in self.garbage.items() if row[0] <= now)
        taken = []
        for _, word in due[:n]:
            _, name, seq = self.garbage[int(word)]
            self.garbage[int(word)] = (now + lease_ms, name, seq)
            taken.append((int(word), name, seq))
        return taken

    def freeze(self, owner: str, ms: int) -> int:
        """Keep garbage for a while, for one owner at a time; 0 ends it."""
        if self.frozen and self._model.now > self.frozen[1]:
            self.frozen = None
        if self.frozen and self.frozen[0] != owner:
            return 0
        self.frozen = (owner, self._model.now + ms) if ms else None
        return 1


class Lines:
    """The lines of one log collection: every number once, every line of a source once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.uid = ""
        self.streams: dict[str, list[int]] = {}
        self.sources: dict[bytes, tuple[int, int]] = {}
        self.arrived: list[tuple[int, str, int]] = []
        self.segments: dict[tuple[int, int], int] = {}
        self.verified = 0
        self._identities: dict[bytes, int] = {}

    def reserve(self, labels: str, lines: int) -> tuple[str | int, ...]:
        """Reserve numbers of a stream that nobody else gets."""
        if self._model.read_only:
            return ("read_only",)
        stream = self.streams.setdefault(labels, [len(self.streams), 0])
        first = stream[1]
        stream[1] += lines
        return (self.uid, stream[0], first)

    def _period(self, seconds: int) -> int:
        return self._model.now // 1000 // seconds

    def position(self, source: bytes) -> int | None:
        """Return where a source stands, if that is still known."""
        if source not in self.sources:
            return None
        at, moved = self.sources[source]
        return at if moved >= self._period(self._model.policy.position_s) - 1 else None

    def known(self, hashes: Sequence[bytes], seconds: int) -> list[int]:
        """Return the places of identities that were accepted lately."""
        period = self._period(seconds)
        return [
            place for place, one in enumerate(hashes) if self._identities.get(one, -2) >= period - 1
        ]

    def refuse(self, job: NewJob) -> tuple[str | int, ...] | None:
        """Return why lines are not accepted; None if they are."""
        if job.moved:
            at = self.position(job.moved.source)
            if at is not None and at != job.moved.begin:
                return ("elsewhere", at)
        for hashes in job.identities.values():
            if self.known(hashes, job.identity_s):
                return ("known",)
        return None

    def admit(self, job: NewJob) -> None:
        """Remember what came with a job that is accepted."""
        for hashes in job.identities.values():
            for one in hashes:
                self._identities[one] = self._period(job.identity_s)
        if job.moved:
            period = self._period(self._model.policy.position_s)
            self.sources[job.moved.source] = (job.moved.end, period)

    def arrive(self, sid: str, lines: int) -> None:
        """List a slice of lines behind all that came before."""
        first = self.arrived[-1][0] + self.arrived[-1][2] if self.arrived else 1
        self.arrived = [*self.arrived[-9:], (first, sid, lines)]

    def write(self, segments: Sequence[tuple[int, int, int]]) -> None:
        """Store segments: stream, first number, lines."""
        for stream, first, lines in segments:
            assert (stream, first) not in self.segments, "a segment was committed twice"
            self.segments[stream, first] = lines


class Scrub:
    """The scrub's cursor: a turn moves it once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.turn = 0
        self.row: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    def move(self, turn: int, move: Move) -> int:
        """Move on, if the cursor still stands where the caller saw it."""
        if turn != self.turn:
            return 0
        self.turn += 1
        if move.begin:
            self._model.seq += 1
            floor = min(self._model.pending().values(), default=self._model.seq)
            recent = {k: v for k, v in self.row.items() if k == "recent"}
            self.row = recent | {"number": self.row.get("number", 0) + 1, "floor": floor}
            self.row["started"] = self._model.now
            self.counts = {}
        if move.end:
            self.row["ended"] = self._model.now
        for name, count in move.add.items():
            self.counts[name] = self.counts.get(name, 0) + count
        return 1

    def request_recent(self, since: int) -> int:
        """Have what is newer read first."""
        self.row["recent"] = min(self.row.get("recent", since), since)
        self.turn += 1
        return 1
