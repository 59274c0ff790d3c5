"""Filters over segments agree with filters over their lines."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs.filters import Filter, compiled
from verso_core.segments import MISSING, Segment
from verso_worker.rules.logs.conditions import Condition, Spans

LABELS = ({"host": "a"}, {"host": "b", "zone": "1"})
LEAVES = st.one_of(
    st.sampled_from(["a", "b", "c"]).map(lambda host: {"field": "host", "eq": host}),
    st.just({"field": "zone", "exists": True}),
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


@given(FILTERS, SEGMENTS)
def test_a_segment_passes_as_its_lines_do(
    tree: dict[str, object], rows: list[tuple[int, int, list[int]]]
) -> None:
    condition = Condition(compiled(Filter.model_validate(tree)))
    segments = [
        Segment(stream, first, len(times), min(times) * 10**9, max(times) * 10**9)
        for stream, first, times in rows
    ]
    found = condition.of_segments(Spans.of(segments), LABELS.__getitem__)
    for n, (segment, (stream, first, times)) in enumerate(zip(segments, rows, strict=True)):
        lines = condition.of_lines(
            LABELS[stream],
            stream=stream,
            numbers=first + np.arange(len(times)),
            when=np.array(times, np.int64) * 10**9,
        )
        assert not (found.all[n] and found.none[n])
        assert lines.all() or not found.all[n]
        assert not lines.any() or not found.none[n]
        one = condition.of_segment(segment, LABELS[stream])
        assert one == (True if found.all[n] else False if found.none[n] else None)


def test_a_segment_without_times_may_pass_in_part() -> None:
    condition = Condition(compiled(Filter(field="time", gte=5.0)))
    assert condition.of_segment(Segment(0, 0, 3, MISSING, MISSING), {}) is None
