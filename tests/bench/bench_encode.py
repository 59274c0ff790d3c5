"""Does the platform run at the speed of the bare graph?

The same texts of the shipped corpus go two ways, by turns, in one run on one machine:

- *embed, bare graph*: tokenised beforehand, in length-sorted batches by the engine's own budget,
  nothing but ``session.run``;
- *embed, platform*: one bulk job over HTTP through gateway, ledger, queue, worker and engine,
  until the client holds the vectors;
- *ingest, one process*: what an ingest asks of the model (cut, encode, round, code by all codecs,
  decode the smallest under disturbance) called directly, in slices of the same size, as many
  at once as a worker has;
- *ingest, platform*: the same documents over HTTP until the job has ended: entries committed,
  vectors flushed and read back. The independent verify is put off: it would share the cores;
- *ingest and verify*: the same with the verify at once, until every document is verified; in one
  process that is one more decode.

A platform of its own (``verso up`` on a temporary folder) is started for it. The answer is bounded
by computation: ratios near 1 mean that queue, stores and sockets cost nothing.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import sheet
import texts
from rival_server import load_encoder

from verso_client import Client, Document
from verso_core import manifest
from verso_core.jobs import SLICE_ITEMS, CodecPolicy, Precision
from verso_core.manifest import Artifact
from verso_standalone.stack import Stack, StackConfig, find_artifact
from verso_worker.engine.batching import BATCH_ROWS, ENCODE_BUDGET
from verso_worker.engine.encoder import Encoder
from verso_worker.engine.loading import load_service
from verso_worker.engine.service import PADDING, Service
from verso_worker.records.artifact import byte_codecs, cutter
from verso_worker.records.recorder import Recorder
from verso_worker.records.space import Space
from verso_worker.settings import WorkerSettings

_HOUR_S = "3600"
_POLL_S = 0.05
Batch = list[list[int]]


def batches(tokens: Sequence[list[int]]) -> list[Batch]:
    """Put texts into batches as the engine does: by length, within its budget and its padding."""
    made: list[Batch] = []
    current: Batch = []
    padding = 0
    for ids in sorted(tokens, key=len, reverse=True):
        longest = len(current[0]) if current else len(ids)
        padding += longest - len(ids)
        full = len(current) == BATCH_ROWS or (len(current) + 1) * longest > ENCODE_BUDGET
        if current and (full or padding > PADDING):
            made.append(current)
            current, padding = [], 0
        current.append(ids)
    return [*made, current]


def run_bare(encoder: Encoder, made: Sequence[Batch]) -> None:
    """Run the encoder's graph over ready batches."""
    for batch in made:
        encoder.run(batch)


class Direct:
    """What an ingest asks of the model, called in one process: no queue, no store, no socket."""

    def __init__(self, artifact: Artifact, service: Service) -> None:
        settings = artifact.manifest.space
        self._service = service
        self._cutter = cutter(artifact)
        self._recorder = Recorder(service, byte_codecs(artifact), self._cutter)
        self._space = Space(Precision.FLOAT16, settings.dim, settings.int8_scale)

    def ingest(self, documents: Sequence[bytes], *, verified: bool) -> None:
        """Work through documents slice by slice, with as many at once as a worker has."""
        parts = [documents[at : at + SLICE_ITEMS] for at in range(0, len(documents), SLICE_ITEMS)]
        with ThreadPoolExecutor(WorkerSettings.model_fields["bulk_slices"].default) as pool:
            list(pool.map(partial(self._slice, verified=verified), parts))

    def _slice(self, documents: Sequence[bytes], *, verified: bool) -> None:
        chunks = [chunk for document in documents for chunk in self._cutter.cut(document)]
        stored = self._space.round(self._service.encode(chunks).vectors)
        key = secrets.token_bytes(16)
        records = self._recorder.write(
            chunks,
            stored,
            precision=self._space,
            slot=0,
            key=key,
            policy=CodecPolicy.BALANCED,
        )
        if verified:
            found = self._recorder.read(records, list(stored), precision=self._space, key=key)
            if found != chunks:
                sys.exit("a record was not given back exactly")


