"""What do the codec policies of a collection cost in bytes, and gain in time?

Documents of the shipped corpus are ingested into a collection of each policy, by turns, in one run
on one platform. ``smallest`` is what every collection did before there was a choice. Measured are

- *ingest*: from the request until every text has been verified (an independent decode);
- *read*: all texts, 64 documents a request, one request at a time;
- *search*: the first line of documents from all over the corpus as the question, ten hits with
  their texts, one search at a time;
- *stored bytes*: vectors and entries, as the platform counts them.

The cache of texts is off, so each read and search is cold. Encoding bounds the ingest, decoding the
reads. Only ratios mean something on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sheet
import texts

from verso_client import Client, Document
from verso_core.jobs import CodecPolicy, Precision
from verso_standalone.stack import Stack, StackConfig, find_artifact

_POLL_S = 0.05
_READ_BATCH = 64
_QUESTION_CHARACTERS = 80
_SETTINGS = {
    "VERSO_VERIFY_DELAY_S": "0",
    "VERSO_RAW_TEXT_RETENTION_S": "0",
    "VERSO_TEXT_CACHE_MIB": "0",
}


class Trial:
    """One collection of a policy, and the times of what is done with it."""

    def __init__(self, client: Client, policy: CodecPolicy, documents: Sequence[bytes]) -> None:
        self._client = client
        self._policy = policy
        self._documents = {f"d{number}": text for number, text in enumerate(documents)}
        self.ingest_s: list[float] = []
        self.read_s: list[float] = []
        self.search_ms: list[float] = []

    def ingest(self, round_number: int) -> None:
        """Ingest all documents into a collection of this round, and wait for the verify."""
        self._name = f"{self._policy}-{round_number}"
        self._client.create_collection(
            self._name, precision=Precision.INT8, codec_policy=self._policy
        )
        start = time.perf_counter()
        self._client.ingest(
            [Document(text, id=name) for name, text in self._documents.items()],
            collection=self._name,
        )
        while self._client.stats(self._name).verified < len(self._documents):
            time.sleep(_POLL_S)
        self.ingest_s.append(time.perf_counter() - start)

    def read(self) -> None:
        """Read all texts back and compare them."""
        names = list(self._documents)
        start = time.perf_counter()
        found = []
        for at in range(0, len(names), _READ_BATCH):
            found += self._client.reconstruct(names[at : at + _READ_BATCH], collection=self._name)
        self.read_s.append(time.perf_counter() - start)
        if [one.data for one in found] != list(self._documents.values()):
            raise SystemExit("a text was not returned exactly")

    def search(self, questions: Sequence[str]) -> None:
        """Search one question after the other."""
        for question in questions:
            start = time.perf_counter()
            self._client.search(question, collection=self._name, limit=10)
            self.search_ms.append((time.perf_counter() - start) * 1000)

    def row(self) -> dict[str, Any]:
        """Return the figures."""
        stats = self._client.stats(self._name)
        size = sum(map(len, self._documents.values()))
        return {
            "policy": str(self._policy),
            "ingest_s": statistics.median(self.ingest_s),
            "read_kb_per_s": size / 1000 / statistics.median(self.read_s),
            "search_p50_ms": statistics.median(self.search_ms),
            "search_max_ms": max(self.search_ms),
            "bytes_patches": stats.bytes_patches,
            "bytes_stored": stats.bytes_vectors + stats.bytes_entries,
            "chunks": stats.chunks,
            "codecs": {name: share.records for name, share in stats.codecs.items()},
        }


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all policies by turns on one platform, after a warm-up."""
    documents = texts.chosen(texts.corpus(), arguments.documents)
    lines = [text.decode().strip().partition("\n")[0] for text in documents]
    questions = [line[:_QUESTION_CHARACTERS] for line in lines][:: len(lines) // 64 or 1]
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as folder:
        config = StackConfig(
            Path(folder), arguments.artifact or find_artifact(), port=0, settings=_SETTINGS
        )
        stack = Stack(config)
        stack.start()
        try:
            with Client(stack.url, timeout_s=600.0) as client:
                warm = Trial(client, CodecPolicy.SMALLEST, documents[:64])
                warm.ingest(0)
                warm.read()
                trials = [Trial(client, policy, documents) for policy in CodecPolicy]
                for number in range(1, arguments.repeats + 1):
                    for trial in trials:
                        trial.ingest(number)
                    for trial in trials:
                        trial.read()
                    for trial in trials:
                        trial.search(questions)
                return [trial.row() for trial in trials]
        finally:
            stack.stop()


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return each policy against ``smallest``: times as fast, and bytes more in percent."""
    base = rows[0]
    return {
        row["policy"]: {
            "ingest_times_as_fast": base["ingest_s"] / row["ingest_s"],
            "reads_times_as_fast": row["read_kb_per_s"] / base["read_kb_per_s"],
            "search_times_as_fast": base["search_p50_ms"] / row["search_p50_ms"],
            "stored_percent_more": 100 * (row["bytes_stored"] / base["bytes_stored"] - 1),
            "patches_percent_more": 100 * (row["bytes_patches"] / base["bytes_patches"] - 1),
        }
        for row in rows
    }


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--documents", type=int, default=2446, help="at most 2446")
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    paper = sheet.Sheet("codec_policy")
    rows = measure(arguments)
    found = ratios(rows)
    for title, shown in (("measured", {row["policy"]: row for row in rows}), ("ratios", found)):
        names = [name for name in shown["fast"] if name not in ("policy", "codecs")]
        sheet.table(
            f"codec policies, {arguments.documents} documents: {title}",
            ["", *shown],
            [[name, *(row[name] for row in shown.values())] for name in names],
        )
    paper.finish({"repeats": arguments.repeats, "rows": rows, "against_smallest": found})


if __name__ == "__main__":
    main()
