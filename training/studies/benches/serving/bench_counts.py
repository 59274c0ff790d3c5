r"""What do the statistics of a large collection cost: to ask for, and to keep?

    PYTHONPATH=training:tests/bench python -m studies.benches.serving.bench_counts \
        --documents 1000000

Entries of one record are written to a real Valkey by the ledger's own commits, 64 at a time, with
and without counts. Then they are counted in three ways: by reading every entry, as the statistics
once were; in slices, as the keeper does after each pass of the scrub; and by reading the counts
that are kept. The limit is one core: Valkey's, or the reader's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime

import psutil
import redis
import sheet

from studies.benches.serving.ledger_server import server_s, serving
from verso_core.jobs import (
    Collection,
    IngestItem,
    IngestParams,
    Kind,
    Precision,
    Queue,
    TextPolicy,
    cut,
)
from verso_core.record import Codec, Entry, Record
from verso_ledger import Counting, DocumentWrite, Ledger, NewJob
from verso_ledger.keys import key

_SLICE = 64
_PATCH = bytes(60)  # about what a line of a log takes
_ASKED = 200


def fill(ledger: Ledger, server: psutil.Process, *, name: str, documents: int) -> float:
    """Commit new documents; return the server's CPU microseconds a document."""
    record = Record(Codec.NGRAM, 0, b"hashhash", b"sums", _PATCH)
    before = server_s(server)
    for start in range(0, documents, _SLICE):
        items = [
            IngestItem(f"line-{start + n}", b"") for n in range(min(_SLICE, documents - start))
        ]
        [part] = cut(Kind.INGEST, IngestParams(collection=name), items)
        ledger.jobs.accept(NewJob(kind=Kind.INGEST, queue=Queue.BULK, slices=[part]))
        [lease] = ledger.leases.claim(Queue.BULK, owner="bench")
        entry = Entry(lease.seq, 150, (record,)).pack()
        writes = [DocumentWrite(name, item.id, entry) for item in items]
        ledger.leases.commit(
            lease, b"", ok=len(items), errors=0, documents=writes, verify_delay_s=86400
        )
    return 1e6 * (server_s(server) - before) / documents


def read_all(ledger: Ledger, name: str) -> int:
    """Count by reading every entry."""
    return sum(len(Entry.unpack(data).records) for _, data in ledger.documents.entries(name))


def count_again(ledger: Ledger, name: str, number: int) -> list[float]:
    """Count in slices; return the seconds of each."""
    spent = []
    step = Counting.MORE
    while step is Counting.MORE:
        started = time.perf_counter()
        step = ledger.documents.count(name, scrubbed=number)
        spent.append(time.perf_counter() - started)
    return spent


def _timed(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def main() -> None:
    """Fill the ledger, count in each way and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--buckets", type=int, default=4096)
    options = parser.parse_args()
    report = sheet.Sheet("counts")
    with serving() as (url, server), redis.Redis.from_url(url) as raw:
        raw.config_set("appendfsync", "no")  # the disk's time is not asked for here
        ledger = Ledger.from_url(url)
        for name in ("counted", "uncounted"):
            ledger.documents.collection_put(_collection(name, options.buckets))
        raw.unlink(key("counts", ledger.documents._locations.find("uncounted")[0]))
        few = min(20_000, options.documents)
        without = fill(ledger, server, name="uncounted", documents=few)
        kept = fill(ledger, server, name="counted", documents=few)
        fill(ledger, server, name="counted", documents=options.documents)
        reading_s = _timed(lambda: read_all(ledger, "counted"))
        before = server_s(server)
        slices = count_again(ledger, "counted", 1)
        counting_cpu_s = server_s(server) - before
        asking_s = (
            _timed(lambda: [ledger.documents.holdings("counted") for _ in range(_ASKED)]) / _ASKED
        )
        found = ledger.documents.holdings("counted")
        ledger.close()
    if found.documents != options.documents:
        raise SystemExit(f"expected {options.documents} documents counted, got {found.documents}")
    result = {
        "documents": options.documents,
        "reading_every_entry_s": reading_s,
        "counting_anew_s": sum(slices),
        "counting_anew_cpu_s": counting_cpu_s,
        "slices": len(slices),
        "longest_slice_ms": 1000 * max(slices),
        "asking_ms": 1000 * asking_s,
        "cpu_us_a_document": {"without counts": without, "with counts": kept},
    }
    sheet.table(
        "statistics of one collection",
        ("variant", "s", "Valkey CPU s", "longest block of the ledger, ms"),
        [
            ("every entry read", reading_s, "-", "-"),
            (
                f"counted again in {len(slices)} slices",
                sum(slices),
                counting_cpu_s,
                1000 * max(slices),
            ),
            ("asked for what is kept", asking_s, "-", 1000 * asking_s),
        ],
    )
    sheet.table(
        "Valkey's CPU, accept to commit",
        ("variant", "us a document"),
        list(result["cpu_us_a_document"].items()),
    )
    report.finish(result)


def _collection(name: str, buckets: int) -> Collection:
    return Collection(
        name=name,
        precision=Precision.INT8,
        text_policy=TextPolicy.PATCH,
        space="0123456789abcdef",
        dim=384,
        int8_scale=1.0,
        artifacts=(),
        buckets=buckets,
        checksum_key="00",
        created=datetime.now(UTC),
    )


if __name__ == "__main__":
    main()
