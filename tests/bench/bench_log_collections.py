"""How fast does a log collection take lines in, read them in order, and answer, end to end?

A platform of its own (``verso up``) over HTTP, durable, with every check that it makes by default.
Bounded by computation: the codec of lines, and the encoder for statements and questions. The limit
that each figure is a ratio of is measured in the same run:

- *ingest*: whole sets into new collections, from the first byte until all lines are stored, and
  until all of them have been read back from the ledger. Limit: the codec alone in this process
  (parse, code, decode), on as many cores as there are;
- *new*: the first 10,000 lines of a set into a new collection, likewise;
- *read*: the whole collection in order as bytes, as ``verso logs --raw`` does. Limit: decoding;
- *by id*: one line, one caller, ids at random. Limit: an id that nothing has;
- *search*: questions, whole lines and values, one caller. Limit: to encode the question;
- *views*, with ``--lines``: statements, labels and volume of all lines. Statements of a million
  lines are to answer within 200 ms.

CPU seconds of 100,000 lines by process tell more than lines a second on a machine that others use.
With ``--lines N`` so many lines are made from the first set and taken in as well, and memory is
printed over time. Without ``--data`` the lines are those of the shipped corpus, most of which are
output of builds, so that hardly one repeats another.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import line_sets
import psutil
import sheet
from traffic import Route, Traffic, send

from verso_client import Client, Document
from verso_codecs.logs import blocks
from verso_codecs.logs.parsing import parse, split
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.jobs.logs.views import LabelsRequest, StatementsRequest, VolumeRequest
from verso_standalone.stack import Stack, StackConfig, find_artifact, usable_cores

GOALS = {
    "ingest lines/s": 5000.0,
    "new lines/s": 1000.0,
    "read MB/s": 5.0,
    "by id p50 ms": 10.0,
    "search p50 ms": 50.0,
}
"""What is asked for on two cores."""

_MODULES = {
    "verso_worker": "worker",
    "verso_worker.engine": "engine",
    "verso_worker.stores.edge.process": "shard",
    "verso_keeper": "keeper",
    "verso_gateway": "gateway",
    "verso_training.service": "trainer",
}
_BODY_BYTES = 8 << 20
_POLL_S = 0.1
_ASKED = 200
_EVERY = 250_000
_PLAIN = (
    "authentication failure",
    "session opened for a user",
    "connection closed by the other side",
    "out of memory",
    "device not found",
    "could not resolve a host name",
    "proxy connection through https",
    "service restarted",
    "permission denied",
    "timed out while waiting",
)


@dataclass(frozen=True, slots=True)
class Row:
    """How one set went in and came out."""

    what: str
    lines: int
    stored_per_s: float
    verified_per_s: float
    core_s: dict[str, float]
    limit_per_s: float

    @property
    def core_s_per_100k(self) -> dict[str, float]:
        """Core seconds of each process for 100,000 lines."""
        return {name: 1e5 * spent / self.lines for name, spent in self.core_s.items()}


class Processes:
    """The platform's processes by what they are."""

    def __init__(self) -> None:
        self._root = psutil.Process()

    def core_s(self) -> dict[str, float]:
        """Return the core seconds of each so far, and of this process, which is the client."""
        found = {"client": _core_s(self._root)}
        for name, process in self._named():
            with contextlib.suppress(psutil.Error):
                found[name] = found.get(name, 0.0) + _core_s(process)
        return found

    def memory_mb(self) -> dict[str, float]:
        """Return the resident memory of each."""
        found: dict[str, float] = {}
        for name, process in self._named():
            with contextlib.suppress(psutil.Error):
                found[name] = found.get(name, 0.0) + process.memory_info().rss / 1e6
        return found

    def _named(self) -> Iterator[tuple[str, psutil.Process]]:
        for process in self._root.children(recursive=True):
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if "-m" in words:
                yield _MODULES.get(words[words.index("-m") + 1], "other"), process
            else:
                yield "valkey" if "valkey" in " ".join(words) else "other", process


