"""The statements of a log collection: how many lines each has, and when the first and the last was.

1. Segments all of whose lines pass are counted from their inventories, for all statements at once.
2. Of segments of which some lines pass, or some are deleted, the blocks are asked.
3. Of the statements that are shown, the segments that begin first and end last are looked at until
   no other can hold an earlier or a later line. Summaries of blocks say when their lines are.
4. If counts by interval are asked for, those of step 2 are kept by interval for every statement;
   of segments all of whose lines pass, only the blocks with lines of a shown statement are asked,
   and only where times of such lines are in different intervals is a block decoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verso_core.jobs import Collection
from verso_core.jobs.logs.views import MAX_STATEMENT_INTERVALS, StatementsParams, StatementView
from verso_core.jobs.logs.views import Statements as StatementsView
from verso_worker.records.segments import ASCENDING, BLOCK_LINES
from verso_worker.rules.logs.blocks import BlockRef, Blocks
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import END_NS, START_NS, Condition
from verso_worker.rules.logs.index import Statements
from verso_worker.rules.logs.occurrences import passing_lines
from verso_worker.rules.logs.query.intervals import Intervals
from verso_worker.rules.logs.query.summaries import Summaries, Summary
from verso_worker.rules.logs.segments import Block

Counts = NDArray[np.int64]
_TOGETHER = 256
_NONE_FIRST, _NONE_LAST = END_NS - 1, START_NS


@dataclass(frozen=True, slots=True)
class StatementList:
    """Lists the statements of log collections."""

    store: LogStore
    blocks: Blocks
    summaries: Summaries

    def run(self, collection: Collection, asked: StatementsParams) -> StatementsView:
        """Return the most frequent statements of the lines that pass.

        Raises:
            RequestInvalid: there are too many intervals.
        """
        log = self.store.open(collection.name, dim=collection.dim)
        statements = log.statements()
        condition = Condition.of(asked.filter, start_ns=asked.start_ns, end_ns=asked.end_ns)
        intervals = None
        if asked.interval_s is not None:
            intervals = Intervals.over(
                log, condition, length_s=asked.interval_s, most=MAX_STATEMENT_INTERVALS
            )
        seen = _Seen(log, statements, condition, self.blocks, self.summaries, intervals)
        passing = np.flatnonzero(seen.counts)
        chosen = statements.chosen(asked.statement, asked.template)
        if chosen is not None:
            passing = passing[passing == chosen]
        if asked.new_since_ns is not None:
            ever = seen
            if (condition.start_ns, condition.end_ns) != (START_NS, END_NS):
                every = replace(condition, start_ns=START_NS, end_ns=END_NS)
                ever = _Seen(log, statements, every, self.blocks, self.summaries)
            passing = ever.new_since(passing, asked.new_since_ns)
        order = np.argsort(-seen.counts[passing], kind="stable")
        shown = passing[order[: asked.limit]]
        seen.find_times(shown)
        return StatementsView(
            lines=int(seen.counts[passing].sum()),
            distinct=len(passing),
            statements=_rows(statements, seen, shown),
            **_about(asked, intervals),
        )


def _about(asked: StatementsParams, intervals: Intervals | None) -> dict[str, Any]:
    """Return what the answer says of its intervals; nothing if none were asked for."""
    if asked.interval_s is None:
        return {}
    starts = () if intervals is None else intervals.starts
    return {"interval_s": asked.interval_s, "starts": starts}


def _rows(statements: Statements, seen: _Seen, shown: Counts) -> tuple[StatementView, ...]:
    named = statements.names()
    first, last = seen.first[shown] / 1e9, seen.last[shown] / 1e9
    by_interval = seen.by_interval(shown)
    found = []
    for n, one in enumerate(shown.tolist()):
        view = StatementView(
            id=str(named[one]),
            statement=statements.texts[one],
            count=int(seen.counts[one]),
            first_seen=float(first[n]),
            last_seen=float(last[n]),
        )
        if by_interval is not None:
            view = view.model_copy(update={"counts": tuple(by_interval[n].tolist())})
        found.append(view)
    return tuple(found)


class _Seen:
    """How many lines of each statement pass, and when the first and the last of them were.

    Attributes:
        counts: of all statements. Shape of each array: (statements,).
        first: Unix nanoseconds, once :meth:`find_times` has looked.
        last: likewise.
    """

    def __init__(
        self,
        log: LogCollection,
        statements: Statements,
        condition: Condition,
        blocks: Blocks,
        summaries: Summaries,
        intervals: Intervals | None = None,
    ) -> None:
        self._log = log
        self._condition = condition
        self._blocks = blocks
        self._summaries = summaries
        self._view = view = log.view()
        self._bitmaps = log.bitmaps()
        self._of_shape = np.append(statements.of_shape, -1)  # of shapes that came since
        size = len(statements.texts)
        self._intervals = intervals
        width = 0 if intervals is None else intervals.count
        self._by_interval = np.zeros((size, width), np.int64)
        self.first, self.last = np.full(size, _NONE_FIRST), np.full(size, _NONE_LAST)
        passing = condition.of_segments(view.spans, log.source)
        deleted = [(one.stream, one.first) in self._bitmaps for one in view.segments]
        whole = passing.all & ~np.array(deleted, np.bool_)
        of_entry = self._statements_of(view.shapes)
        entries = np.flatnonzero(whole[view.rows] & (of_entry >= 0))
        counts = np.bincount(of_entry[entries], view.counts[entries], minlength=size)
        self.counts = counts.astype(np.int64)
        order = np.argsort(of_entry[entries], kind="stable")
        self._entries = entries[order]  # of whole segments, statement by statement
        self._bounds = np.searchsorted(of_entry[self._entries], np.arange(size + 1))
        self._of_entry = of_entry
        any_time = replace(condition, start_ns=START_NS, end_ns=END_NS)
        by_time = any_time.of_segments(view.spans, log.source).all & ~np.array(deleted, np.bool_)
        self._add_parts(np.flatnonzero(~whole & ~passing.none), by_time)

    def new_since(self, statements: Counts, since_ns: int) -> Counts:
        """Return those statements none of whose lines is before a time."""
        earlier = np.zeros(len(self.counts), np.bool_)
        before = self._view.spans.latest[self._view.rows[self._entries]] < since_ns
        earlier[self._of_entry[self._entries[before]]] = True
        left = statements[~earlier[statements]]
        self.find_times(left)
        return left[self.first[left] >= since_ns]

    def find_times(self, statements: Counts) -> None:
        """Find when the first and the last line of statements were."""
        self._find(statements, newest=False)
        self._find(statements, newest=True)

    def by_interval(self, statements: Counts) -> Counts | None:
        """Return how many lines of statements are in each interval; None without intervals.

        Shape: (statements, intervals). It is asked once: it adds to what is counted.
        """
        if self._intervals is None:
            return None
        wanted = np.zeros(len(self.counts) + 1, np.bool_)  # the last one stands for none
        wanted[statements] = True
        entries = self._entries[wanted[self._of_entry[self._entries]]]
        rows = self._view.rows[entries]
        begins = self._intervals.of(self._view.spans.earliest[rows])
        together = begins == self._intervals.of(self._view.spans.latest[rows])
        alone = entries[together]
        at = self._of_entry[alone], begins[together]
        np.add.at(self._by_interval, at, self._view.counts[alone])
        self._add_blocks(self._places(entries[~together]), wanted)
        found: Counts = self._by_interval[statements]
        return found

    def _places(self, entries: Counts) -> list[BlockRef]:
        """Return the blocks with lines of entries, each once."""
        masks: dict[int, int] = defaultdict(int)
        for entry in entries.tolist():
            masks[int(self._view.rows[entry])] |= int(self._view.blocks[entry])
        return [
            (self._view.segments[row], block)
            for row, mask in masks.items()
            for block in range(mask.bit_length())
            if mask >> block & 1
        ]

    def _add_blocks(self, places: Sequence[BlockRef], wanted: NDArray[np.bool_]) -> None:
        """Count lines of blocks by interval, those of wanted statements."""
        parted = []
        for place, summary in self._summaries.read(self._log, places).items():
            found = self._statements_of(summary.shapes)
            own = summary.of_shapes(wanted[found])
            if self._is_parted(own):
                parted.append(place)
            else:
                self._add_together(own)
        for start in range(0, len(parted), _TOGETHER):
            for block in self._blocks.read(self._log, parted[start : start + _TOGETHER]).values():
                chosen = wanted[self._statements_of(block.shapes)]
                self._add_lines(block.shapes[chosen], block.when[chosen])

    def _is_parted(self, summary: Summary) -> bool:
        """Whether lines of one shape are in different intervals."""
        if self._intervals is None:
            return False
        begins, ends = self._intervals.of(summary.first), self._intervals.of(summary.last)
        return bool((begins != ends).any())

    def _add_together(self, summary: Summary) -> None:
        """Count lines by interval, where those of each shape are in one interval."""
        if self._intervals is not None:
            found = self._statements_of(summary.shapes)
            known = found >= 0
            at = found[known], self._intervals.of(summary.first[known])
            np.add.at(self._by_interval, at, summary.counts[known])

    def _add_lines(self, shapes: NDArray[np.int32], when: Counts) -> None:
        """Count lines by interval. Shape of each array: (lines,)."""
        if self._intervals is not None:
            found = self._statements_of(shapes)
            known = found >= 0
            np.add.at(self._by_interval, (found[known], self._intervals.of(when[known])), 1)

    def _find(self, statements: Counts, *, newest: bool) -> None:
        """Look into segments, one for each statement at a time, until no other can hold more.

        All lines of these segments pass, so what a block says of other statements counts too.
        """
        waiting = {one: self._candidates(one, newest=newest) for one in statements.tolist()}
        while waiting:
            found = {one: next(rows, None) for one, rows in waiting.items()}
            waiting = {one: waiting[one] for one, place in found.items() if place is not None}
            places = [place for rows in found.values() if rows is not None for place in rows]
            for summary in self._summaries.read(self._log, places).values():
                self._note(summary)

    def _candidates(self, statement: int, *, newest: bool) -> Iterator[list[BlockRef]]:
        """Yield the blocks of each segment that may hold the first or the last line.

        Where times ascend it is the first or the last block that has lines of the statement.
        """
        entries = self._entries[self._bounds[statement] : self._bounds[statement + 1]]
        spans = self._view.spans
        rows = self._view.rows[entries]
        keys = -spans.latest[rows] if newest else spans.earliest[rows]
        for n in np.argsort(keys, kind="stable").tolist():
            known = -int(self.last[statement]) if newest else int(self.first[statement])
            if int(keys[n]) >= known:
                return
            mask = int(self._view.blocks[entries[n]])
            segment = self._view.segments[int(rows[n])]
            blocks = [block for block in range(mask.bit_length()) if mask >> block & 1]
            if segment.flags & ASCENDING:
                blocks = blocks[-1:] if newest else blocks[:1]
            yield [(segment, block) for block in blocks]

    def _note(self, summary: Summary) -> None:
        found = self._statements_of(summary.shapes)
        chosen = found >= 0
        np.minimum.at(self.first, found[chosen], summary.first[chosen])
        np.maximum.at(self.last, found[chosen], summary.last[chosen])

    def _statements_of(self, shapes: NDArray[np.int32]) -> Counts:
        """Return the statements of shapes, -1 for those that are not known yet."""
        found: Counts = self._of_shape[np.minimum(shapes, len(self._of_shape) - 1)]
        return found

    def _add_parts(self, rows: Counts, by_time: NDArray[np.bool_]) -> None:
        """Count lines of segments of which some lines pass."""
        opened: list[tuple[int, BlockRef]] = []
        for row in rows.tolist():
            places = self._every_block(row)
            if not by_time[row]:
                opened += [(row, place) for place in places]
                continue
            for place, summary in self._summaries.read(self._log, places).items():
                first, last = summary.span
                if last < self._condition.start_ns or first >= self._condition.end_ns:
                    continue
                inside = first >= self._condition.start_ns and last < self._condition.end_ns
                if inside and not self._is_parted(summary):
                    self._count(summary)
                    self._add_together(summary)
                else:
                    opened.append((row, place))
        for start in range(0, len(opened), _TOGETHER):
            part = opened[start : start + _TOGETHER]
            blocks = self._blocks.read(self._log, [place for _, place in part], keep=False)
            for row, place in part:
                if place in blocks:
                    self._count_lines(row, blocks[place])

    def _every_block(self, row: int) -> list[BlockRef]:
        segment = self._view.segments[row]
        return [(segment, n) for n in range(-(-segment.lines // BLOCK_LINES))]

    def _count(self, summary: Summary) -> None:
        found = self._statements_of(summary.shapes)
        np.add.at(self.counts, found[found >= 0], summary.counts[found >= 0])
        self._note(summary)

    def _count_lines(self, row: int, block: Block) -> None:
        segment = self._view.segments[row]
        bitmap = self._bitmaps.get((segment.stream, segment.first))
        chosen = passing_lines(self._log, self._condition, segment, block, bitmap)
        if chosen.any():
            part = replace(block, shapes=block.shapes[chosen], when=block.when[chosen])
            self._count(Summary.of(part))
            self._add_lines(part.shapes, part.when)
