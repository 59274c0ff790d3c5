"""How many bytes does the codec of log collections keep for a line, and what does it cost a core?

Compute limits. Each set is measured on the second half of its lines, in time order: *shipped* with
tables that have learnt nothing, *fitted* with tables that learnt from the first half. Every block
is decoded again and compared. *Kept* is all that is stored without vectors: fitted blocks with
their headers, filters of values, and, shared by all lines, packed shapes and packed tables.

The rivals of the same run: the second half's lines one by one with a dictionary of the first half,
and in frames of 256 kB at level 19, both of Zstandard; and CLP (`clp-s`, from `yscope-clp-core`) on
all lines of the set, each as one JSON object.

With ``--texts``: the first lines of the sets whose texts are whole logs, instead of the systems of
loghub. Their lines come from many machines, and stand in the order of the set.

Without a data folder: the lines of the shipped corpus, which come from all over their sources.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import line_rivals
import record_sets
import sheet
import texts

from verso_codecs.logs import blocks, filters
from verso_codecs.logs.parsing import Lines, Parsed, parse, split
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables
from verso_worker.records.segments import SEGMENT_LINES

_PAYLOAD_LINES = 4096  # lines that are parsed at once
_LEVELS = (3, 19)
_TEXTS = (
    "rcheck logs", "install logs", "failed tests", "kernel crashes", "CI jobs", "failed builds",
    "kernel boots", "a test suite",
)  # fmt: skip
_TEXT_LINES = 4000


@dataclass(frozen=True)
class LogSet:
    """Lines of one source in time order."""

    name: str
    lines: list[bytes]


def log_sets(folder: Path | None) -> Iterator[LogSet]:
    """Yield the log systems of a data folder, or the lines of the shipped corpus."""
    if folder is None:
        yield LogSet("corpus: line", texts.corpus_by_kind()["corpus: line"])
        return
    readers = {name: texts.loghub(name) for name in texts.LOGHUB}
    readers |= {f"whole {name}": texts.whole(name) for name in ("Linux", "Proxifier")}
    for name, read in readers.items():
        try:
            yield LogSet(name, [line.encode() for line in read(folder)])
        except FileNotFoundError:
            continue


def text_sets(folder: Path) -> Iterator[LogSet]:
    """Yield the first lines of sets whose texts are whole logs."""
    for found in record_sets.record_sets(folder, list(_TEXTS), fit_bytes=None):
        rows = (line for text in (*found.fit, *found.test) for line in text.splitlines())
        yield LogSet(found.name, list(itertools.islice(rows, _TEXT_LINES)))


def _payload(lines: Sequence[bytes]) -> Lines:
    return split(b"".join(line + b"\n" for line in lines))


class Timer:
    """Processor seconds by what was done."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def measure(self, name: str, began: float) -> None:
        """Add the processor time since `began` to a name."""
        spent = time.process_time() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + spent


def _parsed(lines: Sequence[bytes], shapes: Shapes, timer: Timer) -> list[Parsed]:
    found = []
    for first in range(0, len(lines), _PAYLOAD_LINES):
        payload = _payload(lines[first : first + _PAYLOAD_LINES])
        began = time.process_time()
        parsed = parse(payload, shapes)
        before = len(shapes)
        shapes.extend(parsed.new_rows)
        parsed.number(range(before, len(shapes)))
        timer.measure("parse", began)
        found.append(parsed)
    return found


def _coded(
    parts: Sequence[Parsed], shapes: Shapes, tables: Tables, timer: Timer
) -> tuple[list[bytes], int]:
    """Return the blocks of parsed lines, decoded again and compared; and bytes of payload."""
    made, payload_bytes = [], 0
    for parsed in parts:
        for first in range(0, parsed.count, blocks.MAX_LINES):
            count = min(blocks.MAX_LINES, parsed.count - first)
            began = time.process_time()
            block = blocks.encode(parsed, shapes, tables, first=first, count=count)
            timer.measure("encode", began)
            began = time.process_time()
            lines = blocks.decode(block, shapes, tables)
            timer.measure("decode", began)
            expected = [parsed.lines.line(number) for number in range(first, first + count)]
            if [lines.line(number) for number in range(count)] != expected:
                raise SystemExit(f"lines {first} to {first + count} are not reconstructed")
            made.append(block)
            payload_bytes += blocks.payload_bytes(block)
    return made, payload_bytes


