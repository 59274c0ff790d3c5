"""What does a million texts cost: how many core hours of each part?

Documents of the shipped corpus, of all its kinds, go in and are verified, all are read back, and
some are searched for and embedded, through the processes as they run on many machines. What each
process spent is read from the kernel, so other work on the machine hardly moves the figures; what
idle processes spend in the meantime is measured first and taken off.

The limit is the engine's core time; the other figures show which part is the limit on many
machines.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sheet
import texts
from processes import Site, running

from verso_client import Client, Document
from verso_standalone.stack import find_artifact

PARTS = ("gateway", "valkey", "keeper", "worker", "engine", "shard")
_TOGETHER = 64
_IDLE_S = 20.0


@dataclass(frozen=True)
class Cost:
    """What a kind of work took. ``core_ms``: milliseconds of a core, by part, for one text."""

    texts: int
    seconds: float
    core_ms: dict[str, float]

    @property
    def core_hours_per_million(self) -> float:
        """Core hours of all parts for a million texts."""
        return sum(self.core_ms.values()) * 1e6 / 3.6e6


def by_part(spent: dict[str, float]) -> dict[str, float]:
    """Sum the core seconds of each part's processes; none yet if it has not started."""
    found: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for name, seconds in spent.items():
        part = name.rpartition(" ")[2]
        part = part.partition("-")[0]
        found[part] = found.get(part, 0.0) + seconds
    return found


class Meter:
    """Measures the cost of work above that of the idle platform."""

    def __init__(self, site: Site) -> None:
        self._site = site
        before, started = by_part(site.spent()), time.perf_counter()
        time.sleep(_IDLE_S)
        wall = time.perf_counter() - started
        after = by_part(site.spent())
        self.idle = {part: (after[part] - before[part]) / wall for part in PARTS}

    def cost(self, work: Callable[[], int]) -> Cost:
        """Return the cost of a piece of work, which returns its number of texts."""
        before, started = by_part(self._site.spent()), time.perf_counter()
        count = work()
        wall = time.perf_counter() - started
        after = by_part(self._site.spent())
        net = {part: after[part] - before[part] - self.idle[part] * wall for part in PARTS}
        return Cost(count, wall, {part: 1e3 * max(0.0, net[part]) / count for part in PARTS})


def documents(count: int) -> list[Document]:
    """Choose documents of the corpus, kinds as they are mixed in it."""
    found = texts.chosen(texts.corpus(), count, salt="cost")
    return [Document(text.decode(), id=f"text/{number}") for number, text in enumerate(found)]


def costs(site: Site, given: list[Document], *, asked: int) -> dict[str, Cost]:
    """Measure each kind of work once."""
    meter = Meter(site)
    ids = [str(one.id) for one in given]
    queries = [str(one.text)[:80] for one in given[:asked]]
    with Client(site.url("gateway-0")) as verso:

        def ingest() -> int:
            assert not verso.ingest(given).failed
            while verso.stats().verified < len(given):
                time.sleep(0.5)
            return len(given)

        def read() -> int:
            for first in range(0, len(ids), _TOGETHER):
                verso.reconstruct(ids[first : first + _TOGETHER])
            return len(ids)

        def search() -> int:
            for query in queries:
                verso.search(query, limit=10)
            return len(queries)

        def embed() -> int:
            for first in range(0, len(queries), _TOGETHER):
                verso.embed(queries[first : first + _TOGETHER])
            return len(queries)

        verso.search("warm")
        return {
            "in and verified": meter.cost(ingest),
            "read back": meter.cost(read),
            "searched for, one by one": meter.cost(search),
            "embedded, 64 together": meter.cost(embed),
        } | {"idle": Cost(1, 1.0, {part: 1e3 * of for part, of in meter.idle.items()})}


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--documents", type=int, default=768)
    parser.add_argument("--asked", type=int, default=256, help="searches, and texts embedded")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paper = sheet.Sheet("cost")
    given = documents(arguments.documents)
    settings = {"VERSO_RAW_TEXT_RETENTION_S": "0", "VERSO_VERIFY_DELAY_S": "0.1"}
    artifact = arguments.artifact or find_artifact()
    with running(artifact, 1, threads=arguments.threads, settings=settings) as site:
        found = costs(site, given, asked=arguments.asked)
        with Client(site.url("gateway-0")) as verso:
            records = verso.stats().chunks / len(given)
    size = sum(len(str(one.text).encode()) for one in given) / len(given)
    sheet.table(
        f"Core ms a text of {size:.0f} bytes, {records:.1f} records; core hours a million",
        ["work", "texts/s", *PARTS, "core hours a million"],
        [
            [
                name,
                one.texts / one.seconds,
                *(one.core_ms[part] for part in PARTS),
                one.core_hours_per_million,
            ]
            for name, one in found.items()
            if name != "idle"
        ],
    )
    sheet.table(
        "Idle: ms of a core each second",
        ["", *PARTS],
        [["idle", *(found["idle"].core_ms[part] for part in PARTS)]],
    )
    paper.finish(
        {"core_ms": {name: one.core_ms for name, one in found.items()}, "text_bytes": size}
        | {"core_hours_per_million": {n: c.core_hours_per_million for n, c in found.items()}}
    )


if __name__ == "__main__":
    main()
