"""Record lines as a log collection stored them: shapes, tables and blocks of the forms before.

Run it from the root of a checkout of 937c44d6; it writes one JSON object, bytes as base64.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from pathlib import Path

from before import sample

from verso_codecs.logs import blocks
from verso_codecs.logs.parsing import parse, split
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables

_PART, _BLOCK = 100, 50  # lines


def made_lines(count: int) -> list[bytes]:
    """Make up lines with values of every kind."""
    rng, found = random.Random(1), []
    for number in range(count):
        head = b"2024-05-06 07:%02d:%02d,%03d" % (number // 60, number % 60, rng.randrange(1000))
        found.append(
            rng.choice(
                [
                    b"%s INFO request %d of user=u%d took %d ms" % (head, number, number % 9, -7),
                    b"%s WARN lock 0x%016x of %x" % (head, rng.getrandbits(64), number),
                    b"%s INFO 4b4dd551-26d8-48e2-bd52-%012x is open" % (head, rng.getrandbits(48)),
                    b"%s data=%s" % (head, rng.randbytes(200).hex().encode()),
                ]
            )
        )
    return found


def main() -> None:
    """Write the recording."""
    kernel = (row["text"].encode() for row in sample({"lines": 300}))
    lines = [line for text in kernel for line in text.splitlines()][:300] + made_lines(200)
    shapes, parts, packed = Shapes(), [], []
    for first in range(0, len(lines), _PART):
        parsed = parse(split(b"".join(one + b"\n" for one in lines[first : first + _PART])), shapes)
        before = len(shapes)
        shapes.extend(parsed.new_rows)
        parsed.number(range(before, len(shapes)))
        packed.append(shapes.pack(before, len(shapes)))
        parts.append(parsed)
    tables = [Tables.builtin(), Tables.fit(parts[:3], shapes, generation=1, limit_bytes=2000)]
    made = [
        blocks.encode(parsed, shapes, one, first=first, count=_BLOCK)
        for one in tables
        for parsed in parts
        for first in range(0, _PART, _BLOCK)
    ]
    found = {
        "lines": [line.decode("latin-1") for line in lines],
        "shapes": [base64.b64encode(one).decode() for one in packed],
        "tables": base64.b64encode(tables[1].pack()).decode(),
        "blocks": [base64.b64encode(one).decode() for one in made],
    }
    Path(sys.argv[1]).write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
