"""How many steps do one, two and four ledgers take, and what would a Valkey Cluster take?

Each number of ledgers is so many real servers. The router places equal collections on them, and
ingest jobs go through all their steps: accept, claim, commit, claim again, verified. The limit of a
ledger is the one core that its server runs steps on; so the rate is all steps by the CPU seconds of
the *busiest* server, which holds however few cores this machine has. Then the same

- with collections of unequal sizes (Zipf), which whole collections cannot spread evenly;
- with one collection, on one ledger and with a partition on each of four: each request's texts are
  split by the hash of their ids, so four jobs have as many texts as one has on one ledger;
- on a Valkey Cluster of as many nodes, each partition's keys under a hash tag of its own.

All take turns, in short rounds and in random order: other work of the machine slows them alike. In
a round each server runs its jobs in one go, as many for each as a lone one has: so the caches of a
core are as warm for one server as for the other, as they would be with a core for each.
Limited by the servers' CPU; the disk's syncs take time that is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis
import sheet

from verso_client.operations.documents import UPLOAD_DOCUMENTS
from verso_core.jobs import (
    Collection,
    IngestItem,
    IngestParams,
    Kind,
    Precision,
    Queue,
    TextPolicy,
    cut,
)
from verso_core.jobs.collections import partition_names, partition_of
from verso_core.record import Codec, Entry, Record
from verso_core.settings import HOME_LEDGER, LedgerAddress
from verso_ledger import DocumentWrite, Ledger, Ledgers, NewJob, keys, scripts
from verso_standalone.valkey import find_program, free_port

_FLAGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "hash-max-listpack-entries": "128",
    "hash-max-listpack-value": "1024",
}
_COLLECTIONS = 16
_TEXTS = 16
_TEXT = b"2026-11-21T12:00:00Z host sshd[4242]: session 17 opened for user u1\n"
_SLOTS = 16384
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, reached at ``url``."""

    url: str
    port: int

    def cpu_s(self) -> float:
        """Return the CPU seconds that it has spent."""
        with redis.Redis.from_url(self.url) as client:
            info: Any = client.info("cpu")
        return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])


@contextlib.contextmanager
def servers(count: int, **more: str) -> Iterator[list[Server]]:
    """Start so many servers on new folders, and end them."""
    program = find_program()
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_server(str(program), more)) for _ in range(count)]


