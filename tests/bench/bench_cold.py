"""What does cold storage save of the ledger's memory, and what does a read cost?

A platform of its own takes lines and documents in. Once they are verified its stores are measured,
and texts are read by ids at random, each once: lines one a request, documents ten. Then a pass of
the scrub moves what may be moved to the object store, and both are measured again. The worker is
killed before the reads of either kind, so that none comes from its memory; a folder's pages may be
in the system's, which the first reads after a boot would not find. ``VERSO_COLD_URL`` names another
object store than the data folder.

The limit that a cold read is a ratio of is the same read from the ledger, in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import line_sets
import psutil
import sheet
import texts
from bench_log_collections import platform

from verso_client import Client, Document, Retries
from verso_core.jobs import CollectionKind
from verso_core.jobs.statistics import Statistics
from verso_standalone.stack import find_artifact

_LINES, _DOCUMENTS = "lines", "documents"
_SETTINGS = {"VERSO_COLD_AFTER_DAYS": "0", "VERSO_SCRUB_SHARE": "1"}
_POLL_S = 0.2


@dataclass(frozen=True)
class Subject:
    """A collection that is measured.

    Attributes:
        name: of the collection.
        texts: by id.
        asked: ids that are read while it is hot, and then cold.
        together: ids of one request.
    """

    name: str
    texts: Mapping[str, bytes]
    asked: Sequence[Sequence[str]]
    together: int


def subject(name: str, known: Mapping[str, bytes], *, asked: int, together: int) -> Subject:
    """Return a collection of which ids are drawn at random, none twice."""
    drawn = random.Random(0).sample(sorted(known), min(2 * asked, len(known)) // 2 * 2)
    return Subject(name, known, (drawn[::2], drawn[1::2]), together)


def stats(client: Client, name: str) -> Statistics:
    """Return the statistics of a collection once all of its texts are verified."""
    while (found := client.stats(name)).verified < found.documents:
        time.sleep(_POLL_S)
    return found


def scrub(client: Client) -> float:
    """Run a pass over all records; return how long it took, seconds."""
    begun = time.perf_counter()
    wanted = client.scrub(now=True).number + 1
    while (state := client.scrub()).number < wanted or state.running:
        time.sleep(_POLL_S)
    return time.perf_counter() - begun


def read(client: Client, one: Subject, asked: Sequence[str]) -> list[float]:
    """Read texts by id with a worker that has read none, one caller, and compare each.

    Returns:
        How long each request took, milliseconds.
    """
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that ended has no command line
            if process.cmdline()[-1:] == ["verso_worker"]:
                process.kill()
    client.reconstruct(["first"])  # it waits for the next worker
    spent = []
    for start in range(0, len(asked), one.together):
        ids = asked[start : start + one.together]
        begun = time.perf_counter()
        found = client.reconstruct(ids, collection=one.name)
        spent.append(1000 * (time.perf_counter() - begun))
        for name, text in zip(ids, found, strict=True):
            if text.data != one.texts[name]:
                raise RuntimeError(f"{name} of {one.name} reads as another text")
    return sorted(spent)


def measured(client: Client, one: Subject, asked: Sequence[str]) -> list[Any]:
    """Return bytes a record in memory and in cold storage, and milliseconds of a request."""
    found, spent = stats(client, one.name), read(client, one, asked)
    assert found.kept is not None
    held = found.bytes_entries if found.lines is None else found.lines.bytes_segments
    return [
        held / len(one.texts),
        found.kept.bytes_memory / len(one.texts),
        found.kept.bytes_cold / len(one.texts),
        spent[len(spent) // 2],
        spent[len(spent) * 99 // 100],
    ]


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with logs_loghub_full and ir_scifact")
    parser.add_argument("--set", default="Linux", help="name of the set that lines are made from")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--documents", default="scifact: abstracts", help="set of documents")
    parser.add_argument("--most", type=int, default=3000, help="documents, at most")
    parser.add_argument("--asked", type=int, default=200, help="lines read by id, of either kind")
    options = parser.parse_args()
    paper = sheet.Sheet("cold")
    sets = line_sets.whole(options.data)
    base = sets.get(options.set) or next(iter(sets.values()))
    data = b"".join(line_sets.generated(base, options.lines))
    whole = texts.corpus()
    if options.data is not None:
        [whole] = texts.public(options.data, only=[options.documents]).values()
    lines = {f"0:{n}": row for n, row in enumerate(data.splitlines())}
    documents = {f"d{n}": text for n, text in enumerate(texts.chosen(whole, options.most))}
    subjects = [
        subject(_LINES, lines, asked=options.asked, together=1),
        subject(_DOCUMENTS, documents, asked=10 * options.asked, together=10),
    ]
    given = {name: value for name, value in os.environ.items() if name == "VERSO_COLD_URL"}
    rows: list[list[Any]] = []
    with (
        platform(find_artifact(), _SETTINGS | given) as stack,
        Client(stack.url, timeout_s=600, retries=Retries(patience_s=120)) as client,
    ):
        client.create_collection(_LINES, kind=CollectionKind.LOGS)
        client.ingest_lines([data], collection=_LINES)
        client.create_collection(_DOCUMENTS, auto_fit=False)  # tables would come in between
        sent = (Document(text, id=name) for name, text in documents.items())
        client.ingest(sent, collection=_DOCUMENTS)
        for one in subjects:
            stats(client, one.name)
        rows += [[f"{one.name}, hot", *measured(client, one, one.asked[0])] for one in subjects]
        seconds = scrub(client)
        rows += [[f"{one.name}, cold", *measured(client, one, one.asked[1])] for one in subjects]
    columns = ["", "in segments or entries", "all in memory", "in cold storage", "p50 ms", "p99 ms"]
    title = f"{len(lines):,} lines, {len(documents):,} documents: bytes each, one line or ten texts"
    sheet.table(title, columns, rows)
    found = {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows}
    ratios = {
        f"{one.name} {what} ratio": found[f"{one.name}, cold"][column]
        / found[f"{one.name}, hot"][column]
        for one in subjects
        for what, column in (("memory", "all in memory"), ("p50", "p50 ms"))
    }
    sizes = {"lines": len(lines), "documents": len(documents)}
    paper.finish(sizes | {"rows": found, "scrub_s": seconds} | ratios)


if __name__ == "__main__":
    main()
