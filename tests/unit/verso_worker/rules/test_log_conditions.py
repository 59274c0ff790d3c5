"""Filters over segments agree with filters over their lines."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs.filters.compiled import matches
from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.logs.lines import time_ns
from verso_core.segments import MISSING, Segment
from verso_worker.rules.logs.conditions import Condition, Source, Spans

SOURCES = (
    Source({"host": "a"}, records=True),
    Source({"host": "b", "zone": "1"}, records=False),
)
ATTRIBUTES: tuple[dict[str, object], ...] = (
    {},
    {"code": 7},
    {"zone": "1", "tags": ["x", {"y": 1}]},
    {"http": {"status": 500}},
)
LEAVES = st.one_of(
    st.sampled_from(["a", "b", "c"]).map(lambda host: {"field": "host", "eq": host}),
    st.just({"field": "zone", "exists": True}),
    st.just({"field": "code", "gte": 5}),
    st.just({"field": "http.status", "ne": 500}),
    st.just({"field": "metadata.tags", "eq": "x"}),
    st.builds(
        lambda name, bound: {"field": "time", name: float(bound)},
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        st.integers(0, 12),
    ),
    st.builds(lambda s, n: {"field": "id", "eq": f"{s}:{n}"}, st.integers(0, 1), st.integers(0, 9)),
    st.just({"field": "id", "prefix": "0:1"}),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)
SEGMENTS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 9), st.lists(st.integers(0, 12), min_size=1)),
    min_size=1,
    max_size=6,
)


BOUNDS = st.one_of(st.none(), st.integers(0, 13).map(lambda second: second * 10**9))


@given(FILTERS, SEGMENTS, BOUNDS, BOUNDS)
def test_a_segment_passes_as_its_lines_do(
    tree: dict[str, object],
    rows: list[tuple[int, int, list[int]]],
    start: int | None,
    end: int | None,
) -> None:
    where = Filter.model_validate(tree)
    condition = Condition.of(where, start_ns=start, end_ns=end)
    segments = [
        Segment(stream, first, len(times), min(times) * 10**9, max(times) * 10**9)
        for stream, first, times in rows
    ]
    found = condition.of_segments(Spans.of(segments), SOURCES.__getitem__)
    for n, (segment, (stream, first, times)) in enumerate(zip(segments, rows, strict=True)):
        source = SOURCES[stream]
        own = [ATTRIBUTES[n % 4] if source.records else {} for n in range(len(times))]
        ends = [b"s" + json.dumps(one).encode() if one else b"" for one in own]
        lines = condition.of_lines(
            source,
            stream=stream,
            numbers=first + np.arange(len(times)),
            when=np.array(times, np.int64) * 10**9,
            ends=np.array(ends, np.object_),
        )
        expected = [
            matches(
                where,
                metadata={**attributes, **source.labels},
                time=float(time),
                id=f"{stream}:{first + n}",
            )
            and (start is None or time * 10**9 >= start)
            and (end is None or time * 10**9 < end)
            for n, (attributes, time) in enumerate(zip(own, times, strict=True))
        ]
        assert lines.tolist() == expected
        assert not (found.all[n] and found.none[n])
        assert lines.all() or not found.all[n]
        assert not lines.any() or not found.none[n]
        one = condition.of_segment(segment, source)
        assert one == (True if found.all[n] else False if found.none[n] else None)


def test_a_segment_without_times_may_pass_in_part() -> None:
    condition = Condition.of(Filter(field="time", gte=5.0))
    assert condition.of_segment(Segment(0, 0, 3, MISSING, MISSING), SOURCES[0]) is None
    condition = Condition.of(None, start_ns=5)
    assert condition.of_segment(Segment(0, 0, 3, MISSING, MISSING), SOURCES[0]) is None


def test_bounds_are_exact_to_the_nanosecond() -> None:
    assert time_ns("2026-11-23T03:46:06.123456789Z") == 1_795_405_566_123_456_789
    assert time_ns("2026-11-23T04:46:06.123456789+01:00") == 1_795_405_566_123_456_789
    assert time_ns("1969-12-31T23:59:59.5Z") == -500_000_000
    assert time_ns(1.5) == 1_500_000_000
    assert time_ns("9999-12-31T23:59:59Z") == time_ns(1e30) == (1 << 63) - 1
    assert time_ns(1.7e308) == -time_ns(-1.7e308) == (1 << 63) - 1
    for wrong in ("2026-11-23T03:46:06", "yesterday"):
        with pytest.raises(ValueError, match="expected"):
            time_ns(wrong)
