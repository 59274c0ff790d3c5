"""What do searches leave in the ledger?

A platform takes in the shipped corpus and answers searches with texts, ten hits each, from many
callers. The bytes of the ledger's data set are taken before the first search, after the last one
and once the results have expired (``VERSO_READ_KEEP_S``). Bounded by computation; the figures are
bytes, so a busy machine does not change them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path

import redis
import sheet
import texts
from bench_serve import platform
from traffic import Route, send

from verso_client import Client, Document
from verso_standalone.stack import Stack, find_artifact

_CALLERS = 16
_KEEP_S = 60.0  # the default of VERSO_READ_KEEP_S
_AFTER_S = 10.0  # claims expire with their leases, ten seconds after a slice was claimed


@dataclass(frozen=True, slots=True)
class Row:
    """What the ledger holds at one time."""

    when: str
    data_bytes: int
    more_bytes: int
    keys: int
    jobs_listed: int
    searches_listed: int


def ledger_of(stack: Stack) -> redis.Redis:
    """Connect to a platform's ledger."""
    host, _, port = stack.addresses["valkey"].rpartition(":")
    return redis.Redis(host=host, port=int(port), password=stack.folder.secret())


def main() -> None:
    """Search, wait until the results have expired, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--searches", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=256)
    options = parser.parse_args()
    paper = sheet.Sheet("left_behind")
    strings = [text.decode() for text in texts.corpus()[: options.documents]]
    rows: list[Row] = []
    with (
        platform(options.artifact or find_artifact(None), threads=2) as stack,
        Client(stack.url, timeout_s=600) as client,
        ledger_of(stack) as ledger,
    ):
        client.create_collection("bench")
        documents = [Document(id=f"d{n}", text=text) for n, text in enumerate(strings)]
        client.ingest(documents, collection="bench")
        route = Route(
            f"{stack.url}/v1/search",
            body=lambda text: {"query": text[:80], "collection": "bench"},
            dim=lambda body: len(json.loads(body)["hits"]),
        )

        def note(when: str) -> None:
            size = ledger.info("memory")["used_memory_dataset"]
            first = rows[0].data_bytes if rows else size
            rows.append(
                Row(
                    when=when,
                    data_bytes=size,
                    more_bytes=size - first,
                    keys=ledger.dbsize(),
                    jobs_listed=len(client.jobs(limit=100_000)),
                    searches_listed=len(client.jobs(reads=True, limit=100_000)),
                )
            )

        send(route, strings[:_CALLERS], concurrency=_CALLERS)
        time.sleep(_KEEP_S + _AFTER_S)
        note("before")
        send(route, list(islice(cycle(strings), options.searches)), concurrency=_CALLERS)
        note("after the last search")
        time.sleep(_KEEP_S + _AFTER_S)
        note("when results have expired")
    sheet.table(
        f"{options.searches} searches, ten hits with texts each",
        list(asdict(rows[0])),
        [list(asdict(row).values()) for row in rows],
    )
    paper.finish({"searches": options.searches, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
