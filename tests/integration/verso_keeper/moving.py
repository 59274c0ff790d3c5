"""A platform of two ledgers in one process: callers, workers, and a model of what must be there."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tests.conftest import ValkeyServer
from tests.integration.verso_keeper.settling import settle
from tests.wire import Item, cut, read_slice

from verso_core.errors import CollectionBusy, CollectionUnknown
from verso_core.jobs import Collection, CollectionKind, Kind, Precision, Queue, TextPolicy
from verso_core.jobs.slices import Arrival
from verso_core.record import Codec, Entry, Record
from verso_core.segments import LinesDelete, LinesWrite, Reserved, Segment, SegmentWrite
from verso_keeper.mover import Mover
from verso_ledger import Commit, DocumentDelete, DocumentWrite, Lease, Ledger, NewJob, Phase, Policy
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_ledger.models import Moved

NAME = "c"
LABELS = {"host": "a"}
SOURCE_KEY = b"0123456789abcdef"


class Crashed(Exception):
    """Raised where a keeper ends."""


@dataclass
class World:
    """Two ledgers, the collection ``c`` of documents or of lines, and what was accepted.

    Attributes:
        ledgers: by name.
        draw: chooses what happens.
        kind: of the collection.
        texts: of each document, as accepted last.
        lines: that were accepted.
        gone: lines that were deleted.
        identities: of records that were accepted.
        position: how far the source of lines was read.
        refused: writes that no ledger took.
        now: the keepers' clock, seconds.
    """

    ledgers: dict[str, Ledger]
    draw: random.Random
    kind: CollectionKind = CollectionKind.DOCUMENTS
    texts: dict[str, bytes] = field(default_factory=dict)
    lines: Counter[bytes] = field(default_factory=Counter)
    gone: set[bytes] = field(default_factory=set)
    identities: list[bytes] = field(default_factory=list)
    position: int = 0
    refused: int = 0
    now: float = 1_000_000.0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def of(
        cls,
        servers: dict[str, ValkeyServer],
        *,
        seed: int,
        kind: CollectionKind = CollectionKind.DOCUMENTS,
        policy: TextPolicy = TextPolicy.PATCH,
        buckets: int = 128,
    ) -> World:
        """Return a world whose collection is on the home ledger."""
        rules = Policy(gc_delay_ms=0, sweep_buckets=1000)
        ledgers = {
            name: Ledger(connect(one.url, timeout_s=30.0), policy=rules, name=name)
            for name, one in servers.items()
        }
        made = Collection.model_validate(
            {
                "name": NAME,
                "precision": Precision.FLOAT16,
                "text_policy": policy,
                "space": "0123456789abcdef",
                "dim": 384,
                "int8_scale": 0.1,
                "artifacts": (),
                "buckets": buckets,
                "checksum_key": "00ff",
                "created": datetime.now(UTC),
                "kind": kind,
            }
        )
        for ledger in ledgers.values():
            ledger.moves.scripts.client.flushdb()
        ledgers["home"].documents.collection_put(made)
        return cls(ledgers, random.Random(seed), kind)

    def close(self) -> None:
        """Close the connections."""
        for one in self.ledgers.values():
            one.close()

    def mover(self, ledger: str, **options: Any) -> Mover:
        """Return a keeper's mover; while it waits for slices, other things happen."""
        options.setdefault("sleep", lambda _: self.act(5))
        return Mover(self.ledgers[ledger], self.ledgers, clock=lambda: self.now, **options)

    def act(self, times: int = 1) -> None:
        """Let callers and workers do something."""
        for _ in range(times):
            self.draw.choice((self.write, self.work, self.work, self.work, self.read))()

    # callers

    def write(self) -> None:
        """Ask for a write, at any of the ledgers, as a gateway does that may know an old place."""
        if self.kind is CollectionKind.LOGS:
            self._write_lines()
            return
        document = f"d{self.draw.randrange(40)}"
        number = next(self._numbers)
        text = b"text %d " % number + b"x" * self.draw.choice((3, 30, 3000))
        deletes = self.draw.random() < 0.25
        kind = Kind.DELETE if deletes else Kind.INGEST
        item = Item({"id": document}, None if deletes else text)
        job = NewJob(
            kind,
            Queue.BULK,
            list(cut(kind, {"collection": NAME}, [item])),
            collection=NAME,
            idempotency=(f"key{number}", "hash"),
        )
        if self._accept(lambda ledger: ledger.jobs.accept(job)):
            if deletes:
                self.texts.pop(document, None)
            else:
                self.texts[document] = text

    def _write_lines(self) -> None:
        number = next(self._numbers)
        lines = [b"line %d %d" % (number, n) for n in range(self.draw.randrange(1, 9))]
        identity = b"%016d" % number

        def accept(ledger: Ledger) -> None:
            place = ledger.logs.reserve(NAME, LABELS, len(lines))
            # it is refused if the ledger does not know how far the source was read before
            moved = Moved(place.uid, b"file", self.position, self.position + len(lines))
            ledger.jobs.accept(replace(self.lines_job(place, lines, identity), moved=moved))

        if self._accept(accept):
            self.lines.update(lines)
            self.identities.append(identity)
            self.position += len(lines)

    @staticmethod
    def lines_job(place: Reserved, lines: list[bytes], identity: bytes) -> NewJob:
        """Return the job that stores lines at a place that a ledger has reserved."""
        params = {"collection": NAME, "uid": place.uid, "stream": place.stream}
        item = Item({"first": place.first, "count": len(lines)}, b"\n".join(lines))
        (spec,) = cut(Kind.INGEST_LINES, params, [item])
        return NewJob(
            Kind.INGEST_LINES,
            Queue.BULK,
            [replace(spec, arrival=Arrival(place.uid, len(lines)))],
            collection=NAME,
            identities={NAME: [identity]},
            identity_s=3600,
        )

    @staticmethod
    def job(text: bytes, document: str, *, kind: Kind = Kind.INGEST) -> NewJob:
        """Return a job of one document."""
        item = Item({"id": document}, text if kind is Kind.INGEST else None)
        slices = list(cut(kind, {"collection": NAME}, [item]))
        return NewJob(kind, Queue.BULK, slices, collection=NAME)

    def _accept(self, ask: Callable[[Ledger], object]) -> bool:
        ledgers = list(self.ledgers.values())
        self.draw.shuffle(ledgers)
        for ledger in ledgers:
            if not self.listed(ledger):
                continue
            try:
                ask(ledger)
            except (CollectionBusy, CollectionUnknown):
                continue
            return True
        self.refused += 1
        return False

    @staticmethod
    def listed(ledger: Ledger) -> bool:
        """Whether a gateway may have read that the collection is on a ledger."""
        return NAME in ledger.documents.collections()

    def holder(self) -> Ledger:
        """Return the ledger that has the collection now.

        Raises:
            CollectionBusy: it is between two.
        """
        for ledger in self.ledgers.values():
            if self.listed(ledger) and not ledger.moves.has_left(NAME):
                return ledger
        raise CollectionBusy("no ledger has the collection")

    # workers

    def work(self) -> None:
        """Let a worker do one slice of any ledger; it may end before it commits."""
        for ledger in self.draw.sample(list(self.ledgers.values()), len(self.ledgers)):
            for queue in (Queue.BULK, Queue.SCRUB, Queue.INTERACTIVE):
                for lease in ledger.leases.claim(queue, owner="w"):
                    if self.draw.random() < 0.1:
                        ledger.leases.release(lease)
                    else:
                        self._execute(ledger, lease)
                    return
            for old in ledger.maintenance.gc_take():
                ledger.maintenance.gc_done([old.token])

    def _execute(self, ledger: Ledger, lease: Lease) -> None:
        found = read_slice(lease.payload)
        if found.kind is Kind.INGEST_LINES:
            self._store(ledger, lease, found.params, found.items[0])
        elif lease.phase is Phase.VERIFY:
            names = [item.header["id"] for item in found.items]
            there = ledger.documents.entry(NAME, names)
            right = [(NAME, one, Entry.unpack(entry).seq) for one, entry in there.items()]
            done = ledger.leases.commit_verified(lease, right, raw_text_retention_s=0)
            assert done is Commit.DONE
        elif found.kind is Kind.RECONSTRUCT:
            ledger.documents.entry(NAME, ["d1"])
            ledger.leases.commit(lease, b"r", ok=1, errors=0)
        else:
            writes: list[DocumentWrite | DocumentDelete] = [
                DocumentDelete(NAME, item.header["id"])
                if found.kind is Kind.DELETE
                else DocumentWrite(NAME, item.header["id"], entry_of(lease.seq, item.blob or b""))
                for item in found.items
            ]
            done = ledger.leases.commit(
                lease, b"r", ok=1, errors=0, documents=writes, verify_delay_s=0
            )
            assert done is Commit.DONE

    def _store(self, ledger: Ledger, lease: Lease, params: dict[str, Any], item: Item) -> None:
        if lease.phase is Phase.VERIFY:
            done = ledger.leases.commit_verified(lease, [], raw_text_retention_s=0)
        else:
            first, count = item.header["first"], item.header["count"]
            data = item.blob or b""
            place = Segment(params["stream"], first, count)
            segments = LinesWrite(NAME, params["uid"], [SegmentWrite(place, data, len(data))])
            done = ledger.leases.commit(
                lease, b"r", ok=1, errors=0, lines=segments, verify_delay_s=0
            )
        assert done is Commit.DONE

    def read(self) -> None:
        """Ask for a read; sometimes delete a line as the worker of a deletion does."""
        job = NewJob(
            Kind.RECONSTRUCT,
            Queue.INTERACTIVE,
            list(cut(Kind.RECONSTRUCT, {"collection": NAME}, [Item({"id": "d1"})])),
            collection=NAME,
        )
        self._accept(lambda ledger: ledger.jobs.accept(job))

    def delete_line(self) -> None:
        """Delete the first line of a segment, as a slice that the ledger holds would."""
        ledger = self.holder()
        state = ledger.logs.state(NAME)
        for member in ledger.logs.segments(state.uid):
            place = Segment.unpack(member)
            where = (place.stream, place.first)
            (data,), (gone,) = (
                self.segments(ledger, state.uid, [where]),
                ledger.logs.gone(state.uid, [where]),
            )
            if gone is None and data is not None and place.lines > 1:
                line = data.split(b"\n")[0]
                part = LinesDelete(place, b"", b"\x01", 0, 1, len(line))
                if ledger.logs.delete(NAME, state.uid, [part]):
                    self.gone.add(line)
                return

    # the end

    def settle(self) -> None:
        """Let workers do all that was accepted."""
        settle(self.ledgers.values(), self.work)

    def check(self) -> None:
        """Compare what the collection's ledger holds with what was accepted."""
        self.settle()
        ledger = self.holder()
        assert [one.name for one in self.ledgers.values() if self.listed(one)] == [ledger.name]
        for one in self.ledgers.values():
            assert not one.maintenance.backlog().dead
        if self.kind is CollectionKind.LOGS:
            self._check_lines(ledger)
            return
        entries = self.entries(ledger)
        assert {one: row.records[0].payload for one, row in entries.items()} == self.texts
        assert all(row.seq <= ledger.moves.seq() for row in entries.values())
        held = ledger.documents.holdings(NAME)
        assert (held.documents, held.unreadable) == (len(self.texts), 0)
        assert held.verified == len(self.texts)

    def entries(self, ledger: Ledger) -> dict[str, Entry]:
        """Return the documents that a ledger has."""
        return {one: Entry.unpack(row) for one, row in ledger.documents.entries(NAME)}

    def segments(
        self, ledger: Ledger, uid: str, where: list[tuple[int, int]]
    ) -> list[bytes | None]:
        """Return the segments of lines at these places."""
        return ledger.logs.read(uid, where)

    def _check_lines(self, ledger: Ledger) -> None:
        state = ledger.logs.state(NAME)
        places = [Segment.unpack(one) for one in ledger.logs.segments(state.uid)]
        where = [(place.stream, place.first) for place in places]
        found: Counter[bytes] = Counter()
        for place, data, gone in zip(
            places, self.segments(ledger, state.uid, where), ledger.logs.gone(state.uid, where),
            strict=True,
        ):  # fmt: skip
            lines = (data or b"").split(b"\n")
            assert len(lines) == place.lines
            found.update(lines[1 if gone else 0 :])
        assert found == Counter({one: n for one, n in self.lines.items() if one not in self.gone})
        assert state.lines == sum(self.lines.values())
        client = ledger.moves.scripts.client
        known = {
            identity
            for span in ledger.moves.spans(state.uid)
            if span.startswith("identities:")
            for identity in client.smembers(key(*span.replace(":", f":{state.uid}:").split(":")))
        }
        assert known.issuperset(self.identities)
        ends = [place.end for place in places]
        assert len(set(where)) == len(where)
        if ends:
            assert ledger.logs.reserve(NAME, LABELS, 1).first >= max(ends)

    def keys_of(self, ledger: str) -> set[bytes]:
        """Return the keys of collections that a ledger has, but for those that expire."""
        client = self.ledgers[ledger].moves.scripts.client
        kinds = [
            *("docs", "long", "text", "tombs", "counts", "generations", "log", "streams"),
            *("shapes", "fitted", "statements", "segment", "segments", "gone", "arrivals", "marks"),
        ]
        return {name for kind in kinds for name in client.scan_iter(f"{key(kind)}*", count=1000)}