@contextlib.contextmanager
def _server(program: str, more: dict[str, str]) -> Iterator[Server]:
    """Start a server; on another port if one of its two was taken meanwhile."""
    for _ in range(_TRIES):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="verso-bench-"))
            port = free_port()
            flags = _FLAGS | {"port": str(port), "dir": folder} | more
            argv = [part for name, value in flags.items() for part in (f"--{name}", value)]
            process = subprocess.Popen([program, *argv], stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            server = Server(f"redis://127.0.0.1:{port}/0", port)
            if _answers(server, process):
                yield server
                return
    sys.exit("a server does not answer")


def _answers(server: Server, process: subprocess.Popen[bytes]) -> bool:
    with redis.Redis.from_url(server.url) as client:
        while process.poll() is None:
            with contextlib.suppress(redis.RedisError):
                return bool(client.ping())
            time.sleep(0.05)
    return False


def collection(name: str) -> Collection:
    """Return the settings of a collection."""
    return Collection(
        name=name,
        precision=Precision.INT8,
        text_policy=TextPolicy.PATCH,
        space="0123456789abcdef",
        dim=384,
        int8_scale=0.3,
        artifacts=(),
        buckets=256,
        checksum_key="00ff",
        created=datetime.now(UTC),
    )


def entry(seq: int) -> bytes:
    """Return the entry of a text of a log line, of usual size."""
    record = Record(Codec.NEURAL, 0, b"hashhash", b"sums", b"p" * 40)
    return Entry(seq=seq, size_bytes=len(_TEXT), records=(record,)).pack()


class Driver:
    """Takes ingest jobs of one ledger through all their steps.

    Args:
        ledger: the ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.own: dict[str, str] = {}
        self.steps = 0
        self.texts = 0

    def make(self, name: str) -> None:
        """Create a collection."""
        self.own[name] = self.ledger.documents.collection_put(collection(name)).name

    def run(self, name: str, ids: Sequence[str]) -> None:
        """Run one job: it is accepted, and each slice claimed, committed, claimed, and verified."""
        params = IngestParams(collection=name)
        slices = list(cut(Kind.INGEST, params, [IngestItem(one, _TEXT) for one in ids]))
        self.ledger.jobs.accept(NewJob(Kind.INGEST, Queue.BULK, slices))
        own, left = self.own[name], list(ids)
        for part in slices:
            these, left = left[: part.items], left[part.items :]
            [lease] = self._claimed(Queue.BULK)
            documents = [DocumentWrite(own, one, entry(lease.seq), None) for one in these]
            self.ledger.leases.commit(
                lease, b"r" * 200, ok=len(these), errors=0, documents=documents, verify_delay_s=0.0
            )
            [lease] = self._claimed(Queue.SCRUB)
            verified = [(own, one, lease.seq) for one in these]
            self.ledger.leases.commit_verified(
                lease, verified, rewritten=[], raw_text_retention_s=0.0, verify_delay_s=0.0
            )
            self.ledger.maintenance.drop_due(10)
        self.steps += 1 + 5 * len(slices)
        self.texts += len(ids)

    def _claimed(self, queue: Queue) -> list[Any]:
        for _ in range(100):
            found = self.ledger.leases.claim(queue, owner="bench")
            if found:
                return found
            time.sleep(0.001)
        sys.exit("nothing to claim")


def jobs_of(count: int, *, skew: float) -> list[int]:
    """Return the collection of each job: evenly, or by Zipf's law with an exponent."""
    if not skew:
        return [number % _COLLECTIONS for number in range(count)]
    weights = [1 / (rank + 1) ** skew for rank in range(_COLLECTIONS)]
    shares = [round(count * weight / sum(weights)) for weight in weights]
    return [name for name, share in enumerate(shares) for _ in range(share)]


def placed(found: Sequence[Server], *, partitions: int = 1) -> dict[str, int]:
    """Place the collections as a gateway does; return the number of the server of each.

    With several partitions there is one collection, and they are what is placed.
    """
    names = [HOME_LEDGER, *"bcdefgh"][: len(found)]
    addresses = [LedgerAddress(name, one.url) for name, one in zip(names, found, strict=True)]

    async def place() -> dict[str, int]:
        ledgers = Ledgers.connect(addresses, replicas=0)
        made = {}
        many = [f"c{number}" for number in range(_COLLECTIONS)]
        apart = partition_names("c", partitions)
        if partitions > 1:
            await ledgers.place_apart(apart)
        for name in many if partitions == 1 else apart:
            chosen = await ledgers.for_new(name)
            place = names.index(chosen.name)
            with contextlib.closing(Ledger.from_url(found[place].url, name=chosen.name)) as one:
                one.documents.collection_put(collection(name))
            made[name] = place
        await ledgers.close()
        return made

    return asyncio.run(place())


class Setup:
    """Servers under one platform, and what their jobs have cost so far.

    Args:
        kind: how the servers are used.
        found: the servers.
        drivers: of each server.
        where: number of the server of each collection.
        skew: exponent of Zipf's law by which jobs are of collections; 0: evenly.
        texts: of a request.
        partitions: of the one collection that there is; 0: there are many, without.
        tags: hash tag of each server's keys, on a cluster.
    """

    def __init__(
        self,
        kind: str,
        found: Sequence[Server],
        drivers: Sequence[Driver],
        where: dict[str, int],
        *,
        skew: float = 0.0,
        texts: int = _TEXTS,
        partitions: int = 0,
        tags: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.found = found
        self._drivers = drivers
        self._where = where
        self._skew = skew
        self._tags = tags
        self._spent = [0.0] * len(found)
        self._texts_of_one = texts
        self._partitions = partitions
        self._steps = 0
        self._texts = 0
        self._number = 0

    def run(self, jobs: int, *, counted: bool = True) -> None:
        """Run so many jobs for each server, those of a server one after another."""
        before = [one.cpu_s() for one in self.found]
        steps = sum(driver.steps for driver in self._drivers)
        texts = sum(driver.texts for driver in self._drivers)
        work = self._work_of_partitions(jobs) if self._partitions else self._work(jobs)
        for name, ids in sorted(work, key=lambda one: self._where[one[0]]):
            place = self._where[name]
            with tagged(self._tags[place]) if self._tags else contextlib.nullcontext():
                self._drivers[place].run(name, ids)
        if counted:
            self._steps += sum(driver.steps for driver in self._drivers) - steps
            self._texts += sum(driver.texts for driver in self._drivers) - texts
            after = [one.cpu_s() for one in self.found]
            self._spent = [
                sum(row) for row in zip(self._spent, after, (-cpu for cpu in before), strict=True)
            ]

    def _work(self, jobs: int) -> Iterator[tuple[str, list[str]]]:
        """Yield the collection and the ids of each job, for so many jobs a server."""
        for of in jobs_of(jobs * len(self.found), skew=self._skew):
            yield f"c{of}", self._ids()

    def _work_of_partitions(self, requests: int) -> Iterator[tuple[str, list[str]]]:
        """Yield the partition and the ids of each job of so many requests."""
        names = partition_names("c", self._partitions)
        share = _TEXTS * self._partitions / self._texts_of_one  # as many texts as with many
        for _ in range(max(1, round(requests * share))):
            parts: dict[str, list[str]] = {}
            for one in self._ids():
                name = names[partition_of(one, self._partitions)]
                parts.setdefault(name, []).append(one)
            yield from parts.items()

    def _ids(self) -> list[str]:
        self._number += 1
        return [f"d{self._number}-{n}" for n in range(self._texts_of_one)]

    def figures(self) -> dict[str, Any]:
        """Return what the counted jobs have cost."""
        return {
            "kind": self.kind,
            "servers": len(self.found),
            "steps": self._steps,
            "texts": self._texts,
            "texts_of_a_request": self._texts_of_one,
            "busiest_cpu_s": max(self._spent),
            "all_cpu_s": sum(self._spent),
            "steps_per_busiest_cpu_s": self._steps / max(self._spent),
            "texts_per_busiest_cpu_s": self._texts / max(self._spent),
            "cpu_us_per_step": sum(self._spent) / self._steps * 1e6,
        }


def independent(stack: contextlib.ExitStack, count: int, *, skew: float = 0.0) -> Setup:
    """Return so many independent ledgers."""
    found = stack.enter_context(servers(count))
    where = placed(found)
    names = [HOME_LEDGER, *"bcdefgh"]
    drivers = [
        Driver(stack.enter_context(contextlib.closing(Ledger.from_url(one.url, name=name))))
        for one, name in zip(found, names, strict=False)
    ]
    for name, place in where.items():
        drivers[place].make(name)
    kind = "independent, Zipf" if skew else "independent"
    return Setup(kind, found, drivers, where, skew=skew)


def partitioned(stack: contextlib.ExitStack, count: int, *, texts: int) -> Setup:
    """Return so many ledgers with one collection, of which each has a partition."""
    found = stack.enter_context(servers(count))
    where = placed(found, partitions=count) if count > 1 else {"c.0": 0}
    drivers = [
        Driver(stack.enter_context(contextlib.closing(Ledger.from_url(one.url, name=name))))
        for one, name in zip(found, [HOME_LEDGER, *"bcdefgh"], strict=False)
    ]
    for name, place in where.items():
        drivers[place].make(name)
    kind = f"one collection, {texts} texts a request"
    return Setup(kind, found, drivers, where, texts=texts, partitions=count)


@contextlib.contextmanager
def tagged(tag: str) -> Iterator[None]:
    """Name all keys of the ledger under a hash tag, as one slot of a cluster needs."""
    plain, sources = dict(keys.NAMES), scripts.source
    module: Any = scripts
    keys.NAMES.update({name: f"{{{tag}}}{prefix}" for name, prefix in plain.items()})
    module.source = sources.__wrapped__  # each ledger's steps are made once, with its names
    try:
        yield
    finally:
        keys.NAMES.update(plain)
        module.source = sources


@contextlib.contextmanager
def cluster(count: int) -> Iterator[list[Server]]:
    """Start a Valkey Cluster of so many primaries."""
    more = {"cluster-enabled": "yes", "cluster-node-timeout": "5000"}
    with servers(count, **more) as found:
        clients: list[Any] = [redis.Redis.from_url(one.url) for one in found]
        for number, client in enumerate(clients):
            first, last = _SLOTS * number // count, _SLOTS * (number + 1) // count - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for one in found[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", one.port)
        end = time.monotonic() + 60
        while not all(_agreed(client, count) for client in clients):
            if time.monotonic() > end:
                sys.exit("the cluster did not form")
            time.sleep(0.1)
        yield found
        for client in clients:
            client.close()


def _agreed(client: Any, count: int) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    words = (
        info
        if isinstance(info, dict)
        else dict(line.split(":", 1) for line in info.decode().split() if ":" in line)
    )
    return words["cluster_state"] == "ok" and int(words["cluster_known_nodes"]) == count


def in_cluster(stack: contextlib.ExitStack, count: int) -> tuple[Setup, dict[str, Any]]:
    """Return a cluster with a partition a node, and what differs on it."""
    found = stack.enter_context(cluster(count))
    tags: dict[int, str] = {}
    with redis.Redis.from_url(found[0].url) as client:
        probe: Any = client
        for number in range(10_000):
            slot = probe.execute_command("CLUSTER", "KEYSLOT", f"{{p{number}}}")
            tags.setdefault(int(slot) * count // _SLOTS, f"p{number}")
    where = {f"c{number}": number % count for number in range(_COLLECTIONS)}
    drivers = [
        Driver(stack.enter_context(contextlib.closing(Ledger.from_url(one.url)))) for one in found
    ]
    for name, place in where.items():
        with tagged(tags[place]):
            drivers[place].make(name)
    about = {"untagged": untagged(found[0]), **receivers(found)}
    ordered = [tags[place] for place in range(count)]
    return Setup("cluster", found, drivers, where, tags=ordered), about


def untagged(server: Server) -> str:
    """Return what a node says to a step whose keys have no tag."""
    slices = list(cut(Kind.INGEST, IngestParams(collection="c"), [IngestItem("d", _TEXT)]))
    with contextlib.closing(Ledger.from_url(server.url)) as ledger:
        try:
            ledger.jobs.accept(NewJob(Kind.INGEST, Queue.BULK, slices))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            cause = error.__cause__ or error
            return f"{type(cause).__name__}: {cause}"[:200]
    return "done"


def receivers(found: Sequence[Server]) -> dict[str, int]:
    """Subscribe at the last node and publish at the first: who hears, and what is counted."""
    with redis.Redis.from_url(found[0].url) as first, redis.Redis.from_url(found[-1].url) as last:
        subscription = last.pubsub()
        subscription.subscribe("news")
        subscription.get_message(timeout=2.0)
        counted: Any = first.publish("news", b"x")
        message = subscription.get_message(timeout=2.0)
        subscription.close()
    return {"receivers_counted": int(counted), "receivers": int(message is not None)}


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=32, help="of a server and round")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--skew", type=float, default=1.0, help="exponent of Zipf's law")
    arguments = parser.parse_args()
    paper = sheet.Sheet("ledgers")
    with contextlib.ExitStack() as stack:
        setups = [independent(stack, count) for count in (1, 2, 4)]
        setups.append(independent(stack, 4, skew=arguments.skew))
        for texts in (_TEXTS * 4, UPLOAD_DOCUMENTS):
            setups += [partitioned(stack, count, texts=texts) for count in (1, 4)]
        in_a_cluster, about = in_cluster(stack, 4)
        setups.append(in_a_cluster)
        for setup in setups:
            setup.run(arguments.jobs, counted=False)  # scripts are loaded
        for _ in range(arguments.rounds):
            for setup in random.sample(setups, len(setups)):
                setup.run(arguments.jobs)
        result = [setup.figures() for setup in setups]
    base = result[0]["steps_per_busiest_cpu_s"]
    alone = {one["texts_of_a_request"]: one for one in result if one["servers"] == 1}
    for one in result:
        one["ratio"] = one["steps_per_busiest_cpu_s"] / base
        same = alone[one["texts_of_a_request"]]
        one["ratio_texts"] = one["texts_per_busiest_cpu_s"] / same["texts_per_busiest_cpu_s"]
    sheet.table(
        "Steps by the CPU of the busiest server",
        [
            *("kind, servers", "steps", "CPU us a step", "steps a CPU s, busiest", "x one ledger"),
            *("texts a CPU s, busiest", "x one ledger"),
        ],
        [
            [
                f"{one['kind']}, {one['servers']}",
                one["steps"],
                one["cpu_us_per_step"],
                one["steps_per_busiest_cpu_s"],
                one["ratio"],
                one["texts_per_busiest_cpu_s"],
                one["ratio_texts"],
            ]
            for one in result
        ],
    )
    paper.finish({"jobs": arguments.jobs, "rounds": arguments.rounds, "runs": result, **about})


if __name__ == "__main__":
    main()