def _filters(parts: Sequence[Parsed], timer: Timer) -> int:
    size = 0
    for parsed in parts:
        for first in range(0, parsed.count, SEGMENT_LINES):
            count = min(SEGMENT_LINES, parsed.count - first)
            began = time.process_time()
            own = filters.build(parsed, first=first, count=count, block_lines=blocks.MAX_LINES)
            size += len(own)
            timer.measure("filter", began)
    return size


def measure(found: LogSet, clp: Path | None) -> dict[str, Any]:
    """Fit to a set's first half and measure on its second."""
    half = len(found.lines) // 2
    first, second = found.lines[:half], found.lines[half:]
    shapes, ignored, timer = Shapes(), Timer(), Timer()
    learnt = _parsed(first, shapes, ignored)
    parts = _parsed(second, shapes, timer)
    began = time.process_time()
    tables = Tables.fit(learnt, shapes, generation=1)
    fit_seconds = time.process_time() - began
    began = time.process_time()
    Tables.unpack(tables.pack(), shapes)
    unpack_seconds = time.process_time() - began
    _, shipped = _coded(parts, shapes, Tables.builtin(), ignored)
    made, fitted = _coded(parts, shapes, tables, timer)
    count, total = len(second), len(found.lines)
    result: dict[str, Any] = {
        "lines": total,
        "shapes": len(shapes),
        "raw": sum(map(len, second)) / count,
        "shipped": shipped / count,
        "fitted": fitted / count,
        "header": (sum(map(len, made)) - fitted) / count,
        "filter": _filters(parts, timer) / count,
        "shape": len(shapes.pack(0, len(shapes))) / total,
        "tables": len(tables.pack()) / total,
        "zstd_frames": line_rivals.frames(second) / count,
        "zstd_lines": line_rivals.with_dictionary(first, second) / count,
        "fit_s": fit_seconds,
        "unpack_s": unpack_seconds,
    }
    result["kept"] = sum(result[name] for name in ("fitted", "header", "filter", "shape", "tables"))
    result |= {f"{name}_us": 1e6 * seconds / count for name, seconds in timer.seconds.items()}
    for level in _LEVELS:
        result[f"clp_{level}"] = line_rivals.clp(found.lines, clp, level) / total if clp else None
    return result


def main() -> None:
    """Measure every set and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with logs_loghub2k and logs_loghub_full")
    parser.add_argument("--sets", nargs="+", help="names of sets, all of them by default")
    parser.add_argument("--texts", action="store_true", help="sets whose texts are whole logs")
    options = parser.parse_args()
    if options.texts and options.data is None:
        parser.error("--texts needs --data")
    report = sheet.Sheet("logs")
    clp = line_rivals.find_clp()
    results: dict[str, dict[str, Any]] = {}
    for found in text_sets(options.data) if options.texts else log_sets(options.data):
        if options.sets is None or found.name in options.sets:
            if not results:
                measure(found, None)  # what is compiled at the first call
            results[found.name] = measure(found, clp)
    columns = [
        "raw", "shipped", "fitted", "zstd_frames", "zstd_lines", "header", "filter", "shape",
        "tables", "kept", "clp_3", "clp_19",
    ]  # fmt: skip
    rows = [[name, *(result[column] for column in columns)] for name, result in results.items()]
    sheet.table("Bytes a line", ["set", *columns], rows)
    columns = [
        "lines",
        "shapes",
        "parse_us",
        "encode_us",
        "decode_us",
        "filter_us",
        "fit_s",
        "unpack_s",
    ]
    rows = [[name, *(result[column] for column in columns)] for name, result in results.items()]
    sheet.table("Shapes, and processor time a line", ["set", *columns], rows)
    ratios = [result["fitted"] / result["zstd_frames"] for result in results.values()]
    report.finish({"mean_of_frames": sum(ratios) / len(ratios), "sets": results})


if __name__ == "__main__":
    main()
