"""What lines say behind their headers, as templates are mined from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verso_codecs.logs.headers import message
from verso_codecs.logs.parsing import Lines, parse
from verso_codecs.logs.shapes import Shapes, masked

_LINE_FEED = b"\n"


def messages(texts: Sequence[bytes]) -> list[str]:
    """Return the message of each line, its values masked.

    It is what a log collection mines of the same line: the same tokeniser, the same headers.
    """
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    parsed = parse(Lines(data, ends[:-1], ends[1:]), Shapes())
    told = [
        message(masked(row)).replace(_LINE_FEED, b" ").decode("utf-8", "replace")
        for row in parsed.new_rows
    ]
    return [told[-1 - int(number)] for number in parsed.shapes]
