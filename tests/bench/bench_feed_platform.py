"""How many lines a second does a whole platform keep up with, and how soon are they seen?

A gateway, a worker, a keeper and a ledger that syncs every write, and on the same cores the agents
that send: the helper of Elasticsearch's client, OpenTelemetry's SDK for Python, and Fluent Bit
where FLUENT_BIT names it. Bounded by computation: agents and platform share the cores.

- *kept up*: an agent logs at ``--rate`` lines a second for ``--seconds``. Meanwhile probes, each a
  new statement, say how soon a line is acknowledged, on the live tail, and found by a question that
  means the same in other words. The queue must not grow: ``behind`` is how long after the last
  line all are stored and verified.
- *as fast as it goes*: the agent sends whenever the platform takes. Lines a second are counted from
  the first line to the one that was verified last.
- *one line a request*: 500 requests a second beside idle workers, with the time to each answer.
- *waiting*: memory of the ledger for a line that no worker has stored, beyond its text.

Published figures stand beside, by the core; they are of other machines, lines and durability.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

import httpx2
import line_sets
import psutil
import redis
import sheet
from bench_feed import at_once, at_rate, batches, ledger_of, memory_of, request
from processes import Site, running

from verso_client import Client, Document
from verso_core.errors import VersoError
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.tail import TailRequest
from verso_standalone.stack import find_artifact

SENDING = Path(__file__).parents[1] / "support" / "sending.py"
GOALS = {
    "lines/s": 5000.0,
    "tail s": -1.0,
    "searchable s": -10.0,
    "one-line p99 ms": -100.0,
    "ledger bytes beyond a text": -100.0,
}
"""Asked for; of what is negative at most so much."""
PUBLISHED = (
    (
        "Elasticsearch 8.9.1, three nodes of 8 vCPU, Rally's http_logs, no replica",
        375_676.0,
        24,
        "help.aliyun.com/en/es/product-overview/8-core-32-gib-data-node-instance-performance-test",
    ),
)
"""Lines a second, on so many cores, without those of the senders; and where it is said."""
PUBLISHED_BYTES = (
    (
        "Loki, advised for 3 TB a day: requests of ingesters and distributors",
        3e12 / 86_400,
        20,
        "grafana.com/docs/loki/latest/setup/size",
    ),
)
"""Bytes a second, on so many cores; and where it is said."""
PROBE_S = 2.0
_WARM_LINES = 3000
_LOOK_S = 0.25
_VERIFIED_S = 600.0
_SETTLED_BYTES = 65_536
_THINGS = ("violin", "compass", "ladder", "kettle", "umbrella", "telescope", "anchor", "lantern")
_DEEDS = ("forgot", "dropped", "repaired", "painted", "hid", "sold", "buried", "polished")
_PLACES = ("harbour", "library", "orchard", "quarry", "chapel", "market", "stable", "lighthouse")


def probes() -> Iterator[tuple[str, str]]:
    """Yield lines and questions that mean the same; each line is a statement of its own."""
    for deed, thing, place in product(_DEEDS, _THINGS, _PLACES):
        yield (
            f"a courier {deed} the {thing} beside the {place} and walked home",
            f"who {deed} a {thing} at the {place}?",
        )


@dataclass
class Probe:
    """A line and when it was sent, acknowledged and seen, seconds of one clock."""

    text: str
    question: str
    sent: float
    acknowledged: float = 0.0
    tailed: float | None = None
    found: float | None = None


@dataclass
class Watch:
    """Sends probes to a collection and waits for each on the live tail and in searches."""

    url: str
    collection: str
    made: Iterator[tuple[str, str]]
    probes: list[Probe] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def send(self) -> None:
        """Send a probe every ``PROBE_S`` until it is over."""
        with httpx2.Client(timeout=60) as http:
            while not self.over.wait(PROBE_S):
                text, question = next(self.made)
                probe = Probe(text, question, time.monotonic())
                self.probes.append(probe)
                rows = ({"create": {"_index": self.collection}}, {"message": text})
                body = "".join(json.dumps(row) + "\n" for row in rows)
                headers = {"Content-Type": "application/x-ndjson"}
                http.post(f"{self.url}/es/_bulk", content=body, headers=headers).raise_for_status()
                probe.acknowledged = time.monotonic()

    def tail(self) -> None:
        """Note when a probe is on the live tail; ends with the process."""
        asked = TailRequest(collection=self.collection, contains="a courier ")
        with Client(self.url) as platform, suppress(VersoError):  # of a platform that has ended
            for event in platform.tail(asked):
                if event.line is None:
                    continue
                for probe in self.probes:
                    if probe.text == event.line.text and probe.tailed is None:
                        probe.tailed = time.monotonic()

    def search(self) -> None:
        """Ask for each probe until it is found."""
        with Client(self.url) as platform:
            while not (self.over.is_set() and all(one.found for one in self.probes)):
                time.sleep(_LOOK_S)
                probe = next((one for one in self.probes if one.found is None), None)
                if probe is None:
                    continue
                with suppress(VersoError):
                    found = platform.search(probe.question, collection=self.collection, limit=20)
                    shown = {line.text for hit in found.hits for line in hit.lines}
                    if probe.text in shown:
                        probe.found = time.monotonic()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while an agent sends, and until all probes are found."""
        threading.Thread(target=self.tail, daemon=True).start()
        threads = [threading.Thread(target=one) for one in (self.send, self.search)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(_VERIFIED_S)

    def seconds(self) -> dict[str, float | None]:
        """Return the longest time of a probe until it was seen."""
        return {
            "acknowledged s": max(
                (one.acknowledged - one.sent for one in self.probes), default=None
            ),
            "tail s": _most([one.tailed and one.tailed - one.sent for one in self.probes]),
            "searchable s": _most([one.found and one.found - one.sent for one in self.probes]),
        }


def _most(values: Sequence[float | None]) -> float | None:
    """Return the greatest value; infinity if one is missing, none without values."""
    return max((float("inf") if one is None else one for one in values), default=None)


@contextmanager
def client_agent(
    client: str, url: str, name: str, *, lines: int, per_s: float, texts: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a client of Python that logs; it ends when all is accepted."""
    process = subprocess.Popen(
        [
            *(sys.executable, str(SENDING), client, url, "--service", name),
            *("--lines", str(lines), "--per-second", str(per_s), "--texts", str(texts)),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def fluent_bit(
    url: str, name: str, *, lines: int, per_s: float, texts: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Fluent Bit on a file that grows by so many lines a second, or has them all."""
    port = url.rpartition(":")[2]
    with tempfile.TemporaryDirectory(prefix="verso-fluent-") as scratch:
        folder = Path(scratch)
        (folder / "app.log").touch()
        (folder / "fluent-bit.conf").write_text(
            f"[SERVICE]\n Flush 0.5\n Daemon Off\n storage.path {folder}/storage\n"
            f"[INPUT]\n Name tail\n Tag app\n Path {folder}/app.log\n Read_from_Head On\n"
            " storage.type filesystem\n Buffer_Max_Size 1M\n"
            f"[OUTPUT]\n Name es\n Match *\n Host 127.0.0.1\n Port {port}\n Path /es\n"
            f" Index {name}\n Suppress_Type_Name On\n Write_Operation index\n Generate_ID On\n"
            " Time_Key_Nanos On\n Buffer_Size False\n Retry_Limit False\n"
        )
        growing = threading.Thread(
            target=_grow, args=(folder / "app.log", texts, lines, per_s), daemon=True
        )
        growing.start()
        process = subprocess.Popen(
            [os.environ["FLUENT_BIT"], "-q", "-c", str(folder / "fluent-bit.conf")]
        )
        try:
            yield process
        finally:
            growing.join()
            process.terminate()
            process.wait()


def _grow(path: Path, texts: Path, lines: int, per_s: float) -> None:
    rows = [row + "\n" for row in texts.read_text().splitlines()]
    began, step = time.monotonic(), 500
    for first in range(0, lines, step):
        with path.open("a") as file:
            file.writelines(rows[n % len(rows)] for n in range(first, min(lines, first + step)))
        if per_s:
            time.sleep(max(0.0, began + (first + step) / per_s - time.monotonic()))


Agent = Callable[..., Any]


def agents() -> dict[str, Agent]:
    """Return the agents of this machine, each by the name of its way."""

    def of(client: str) -> Agent:
        def run(url: str, name: str, **options: Any) -> Any:
            return client_agent(client, url, name, **options)

        return run

    found = {"bulk": of("elasticsearch"), "otlp": of("opentelemetry")}
    return found | ({"fluent-bit": fluent_bit} if "FLUENT_BIT" in os.environ else {})


@dataclass
class Run:
    """One agent on the platform: what it sent, and what that took."""

    site: Site
    texts: Path
    made: Iterator[tuple[str, str]]

    def __call__(
        self, name: str, agent: Agent, *, lines: int, per_s: float
    ) -> dict[str, float | None]:
        """Let an agent send lines to a new collection; return the figures."""
        url = self.site.url("gateway-0")
        with Client(url) as platform:
            platform.create_collection(name, kind=CollectionKind.LOGS)
            with agent(url, name, lines=_WARM_LINES, per_s=0.0, texts=self.texts):
                _await(platform, name, _WARM_LINES)
            warm = platform.stats(name).lines
            watch = Watch(url, name, self.made)
            spent, before, began = self._spent(), self._records(), time.monotonic()
            with (
                watch.watching(),
                agent(url, name, lines=lines, per_s=per_s, texts=self.texts) as process,
            ):
                while not self._is_accepted(process, before + lines):
                    time.sleep(_LOOK_S)
                accepted_s, agent_s = time.monotonic() - began, _core_s(process)
                held = 0 if warm is None else warm.verified
                _await(platform, name, held + lines + len(watch.probes))
                seconds = time.monotonic() - began
        platform_s = self._spent() - spent
        return {
            "lines/s": lines / seconds,
            "accepted lines/s": lines / accepted_s,
            "behind s": seconds - accepted_s,
            **watch.seconds(),
            "agent core us": 1e6 * agent_s / lines,
            "platform core us": 1e6 * platform_s / lines,
        }

    def _is_accepted(self, process: subprocess.Popen[bytes], records: float) -> bool:
        """Whether an agent's lines are accepted: it has ended, or so many records came in all."""
        if process.stdout is None:  # it stays
            return self._records() >= records
        if process.poll() not in (None, 0):
            sys.exit("the agent failed")
        return process.poll() is not None

    def _records(self) -> float:
        return self.site.total("gateway", r'verso_feed_records_total\{[^}]*status="accepted"\}')

    def _spent(self) -> float:
        return sum(self.site.spent().values())


def _core_s(process: subprocess.Popen[bytes]) -> float:
    """Return what an agent says that it has computed, or what the system counted so far."""
    if process.stdout is not None:
        return float(json.loads(process.stdout.read().splitlines()[-1])["core_s"])
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _await(platform: Client, name: str, count: int) -> None:
    until = time.monotonic() + _VERIFIED_S
    while (held := platform.stats(name).lines) is None or held.verified < count:
        if time.monotonic() > until:
            sys.exit(f"expected {count} verified lines in {name}, got {held}")
        time.sleep(_LOOK_S)


def one_line(site: Site, rows: Sequence[str], options: argparse.Namespace) -> dict[str, float]:
    """Send requests of one line at a rate beside idle workers."""
    url = site.url("gateway-0")
    wait_for_quiet(ledger_of(site))
    count = round(options.requests_per_second * options.request_seconds)
    requests = [request(url, "loki", batch, first) for first, batch in batches(rows, 1, count)]
    at = options.requests_per_second
    asyncio.run(at_rate(url, requests[:at], at, options.connections))
    traffic = asyncio.run(at_rate(url, requests, at, options.connections))
    return {
        "one-line p50 ms": traffic.quantile_ms(0.5),
        "one-line p99 ms": traffic.quantile_ms(0.99),
    }


def waiting(site: Site, rows: Sequence[str], options: argparse.Namespace) -> dict[str, float]:
    """Send lines while the worker is stopped; return the ledger's memory a line beyond texts."""
    url, ledger = site.url("gateway-0"), ledger_of(site)
    found = {}
    wait_for_quiet(ledger)
    with stopped(site):
        for way in ("bulk", "otlp"):
            held = memory_of(ledger)
            sent = list(batches(rows, 1000, options.waiting_requests))
            requests = [request(url, way, batch, first) for first, batch in sent]
            asyncio.run(at_once(url, requests, 4))
            found[way] = _beyond(
                memory_of(ledger) - held, [row for _, rows in sent for row in rows]
            )
        held = memory_of(ledger)
        sent = list(batches(rows, 1, options.requests_per_second))
        requests = [request(url, "loki", batch, first) for first, batch in sent]
        asyncio.run(at_rate(url, requests, options.requests_per_second, options.connections))
        found["one line"] = _beyond(
            memory_of(ledger) - held, [row for _, rows in sent for row in rows]
        )
    return {f"ledger bytes beyond a text, {way}": value for way, value in found.items()} | {
        "ledger bytes beyond a text": max(found.values())
    }


def wait_for_quiet(ledger: redis.Redis) -> None:
    """Wait until the ledger holds no more and no less than a while before: nothing is stored."""
    until, held = time.monotonic() + 120, -1
    while time.monotonic() < until and abs((now := memory_of(ledger)) - held) > _SETTLED_BYTES:
        held = now
        time.sleep(3)


def _beyond(held: int, texts: Sequence[str]) -> float:
    return (held - sum(len(text.encode()) + 1 for text in texts)) / len(texts)


@contextmanager
def stopped(site: Site) -> Iterator[None]:
    """Stop the worker and its children for a while."""
    worker = site.processes["worker-0"]
    members = [worker, *worker.children(recursive=True)]
    for one in members:
        one.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for one in reversed(members):
            one.send_signal(signal.SIGCONT)


def published(mean_bytes: float, cores: int, lines_s: float) -> list[tuple[str, Any, Any, Any]]:
    """Return rows of lines a second and a core: these, and published ones."""
    rows: list[tuple[str, Any, Any, Any]] = [
        ("this platform and its agent", lines_s / cores, lines_s * mean_bytes / cores / 1e6, "-")
    ]
    rows += [(what, lines / n, None, source) for what, lines, n, source in PUBLISHED]
    rows += [(what, None, size / n / 1e6, source) for what, size, n, source in PUBLISHED_BYTES]
    return rows


def measure(site: Site, rows: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything on a running site.

    A text is ingested first: in a new folder the engine checks its codecs after the start, until
    then beside the lines.
    """
    with Client(site.url("gateway-0"), timeout_s=600) as client:
        client.ingest([Document("the first text", id="first")])
    results: dict[str, Any] = {}
    chosen = {name: one for name, one in agents().items() if name in options.agents}
    with tempfile.TemporaryDirectory(prefix="verso-texts-") as scratch:
        texts = Path(scratch) / "texts.log"
        texts.write_text("\n".join(rows))
        run, lines = Run(site, texts, probes()), round(options.rate * options.seconds)
        for name, agent in chosen.items():
            results[f"{name}, kept up"] = run(
                f"{name}-paced", agent, lines=lines, per_s=options.rate
            )
            results[f"{name}, as fast as it goes"] = run(
                f"{name}-free", agent, lines=lines, per_s=0.0
            )
    columns = list(next(iter(results.values())))
    sheet.table(
        f"{lines:,} lines of an agent, kept up at {options.rate:,.0f} a second",
        ("agent", *columns),
        [(name, *row.values()) for name, row in results.items()],
    )
    found = one_line(site, rows, options) | waiting(site, rows, options)
    sheet.table(
        f"{options.requests_per_second} requests of one line a second; and lines that wait",
        ("what", "value"),
        list(found.items()),
    )
    return results | found


def reached(results: Mapping[str, Any]) -> dict[str, float]:
    """Return what the goals are compared with: the best agent that keeps up, and the rest."""
    kept = [row for name, row in results.items() if name.endswith(", kept up")]
    best = max(kept, key=lambda row: row["lines/s"])
    return {name: best.get(name, results.get(name)) for name in GOALS}


def main() -> int:
    """Run the bench; return 1 if a goal was missed and ``--strict`` is given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--data", type=Path, help="folder with whole sets of lines")
    parser.add_argument("--agents", nargs="+", default=["bulk", "otlp", "fluent-bit"])
    parser.add_argument("--rate", type=float, default=5500.0, help="lines a second that are sent")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--requests-per-second", type=int, default=500, help="of one line")
    parser.add_argument("--request-seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--waiting-requests", type=int, default=20, help="of 1,000 lines")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    report = sheet.Sheet("feed platform")
    [data, *_] = line_sets.whole(options.data).values()
    rows = [row.decode("utf-8", "replace") for row in islice(data.splitlines(), 50_000)]
    rows = [row for row in rows if row.strip()]
    names = [f"{name}-{how}" for name in agents() for how in ("paced", "free")]
    routes = ",".join([*(f"{name}={name}" for name in names), "*=logs"])
    settings = {"VERSO_FEED_ROUTES": routes, "VERSO_RAW_TEXT_RETENTION_S": "0"}
    with running(options.artifact or find_artifact(), 1, settings=settings) as site:
        with Client(site.url("gateway-0")) as platform:
            platform.create_collection("logs", kind=CollectionKind.LOGS)
        results = measure(site, rows, options)
    found = reached(results)
    mean = sum(len(row.encode()) + 1 for row in rows) / len(rows)
    beside = published(mean, sheet.machine()["cores"], found["lines/s"])
    sheet.table(
        "Beside published figures: a second and a core",
        ("what", "lines", "MB", "source"),
        beside,
    )
    missed = [name for name, goal in GOALS.items() if not is_met(found[name], goal)]
    report.finish(
        {
            "results": results,
            "reached": found,
            "goals": GOALS,
            "missed": missed,
            "published": [[str(cell) for cell in row] for row in beside[1:]],
            "mean_bytes": mean,
        }
    )
    return 1 if missed and options.strict else 0


def is_met(value: float | None, goal: float) -> bool:
    """Whether a value is as large, or of a negative goal as small, as asked."""
    return value is not None and (value >= goal if goal > 0 else value <= -goal)


if __name__ == "__main__":
    sys.exit(main())
