"""What does the queue cost, and is a server without one any faster?

One run, one machine, the same texts, the same model files, one way after another:

- *bare graph*: the encoder in this process, nothing but tokenising and ``session.run``: one text
  after another, and in length-sorted batches of the engine's own budget;
- *Verso*: a platform of its own (``verso up``) over HTTP, one text a request by 1, 8, 64 and 256
  callers; a bulk embed; a bulk ingest (encode, code against the vector, store, commit); all those
  texts read back, once from the stores and once more as texts that were read lately;
- *FastAPI + ONNX*: one request is one run of the graph, no queue and no batching;
- *Celery*: one task for each text, results over a Valkey set up as Verso's own;
- *infinity-emb* with its ONNX engine, where ``--infinity`` names a Python that has it: an
  environment of its own with ``infinity-emb[server]==0.0.78``, ``optimum==1.24.0`` (a later one
  does not open a local folder for it), ``transformers==4.48.3``, ``onnx`` and ``onnxruntime``.

Everything here is bounded by computation: the encoder's milliseconds a text. CPU seconds count all
processes that serve and leave the callers out, so they tell more than requests a second where
callers and servers share the cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import rivals
import sheet
import texts
from bench_encode import batches
from rival_server import load_encoder
from traffic import Costs, Route, Traffic, send

from verso_client import Client, Document
from verso_core import manifest
from verso_standalone.stack import Stack, StackConfig, find_artifact

_CALLERS = (1, 8, 64, 256)
_EACH = 4  # requests of a caller, at least: the first and the last ones meet fewer others
_WARM = 32
_PAGE = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a way of serving and its figures."""

    way: str
    callers: int | None
    texts_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_s_per_1000: float
    memory_mb: float
    refused: int


class Bench:
    """The texts of this run and the rows measured so far."""

    def __init__(self, strings: Sequence[str], *, single: int) -> None:
        self.strings = list(strings)
        self.single = list(itertools.islice(itertools.cycle(self.strings), single))
        self.rows: list[Row] = []

    def singles(self, way: str, ask: Callable[[Sequence[str], int], Traffic]) -> None:
        """Measure one-text requests by several numbers of callers, once the server is at rest.

        The first second after a start is slower for every server: code is loaded, caches are cold.
        """
        for callers in (8, 1):
            ask(self.single, callers)
        costs = Costs()
        for callers in _CALLERS:
            asked = list(
                itertools.islice(
                    itertools.cycle(self.single), max(len(self.single), _EACH * callers)
                )
            )
            costs.spent()
            traffic = ask(asked, callers)
            self._add(way, traffic, costs.spent(), callers=callers, memory=costs.memory_bytes())

    def bulk(self, way: str, run: Callable[[Sequence[str]], None]) -> None:
        """Measure one call with all texts."""
        run(self.strings[:_WARM])
        costs = Costs()
        started = time.perf_counter()
        run(self.strings)
        traffic = Traffic(len(self.strings), time.perf_counter() - started, [])
        self._add(way, traffic, costs.spent(), callers=None, memory=costs.memory_bytes())

    def bare(self, artifact: Path, *, threads: int) -> None:
        """Measure the graph in this process."""
        encoder = load_encoder(artifact, threads=threads)
        for text in self.single:
            encoder.run(encoder.tokenise([text.encode()]))
        memory = psutil.Process().memory_info().rss
        spent, started, latencies = _own_cpu(), time.perf_counter(), []
        for text in self.single:
            began = time.perf_counter()
            encoder.run(encoder.tokenise([text.encode()]))
            latencies.append(time.perf_counter() - began)
        traffic = Traffic(len(self.single), time.perf_counter() - started, latencies)
        self._add("bare graph, one by one", traffic, _own_cpu() - spent, callers=1, memory=memory)
        spent, started = _own_cpu(), time.perf_counter()
        for batch in batches(encoder.tokenise([text.encode() for text in self.strings])):
            encoder.run(batch)
        traffic = Traffic(len(self.strings), time.perf_counter() - started, [])
        self._add("bare graph, batches", traffic, _own_cpu() - spent, callers=None, memory=memory)

    def _add(
        self, way: str, traffic: Traffic, cpu_s: float, *, callers: int | None, memory: int
    ) -> None:
        timed = bool(traffic.latencies)
        self.rows.append(
            Row(
                way=way,
                callers=callers,
                texts_per_s=traffic.per_s,
                p50_ms=traffic.quantile_ms(0.5) if timed else None,
                p99_ms=traffic.quantile_ms(0.99) if timed else None,
                cpu_s_per_1000=1000 * cpu_s / traffic.requests,
                memory_mb=memory / 1e6,
                refused=traffic.refused,
            )
        )


