"""Filters over lines: for whole segments where labels and times decide, else line by line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs.filters import (
    ID,
    METADATA,
    TIME,
    AllOf,
    AnyOf,
    Exists,
    Node,
    Not,
    OneOf,
    Within,
    holds,
)
from verso_core.jobs.lines import line_id, line_place
from verso_core.segments import MISSING, Segment
from verso_core.texts import Scalar

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Spans(NamedTuple):
    """Places of segments. Shape of each array: (segments,); as in :class:`Segment`."""

    stream: Numbers
    first: Numbers
    end: Numbers
    earliest: Numbers
    latest: Numbers

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Spans:
        """Return the places of segments."""
        rows = [(s.stream, s.first, s.end, s.earliest, s.latest) for s in segments]
        return cls(*np.array(rows, np.int64).reshape(-1, 5).T)

    def take(self, chosen: Numbers) -> Spans:
        """Return the places of some segments."""
        return Spans(*(column[chosen] for column in self))


class Passing(NamedTuple):
    """Of which segments all lines pass, and of which none. Shape of each: (segments,)."""

    all: Mask
    none: Mask


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled filter."""

    node: Node | bool

    def of_segment(self, segment: Segment, labels: Mapping[str, str]) -> bool | None:
        """Whether all lines of a segment pass (True), none (False), or some may (None)."""
        found = self.of_stream(Spans.of([segment]), labels)
        return True if found.all[0] else False if found.none[0] else None

    def of_stream(self, spans: Spans, labels: Mapping[str, str]) -> Passing:
        """Return which segments of a stream pass as a whole, and which cannot."""
        if isinstance(self.node, bool):
            return _certain(spans, passes=self.node)
        return _possible(self.node, _fields(labels), spans)

    def of_segments(self, spans: Spans, labels: Callable[[int], Mapping[str, str]]) -> Passing:
        """Return which segments pass as a whole, and which cannot; ``labels`` of a stream."""
        if isinstance(self.node, bool):
            return _certain(spans, passes=self.node)
        found = Passing(*np.zeros((2, len(spans.stream)), np.bool_))
        for stream in np.unique(spans.stream).tolist():
            chosen = np.flatnonzero(spans.stream == stream)
            part = self.of_stream(spans.take(chosen), labels(stream))
            found.all[chosen], found.none[chosen] = part
        return found

    def of_lines(
        self,
        labels: Mapping[str, str],
        *,
        stream: int,
        numbers: NDArray[np.int64],
        when: NDArray[np.int64],
    ) -> Mask:
        """Return which lines pass. Shape: (lines,), as of ``numbers`` and ``when``."""
        if isinstance(self.node, bool):
            return np.full(len(numbers), self.node)
        return _mask(self.node, _fields(labels), stream, numbers, when / 1e9)


def _fields(labels: Mapping[str, str]) -> dict[str, Sequence[Scalar]]:
    return {METADATA + name: [value] for name, value in labels.items()}


def _certain(spans: Spans, *, passes: bool) -> Passing:
    every = np.full(len(spans.stream), passes)
    return Passing(every, ~every)


def _possible(node: Node, fields: Mapping[str, Sequence[Scalar]], spans: Spans) -> Passing:
    match node:
        case AllOf(parts) | AnyOf(parts):
            every, none = zip(*(_possible(part, fields, spans) for part in parts), strict=True)
            if isinstance(node, AllOf):
                return Passing(np.logical_and.reduce(every), np.logical_or.reduce(none))
            return Passing(np.logical_or.reduce(every), np.logical_and.reduce(none))
        case Not(part):
            inner = _possible(part, fields, spans)
            return Passing(inner.none, inner.all)
        case Exists(field) if field in (TIME, ID):
            return _certain(spans, passes=True)
        case Within(field) if field == TIME:
            return _in_time(node, spans)
        case OneOf(field, wanted) if field == ID:
            places = (line_place(str(one)) for one in wanted)
            inside = np.zeros(len(spans.first), np.bool_)
            for stream, number in (one for one in places if one is not None):
                inside |= (spans.stream == stream) & (spans.first <= number) & (number < spans.end)
            return Passing(np.zeros(len(inside), np.bool_), ~inside)
        case _ if node.field in (TIME, ID):
            return Passing(*np.zeros((2, len(spans.first)), np.bool_))
        case _:
            return _certain(spans, passes=holds(node, fields))


def _in_time(node: Within, spans: Spans) -> Passing:
    timed = spans.earliest != MISSING
    low, high = spans.earliest / 1e9, spans.latest / 1e9
    none = np.zeros(len(low), np.bool_)
    if node.gte is not None:
        none |= high < node.gte
    if node.gt is not None:
        none |= high <= node.gt
    if node.lte is not None:
        none |= low > node.lte
    if node.lt is not None:
        none |= low >= node.lt
    return Passing(timed & _inside(node, low) & _inside(node, high), timed & none)


def _inside(node: Within, when: NDArray[np.float64]) -> Mask:
    """Return which times are within bounds."""
    found = np.ones(len(when), np.bool_)
    if node.gt is not None:
        found &= when > node.gt
    if node.gte is not None:
        found &= when >= node.gte
    if node.lt is not None:
        found &= when < node.lt
    if node.lte is not None:
        found &= when <= node.lte
    return found


def _mask(
    node: Node,
    fields: Mapping[str, Sequence[Scalar]],
    stream: int,
    numbers: NDArray[np.int64],
    when: NDArray[np.float64],
) -> Mask:
    match node:
        case AllOf(parts):
            masks = [_mask(part, fields, stream, numbers, when) for part in parts]
            both: Mask = np.logical_and.reduce(masks)
            return both
        case AnyOf(parts):
            masks = [_mask(part, fields, stream, numbers, when) for part in parts]
            either: Mask = np.logical_or.reduce(masks)
            return either
        case Not(part):
            return ~_mask(part, fields, stream, numbers, when)
        case Exists(field) if field in (TIME, ID):
            return np.ones(len(numbers), np.bool_)
        case Within(field) if field == TIME:
            return _inside(node, when)
        case OneOf(field, wanted) if field == TIME:
            times = [float(one) for one in wanted if not isinstance(one, str | bool)]
            return np.isin(when, times)
        case _ if node.field == ID:
            names = [line_id(stream, number) for number in numbers.tolist()]
            return np.array([holds(node, {ID: [name]}) for name in names], np.bool_)
        case _:
            return np.full(len(numbers), holds(node, fields))
