"""How many lines there are in each interval, and with which labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import RequestInvalid
from verso_core.jobs import Collection
from verso_core.jobs.log_views import (
    MAX_INTERVALS,
    Label,
    Labels,
    LabelsParams,
    LabelValue,
    Volume,
    VolumeParams,
    VolumeSeries,
)
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition, Spans
from verso_worker.rules.logs.query.pieces import Pieces

_SECOND_NS = 1_000_000_000
_WANTED = 60
_DAY_S = 86_400
_NICE_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LineVolume:
    """Counts lines by time and by label."""

    store: LogStore
    pieces: Pieces

    def volume(self, collection: Collection, asked: VolumeParams) -> Volume:
        """Count the lines of each interval.

        Raises:
            RequestInvalid: there are too many intervals.
            RecordCorrupt: a segment of which some lines pass does not read back.
        """
        log = self.store.open(collection.name, dim=collection.dim)
        condition = Condition.of(asked.filter, start_ns=asked.start_ns, end_ns=asked.end_ns)
        span = _span(log, condition, asked)
        if span is None:
            return Volume(
                lines=0, interval_s=asked.interval_s or 1.0, starts=(), counts=(), series=()
            )
        interval_s = asked.interval_s or _interval_s(span[1] - span[0])
        step = round(interval_s * _SECOND_NS)
        first = span[0] // step
        intervals = span[1] // step - first + 1
        if intervals > MAX_INTERVALS:
            raise RequestInvalid(
                f"expected <= {MAX_INTERVALS} intervals, got {intervals} of {interval_s:g} seconds"
            )
        found: dict[str | None, Counts] = defaultdict(lambda: np.zeros(intervals, np.int64))
        pieces = self.pieces.of(
            log, collection, condition, parted=lambda start, end: start // step != end // step
        )
        for piece in pieces:
            value = None if asked.by is None else log.labels(piece.stream).get(asked.by)
            np.add.at(found[value], piece.times // step - first, piece.weights)
        total = sum(found.values(), start=np.zeros(intervals, np.int64))
        return Volume(
            lines=int(total.sum()),
            interval_s=interval_s,
            starts=tuple(((first + np.arange(intervals)) * step / _SECOND_NS).tolist()),
            counts=tuple(total.tolist()),
            series=() if asked.by is None else _series(found, asked.limit),
        )

    def labels(self, collection: Collection, asked: LabelsParams) -> Labels:
        """Count the lines of each label, or of each value of one.

        Raises:
            RecordCorrupt: a segment of which some lines pass does not read back.
        """
        log = self.store.open(collection.name, dim=collection.dim)
        condition = Condition.of(asked.filter, start_ns=asked.start_ns, end_ns=asked.end_ns)
        by_stream: Counter[int] = Counter()
        for piece in self.pieces.of(log, collection, condition):
            by_stream[piece.stream] += piece.lines
        values: dict[str, Counter[str]] = defaultdict(Counter)
        for stream, lines in by_stream.items():
            for name, value in log.labels(stream).items():
                if asked.name in (None, name):
                    values[name][value] += lines
        shown = sorted(values)[: None if asked.name else asked.limit]
        return Labels(
            lines=by_stream.total(),
            labels=tuple(_label(name, values[name], asked) for name in shown),
        )


def _label(name: str, values: Counter[str], asked: LabelsParams) -> Label:
    rows = sorted(values.items(), key=lambda row: (-row[1], row[0])) if asked.name else []
    return Label(
        name=name,
        lines=values.total(),
        distinct=len(values),
        values=tuple(LabelValue(value=value, lines=lines) for value, lines in rows[: asked.limit]),
    )


def _series(found: dict[str | None, Counts], limit: int) -> tuple[VolumeSeries, ...]:
    rows = sorted(found.items(), key=lambda row: (-int(row[1].sum()), row[0] or ""))
    return tuple(
        VolumeSeries(value=value, lines=int(counts.sum()), counts=tuple(counts.tolist()))
        for value, counts in rows[:limit]
    )


def _span(log: LogCollection, condition: Condition, asked: VolumeParams) -> tuple[int, int] | None:
    """Return the least and the greatest time that a line may have; None if there are none."""
    spans = Spans.of(log.every_segment())
    there = ~condition.of_segments(spans, log.source).none
    if asked.start_ns is not None and asked.end_ns is not None:
        return (asked.start_ns, asked.end_ns - 1) if asked.end_ns > asked.start_ns else None
    if not there.any():
        return None
    start, end = int(spans.earliest[there].min()), int(spans.latest[there].max())
    if asked.start_ns is not None:
        start = asked.start_ns
    if asked.end_ns is not None:
        end = asked.end_ns - 1
    return (start, end) if start <= end else None


def _interval_s(span_ns: int) -> float:
    """Return the length of intervals of which some sixty are as long as a span."""
    least = span_ns / _SECOND_NS / _WANTED
    days = -(-least // _DAY_S) * _DAY_S
    return float(next((one for one in _NICE_S if one >= least), days))