def entry_of(seq: int, text: bytes) -> bytes:
    """Return the entry of a document whose patch is its text."""
    record = Record(Codec.RAW, 0, b"hashhash", b"sums", text)
    return Entry(seq=seq, size_bytes=len(text), records=(record,)).pack()


@contextmanager
def crashing(
    world: World, at: int, *, before: bool, reads: Container[str] = ()
) -> Iterator[list[str]]:
    """Let the ``at``-th step that moves take end the keeper, before or after it is done.

    Steps of the names ``reads`` are not counted.
    """
    seen: list[str] = []
    originals = {}
    for ledger in world.ledgers.values():
        scripts = ledger.moves.scripts
        moves = ledger.moves
        originals[ledger.name] = (moves, moves.scripts, moves._run)
        double = _Crashing(scripts, seen, at, before=before, reads=reads)
        moves.scripts, moves._run = double, double.run  # type: ignore[assignment]
    try:
        yield seen
    finally:
        for moves, scripts, run in originals.values():
            moves.scripts, moves._run = scripts, run


class _Crashing:
    """Scripts of a keeper that ends at one of its steps."""

    def __init__(
        self, scripts: Any, seen: list[str], at: int, *, before: bool, reads: Container[str]
    ) -> None:
        self._scripts = scripts
        self._seen = seen
        self._at = at
        self._before = before
        self._reads = reads
        self.client = scripts.client
        self.replicas = scripts.replicas
        self.policy = scripts.policy

    def run(self, step: str, args: Any) -> Any:
        if step in self._reads:
            return self._scripts.run(step, args)
        self._seen.append(step)
        if len(self._seen) == self._at and self._before:
            raise Crashed
        reply = self._scripts.run(step, args)
        if len(self._seen) == self._at:
            raise Crashed
        return reply
