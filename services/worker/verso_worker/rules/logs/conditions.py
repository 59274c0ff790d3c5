"""Filters over lines: for a whole segment where its labels and times decide, else line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled filter."""

    node: Node | bool

    def of_segment(self, segment: Segment, labels: Mapping[str, str]) -> bool | None:
        """Whether all lines of a segment pass (True), none (False), or some may (None)."""
        if isinstance(self.node, bool):
            return self.node
        return _possible(self.node, _fields(labels), segment)

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


def _possible(node: Node, fields: Mapping[str, Sequence[Scalar]], segment: Segment) -> bool | None:
    match node:
        case AllOf(parts):
            found = [_possible(part, fields, segment) for part in parts]
            return False if False in found else None if None in found else True
        case AnyOf(parts):
            found = [_possible(part, fields, segment) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            inner = _possible(part, fields, segment)
            return None if inner is None else not inner
        case Exists(field) if field in (TIME, ID):
            return True
        case Within(field) if field == TIME:
            if segment.earliest == MISSING:
                return None
            low, high = segment.earliest / 1e9, segment.latest / 1e9
            if node.holds(low) and node.holds(high):
                return True
            below = (node.gte is not None and high < node.gte) or (
                node.gt is not None and high <= node.gt
            )
            above = (node.lte is not None and low > node.lte) or (
                node.lt is not None and low >= node.lt
            )
            return False if below or above else None
        case OneOf(field, wanted) if field == ID:
            places = (line_place(str(one)) for one in wanted)
            named = [one for one in places if one is not None]
            inside = any(
                stream == segment.stream and segment.first <= number < segment.end
                for stream, number in named
            )
            return None if inside else False
        case _ if node.field in (TIME, ID):
            return None
        case _:
            return holds(node, fields)


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
            found = np.ones(len(numbers), np.bool_)
            if node.gt is not None:
                found &= when > node.gt
            if node.gte is not None:
                found &= when >= node.gte
            if node.lt is not None:
                found &= when < node.lt
            if node.lte is not None:
                found &= when <= node.lte
            return found
        case OneOf(field, wanted) if field == TIME:
            times = [float(one) for one in wanted if not isinstance(one, str | bool)]
            return np.isin(when, times)
        case _ if node.field == ID:
            names = [line_id(stream, number) for number in numbers.tolist()]
            return np.array([holds(node, {ID: [name]}) for name in names], np.bool_)
        case _:
            return np.full(len(numbers), holds(node, fields))
