"""Answer a query of lines: in the order of their times, of one statement, or nearest to a question.

Lines nearest to a question are listed statement by statement. First come those that have every
value in the question, of whatever statement, then those of the statement that is nearest, then of
the next; each the newest first. A cursor names the statements that are done, each by the least
number of its shapes, which stays, and how far each stream of the one under way has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from verso_codecs.logs import filters
from verso_core.jobs import Collection, NoItem, Result, Slice
from verso_core.jobs.logs.lines import (
    PAGE_BYTES,
    LineOrder,
    LinesPage,
    LinesParams,
    Nearest,
    read_cursor,
    write_cursor,
)
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.query.choice import Choice
from verso_worker.rules.logs.query.context import Around, Wanted
from verso_worker.rules.logs.query.page import Page
from verso_worker.rules.logs.reading import Line, LineReader
from verso_worker.rules.logs.search import LogSearch

VALUES = -1
"""Stands in a cursor for the lines that have every value in the question."""


@dataclass(frozen=True, slots=True)
class LinesRead:
    """Lines in order; ``places``: where each stream goes on behind them."""

    lines: list[Line]
    places: dict[int, int]


@dataclass(frozen=True, slots=True)
class LineQuery:
    """Answers queries of lines."""

    store: LogStore
    lines: LineReader
    blocks: Blocks
    search: LogSearch

    def run(self, work: Slice[LinesParams, NoItem], collection: Collection) -> Result[LinesPage]:
        """Return a page of lines.

        Raises:
            RequestInvalid: the cursor is none of this list.
            RecordCorrupt: a block does not read back.
        """
        asked = work.params
        log = self.store.open(collection.name, dim=collection.dim)
        around = None
        if asked.before or asked.after:
            wanted = Wanted(asked.before, asked.after)
            around = Around(self.lines, self.blocks, log, collection, wanted)
        if asked.question is not None:
            return Result([self._nearest(asked, asked.question, log, collection, around)])
        places = {} if asked.cursor is None else read_cursor(asked.cursor, asked.order)
        choice = None
        if asked.statement is not None or asked.template is not None:
            statements = log.statements()
            chosen = statements.chosen(asked.statement, asked.template)
            choice = Choice(statements.of_shape == chosen)
        page = Page(self.lines, log, collection, asked, places, choice=choice)
        page.fill()
        data = b"".join(page.rendered(around=around))
        if asked.raw and page.open_end:
            data = data.removesuffix(b"\n")
        cursor = write_cursor(asked.order, page.places) if page.more else None
        return Result([LinesPage(lines=page.count, data=data, next_cursor=cursor)])

    def read(
        self,
        log: LogCollection,
        collection: Collection,
        asked: LinesParams,
        places: Mapping[int, int],
    ) -> LinesRead:
        """Return lines of blocks, without those that are documents, from places in streams on.

        Raises:
            RecordCorrupt: a block does not read back.
        """
        page = Page(self.lines, log, collection, asked, places, records=False)
        page.fill()
        return LinesRead(page.lines(), page.places)

    def _nearest(
        self,
        asked: LinesParams,
        question: str,
        log: LogCollection,
        collection: Collection,
        around: Around | None,
    ) -> LinesPage:
        """Return a page of the lines nearest to a question."""
        place = Nearest() if asked.cursor is None else Nearest.read(asked.cursor)
        done, count = [*place.done], 0
        parts: list[bytes] = []
        choices = self._choices(log, collection, question, asked.statement)
        for name, choice, more in sorted(choices, key=lambda one: one[0] != place.current):
            if name in done:
                continue
            left = max(0, asked.page_limit - count)
            own = asked.model_copy(update={"limit": left, "order": LineOrder.NEWEST})
            start = place.places if name == place.current else {}
            page = Page(self.lines, log, collection, own, start, choice=choice())
            page.fill()
            parts += page.rendered(more, around)
            count += page.count
            if page.more:
                place = Nearest(tuple(done), name, page.places)
                break
            done.append(name)
            place = Nearest(tuple(done))
            if sum(map(len, parts)) >= PAGE_BYTES or count == asked.page_limit > 0:
                break
        else:
            return LinesPage(lines=count, data=b"".join(parts))
        return LinesPage(lines=count, data=b"".join(parts), next_cursor=place.cursor())

    def _choices(
        self, log: LogCollection, collection: Collection, question: str, only: str | None
    ) -> Iterator[tuple[int, Callable[[], Choice], str]]:
        """Yield what is listed, in order: its name, which lines, and members of their rows."""
        tokens = filters.tokens(question.encode())
        if tokens and only is None:
            yield VALUES, partial(Choice, tokens=tokens), ""
        statements, scores = self.search.ranked(log, collection, question.encode())
        names = statements.names()

        def lines_of(statement: int) -> Choice:
            return Choice(statements.of_shape == statement, without=tokens)

        chosen = np.argsort(-scores, kind="stable")
        if only is not None:
            plain = log.statements()  # without those of the question
            of_plain = np.array([plain.numbered(int(name)) for name in names])
            tokens, chosen = [], chosen[of_plain[chosen] == plain.numbered(int(only))]
        for one in chosen.tolist():
            more = f',"score":{float(scores[one]):.6g},"statement":"{names[one]}"'
            yield int(names[one]), partial(lines_of, one), more
