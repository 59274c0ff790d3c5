"""Two ledgers with a log collection that rolls over: gateways, workers, keepers, and a model."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import zstandard
from tests.conftest import ValkeyServer
from tests.integration.verso_keeper.settling import settle
from tests.wire import Item, cut, read_slice

from verso_core.errors import CollectionBusy, CollectionUnknown
from verso_core.jobs import Collection, CollectionKind, Kind, Precision, Queue, TextPolicy
from verso_core.jobs.collections import (
    STREAMS,
    Partitioned,
    RolloverRule,
    Stage,
    TimePart,
    partition_name,
)
from verso_core.segments import LinesWrite, Segment, SegmentWrite
from verso_keeper.rollover import Rollover as Keeper
from verso_ledger import Commit, Lease, Ledger, NewJob, Phase, Policy
from verso_ledger.connection import connect
from verso_ledger.keys import key
from verso_ledger.leases import LEASE_S
from verso_ledger.ledgers import rolled
from verso_ledger.models import IdentityKnown

NAME = "logs"
SPAN_S = 100.0
DAY_S = 86_400.0
IDENTITY_S = 3600


class Crashed(Exception):
    """Raised where a keeper ends."""


class Ending:
    """Ends a keeper at a call that changes a ledger: before it has effect, or after.

    Attributes:
        left: calls until then; None: it does not end.
        late: whether the call has effect.
    """

    def __init__(self) -> None:
        self.left: int | None = None
        self.late = False

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            here = self.left == 0
            if self.left is not None:
                self.left -= 1
            if here and not self.late:
                raise Crashed
            reply = call(*args, **named)
            if here:
                raise Crashed
            return reply

        return called


@dataclass
class World:
    """Two ledgers, gateways whose notes may be old, workers, keepers, and a model.

    Attributes:
        ledgers: the home ledger first.
        draw: chooses what happens.
        accepted: lines that a ledger accepted.
        sent: requests by identity: some are sent again.
        notes: of a gateway, as it read them last.
        now: of the keepers, Unix seconds.
        lease_s: of a worker, seconds.
    """

    ledgers: dict[str, Ledger]
    draw: random.Random
    accepted: Counter[bytes] = field(default_factory=Counter)
    sent: dict[bytes, list[bytes]] = field(default_factory=dict)
    notes: dict[str, Partitioned] = field(default_factory=dict)
    now: float = field(default_factory=time.time)
    ending: Ending = field(default_factory=Ending)
    lease_s: float = LEASE_S
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def of(cls, servers: dict[str, ValkeyServer], *, seed: int) -> World:
        """Return a world whose collection has one partition, on the home ledger."""
        rules = Policy(gc_delay_ms=0, sweep_buckets=1000)
        ledgers = {
            name: Ledger(connect(one.url, timeout_s=30.0), policy=rules, name=name)
            for name, one in servers.items()
        }
        found = cls(ledgers, random.Random(seed))
        found.home.documents.collection_put(made(f"{NAME}.0", {}))
        part = TimePart(number=0, stage=Stage.LIVE, since=found.now)
        state = Partitioned(
            partitions=1, stage=Stage.LIVE, rollover=RolloverRule(span_s=SPAN_S), parts=(part,)
        )
        found.home.moves.scripts.client.hset(key("partitioned"), NAME, state.model_dump_json())
        return found

    def close(self) -> None:
        """Close the connections."""
        for one in self.ledgers.values():
            one.close()

    @property
    def home(self) -> Ledger:
        return self.ledgers["home"]

    @property
    def state(self) -> Partitioned:
        return self.home.partitions.all()[NAME]

    def keeper(self) -> Keeper:
        """Return a keeper that may end at any step."""
        return Keeper(self.home, self.ledgers, clock=lambda: self.now)

    @contextmanager
    def fragile(self) -> Iterator[None]:
        """Let keepers end where :attr:`ending` says."""
        kept = []
        for ledger in self.ledgers.values():
            for part, names in (
                (ledger.partitions, ("step", "roll", "place", "unplace")),
                (ledger.jobs, ("accept",)),
            ):
                for name in names:
                    kept.append((part, name))
                    setattr(part, name, self.ending.around(getattr(part, name)))
        try:
            yield
        finally:
            for part, name in kept:
                delattr(part, name)
            self.ending.left = None

    def where(self, own: str) -> Ledger | None:
        """Return the ledger that has a partition."""
        found = [one for one in self.ledgers.values() if own in one.documents.collections()]
        assert len(found) <= 1
        return found[0] if found else None

    def write(self) -> None:
        """Take lines in as a gateway does; a request may be one that was sent before."""
        if self.draw.random() < 0.5 or not self.notes:
            self.notes = self.home.partitions.all()
        if self.sent and self.draw.random() < 0.3:
            identity = self.draw.choice([*self.sent])
        else:
            number = next(self._numbers)
            identity = b"%016d" % number
            self.sent[identity] = [b"line %d %d" % (number, n) for n in range(3)]
        name = partition_name(NAME, self.notes[NAME].writing)
        for _ in range(3):
            try:
                self._accept(name, identity)
            except CollectionBusy:
                self.notes = self.home.partitions.all()
                following = rolled.following(self.notes, name)
                if following is None:
                    return
                name = following
            except CollectionUnknown:
                self.notes = self.home.partitions.all()
                return
            else:
                return
        raise AssertionError("each partition refuses")

    def _accept(self, name: str, identity: bytes) -> None:
        ledger = self.where(name)
        if ledger is None:
            raise CollectionUnknown(name)
        lines = self.sent[identity]
        older = rolled.before(self.notes, name, now=time.time(), within_s=2 * IDENTITY_S)
        for one in (name, *older):
            there = self.where(one)
            if there is not None and there.moves.scripts.run(
                "identities", [IDENTITY_S, 1, one, 1, identity]
            ):
                return
        labels = {"host": self.draw.choice("ab")}
        place = ledger.logs.reserve(name, labels, len(lines))
        params = {"collection": name, "uid": place.uid, "stream": place.stream}
        item = Item({"first": place.first, "count": len(lines)}, b"\n".join(lines))
        (spec,) = cut(Kind.INGEST_LINES, params, [item])
        job = NewJob(
            Kind.INGEST_LINES,
            Queue.BULK,
            [spec],
            collection=name,
            identities={name: [identity]},
            identity_s=IDENTITY_S,
        )
        try:
            ledger.jobs.accept(job)
        except IdentityKnown:
            return
        self.accepted.update(lines)

    def work(self) -> None:
        """Let a worker do a slice; it may end before it commits."""
        for ledger in self.draw.sample([*self.ledgers.values()], len(self.ledgers)):
            for queue in (Queue.INTERACTIVE, Queue.BULK, Queue.SCRUB):
                for lease in ledger.leases.claim(queue, owner="w", lease_s=self.lease_s):
                    if self.draw.random() < 0.1:
                        ledger.leases.release(lease)
                    else:
                        self.execute(ledger, lease)
                    return

    def execute(self, ledger: Ledger, lease: Lease) -> None:
        found = read_slice(lease.payload)
        if found.kind is Kind.COLLECTION_CREATE:
            ledger.documents.collection_put(made(found.params["name"], found.params))
        elif found.kind is Kind.COLLECTION_DELETE:
            there = ledger.documents.collections().get(found.params["name"])
            if there is not None:
                ledger.documents.collection_delete(there.name, by=lease.seq)
        elif lease.phase is Phase.VERIFY:
            done = ledger.leases.commit_verified(lease, [], raw_text_retention_s=0)
            assert done is Commit.DONE
            return
        else:
            self._store(ledger, lease, found.params, found.items[0])
            return
        assert ledger.leases.commit(lease, b"r", ok=1, errors=0) is Commit.DONE

    def _store(self, ledger: Ledger, lease: Lease, params: dict[str, Any], item: Item) -> None:
        first, count = item.header["first"], item.header["count"]
        data = item.blob or b""
        if size := item.header.get("size", 0):
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        at = round(self.now * 1e9)
        place = Segment(params["stream"], first, count, at, at)
        own = ledger.documents.collections()[params["collection"]].name
        lines = LinesWrite(own, params["uid"], [SegmentWrite(place, data, len(data))])
        done = ledger.leases.commit(lease, b"r", ok=1, errors=0, lines=lines, verify_delay_s=0)
        assert done is Commit.DONE

    def settle(self) -> None:
        """Let workers do all that was accepted."""
        settle(self.ledgers.values(), self.work)

    def stands(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return the partitions that are served, those that are missing, and which takes lines."""
        return self.state.numbers, self.state.missing, self.state.writing

    def steps(self, keeper: Keeper, rounds: int) -> None:
        """Let a keeper run some rounds, and workers do what it asks for."""
        for _ in range(rounds):
            keeper.step()
            self.settle()

    def lose(self, ledger: str) -> dict[bytes, bytes]:
        """Empty a ledger, as an old copy of it is; return what it held."""
        client = self.ledgers[ledger].moves.scripts.client
        held = {one: client.dump(one) or b"" for one in client.scan_iter()}
        client.flushdb()
        return held

    def restore(self, ledger: str, held: dict[bytes, bytes]) -> None:
        """Let a ledger hold what it held."""
        client = self.ledgers[ledger].moves.scripts.client
        client.flushdb()
        for name, value in held.items():
            client.restore(name, 0, value)

    def held(self) -> dict[int, Counter[bytes]]:
        """Return the lines of each partition that a ledger lists, by number."""
        found: dict[int, Counter[bytes]] = {}
        for ledger in self.ledgers.values():
            for own, collection in ledger.documents.collections().items():
                number = int(own.rpartition(".")[2])
                state = ledger.logs.state(collection.name)
                places = [Segment.unpack(one) for one in ledger.logs.segments(state.uid)]
                data = ledger.logs.read(state.uid, [(one.stream, one.first) for one in places])
                assert {one.stream // STREAMS for one in places} <= {number}
                rows = [row for one in data for row in (one or b"").split(b"\n") if row]
                found[number] = Counter(rows)
        return found


def made(name: str, settings: dict[str, Any]) -> Collection:
    """Make a partition as a worker does."""
    return Collection(
        name=name,
        kind=CollectionKind.LOGS,
        precision=Precision.FLOAT16,
        text_policy=TextPolicy.PATCH,
        space="0123456789abcdef",
        dim=4,
        int8_scale=1.0,
        artifacts=("c0d3c",),
        buckets=64,
        checksum_key="00",
        created=datetime.now(UTC),
        retention_days=settings.get("retention_days"),
    )
