"""Volume, labels and statements of partitions by time, counted in each and added."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from fastapi import Request

from verso_core.errors import RequestInvalid
from verso_core.jobs import Collection, Kind, NoItem
from verso_core.jobs.collections import partition_name
from verso_core.jobs.logs.views import (
    MAX_INTERVALS,
    MAX_STATEMENT_INTERVALS,
    Label,
    Labels,
    LabelsParams,
    LabelValue,
    Statements,
    StatementsParams,
    StatementView,
    Volume,
    VolumeParams,
    VolumeSeries,
    WhereParams,
    interval_length_s,
)
from verso_gateway import responses
from verso_gateway.partitions import scatter
from verso_gateway.partitions.logs.spans import numbers_in, statement_id, template_of
from verso_gateway.partitions.missing import left_out
from verso_ledger import NewJob

_ALL = 1_000_000


async def found(request: Request, collection: Collection, kind: Kind, params: WhereParams) -> Any:
    """Return what all partitions count together, as one collection would.

    Raises:
        PartitionMissing: one is missing, and the caller prefers an error.
    """
    ever = isinstance(params, StatementsParams) and params.new_since_ns is not None
    times = (None, None) if ever else (params.start_ns, params.end_ns)
    missing = left_out(request, collection, *times)
    if isinstance(params, VolumeParams):
        whole: Any = await _volume(request, collection, params)
    elif isinstance(params, LabelsParams):
        wide = params.model_copy(update={"limit": _ALL, "all_values": True})
        whole = joined_labels(await _each(request, collection, kind, wide), params)
    else:
        assert isinstance(params, StatementsParams)
        whole = await _statements(request, collection, params)
    return whole.model_copy(update=missing)


async def _each(
    request: Request, collection: Collection, kind: Kind, params: WhereParams
) -> list[Any]:
    """Return what each partition counts that may have lines of the times that are asked for."""

    def job(name: str) -> NewJob:
        own = params.model_copy(update={"collection": name})
        return responses.job_of_one(request, kind, own, NoItem())

    numbers = numbers_in(collection, params.start_ns, params.end_ns)
    names = [partition_name(collection.name, number) for number in numbers]
    return [responses.sole(one) for one in await scatter.each(request, names, job)]


async def _volume(request: Request, collection: Collection, params: VolumeParams) -> Volume:
    """Count lines by time; where no interval is named, that of all partitions together."""
    wide = params.model_copy(update={"limit": _ALL})
    parts: list[Volume] = await _each(request, collection, Kind.VOLUME, wide)
    if params.interval_s is None and any(one.starts for one in parts):
        wide = wide.model_copy(update={"interval_s": common_length_s(parts)})
        parts = await _each(request, collection, Kind.VOLUME, wide)
    return joined_volume(parts, limit=params.limit)


def common_length_s(parts: Sequence[Volume]) -> float:
    """Return the length of intervals for the times of all parts, seconds; one at least has some."""
    timed = [one for one in parts if one.starts]
    end_s = max(one.starts[-1] + one.interval_s for one in timed)
    span_s = end_s - min(one.starts[0] for one in timed)  # a late line is in a newer partition
    return max(interval_length_s(round(span_s * 1e9)), *(one.interval_s for one in timed))


def joined_volume(parts: Sequence[Volume], *, limit: int) -> Volume:
    """Add up counts by intervals of one length.

    Raises:
        RequestInvalid: there are too many intervals.
    """
    timed = [one for one in parts if one.starts]
    if not timed:
        return parts[0]
    starts = _starts([one.starts for one in timed], timed[0].interval_s, most=MAX_INTERVALS)
    series: dict[str | None, list[int]] = defaultdict(lambda: [0] * len(starts))
    counts = [0] * len(starts)
    for one in timed:
        at = _offset(starts, one.starts, one.interval_s)
        _add(counts, one.counts, at)
        for row in one.series:
            _add(series[row.value], row.counts, at)
    rows = sorted(series.items(), key=lambda row: (-sum(row[1]), row[0] or ""))
    return Volume(
        lines=sum(counts),
        interval_s=timed[0].interval_s,
        starts=starts,
        counts=tuple(counts),
        series=tuple(
            VolumeSeries(value=value, lines=sum(own), counts=tuple(own))
            for value, own in rows[:limit]
        ),
    )


def joined_labels(parts: Sequence[Labels], params: LabelsParams) -> Labels:
    """Add up the lines of labels, and of their values, all of which the parts have."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for part in parts:
        for label in part.labels:
            values[label.name].update({one.value: one.lines for one in label.values})
    shown = sorted(values)[: None if params.name else params.limit]
    labels = []
    for name in shown:
        rows = sorted(values[name].items(), key=lambda row: (-row[1], row[0]))
        kept = rows[: params.limit] if params.name else []
        label = Label(
            name=name,
            lines=values[name].total(),
            distinct=len(rows),
            values=tuple(LabelValue(value=value, lines=lines) for value, lines in kept),
        )
        labels.append(label)
    return Labels(lines=sum(part.lines for part in parts), labels=tuple(labels))


