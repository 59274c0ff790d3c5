"""How many lines there are in each interval, and with which labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs import Collection
from verso_core.jobs.logs.views import (
    MAX_INTERVALS,
    Label,
    Labels,
    LabelsParams,
    LabelValue,
    Volume,
    VolumeParams,
    VolumeSeries,
)
from verso_worker.rules.logs.collection import LogStore
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.query.intervals import Intervals
from verso_worker.rules.logs.query.pieces import Pieces

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
        intervals = Intervals.over(log, condition, length_s=asked.interval_s, most=MAX_INTERVALS)
        if intervals is None:
            return Volume(
                lines=0, interval_s=asked.interval_s or 1.0, starts=(), counts=(), series=()
            )
        found: dict[str | None, Counts] = defaultdict(lambda: np.zeros(intervals.count, np.int64))
        contains = (asked.contains or "").encode("utf-8", "surrogatepass")
        for piece in self.pieces.of(
            log, collection, condition, parted=intervals.parted, contains=contains
        ):
            value = None if asked.by is None else log.labels(piece.stream).get(asked.by)
            np.add.at(found[value], intervals.of(piece.times), piece.weights)
        total = sum(found.values(), start=np.zeros(intervals.count, np.int64))
        return Volume(
            lines=int(total.sum()),
            interval_s=intervals.length_s,
            starts=intervals.starts,
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
    told = asked.name is not None or asked.all_values
    rows = sorted(values.items(), key=lambda row: (-row[1], row[0])) if told else []
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
