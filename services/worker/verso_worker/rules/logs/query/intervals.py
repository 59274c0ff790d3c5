"""Intervals of time that lines are counted in: whole multiples of their length since 1970."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import RequestInvalid
from verso_core.jobs.logs.views import interval_length_s
from verso_worker.rules.logs.collection import LogCollection
from verso_worker.rules.logs.conditions import END_NS, START_NS, Condition, Spans

_SECOND_NS = 1_000_000_000

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Consecutive intervals.

    Attributes:
        length_s: of each, seconds.
        first: the number of the first one, counted from 1970.
        count: how many there are.
    """

    length_s: float
    first: int
    count: int

    @classmethod
    def over(
        cls, log: LogCollection, condition: Condition, *, length_s: float | None, most: int
    ) -> Intervals | None:
        """Return the intervals of the lines that may pass; None if there are no such lines.

        Args:
            log: the collection.
            condition: which lines pass.
            length_s: of each interval, seconds; None for some sixty of them.
            most: intervals that there may be.

        Raises:
            RequestInvalid: there are more.
        """
        span = _span(log, condition)
        if span is None:
            return None
        length_s = length_s or interval_length_s(span[1] - span[0])
        step = round(length_s * _SECOND_NS)
        first = span[0] // step
        count = span[1] // step - first + 1
        if count > most:
            raise RequestInvalid(
                f"expected <= {most} intervals, got {count} of {length_s:g} seconds"
            )
        return cls(length_s, first, count)

    @property
    def starts(self) -> tuple[float, ...]:
        """Return when each begins, Unix seconds."""
        return tuple(((self.first + np.arange(self.count)) * self._step / _SECOND_NS).tolist())

    @property
    def _step(self) -> int:
        return round(self.length_s * _SECOND_NS)

    def of(self, times: Numbers) -> Numbers:
        """Return the places of the intervals that times are in. Shape: as of the times."""
        return times // self._step - self.first

    def parted(self, start: int, end: int) -> bool:
        """Whether two times are in different intervals."""
        return start // self._step != end // self._step


def _span(log: LogCollection, condition: Condition) -> tuple[int, int] | None:
    """Return the least and the greatest time that a line may have; None if there are none."""
    start, end = condition.start_ns, condition.end_ns
    spans = Spans.of(log.every_segment())
    there = ~condition.of_segments(spans, log.source).none
    if start != START_NS and end != END_NS:
        return (start, end - 1) if end > start else None
    if not there.any():
        return None
    first = int(spans.earliest[there].min()) if start == START_NS else start
    last = int(spans.latest[there].max()) if end == END_NS else end - 1
    return (first, last) if first <= last else None
