"""Which statements and values occur in which segments, for all segments of a collection at once.

Every segment begins with an inventory of its shapes and a filter of its values. A search asks those
of all segments, thousands in a collection of ten million lines, so they are kept as arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import filters
from verso_core.errors import RecordCorrupt
from verso_core.segments import Segment
from verso_worker.records.segments import FRONT_BYTES, RECORDS, Front, corrected
from verso_worker.records.space import Vector
from verso_worker.rules.logs.conditions import Spans
from verso_worker.rules.ports.stores import Logs

_SIZES = (FRONT_BYTES, 8 * FRONT_BYTES, 1 << 29)
"""How many bytes of a segment are read for its front: nearly always the first are enough."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Segments of lines, and what occurs in them, as one moment knows them.

    Attributes:
        segments: in the order of their rows.
        spans: their places and times.
        shapes, counts, blocks: the entries of all inventories, as
            :class:`~verso_worker.records.segments.Inventory` has them. Shape: (entries,).
        rows: of the segment of each entry. Shape: (entries,).
        filters: of the values in each segment.
    """

    segments: tuple[Segment, ...]
    spans: Spans
    shapes: NDArray[np.int32]
    counts: NDArray[np.uint16]
    blocks: NDArray[np.uint16]
    rows: NDArray[np.int32]
    filters: filters.Joined

    @classmethod
    def of(cls, segments: Sequence[Segment], fronts: Sequence[Front]) -> View:
        """Return the view of segments that were read."""
        inventories = [front.inventory for front in fronts]
        sizes = [len(one.shapes) for one in inventories]
        none = [np.zeros(0, np.int64)]
        return cls(
            tuple(segments),
            Spans.of(segments),
            np.concatenate([one.shapes for one in inventories] or none).astype(np.int32),
            np.concatenate([one.counts for one in inventories] or none).astype(np.uint16),
            np.concatenate([one.blocks for one in inventories] or none).astype(np.uint16),
            np.repeat(np.arange(len(segments), dtype=np.int32), sizes),
            filters.join([front.filter for front in fronts]),
        )

    def only(self, kept: NDArray[np.bool_]) -> View:
        """Return the view of some of the segments. Shape of ``kept``: (segments,)."""
        chosen = np.flatnonzero(kept)
        inside = kept[self.rows]
        numbers = np.cumsum(kept, dtype=np.int32) - 1
        bounds = self.filters.bounds
        sizes = np.diff(bounds)
        return View(
            tuple(self.segments[row] for row in chosen.tolist()),
            self.spans.take(chosen),
            self.shapes[inside],
            self.counts[inside],
            self.blocks[inside],
            numbers[self.rows[inside]],
            filters.Joined(
                self.filters.data[np.repeat(kept, sizes)],
                np.concatenate(([0], np.cumsum(sizes[chosen]))),
            ),
        )

    def joined(self, other: View) -> View:
        """Return the view of these segments and others."""
        own, more = self.filters, other.filters
        return View(
            self.segments + other.segments,
            Spans(*map(np.concatenate, zip(self.spans, other.spans, strict=True))),
            np.concatenate((self.shapes, other.shapes)),
            np.concatenate((self.counts, other.counts)),
            np.concatenate((self.blocks, other.blocks)),
            np.concatenate((self.rows, other.rows + np.int32(len(self.segments)))),
            filters.Joined(
                np.concatenate((own.data, more.data)),
                np.concatenate((own.bounds, more.bounds[1:] + own.bounds[-1])),
            ),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Statements:
    """The templates of a collection as one moment knows them.

    Attributes:
        texts: the templates, each once.
        of_shape: number of the template of each shape. Shape: (shapes,).
        vectors: of the templates; zeros where one is missing. Shape: (templates, dim).
        own_texts: the shapes whose template lacks the words that they have, ascending.
        of_question: whether shapes that a question names are statements, without vectors.
    """

    texts: list[str]
    of_shape: NDArray[np.int64]
    vectors: Vector
    own_texts: NDArray[np.int64]
    of_question: bool = False

    def with_own(self, shapes: NDArray[np.int64], texts: Sequence[str]) -> Statements:
        """Return these, and some shapes as statements of their own, with their texts."""
        of_shape = self.of_shape.copy()
        of_shape[shapes] = len(self.texts) + np.arange(len(shapes))
        both = [*self.texts, *texts]
        return replace(self, texts=both, of_shape=of_shape, of_question=True)

    def names(self) -> NDArray[np.int64]:
        """Return the least number of each template's shapes, which stays. Shape: (templates,)."""
        found = np.full(len(self.texts), np.iinfo(np.int64).max)
        np.minimum.at(found, self.of_shape, np.arange(len(self.of_shape)))
        return found

    def numbered(self, shape: int) -> int:
        """Return the template of the shape of a number; -1 if there is none."""
        return int(self.of_shape[shape]) if shape < len(self.of_shape) else -1

    def chosen(self, name: str | None, template: str | None) -> int | None:
        """Return the template of a statement by its id or its text; None if neither is given.

        -2 stands for one that there is not.
        """
        if name is not None:
            return self.numbered(int(name))
        if template is None:
            return None
        return self.texts.index(template) if template in self.texts else -2


