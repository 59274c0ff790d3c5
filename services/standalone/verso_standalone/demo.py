"""`verso demo`: ingest real texts, search them, and read every byte back.

1. Start a separate platform on a free port.
2. Ingest the sample corpus and wait until every text has been verified and dropped.
3. Run ten searches whose right documents are known.
4. Read every text back and compare every byte with the corpus.
5. Report what is stored.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from tokenizers import Tokenizer

from verso_client import Client, Document, Progress, Retries, Statistics, StoredText
from verso_codecs.zstd import ZstdCodec
from verso_core import DISTRIBUTION
from verso_core.errors import NotReady, Unavailable
from verso_core.jobs import Precision, SearchMode
from verso_standalone import sample
from verso_standalone.report import Report, SearchRun, Share
from verso_standalone.sample import TEXTS, Question
from verso_standalone.stack import Stack, StackConfig

COLLECTION = "demo"
_PRECISION = Precision.INT4  # as a collection is by default
_READ_BATCH = 64
_READERS = 3
_WARM_UP = "warm-up of the search path"
_PATIENCE_S = 300.0
_VERIFY_TIMEOUT_S = 900.0

# Texts are dropped as soon as they are verified: the demo must show that it reads them back from
# vector and patch, not from a text that is still retained. No tables are fitted to the texts: the
# report tells what the shipped ones reach, and verifies would wait for the fit.
_SETTINGS = {
    "VERSO_VERIFY_DELAY_S": "0.2",
    "VERSO_RAW_TEXT_RETENTION_S": "0",
    "VERSO_FIT_AFTER_CHUNKS": "0",
}


def run(
    folder: Path,
    artifact: Path,
    *,
    threads: int,
    console: Console,
    stopped: threading.Event,
    finish: Callable[[Report, str], None],
    limit: int = TEXTS,
    port: int = 0,
) -> Report:
    """Run the demo in a data folder and return its report.

    Args:
        folder: data folder of the platform.
        artifact: folder of the artifact to serve.
        threads: threads of the engine.
        console: where progress and report are printed.
        stopped: set by another thread to end the demo early.
        finish: called with the report and the address of the platform, which then stops.
        limit: most texts of the corpus to ingest.
        port: TCP port of the gateway; 0 takes a free one.

    Raises:
        VersoError: the platform did not start or stopped working on the way.
    """
    stack = Stack(
        StackConfig(data=folder, artifact=artifact, port=port, threads=threads, settings=_SETTINGS)
    )
    started = time.monotonic()
    try:
        with console.status("starting the platform"):
            stack.start(stopped=stopped)
        console.print(f"platform ready at {stack.url} in {time.monotonic() - started:.1f} s")
        with Client(stack.url, retries=Retries(patience_s=_PATIENCE_S)) as client:
            trial = Trial(client, artifact, console=console, stopped=stopped)
            report = trial.run(sample.documents(limit), sample.questions(), started=started)
        finish(report, stack.url)
    finally:
        with console.status("stopping the platform"):
            stack.stop()
    return report


class Trial:
    """Ingests texts into a running platform, searches and reads them, and measures it."""

    def __init__(
        self, client: Client, artifact: Path, *, console: Console, stopped: threading.Event
    ) -> None:
        self._client = client
        self._artifact = artifact
        self._console = console
        self._stopped = stopped
        self._failed: list[str] = []

    def run(
        self, documents: Sequence[Document], questions: Sequence[Question], *, started: float
    ) -> Report:
        """Ingest, search and read back; ``started`` is a time of ``time.monotonic``."""
        texts = {str(document.id): _bytes(document.text) for document in documents}
        # The report compares what vectors and texts take, so no words are kept beside them.
        self._client.create_collection(COLLECTION, precision=_PRECISION, search=SearchMode.DENSE)
        began = time.monotonic()
        self._ingest(documents)
        ingested = time.monotonic()
        self._await_verified(len(texts))
        verified = time.monotonic()
        searches = self._search(questions)
        read = time.monotonic()
        exact = self._read_back(texts)
        restore_s = time.monotonic() - read
        stats = self._client.stats(COLLECTION)
        dim = len(self._client.embed([_WARM_UP])[0].embedding)
        return Report(
            expected=len(texts),
            texts=stats.documents,
            exact=exact,
            verified=stats.verified,
            chunks=stats.chunks,
            dim=dim,
            precision=_PRECISION,
            bytes_text=sum(map(len, texts.values())),
            bytes_vectors=stats.bytes_vectors,
            bytes_patches=stats.bytes_patches,
            bytes_entries=stats.bytes_entries,
            bytes_zstd=self._zstd_bytes(texts.values()),
            codecs={n: Share(s.records, s.bytes) for n, s in stats.codecs.items()},
            searches=searches,
            ingest_s=ingested - began,
            verify_s=verified - ingested,
            restore_s=restore_s,
            restored_tokens=self._tokens(texts.values()),
            seconds=time.monotonic() - started,
            machine=_machine(),
            failed=self._failed,
        )

    def _ingest(self, documents: Sequence[Document]) -> None:
        with _bar(self._console) as bar:
            task = bar.add_task("ingesting", total=len(documents))

            def on_progress(progress: Progress) -> None:
                bar.update(task, completed=progress.done)
                self._check_stopped()

            report = self._client.ingest(documents, collection=COLLECTION, progress=on_progress)
        for item in report.failed:
            assert item.error is not None
            self._failed.append(f"ingest {item.id}: {item.error.code}: {item.error.detail}")

    def _await_verified(self, texts: int) -> Statistics:
        """Wait until an independent decode of the stored bytes has reproduced every text."""
        deadline = time.monotonic() + _VERIFY_TIMEOUT_S
        with _bar(self._console) as bar:
            task = bar.add_task("verifying", total=texts)
            while True:
                stats = self._client.stats(COLLECTION)
                bar.update(task, completed=stats.verified)
                if stats.verified >= min(texts, stats.documents):
                    return stats
                if time.monotonic() > deadline:
                    raise NotReady(
                        f"expected {texts} verified texts within {_VERIFY_TIMEOUT_S:g} s, "
                        f"got {stats.verified}"
                    )
                self._check_stopped()
                time.sleep(0.5)

    def _search(self, questions: Sequence[Question]) -> list[SearchRun]:
        self._client.search(_WARM_UP, collection=COLLECTION)
        runs = []
        for question in questions:
            began = time.monotonic()
            found = self._client.search(
                question.query, collection=COLLECTION, limit=20, filter=question.filter
            )
            ms = (time.monotonic() - began) * 1000
            order = list(dict.fromkeys(hit.document for hit in found.hits))
            ranks = [rank for rank, name in enumerate(order, 1) if name in question.right]
            runs.append(
                SearchRun(
                    query=question.query,
                    rank=min(ranks, default=None),
                    ms=round(ms, 1),
                    top=order[0] if order else "",
                    top_score=round(found.hits[0].score, 4) if found.hits else 0.0,
                )
            )
        return runs

    def _read_back(self, texts: dict[str, bytes]) -> int:
        """Read every text back, a few requests at a time, and count those that are exact."""
        names = list(texts)
        batches = [names[at : at + _READ_BATCH] for at in range(0, len(names), _READ_BATCH)]
        exact = 0
        with _bar(self._console) as bar, ThreadPoolExecutor(_READERS) as readers:
            task = bar.add_task("reading back", total=len(names))
            # A few at a time, so that an interrupted demo does not wait for all of them.
            for batch, found in zip(batches, readers.map(self._read, batches), strict=True):
                for name, text in zip(batch, found, strict=True):
                    if text.error is not None:
                        self._failed.append(f"read {name}: {text.error.code}")
                    elif text.data == texts[name]:
                        exact += 1
                    else:
                        self._failed.append(f"read {name}: the bytes differ from the corpus")
                bar.update(task, advance=len(batch))
        return exact

    def _read(self, names: Sequence[str]) -> list[StoredText]:
        self._check_stopped()
        return self._client.reconstruct(names, collection=COLLECTION)

    def _zstd_bytes(self, texts: Iterable[bytes]) -> int:
        """Return the size of the texts in the best codec without a decoder: zstd, or raw."""
        codec = ZstdCodec((self._artifact / "zstd.dict").read_bytes())
        return sum(1 + min(len(codec.encode(text)), len(text)) for text in texts)

    def _tokens(self, texts: Iterable[bytes]) -> int:
        """Return how many tokens of the decoder the texts have."""
        tokenizer = Tokenizer.from_file(str(self._artifact / "decoder_tokenizer.json"))
        encoded = tokenizer.encode_batch([text.decode("utf-8") for text in texts])
        return sum(len(one.ids) for one in encoded)

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise Unavailable("the demo was stopped")


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8") if isinstance(text, str) else text


def _bar(console: Console) -> Bar:
    return Bar(
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _machine() -> dict[str, Any]:
    """Return the machine and the versions that the figures depend on."""
    found: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    for name in (DISTRIBUTION, "onnxruntime", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
