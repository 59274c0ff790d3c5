"""Filters over lines: for whole segments where labels and times decide, else line by line.

A field is a label of the line's stream; of a log record it is one of its attributes if the stream
has no such label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs.filters.compiled import compiled
from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.filters.nodes import (
    ID,
    METADATA,
    TIME,
    AllOf,
    AnyOf,
    Exists,
    Node,
    Not,
    OneOf,
    Test,
    Within,
    holds,
    tests_in,
)
from verso_core.jobs.logs.lines import line_id, line_place
from verso_core.jobs.logs.records import attribute_fields
from verso_core.segments import MISSING, Segment
from verso_core.texts import Scalar

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Ends = NDArray[np.object_]
Fields = Mapping[str, Sequence[Scalar]]
START_NS, END_NS = -(1 << 63), 1 << 63
"""Bounds that every time is within; the second is no int64."""


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


class Source(NamedTuple):
    """What lines of a stream have in common; ``records``: whether they may have attributes."""

    labels: Mapping[str, str]
    records: bool

    @property
    def fields(self) -> Fields:
        """Return the values of the labels, by the names that filters have for them."""
        return {METADATA + name: [value] for name, value in self.labels.items()}


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled filter, and the times that lines have: Unix nanoseconds in [start, end)."""

    node: Node | bool
    start_ns: int = START_NS
    end_ns: int = END_NS

    @classmethod
    def of(
        cls, where: Filter | None, *, start_ns: int | None = None, end_ns: int | None = None
    ) -> Condition:
        """Return the condition of a filter and a range of times, each bound of which may lack."""
        return cls(
            compiled(where),
            START_NS if start_ns is None else start_ns,
            END_NS if end_ns is None else end_ns,
        )

    def of_segment(self, segment: Segment, source: Source) -> bool | None:
        """Whether all lines of a segment pass (True), none (False), or some may (None)."""
        found = self.of_stream(Spans.of([segment]), source)
        return True if found.all[0] else False if found.none[0] else None

    def of_stream(self, spans: Spans, source: Source) -> Passing:
        """Return which segments of a stream pass as a whole, and which cannot."""
        if isinstance(self.node, bool):
            found = _certain(spans, passes=self.node)
        else:
            found = _possible(self.node, source, spans)
        if (self.start_ns, self.end_ns) == (START_NS, END_NS):
            return found
        inside = (spans.earliest >= self.start_ns) & (spans.latest < self.end_ns)
        outside = (spans.latest < self.start_ns) | (spans.earliest >= self.end_ns)
        timed = spans.earliest != MISSING
        return Passing(found.all & inside & timed, found.none | (outside & timed))

    def of_segments(self, spans: Spans, source: Callable[[int], Source]) -> Passing:
        """Return which segments pass as a whole, and which cannot; ``source`` of a stream."""
        if isinstance(self.node, bool):
            return self.of_stream(spans, Source({}, records=False))
        found = Passing(*np.zeros((2, len(spans.stream)), np.bool_))
        for stream in np.unique(spans.stream).tolist():
            chosen = np.flatnonzero(spans.stream == stream)
            part = self.of_stream(spans.take(chosen), source(stream))
            found.all[chosen], found.none[chosen] = part
        return found

    def reads_attributes(self, source: Source) -> bool:
        """Whether lines of a stream pass or not by their attributes."""
        if isinstance(self.node, bool) or not source.records:
            return False
        fields = source.fields
        return any(_is_attribute(test.field, fields) for test in tests_in(self.node))

    def of_lines(
        self, source: Source, *, stream: int, numbers: Numbers, when: Numbers, ends: Ends
    ) -> Mask:
        """Return which lines pass. Shape: (lines,), as of all arrays.

        Args:
            source: of the stream.
            stream: its number.
            numbers: of the lines.
            when: their times, Unix nanoseconds.
            ends: what stands behind the body of each record, bytes; read only where
                :meth:`reads_attributes`.
        """
        inside = (when >= self.start_ns) & (when < self.end_ns)
        if isinstance(self.node, bool):
            return inside & self.node
        lines = _Lines(source.records, source.fields, stream, numbers, when / 1e9, ends)
        return inside & lines.mask(self.node)


def _is_attribute(field: str, labels: Fields) -> bool:
    return field not in (TIME, ID) and field not in labels


def _certain(spans: Spans, *, passes: bool) -> Passing:
    every = np.full(len(spans.stream), passes)
    return Passing(every, ~every)


def _possible(node: Node, source: Source, spans: Spans) -> Passing:
    match node:
        case AllOf(parts) | AnyOf(parts):
            every, none = zip(*(_possible(part, source, spans) for part in parts), strict=True)
            if isinstance(node, AllOf):
                return Passing(np.logical_and.reduce(every), np.logical_or.reduce(none))
            return Passing(np.logical_or.reduce(every), np.logical_and.reduce(none))
        case Not(part):
            inner = _possible(part, source, spans)
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
        case _ if source.records and node.field not in source.fields:
            return Passing(*np.zeros((2, len(spans.first)), np.bool_))
        case _:
            return _certain(spans, passes=holds(node, source.fields))


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


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """Lines of a stream that a filter is asked of. Shape of each array: (lines,)."""

    records: bool
    labels: Fields
    stream: int
    numbers: Numbers
    when: NDArray[np.float64]
    ends: Ends

    def mask(self, node: Node) -> Mask:
        """Return which lines pass."""
        match node:
            case AllOf(parts):
                both: Mask = np.logical_and.reduce([self.mask(part) for part in parts])
                return both
            case AnyOf(parts):
                either: Mask = np.logical_or.reduce([self.mask(part) for part in parts])
                return either
            case Not(part):
                return ~self.mask(part)
            case _:
                return self._tested(node)

    def _tested(self, test: Test) -> Mask:
        match test:
            case Exists(field) if field in (TIME, ID):
                return np.ones(len(self.numbers), np.bool_)
            case Within(field) if field == TIME:
                return _inside(test, self.when)
            case OneOf(field, wanted) if field == TIME:
                times = [float(one) for one in wanted if not isinstance(one, str | bool)]
                return np.isin(self.when, times)
            case _ if test.field == ID:
                names = [line_id(self.stream, number) for number in self.numbers.tolist()]
                return np.array([holds(test, {ID: [name]}) for name in names], np.bool_)
            case _ if self.records and _is_attribute(test.field, self.labels):
                return self._by_attributes(test)
            case _:
                return np.full(len(self.numbers), holds(test, self.labels))

    def _by_attributes(self, test: Test) -> Mask:
        """Return which records pass by an attribute; equal attributes are looked at once."""
        known: dict[bytes, bool] = {}
        for end in self.ends.tolist():
            if end not in known:
                known[end] = holds(test, attributes_of(end))
        return np.array([known[end] for end in self.ends.tolist()], np.bool_)


def attributes_of(end: bytes) -> Fields:
    """Return the values of a record's attributes; ``end``: what stands behind its body."""
    return attribute_fields(end[1:])
