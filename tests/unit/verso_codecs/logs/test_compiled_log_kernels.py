"""The compiled kernels of log collections do what the same functions do in plain Python.

Plain Python warns when a number passes 64 bits, and a warning is an error here: integers that
fit are the same on every machine.
"""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import hashlib, random
import numpy as np
from verso_codecs.logs import blocks, filters, lines, times
from verso_codecs.logs.parsing import Lines, parse, split
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables

rng = random.Random(3)
pieces = [
    b"Jun 14 15:16:02", b"2005-06-03-15.42.50.363779", b"Sun Dec 04 04:51:08 2005",
    b"17/06/09 20:10:40", b"10/Oct/2000:13:55:36", b"4b4dd551-26d8-48e2-bd52-91793d2157bc",
    b"FF:F2:9F:16:EB:64", b"user=root", b"0x7fed806eb5d", b"9223372036854775807",
    b"-9223372036854775807", b"99999999999999999999", b"0007",
    b"www.baidu.com:80", b"1117838976", b"\\x00\\x01\\x02\\x03\\xff", b"jk2",
    b"10.251.7.244:50010",
]
made = []
for number in range(24):
    words = [rng.choice(pieces) for _ in range(rng.randrange(5))]
    made.append(b" ".join([b"%d" % number, *words, b"%d" % rng.getrandbits(rng.randrange(1, 63))]))
made += made[::2] + [b"", b"x1y" * 100]
ends = np.cumsum([0, *map(len, made)], dtype=np.int64)
shapes = Shapes()
given = Lines(np.frombuffer(bytearray(b"".join(made)), np.uint8), ends[:-1], ends[1:])
parsed = parse(given, shapes)
shapes.extend(parsed.new_rows)
parsed.number(range(len(shapes)))
print(parsed.new_rows, [part.tolist() for part in parsed.slots])
fitted = Tables.fit([parsed], shapes, generation=1, limit_bytes=500)
print(fitted.pack().hex())
for tables in (Tables.builtin(), fitted):
    block = blocks.encode(parsed, shapes, tables, first=0, count=len(made))
    found = blocks.decode(block, shapes, tables)
    print(block.hex(), [found.line(number) for number in range(len(made))] == made)
held = filters.build(parsed, first=0, count=len(made), block_lines=128)
print(held.hex(), filters.contains(held, b"10.251.7.244"), filters.contains(held, b"nowhere7"))
dated = split(b"Jun 14 15:16:02 a\\nDec 31 23:59:59 b\\nJan  1 00:00:00 c")
print(times.read(dated, times.TimeFormat("%b %d %H:%M:%S"), now_ns=1_700_000_000 * 10**9).tolist())
print(filters.lines_with(split(b"v10 10\\nv1"), b"v10").tolist())
print(lines.find(dated, b"a").tolist(), lines.take(dated, np.array([2, 0])))
"""


def run(*, compiled: bool) -> str:
    """Return what the program prints."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0" if compiled else "1"}
    done = subprocess.run(
        [sys.executable, *(() if compiled else ("-W", "error")), "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_kernels_and_plain_python_agree() -> None:
    assert run(compiled=True) == run(compiled=False)