class Platform:
    """A running platform. Every ingest has a collection of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._number = count()

    def embed(self, strings: Sequence[str]) -> None:
        """Embed texts in one call and check that every vector came."""
        found = self._client.embed(strings)
        if len(found) != len(strings):
            sys.exit(f"expected {len(strings)} vectors, got {len(found)}")

    def ingest(self, documents: Sequence[bytes], *, verified: bool) -> None:
        """Take documents in and wait for the job's end, or until all of them are verified."""
        name = f"bench-{next(self._number)}"
        self._client.create_collection(name)
        rows = [Document(text, id=f"d{number}") for number, text in enumerate(documents)]
        report = self._client.ingest(rows, collection=name)
        if report.documents != len(rows):
            sys.exit(f"expected {len(rows)} documents taken in, got {report.documents}")
        while verified and self._client.stats(name).verified < len(rows):
            time.sleep(_POLL_S)


@contextmanager
def platform(artifact: Path, *, threads: int, verify_delay_s: str) -> Iterator[Platform]:
    """Start a platform on a temporary folder and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as folder:
        settings = {
            "VERSO_THREADS": str(threads),
            "VERSO_VERIFY_DELAY_S": verify_delay_s,
            "VERSO_RAW_TEXT_RETENTION_S": "0",
        }
        stack = Stack(StackConfig(Path(folder), artifact, port=0, settings=settings))
        stack.start()
        try:
            with Client(stack.url, timeout_s=600.0) as client:
                yield Platform(client)
        finally:
            stack.stop()


def timed(ways: Mapping[str, Callable[[], None]], *, repeats: int) -> dict[str, float]:
    """Return the median seconds of each way, after one round that only warms up.

    The ways take turns, so that whatever else the machine does falls on all of them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(spent) for name, spent in seconds.items()}


def measure(artifact: Artifact, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time all ways; each row gives texts, encoder tokens and bytes a second."""
    documents = texts.chosen(texts.corpus(), arguments.documents)
    strings = [text.decode() for text in documents]
    encoder = load_encoder(artifact.folder, threads=arguments.threads)
    tokens = encoder.tokenise(documents)
    repeats = arguments.repeats
    service = load_service(artifact, threads=arguments.threads)
    direct = Direct(artifact, service)
    with platform(artifact.folder, threads=arguments.threads, verify_delay_s=_HOUR_S) as running:
        seconds = timed(
            {
                "embed, bare graph": partial(run_bare, encoder, batches(tokens)),
                "embed, platform": partial(running.embed, strings),
                "ingest, one process": partial(direct.ingest, documents, verified=False),
                "ingest, platform": partial(running.ingest, documents, verified=False),
            },
            repeats=repeats,
        )
    with platform(artifact.folder, threads=arguments.threads, verify_delay_s="0") as running:
        seconds |= timed(
            {
                "ingest and verify, one process": partial(direct.ingest, documents, verified=True),
                "ingest and verify, platform": partial(running.ingest, documents, verified=True),
            },
            repeats=repeats,
        )
    service.close()
    limits = {
        "embed, platform": "embed, bare graph",
        "ingest, platform": "ingest, one process",
        "ingest and verify, platform": "ingest and verify, one process",
    }
    size, length = sum(map(len, documents)), sum(map(len, tokens))
    return [
        {
            "way": way,
            "seconds": spent,
            "texts_per_s": len(documents) / spent,
            "tokens_per_s": length / spent,
            "bytes_per_s": size / spent,
            "ratio": seconds[limits[way]] / spent if way in limits else None,
        }
        for way, spent in sorted(seconds.items())
    ]


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--documents", type=int, default=512, help="at most 2048")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paper = sheet.Sheet("encode")
    artifact = manifest.load(arguments.artifact or find_artifact())
    rows = measure(artifact, arguments)
    sheet.table(
        f"the platform against the bare graph, {arguments.documents} texts",
        ["variant", "seconds", "texts/s", "encoder tokens/s", "kB/s", "of the limit"],
        [
            [
                row["way"],
                row["seconds"],
                row["texts_per_s"],
                row["tokens_per_s"],
                row["bytes_per_s"] / 1e3,
                f"{row['ratio']:.0%}" if row["ratio"] else "-",
            ]
            for row in rows
        ],
    )
    paper.finish({"artifact": artifact.id, "threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()
