"""How many bytes does a platform keep for a log line, in memory and on the disk?

Each set goes, as one stream, into a log collection of its own over HTTP: first its first half in
the order of time, then its second. When every line is verified, `stats` is asked: Valkey's
``MEMORY USAGE`` of all keys, and the blocks of the vector store's files. These are counts and
depend on no load. The ledger's file on the disk, which holds the values once more, is not counted.

- *all*: the ledger's keys (*segments*, *shapes*, *vectors* of statements, *tables* and the rest),
  and the *disk*, which is files for lines that are kept one by one, to compare with *raw* bytes;
- *bare*: all without vectors of statements and without files;
- *second half*: what all, and bare, grew by while it came in. Tables, which all lines share, are
  spread over all of them.

The rivals of the same run: *frames* of 256 kB and each line alone with a dictionary of the first
half, of 16 KiB and of 110 KiB, which is not counted, both by Zstandard at level 19 on the second
half; and CLP (`clp-s`, from `yscope-clp-core`) at level 19, on the whole set and on its second half
alone.

Without a data folder: the lines of the shipped corpus. With ``--texts`` the other sets of the data
folder as well, their texts' first lines. With ``--keep`` the rows stay in a file, and sets that are
in it are not measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import data_lines
import line_rivals
import line_sets
import sheet
import texts
from bench_log_collections import platform

from verso_client import Client
from verso_core.jobs import CollectionKind
from verso_core.jobs.statistics import Statistics
from verso_standalone.stack import find_artifact

_COLUMNS = (
    *("lines", "records", "raw", "all", "of raw", "bare", "clp"),
    *("segments", "shapes", "vectors", "tables", "disk"),
)
_HALF = ("raw", "all", "bare", "frames", "16 KiB", "110 KiB", "clp")
_LEVEL = 19
_POLL_S = 0.5


@dataclass(frozen=True)
class Kept:
    """Bytes that a platform keeps of a collection, by part, and how many lines are records."""

    records: int
    parts: dict[str, int]

    @classmethod
    def of(cls, held: Statistics) -> Kept:
        """Return what the statistics of a collection say."""
        assert held.lines is not None
        assert held.kept is not None
        disk = held.kept.bytes_disk or 0
        parts = {
            "all": held.kept.bytes_memory + disk,
            "segments": held.lines.bytes_segments,
            "shapes": held.lines.bytes_shapes,
            "vectors": held.lines.bytes_statements,
            "tables": held.lines.bytes_tables,
            "disk": disk,
        }
        parts["bare"] = parts["all"] - disk - parts["vectors"]
        return cls(held.lines.records, parts)

    def grown(self, before: Kept, part: str) -> int:
        """Return by how many bytes a part grew without the tables, which all lines share."""
        return sum(
            sign * (one.parts[part] - one.parts["tables"])
            for sign, one in ((1, self), (-1, before))
        )


def log_sets(folder: Path | None, *, text_lines: int) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes of each set: 2,000 lines of many systems, the whole logs of two, texts."""
    if folder is not None:
        for name in texts.LOGHUB:
            yield name, (folder / "logs_loghub2k" / name / f"{name}_2k.log").read_bytes()
    for name, data in line_sets.whole(folder).items():
        yield f"whole {name}", data
    if folder is not None and text_lines:
        yield from data_lines.text_sets(folder, lines=text_lines)


def measure(client: Client, name: str, data: bytes, clp: Path | None) -> dict[str, Any]:
    """Take a set in; return what is kept of it, bytes a line, and what others make of it."""
    own = name.lower().replace(" ", "-")
    client.create_collection(own, kind=CollectionKind.LOGS)
    lines = data.removesuffix(b"\n").split(b"\n")
    count = len(lines)
    first, second = lines[: count // 2], lines[count // 2 :]
    before, after = (
        _taken(client, own, b"".join(line + b"\n" for line in part)) for part in (first, second)
    )
    client.delete_collection(own)
    alone = {
        f"{size >> 10} KiB": line_rivals.with_dictionary(first, second, size_bytes=size)
        for size in (line_rivals.DICTIONARY_BYTES, line_rivals.LARGE_DICTIONARY_BYTES)
    }
    half = {
        "raw": sum(map(len, second)) + len(second),
        "frames": line_rivals.frames(second),
    } | alone
    if clp:
        half["clp"] = line_rivals.clp(second, clp, _LEVEL)
    archive = line_rivals.clp(lines, clp, _LEVEL) if clp else None
    return {
        "lines": count,
        "records": after.records,
        "raw": len(data) / count,
        "of raw": after.parts["all"] / len(data),
        "clp": archive / count if archive is not None else None,
        **{part: size / count for part, size in after.parts.items()},
        "second half": {
            **{part: size / len(second) for part, size in half.items()},
            **{
                part: after.grown(before, part) / len(second) + after.parts["tables"] / count
                for part in ("all", "bare")
            },
        },
    }


def _taken(client: Client, name: str, data: bytes) -> Kept:
    """Take lines in; return what is kept once all are verified."""
    client.ingest_lines([data], collection=name, labels={"source": name})
    while True:
        held = client.stats(name)
        assert held.lines is not None
        if held.lines.verified == held.lines.lines and held.verified == held.documents:
            return Kept.of(held)
        time.sleep(_POLL_S)


def _kept(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row.pop("set"): row for row in rows}


def _print(rows: dict[str, dict[str, Any]]) -> None:
    sheet.table(
        "Bytes a line",
        ["set", *_COLUMNS],
        [[name, *(row[column] for column in _COLUMNS)] for name, row in rows.items()],
    )
    halves = {name: row["second half"] for name, row in rows.items()}
    sheet.table(
        "Bytes a line of the second half",
        ["set", *_HALF],
        [[name, *(row.get(column) for column in _HALF)] for name, row in halves.items()],
    )


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--sets", nargs="+", help="names of sets, all of them by default")
    parser.add_argument("--texts", action="store_true", help="the other sets of the folder as well")
    parser.add_argument("--framed", action="store_true", help="those alone, as GELF records")
    parser.add_argument("--lines", type=int, default=4000, help="lines of each of them")
    parser.add_argument("--keep", type=Path, help="file of rows; sets in it are not redone")
    options = parser.parse_args()
    paper = sheet.Sheet("log_bytes")
    clp = line_rivals.find_clp()
    rows = _kept(options.keep)
    with (
        platform(options.artifact or find_artifact(), {}) as stack,
        Client(stack.url, timeout_s=600) as client,
    ):
        text_lines = options.lines if options.texts else 0
        sets = log_sets(options.data, text_lines=text_lines)
        if options.framed:
            plain = data_lines.text_sets(options.data, lines=options.lines)
            sets = ((name, data_lines.framed(data)) for name, data in plain)
        for name, data in sets:
            if name in rows or name not in (options.sets or [name]):
                continue
            rows[name] = measure(client, name, data, clp)
            print(name, rows[name], file=sys.stderr)
            if options.keep:
                with options.keep.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({"set": name, **rows[name]}) + "\n")
    _print(rows)
    small = [row["of raw"] for name, row in rows.items() if name in texts.LOGHUB]
    paper.finish({"sets": rows, "mean of raw": statistics.mean(small) if small else None})


if __name__ == "__main__":
    main()