@contextmanager
def platform(artifact: Path, *, threads: int) -> Iterator[Stack]:
    """Start a platform on a temporary folder; the verify of ingested texts is put off.

    The first text is ingested before anything is measured: in a new folder the engine checks its
    codecs after the start, until then beside the embeds.
    """
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as folder:
        settings = {"VERSO_VERIFY_DELAY_S": "3600"}
        config = StackConfig(Path(folder), artifact, port=0, threads=threads, settings=settings)
        stack = Stack(config)
        stack.start()
        try:
            with Client(stack.url, timeout_s=600) as client:
                client.ingest([Document("the first text", id="first")])
            yield stack
        finally:
            stack.stop()


def verso(bench: Bench, artifact: Path, *, threads: int) -> None:
    """Measure the platform."""
    with platform(artifact, threads=threads) as stack, Client(stack.url, timeout_s=600) as client:
        route = Route(
            f"{stack.url}/v1/embed",
            body=lambda text: {"texts": [text]},
            dim=lambda body: len(json.loads(body)["results"][0]["embedding"]),
        )
        bench.singles("Verso", lambda strings, callers: send(route, strings, concurrency=callers))
        bench.bulk("Verso, bulk embed", lambda strings: _embed(client, strings))
        bench.bulk("Verso, bulk ingest", lambda strings: _ingest(client, strings))
        bench.bulk("Verso, bulk read", lambda strings: _read(client, strings))
        bench.bulk("Verso, bulk read again", lambda strings: _read(client, strings))


def _read(client: Client, strings: Sequence[str]) -> None:
    for start in range(0, len(strings), _PAGE):
        page = strings[start : start + _PAGE]
        ids = [f"d{number}" for number in range(start, start + len(page))]
        found = client.reconstruct(ids, collection=f"bench-{len(strings)}")
        if [one.data for one in found] != [text.encode() for text in page]:
            sys.exit("expected every text back")


def _embed(client: Client, strings: Sequence[str]) -> None:
    if len(client.embed(list(strings))) != len(strings):
        sys.exit("expected a vector for every text")


def _ingest(client: Client, strings: Sequence[str]) -> None:
    name = f"bench-{len(strings)}"
    client.create_collection(name)
    rows = [Document(text, id=f"d{number}") for number, text in enumerate(strings)]
    if client.ingest(rows, collection=name).documents != len(rows):
        sys.exit("expected every document to be taken in")


def compare(bench: Bench, artifact: Path, arguments: argparse.Namespace) -> dict[str, str]:
    """Measure the rivals; return those that could not be measured, with the reason."""
    threads, missing = arguments.threads, {}
    with rivals.plain_server(artifact, threads=threads) as route:
        bench.singles(
            "FastAPI + ONNX", lambda strings, callers: send(route, strings, concurrency=callers)
        )
    with (
        tempfile.TemporaryDirectory(prefix="verso-bench-") as folder,
        rivals.plain_tasks(artifact, Path(folder) / "valkey", threads=threads) as tasks,
    ):
        bench.singles(
            "Celery, a task a text",
            lambda strings, callers: tasks.send(strings, concurrency=callers),
        )
    try:
        if arguments.infinity is None:
            raise rivals.RivalMissing("not asked for: --infinity")
        with (
            tempfile.TemporaryDirectory(prefix="verso-bench-") as folder,
            rivals.infinity(
                rivals.optimum_folder(artifact, Path(folder) / "model"),
                arguments.infinity,
                threads=threads,
            ) as route,
        ):
            bench.singles(
                "infinity-emb, ONNX",
                lambda strings, callers: send(route, strings, concurrency=callers),
            )
    except rivals.RivalMissing as reason:
        missing["infinity-emb"] = str(reason)
    return missing


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--texts", type=int, default=1024, help="texts of a bulk call")
    parser.add_argument("--single", type=int, default=384, help="requests of one text, at least")
    parser.add_argument("--longest", type=int, default=0, help="leave out longer texts, bytes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rivals", action="store_true", help="measure the rivals as well")
    parser.add_argument("--infinity", type=Path, help="Python of an environment that has it")
    arguments = parser.parse_args()
    paper = sheet.Sheet("serve")
    folder = arguments.artifact or find_artifact()
    artifact = manifest.load(folder)
    found = [
        text for text in texts.corpus() if not arguments.longest or len(text) <= arguments.longest
    ]
    strings = [text.decode() for text in texts.chosen(found, arguments.texts)]
    bench = Bench(strings, single=arguments.single)
    bench.bare(folder, threads=arguments.threads)
    verso(bench, folder, threads=arguments.threads)
    missing = {"all": "not asked for: --rivals"}
    if arguments.rivals:
        missing = compare(bench, folder, arguments)
    sheet.table(
        f"{len(strings)} texts of {sum(map(len, strings)) / len(strings):.0f} characters",
        ["variant", "callers", "texts/s", "p50 ms", "p99 ms", "CPU s/1,000", "MB", "refused"],
        [[getattr(row, name) for name in Row.__slots__] for row in bench.rows],
    )
    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}")
    paper.finish(
        {
            "artifact": artifact.id,
            "threads": arguments.threads,
            "texts": len(strings),
            "rows": [{name: getattr(row, name) for name in Row.__slots__} for row in bench.rows],
            "missing": missing,
        }
    )


if __name__ == "__main__":
    main()