@dataclass(frozen=True, slots=True, eq=False)
class StatementEntries:
    """The entries of a view by the statement of their shape.

    Attributes:
        of_entry: the statement of each entry, or as many as there are where it is not known.
        order: entries by statement, each statement's in their order. Shape: as of the entries.
        bounds: where each statement's begin and end in the order. Shape: (statements + 1,).
    """

    of_entry: NDArray[np.uint32]
    order: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @classmethod
    def of(cls, shapes: NDArray[np.int32], of_shape: NDArray[np.int64], count: int) -> Self:
        """Return the entries of shapes, by ``count`` statements.

        of_shape: the statement of each shape; shapes that came since are left out.
        """
        known = np.append(np.where(of_shape < 0, count, of_shape), count)
        found = known[np.minimum(shapes, len(of_shape))]
        # Numbers of 16 bits are sorted by their digits, ten times as fast.
        keys = found.astype(np.uint16 if count < 1 << 16 else np.uint32)
        order = np.argsort(keys, kind="stable")
        bounds = np.searchsorted(keys[order], np.arange(count + 1))
        return cls(found.astype(np.uint32), order, bounds)

    def of_statement(self, statement: int) -> NDArray[np.int64]:
        """Return the entries of a statement, in their order."""
        return self.order[self.bounds[statement] : self.bounds[statement + 1]]

    def occurring(self, chosen: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Return which statements have chosen entries; None chooses all. Shape: (statements,)."""
        if chosen is None:
            return np.diff(self.bounds) > 0
        count = len(self.bounds) - 1
        return np.bincount(self.of_entry[chosen], minlength=count + 1)[:count] > 0


class SegmentIndex:
    """The view of one collection, brought up to date when it is asked for.

    Args:
        logs: the ledger's lines.
        uid: of the collection.
    """

    def __init__(self, logs: Logs, uid: str) -> None:
        self._logs = logs
        self._uid = uid
        self._lock = threading.Lock()
        self._version: object = None
        self._view = View.of([], [])

    def view(self, segments: Sequence[Segment], *, version: object) -> View:
        """Return the view of a collection's segments but those stored as documents.

        Segments that are gone or too much damaged are left out: the scrub reports them.

        Args:
            segments: of the collection.
            version: changes whenever ``segments`` does.
        """
        with self._lock:
            if version != self._version:
                listed = [one for one in segments if not one.flags & RECORDS]
                self._view = self._updated(self._view, listed)
                self._version = version
            return self._view

    def _updated(self, view: View, listed: Sequence[Segment]) -> View:
        known, wanted = set(view.segments), set(listed)
        if not known <= wanted:
            view = view.only(np.array([one in wanted for one in view.segments], np.bool_))
        new = [one for one in listed if one not in known]
        if not new:
            return view
        fronts = self._fronts(new)
        return view.joined(View.of(list(fronts), list(fronts.values())))

    def _fronts(self, segments: Sequence[Segment]) -> dict[Segment, Front]:
        found: dict[Segment, Front] = {}
        damaged: list[Segment] = []
        for size in _SIZES:
            places = [(one.stream, one.first) for one in segments]
            longer: list[Segment] = []
            heads = self._logs.heads(self._uid, places, size=size)
            for segment, head in zip(segments, heads, strict=True):
                try:
                    front = Front.read(head) if head else None
                    if front is not None and front.lines == segment.lines:
                        filters.check(front.filter)
                        found[segment] = front
                    elif front is None and len(head) == size:
                        longer.append(segment)
                    elif front is None and head:
                        damaged.append(segment)
                except RecordCorrupt:
                    damaged.append(segment)
            segments = longer
            if not segments:
                break
        return found | self._corrected(damaged)

    def _corrected(self, damaged: Sequence[Segment]) -> dict[Segment, Front]:
        """Return the fronts of segments of which one flipped bit can be corrected."""
        found: dict[Segment, Front] = {}
        if not damaged:
            return found
        rows = self._logs.read(self._uid, [(one.stream, one.first) for one in damaged])
        for segment, data in zip(damaged, rows, strict=True):
            right = None if data is None else corrected(data)
            front = None if right is None else Front.read(right)
            if front is not None and front.lines == segment.lines:
                found[segment] = front
        return found
