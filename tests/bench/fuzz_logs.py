"""Look for a line that the codec of log collections does not give back, for a given time.

Lines are those of the shipped corpus and made-up ones, cut, joined, repeated and damaged at random.
They are parsed, coded with tables that have learnt nothing and with fitted ones, and decoded. A
block with a payload of noise must end in RecordCorrupt, and a token of a line must be found in the
filter of its block. The seed is printed, and given again it repeats the run. Exits with 1 at the
first failure.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
import zlib

import fields
import numpy as np
import texts

from verso_codecs.logs import blocks, filters
from verso_codecs.logs.parsing import Lines, parse
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables
from verso_core.errors import RecordCorrupt

_LONGEST = 2000
_SAMPLE = 1000


def line(rng: random.Random, pool: list[bytes]) -> bytes:
    """Make up one line."""
    parts = (
        rng.choice(pool)
        if rng.random() < 0.6
        else fields.line(rng, fields=rng.randrange(1, 13)).encode()
        for _ in range(rng.choice((1, 1, 1, 2)))
    )
    made = bytearray(b" ".join(parts))
    if rng.random() < 0.2 and made:
        made = made[rng.randrange(len(made)) :]
    for _ in range(rng.choice((0, 0, 0, 1, 5, 50)) if made else 0):
        made[rng.randrange(len(made))] = rng.choice((0, 1, 2, 3, 10, 32, 48, 57, 255))
    if rng.random() < 0.05:
        made = bytearray(rng.randbytes(rng.randrange(300)))
    return bytes(made[:_LONGEST])


def lines_of(made: list[bytes]) -> Lines:
    """Return lines of any bytes."""
    ends = np.cumsum([0, *map(len, made)], dtype=np.int64)
    return Lines(np.frombuffer(bytearray(b"".join(made)), np.uint8), ends[:-1], ends[1:])


def failure(rng: random.Random, made: list[bytes], shapes: Shapes, tables: list[Tables]) -> str:
    """Return what is wrong with a block of lines, or nothing."""
    parsed = parse(lines_of(made), shapes)
    before = len(shapes)
    shapes.extend(parsed.new_rows)
    parsed.number(range(before, len(shapes)))
    held = filters.build(parsed, first=0, count=len(made), block_lines=128)
    for part in tables:
        block = blocks.encode(parsed, shapes, part, first=0, count=len(made))
        found = blocks.decode(block, shapes, part)
        for number, text in enumerate(made):
            if found.line(number) != text:
                return f"generation {part.generation} does not give back {text!r}"
        body = bytearray(block[:-4])
        for _ in range(rng.choice((1, 4, 40))):
            body[rng.randrange(2, len(body))] = rng.randrange(256)
        with contextlib.suppress(RecordCorrupt, ValueError):
            sealed = bytes(body) + zlib.crc32(body).to_bytes(4, "little")
            if blocks.header(sealed).size_bytes < 1 << 20:
                blocks.decode(sealed, shapes, part)
    for slot in range(parsed.slots.kinds.size):
        begin = int(parsed.slots.begins[slot])
        value = bytes(parsed.lines.data[begin : begin + int(parsed.slots.widths[slot])])
        if parsed.slots.kinds[slot] == 3 and not filters.contains(held, value):
            row = int(np.searchsorted(parsed.lines.begins, begin, side="right")) - 1
            if value in filters.tokens(made[row]):
                return f"the filter does not hold {value!r}"
    return ""


def main() -> int:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    pool = [text for text in texts.corpus() if len(text) < _LONGEST]
    pool = [part for text in pool for part in text.splitlines()]
    shapes = Shapes()
    learnt = parse(lines_of(rng.sample(pool, _SAMPLE)), shapes)
    shapes.extend(learnt.new_rows)
    learnt.number(range(len(shapes)))
    tables = [Tables.builtin(), Tables.fit([learnt], shapes, generation=1)]
    end, count = time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end:
        made = [line(rng, pool) for _ in range(rng.randrange(1, blocks.MAX_LINES + 1))]
        if wrong := failure(rng, made, shapes, tables):
            print(f"seed {options.seed}: {wrong}")
            return 1
        count += len(made)
    print(f"seed {options.seed}: {count:,} lines came back, {len(shapes):,} shapes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