def _core_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def codec_alone(data: bytes) -> tuple[float, float]:
    """Return the core seconds of 100,000 lines: parsed, coded and decoded; decoded."""
    shapes = Shapes()
    parsed = parse(split(data), shapes)
    shapes.extend(parsed.new_rows)
    parsed.number(range(len(parsed.new_rows)))
    tables = Tables.fit([parsed], shapes, generation=1)
    starts = range(0, parsed.count, blocks.MAX_LINES)
    began = time.process_time()
    parsed = parse(split(data), shapes)
    coded = [
        blocks.encode(
            parsed, shapes, tables, first=at, count=min(blocks.MAX_LINES, parsed.count - at)
        )
        for at in starts
    ]
    middle = time.process_time()
    for block in coded:
        blocks.decode(block, shapes, tables)
    ended = time.process_time()
    scale = 1e5 / parsed.count
    return scale * (ended - began), scale * (ended - middle)


class Bench:
    """A running platform and what was measured on it."""

    def __init__(self, stack: Stack, client: Client) -> None:
        self._stack = stack
        self._client = client
        self._processes = Processes()
        self._cores = usable_cores(None)
        self.rows: list[Row] = []
        self.memory: dict[str, dict[str, float]] = {}

    def note_memory(self, when: str) -> None:
        """Keep the memory of every process."""
        self.memory[when] = self._processes.memory_mb()

    def ingest(self, what: str, name: str, parts: Iterable[bytes], *, limit_s: float) -> Row:
        """Take lines into a new collection, and wait until they are verified.

        ``limit_s``: core seconds of 100,000 lines in the codec alone.
        """
        self._client.create_collection(name, kind=CollectionKind.LOGS)
        before, began = self._processes.core_s(), time.perf_counter()
        count = self._client.ingest_lines(parts, collection=name, labels={"source": name}).lines
        stored_s = time.perf_counter() - began
        while (held := self._client.stats(name).lines) is None or held.verified < count:
            time.sleep(_POLL_S)
        verified_s = time.perf_counter() - began
        after = self._processes.core_s()
        row = Row(
            what=what,
            lines=count,
            stored_per_s=count / stored_s,
            verified_per_s=count / verified_s,
            core_s={one: after[one] - before.get(one, 0.0) for one in after},
            limit_per_s=1e5 * self._cores / limit_s,
        )
        self.rows.append(row)
        self.note_memory(what)
        return row

    def read(self, name: str, expected: bytes | None = None) -> tuple[float, float]:
        """Read a whole collection; return MB/s and core seconds of 100 MB."""
        asked = LinesRequest.model_validate({"collection": name, "limit": 0, "raw": True})
        before, began, size, parts = self._processes.core_s(), time.perf_counter(), 0, []
        for part in self._client.lines(asked):
            size += len(part)
            if expected is not None:
                parts.append(part)
        seconds = time.perf_counter() - began
        spent = sum(self._processes.core_s().values()) - sum(before.values())
        if expected is not None and b"".join(parts) != expected:
            sys.exit(f"{name} did not come back as it went in")
        return size / 1e6 / seconds, 1e8 * spent / size

    def by_id(self, name: str, count: int, *, asked: int) -> tuple[Traffic, Traffic]:
        """Read lines at random, and as many ids that nothing has."""
        route = Route(
            f"{self._stack.url}/v1/reconstruct",
            body=lambda one: {"ids": [one], "collection": name},
            dim=lambda body: len(json.loads(body)["results"]),
        )
        rng = random.Random(3)
        ids = [f"0:{rng.randrange(count)}" for _ in range(asked)]
        send(route, ids[:10], concurrency=1)
        return (
            send(route, ids, concurrency=1),
            send(route, [f"0:{count + n}" for n in range(asked)], concurrency=1),
        )

    def search(self, name: str, questions: Sequence[str]) -> tuple[Traffic, Traffic]:
        """Ask questions, and have the same texts encoded."""
        search = Route(
            f"{self._stack.url}/v1/search",
            body=lambda text: {"query": text, "collection": name},
            dim=lambda body: len(json.loads(body)["hits"]),
        )
        embed = Route(
            f"{self._stack.url}/v1/embed",
            body=lambda text: {"texts": [text]},
            dim=lambda body: len(json.loads(body)["results"]),
        )
        send(search, questions[:5], concurrency=1)
        return send(search, questions, concurrency=1), send(embed, questions, concurrency=1)

    def views(self, name: str) -> dict[str, dict[str, float]]:
        """Ask for statements, labels and volume: the first time, and again and again."""
        shown = self._client.log_volume(VolumeRequest(collection=name))
        half = {"collection": name, "from": shown.starts[len(shown.starts) // 3]}
        asked: dict[str, Callable[[], object]] = {
            "statements": lambda: self._client.log_statements(StatementsRequest(collection=name)),
            "statements of a part": lambda: self._client.log_statements(
                StatementsRequest.model_validate(half)
            ),
            "statements new since": lambda: self._client.log_statements(
                StatementsRequest(collection=name, new_since=half["from"])
            ),
            "labels": lambda: self._client.log_labels(LabelsRequest(collection=name)),
            "volume": lambda: self._client.log_volume(VolumeRequest(collection=name)),
        }
        return {what: _timed(ask) for what, ask in asked.items()}

    def many(self, name: str, parts: Iterable[bytes], count: int) -> float:
        """Take in generated lines and note the memory over time; return lines a second."""
        self._client.create_collection(name, kind=CollectionKind.LOGS)
        began, noted = time.perf_counter(), 0

        def note(done: int) -> None:
            nonlocal noted
            if done // _EVERY > noted:
                noted = done // _EVERY
                when = f"{done:,} lines, {time.perf_counter() - began:,.0f} s"
                self.note_memory(when)
                print(when, json.dumps(self.memory[when]), file=sys.stderr, flush=True)

        bodies = _joined(parts)
        self._client.ingest_lines(bodies, collection=name, labels={"source": name}, progress=note)
        seconds = time.perf_counter() - began
        while (held := self._client.stats(name).lines) is None or held.verified < count:
            time.sleep(1.0)
        self.note_memory(f"{count:,} lines, verified, {time.perf_counter() - began:,.0f} s")
        return count / seconds


def _timed(ask: Callable[[], object]) -> dict[str, float]:
    """Return how long a question takes: the first time, and the median and most of 20 more."""
    spent = []
    for _ in range(21):
        began = time.perf_counter()
        ask()
        spent.append(1000 * (time.perf_counter() - began))
    first, *again = spent
    return {"first_ms": first, "p50_ms": statistics.median(again), "most_ms": max(again)}


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield parts joined to the size that the command line sends."""
    waiting: list[bytes] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= _BODY_BYTES:
            yield b"".join(waiting)
            waiting = []
    if waiting:
        yield b"".join(waiting)


def questions_of(data: bytes, count: int) -> list[str]:
    """Return questions in words, whole lines, and values of lines, in turn."""
    rng = random.Random(5)
    rows = [row.decode("utf-8", "replace") for row in data.splitlines() if row.strip()]
    chosen = rng.sample(rows, min(len(rows), count))
    values = [
        word.strip(".,:;()[]'\"")
        for row in chosen
        for word in row.split()[4:]
        if sum(map(str.isdigit, word)) > 3
    ]
    mixed = zip(itertools.cycle(_PLAIN), chosen, values or chosen, strict=False)
    return list(itertools.islice(itertools.chain.from_iterable(mixed), count))


@contextlib.contextmanager
def platform(artifact: Path, settings: Mapping[str, str]) -> Iterator[Stack]:
    """Start a platform on a temporary folder; it has checked its codecs when it is yielded."""
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as folder:
        config = StackConfig(
            Path(folder), artifact, port=0, threads=usable_cores(), settings=settings
        )
        stack = Stack(config)
        stack.start()
        try:
            with Client(stack.url, timeout_s=600) as client:
                client.ingest([Document("the first text", id="first")])
            yield stack
        finally:
            stack.stop()


def _quantiles(traffic: Traffic) -> dict[str, float]:
    return {"p50_ms": traffic.quantile_ms(0.5), "p95_ms": traffic.quantile_ms(0.95)}


def run(given: argparse.Namespace, bench: Bench, sets: Mapping[str, bytes]) -> dict[str, Any]:
    """Measure every set."""
    found: dict[str, Any] = {}
    for name, data in sets.items():
        own = name.lower()
        ingest_s, decode_s = codec_alone(data)
        first = line_sets.first_lines(data, line_sets.NEW_LINES)
        new = bench.ingest(f"new {name}", f"new-{own}", [first], limit_s=ingest_s)
        row = bench.ingest(f"whole {name}", own, _joined([data]), limit_s=ingest_s)
        reads = [bench.read(own, data) for _ in range(given.rounds)]
        speed, spent = statistics.median(one for one, _ in reads), reads[-1][1]
        lines, nothing = bench.by_id(own, row.lines, asked=given.asked)
        searches, embeds = bench.search(own, questions_of(data, given.asked))
        bench.note_memory(f"{name} read")
        decoded = len(data) / 1e6 / (decode_s * row.lines / 1e5) * usable_cores(None)
        found[name] = {
            "lines": row.lines,
            "bytes_line": len(data) / row.lines,
            "new lines/s": new.stored_per_s,
            "ingest lines/s": row.stored_per_s,
            "verified lines/s": row.verified_per_s,
            "ingest of codec alone": row.stored_per_s / row.limit_per_s,
            "read MB/s": speed,
            "read of decoding alone": speed / decoded,
            "read core s of 100 MB": spent,
            "by id p50 ms": lines.quantile_ms(0.5),
            "by id p95 ms": lines.quantile_ms(0.95),
            "by id of no such id": lines.quantile_ms(0.5) / nothing.quantile_ms(0.5),
            "search p50 ms": searches.quantile_ms(0.5),
            "search p95 ms": searches.quantile_ms(0.95),
            "search of encoding alone": searches.quantile_ms(0.5) / embeds.quantile_ms(0.5),
        }
    return found


def show(bench: Bench, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the tables."""
    parts = sorted({name for row in bench.rows for name in row.core_s})
    sheet.table(
        "Core seconds of 100,000 lines, by process, until they are verified",
        ["lines of", *parts, "all but client"],
        [
            [
                row.what,
                *(row.core_s_per_100k.get(part) for part in parts),
                sum(spent for part, spent in row.core_s_per_100k.items() if part != "client"),
            ]
            for row in bench.rows
        ],
    )
    if found:
        names = list(next(iter(found.values())))
        sheet.table(
            "End to end",
            ["what", *found, "goal"],
            [[name, *(one[name] for one in found.values()), GOALS.get(name)] for name in names],
        )
    parts = sorted({name for row in bench.memory.values() for name in row})
    sheet.table(
        "Resident memory, MB",
        ["after", *parts],
        [[when, *map(row.get, parts)] for when, row in bench.memory.items()],
    )


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with logs_loghub_full")
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--sets", nargs="+", help="names of sets, all of them by default")
    parser.add_argument("--rounds", type=int, default=3, help="how often each set is read")
    parser.add_argument("--asked", type=int, default=_ASKED, help="lines by id, and questions")
    parser.add_argument("--lines", type=int, default=0, help="generated lines, of the first set")
    options = parser.parse_args()
    paper = sheet.Sheet("log_collections")
    sets = line_sets.whole(options.data)
    sets = {name: data for name, data in sets.items() if name in (options.sets or sets)}
    began = time.perf_counter()
    with (
        platform(options.artifact or find_artifact(), {}) as stack,
        Client(stack.url, timeout_s=600) as client,
    ):
        bench = Bench(stack, client)
        bench.note_memory(f"start, {time.perf_counter() - began:.1f} s")
        found = {} if options.lines else run(options, bench, sets)
        many: dict[str, Any] = {}
        if options.lines:
            name, data = next(iter(sets.items()))
            parts = line_sets.generated(data, options.lines)
            many = {"lines": options.lines, "lines/s": bench.many("many", parts, options.lines)}
            many |= {f"{what},": row for what, row in bench.views("many").items()}
            searches, embeds = bench.search("many", questions_of(data, options.asked))
            lines, _ = bench.by_id("many", options.lines, asked=options.asked)
            many |= {
                "of": name,
                "search": _quantiles(searches),
                "search of encoding alone": searches.quantile_ms(0.5) / embeds.quantile_ms(0.5),
                "by id": _quantiles(lines),
                "read MB/s": bench.read("many")[0],
            }
            bench.note_memory("read")
    show(bench, found)
    if many:
        sheet.table("Generated lines", ["what", "figure"], [[*one] for one in _flat(many)])
    paper.finish(
        {
            "goals": GOALS,
            "sets": found,
            "core_s_per_100k": {row.what: row.core_s_per_100k for row in bench.rows},
            "memory_mb": bench.memory,
            "many": many,
        }
    )


def _flat(rows: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in rows.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} {one}", figure) for one, figure in value.items())
        else:
            yield name, value


if __name__ == "__main__":
    main()
