"""Lines as arrays: taken, joined and searched as a loop over them would."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies

from verso_codecs.logs.parsing import split
from verso_worker.records import line_arrays

lines = strategies.lists(
    strategies.binary(max_size=6).map(lambda row: row.replace(b"\n", b"a")), min_size=1, max_size=20
)


@given(lines, strategies.data())
def test_taken_lines_are_those_asked_for(rows: list[bytes], data: strategies.DataObject) -> None:
    chosen = data.draw(strategies.lists(strategies.integers(0, len(rows) - 1)))
    whole = split(b"".join(row + b"\n" for row in rows))
    taken = line_arrays.take(whole, np.array(chosen, np.int64))
    assert line_arrays.rows(taken) == [rows[n] for n in chosen]
    twice = line_arrays.joined([taken, whole])
    assert line_arrays.rows(twice) == [*(rows[n] for n in chosen), *rows]
