"""Facts about the times of lines that are read from a part of their segment."""

from __future__ import annotations

import numpy as np

from verso_codecs.logs import parsing, times
from verso_worker.records import line_arrays
from verso_worker.records.segments import TimeSource
from verso_worker.rules.logs.segments import read_times

_LINES = b"".join(
    b"%s 04:06:0%d combo sshd[1]: session opened\n" % (day, number)
    for number, day in enumerate((b"Jun 14", b"Aug  8", b"Dec  6", b"Jan 31", b"Apr  1"))
)
_ARRIVED_NS = 1_782_000_000 * 10**9  # 2026-06-21


def test_a_line_without_a_year_has_the_same_time_in_a_part_as_in_the_whole() -> None:
    whole = parsing.split(_LINES)
    form = times.find_format(whole)
    assert form is not None
    source = TimeSource(pattern=form.pattern, field=form.field, offset_s=0, arrived_ns=_ARRIVED_NS)
    expected = read_times(whole, source)
    for at in range(len(expected)):
        part = line_arrays.take(whole, np.array([at]))
        assert read_times(part, source, latest_ns=int(expected.max()))[0] == expected[at]
