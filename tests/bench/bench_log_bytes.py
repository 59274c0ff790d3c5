"""How many bytes does a platform keep for a log line, in memory and on the disk?

Each set goes whole, as one stream, into a log collection of its own over HTTP. When every line is
verified, `stats` is asked: Valkey's ``MEMORY USAGE`` of all keys, and the blocks of the vector
store's files. These are counts and depend on no load. The ledger's file on the disk, which holds
the values once more, is not counted.

- *memory*: all of the ledger's keys, which are *segments*, *shapes*, *vectors* of statements,
  *tables* and the rest;
- *disk*: the files for lines that are kept one by one, which most sets have none of;
- *all*: both, to compare with the *raw* bytes.

Without a data folder: the lines of the shipped corpus.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import line_sets
import sheet
import texts
from bench_log_collections import platform

from verso_client import Client
from verso_core.jobs import CollectionKind
from verso_standalone.stack import find_artifact

_COLUMNS = (
    *("lines", "records", "raw", "all", "of raw", "memory", "disk"),
    *("segments", "shapes", "vectors", "tables"),
)
_POLL_S = 0.5


def log_sets(folder: Path | None) -> dict[str, bytes]:
    """Return the bytes of each set: 2,000 lines of many systems, and the whole logs of two."""
    found = {f"whole {name}": data for name, data in line_sets.whole(folder).items()}
    if folder is None:
        return found
    parts = {name: folder / "logs_loghub2k" / name / f"{name}_2k.log" for name in texts.LOGHUB}
    return {name: path.read_bytes() for name, path in parts.items()} | found


def measure(client: Client, name: str, data: bytes) -> dict[str, Any]:
    """Take a set in; return what is kept of it, bytes a line."""
    own = name.lower().replace(" ", "-")
    client.create_collection(own, kind=CollectionKind.LOGS)
    report = client.ingest_lines([data], collection=own, labels={"source": own})
    while True:
        held = client.stats(own)
        assert held.lines is not None
        assert held.kept is not None
        if held.lines.verified == held.lines.lines and held.verified == held.documents:
            break
        time.sleep(_POLL_S)
    disk = held.kept.bytes_disk or 0
    kept = held.kept.bytes_memory + disk
    sizes = {
        "raw": len(data),
        "all": kept,
        "memory": held.kept.bytes_memory,
        "disk": disk,
        "segments": held.lines.bytes_segments,
        "shapes": held.lines.bytes_shapes,
        "vectors": held.lines.bytes_statements,
        "tables": held.lines.bytes_tables,
    }
    client.delete_collection(own)
    return {
        "lines": report.lines,
        "records": held.lines.records,
        "of raw": kept / len(data),
        **{part: size / report.lines for part, size in sizes.items()},
    }


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with logs_loghub2k, logs_loghub_full")
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--sets", nargs="+", help="names of sets, all of them by default")
    options = parser.parse_args()
    paper = sheet.Sheet("log_bytes")
    rows: dict[str, dict[str, Any]] = {}
    with (
        platform(options.artifact or find_artifact(), {}) as stack,
        Client(stack.url, timeout_s=600) as client,
    ):
        for name, data in log_sets(options.data).items():
            if name in (options.sets or [name]):
                rows[name] = measure(client, name, data)
                print(name, rows[name], file=sys.stderr)
    sheet.table(
        "Bytes a line",
        ["set", *_COLUMNS],
        [[name, *(row[column] for column in _COLUMNS)] for name, row in rows.items()],
    )
    small = [row["of raw"] for name, row in rows.items() if not name.startswith("whole ")]
    paper.finish({"sets": rows, "mean of raw": statistics.mean(small) if small else None})


if __name__ == "__main__":
    main()
