"""Are texts in a frame, as in a field of JSON, found as well as if each were a statement?

A frame has so many statements (``LIMITS`` of ``verso_worker.rules.grouping.templates``); further
lines are one, have no vector, and are found by their words (ADR 25). Each set's texts go into a log
collection over HTTP as the messages of GELF records, and questions ask for plain lines:

- *SQuAD*: the paragraphs of the development set that this project shares; a question is the first
  of its paragraph, and its paragraph is right.
- *STS-B*: second sentences of the training set, without repetition; a question is the first
  sentence of a pair that people have given at least 4.6 of 5, and its second sentence is right.

Share of questions whose text is first, and among the first ten, and the mean reciprocal rank (MRR)
among them, for each mode of search. With and without the limit: run it on both versions.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import lzma
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import data_lines
import sheet
from bench_log_collections import platform

from verso_client import Client
from verso_core.jobs import CollectionKind, SearchMode
from verso_standalone.stack import find_artifact

HITS = 10
SAME = 4.6
"""Of 5: sentences of such a pair mean the same."""

Asked = list[tuple[str, str]]
"""A question and the text that is right."""


def squad(folder: Path) -> Asked:
    """Return the first question of each paragraph with it."""
    with lzma.open(folder / "qa_squad/squad2_dev_shared.json.xz", "rt") as stream:
        articles = json.load(stream)["data"]
    paragraphs = itertools.chain.from_iterable(one["paragraphs"] for one in articles)
    return [
        (one["qas"][0]["question"], " ".join(one["context"].split()))
        for one in paragraphs
        if one["qas"]
    ]


def pairs(folder: Path) -> Asked:
    """Return the pairs of sentences; those that do not mean the same have an empty question."""
    with lzma.open(folder / "sim_stsb/stsb-en-train.csv.xz", "rt") as stream:
        rows = list(csv.reader(stream))
    return [
        (first if float(score) >= SAME and first != second else "", " ".join(second.split()))
        for first, second, score in rows
    ]


def measure(client: Client, name: str, found: Asked, *, lines: int, asked: int) -> dict[str, Any]:
    """Take texts in and ask for some of them; return a row for each mode."""
    own = name.lower()
    client.create_collection(own, kind=CollectionKind.LOGS)
    held = list(dict.fromkeys(text for _, text in found))[:lines]
    rows = data_lines.framed("".join(f"{text}\n" for text in held).encode())
    client.ingest_lines(_parts(rows), collection=own)
    kept = set(held)
    questions = [(question, text) for question, text in found if question and text in kept]
    questions = questions[:: max(1, len(questions) // asked)][:asked]
    return {
        "lines": len(held),
        "questions": len(questions),
        **{
            mode.value: _asked(client, own, questions, mode)
            for mode in (SearchMode.HYBRID, SearchMode.SPARSE, SearchMode.DENSE)
        },
    }


def _parts(rows: bytes) -> Iterator[bytes]:
    lines = rows.splitlines(keepends=True)
    for start in range(0, len(lines), 1000):
        yield b"".join(lines[start : start + 1000])


def _asked(client: Client, name: str, questions: Asked, mode: SearchMode) -> dict[str, float]:
    ranks, took = [], []
    for question, text in questions:
        started = time.perf_counter()
        found = client.search(question, collection=name, limit=HITS, mode=mode, lines=True)
        took.append(time.perf_counter() - started)
        said = [json.loads(hit.text)["short_message"] for hit in found.hits if hit.text]
        ranks.append(said.index(text) + 1 if text in said else 0)
    return {
        "first": statistics.mean(rank == 1 for rank in ranks),
        "top10": statistics.mean(rank > 0 for rank in ranks),
        "mrr": statistics.mean(1 / rank if rank else 0.0 for rank in ranks),
        "median_ms": 1000 * statistics.median(took),
    }


def main() -> None:
    """Take each set in, ask, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--lines", type=int, default=4000, help="most lines of a set")
    parser.add_argument("--asked", type=int, default=300, help="most questions of a set")
    given = parser.parse_args()
    paper = sheet.Sheet("framed_texts")
    sets = {"SQuAD": squad(given.data), "STS-B": pairs(given.data)}
    with platform(find_artifact(), {}) as stack, Client(stack.url, timeout_s=600) as client:
        found = {
            name: measure(client, name, one, lines=given.lines, asked=given.asked)
            for name, one in sets.items()
        }
    columns = ("first", "top10", "mrr", "median_ms")
    rows = [
        (f"{name}, {mode.value}", *(row[mode.value][column] for column in columns))
        for name, row in found.items()
        for mode in (SearchMode.HYBRID, SearchMode.SPARSE, SearchMode.DENSE)
    ]
    sheet.table("texts in a frame", ("search", *columns), rows)
    paper.finish(found)


if __name__ == "__main__":
    main()