async def _statements(
    request: Request, collection: Collection, params: StatementsParams
) -> Statements:
    wide: dict[str, Any] = {"limit": _ALL, "new_since_ns": None, "statement": None}
    if params.statement is not None:
        wide["template"] = await template_of(request, collection, params.statement) or ""
    asked = params.model_copy(update=wide)
    numbers = numbers_in(collection, params.start_ns, params.end_ns)
    whole = joined_statements(
        numbers, await _each(request, collection, Kind.STATEMENTS, asked), params
    )
    rows = whole.statements
    if params.new_since_ns is not None:
        ever = rows
        if (params.start_ns, params.end_ns) != (None, None):
            every = asked.model_copy(update={"start_ns": None, "end_ns": None, "interval_s": None})
            parts = await _each(request, collection, Kind.STATEMENTS, every)
            ever = joined_statements(numbers_in(collection), parts, every).statements
        since = params.new_since_ns / 1e9
        new = {one.statement for one in ever if one.first_seen >= since}
        rows = tuple(one for one in rows if one.statement in new)
    return whole.model_copy(
        update={
            "lines": sum(one.count for one in rows),
            "distinct": len(rows),
            "statements": rows[: params.limit],
        }
    )


def joined_statements(
    numbers: Sequence[int], parts: Sequence[Statements], params: StatementsParams
) -> Statements:
    """Join statements of the same template, the most frequent first.

    The id is that in the newest partition that has it.

    Raises:
        RequestInvalid: there are too many intervals.
    """
    starts: tuple[float, ...] = ()
    timed = [one.starts for one in parts if one.starts]
    if timed and params.interval_s is not None:
        starts = _starts(timed, params.interval_s, most=MAX_STATEMENT_INTERVALS)
    views: dict[str, StatementView] = {}
    for number, part in zip(numbers, parts, strict=True):
        at = _offset(starts, part.starts, params.interval_s or 1.0) if part.starts else 0
        for one in part.statements:
            counts = [0] * len(starts)
            before = views.get(one.statement)
            if starts:
                _add(counts, one.counts, at)
                _add(counts, before.counts if before else (), 0)
            update: dict[str, Any] = {"id": statement_id(number, one.id)}
            if starts:
                update["counts"] = tuple(counts)
            if before is not None:
                update["count"] = before.count + one.count
                update["first_seen"] = min(before.first_seen, one.first_seen)
                update["last_seen"] = max(before.last_seen, one.last_seen)
            views[one.statement] = one.model_copy(update=update)
    rows = sorted(views.values(), key=lambda one: (-one.count, int(one.id)))
    about: dict[str, Any] = {}
    if params.interval_s is not None:
        about = {"interval_s": params.interval_s, "starts": starts}
    return Statements(
        lines=sum(part.lines for part in parts),
        distinct=len(rows),
        statements=tuple(rows),
        **about,
    )


def _starts(grids: Sequence[Sequence[float]], length_s: float, *, most: int) -> tuple[float, ...]:
    """Return the starts of intervals from the first of some to the last of them.

    Raises:
        RequestInvalid: there are more than there may be.
    """
    step = round(length_s * 1e9)
    first = min(round(grid[0] * 1e9 / step) for grid in grids)
    last = max(round(grid[-1] * 1e9 / step) for grid in grids)
    count = last - first + 1
    if count > most:
        raise RequestInvalid(f"expected <= {most} intervals, got {count} of {length_s:g} seconds")
    return tuple((first + n) * step / 1e9 for n in range(count))


def _offset(starts: Sequence[float], own: Sequence[float], length_s: float) -> int:
    """Return the place of the first interval of some among those of all."""
    return round((own[0] - starts[0]) / length_s)


def _add(counts: list[int], own: Sequence[int], at: int) -> None:
    for n, count in enumerate(own):
        counts[at + n] += count
