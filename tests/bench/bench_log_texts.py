"""Which lines does a log collection take for text, and how far are texts and logs apart?

The lines of each set are judged as a worker judges them, in requests of several sizes; the shapes
of those that are no text are stored. *Windows* are of 2,048 lines, those with enough new shapes to
be text; *least* and *most* is the share of their bytes that these shapes take packed, behind all
shapes before. Counts depend on no load; *µs* are processor time of the judging, a line.

``--data`` is the folder of public data sets; of sets that are no whole logs the first lines.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sheet
from bench_log_bytes import log_sets

from verso_codecs.logs.parsing import Lines, Parsed, parse, split
from verso_codecs.logs.shapes import Shapes
from verso_worker.rules.logs.writing.texts import JUDGED_LINES, TO_TEXT, Judge

REQUESTS = (100, 2000, 20_000)
"""Lines of a request."""


def requests(lines: Lines, size: int, shapes: Shapes) -> Iterator[Parsed]:
    """Yield the lines of each request, parsed by the shapes that are stored by then."""
    for first in range(0, len(lines.begins), size):
        last = first + size
        part = Lines(lines.data, lines.begins[first:last], lines.ends[first:last])
        yield parse(part, shapes)


def windows(lines: Lines) -> list[float]:
    """Return what the new shapes of each window take packed, of their bytes, if they are many."""
    shapes, found = Shapes(), []
    for parsed in requests(lines, JUDGED_LINES, shapes):
        rows = parsed.new_rows
        if parsed.count == JUDGED_LINES and len(rows) > TO_TEXT.new * JUDGED_LINES:
            found.append(len(shapes.pack_rows(rows)) / sum(map(len, rows)))
        shapes.extend(rows)
    return found


def judged(lines: Lines, size: int) -> tuple[int, float]:
    """Return how many lines are text in requests of a size, and the seconds of the judging."""
    shapes, judge, texts, spent = Shapes(), Judge(), 0, 0.0
    for parsed in requests(lines, size, shapes):
        began = time.process_time()
        found = judge.texts("one", parsed, shapes, statements=0)
        spent += time.process_time() - began
        texts += int(found.sum())
        kept = parsed.shapes[~found]
        new = dict.fromkeys(parsed.new_rows[-1 - n] for n in kept[kept < 0].tolist())
        shapes.extend(list(new))
    return texts, spent


def measure(data: bytes, most: int) -> dict[str, Any]:
    """Judge a set's first lines."""
    lines = split(data if data.endswith(b"\n") else data + b"\n")
    lines = Lines(lines.data, lines.begins[:most], lines.ends[:most])
    count = len(lines.begins)
    shares = windows(lines)
    row: dict[str, Any] = {"lines": count, "windows": len(shares)}
    row |= {"least": min(shares, default=None), "most": max(shares, default=None)}
    for size in REQUESTS:
        texts, spent = judged(lines, size)
        row |= {f"text, {size}": texts / count, f"µs, {size}": 1e6 * spent / count}
    return row


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of public data sets; default: shipped")
    parser.add_argument("--sets", nargs="+", help="names of sets, all of them by default")
    parser.add_argument("--lines", type=int, default=20_480, help="lines of each set")
    options = parser.parse_args()
    paper = sheet.Sheet("log_texts")
    rows = {
        name: measure(data, options.lines)
        for name, data in log_sets(options.data, text_lines=options.lines)
        if name in (options.sets or [name])
    }
    columns = list(next(iter(rows.values()))) if rows else []
    sheet.table(
        "Lines that are text",
        ["set", *columns],
        [[name, *(row[column] for column in columns)] for name, row in rows.items()],
    )
    paper.finish({"sets": rows})


if __name__ == "__main__":
    main()
