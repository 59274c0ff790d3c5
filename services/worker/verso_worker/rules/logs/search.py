"""Search a log collection: the statements nearest to a question, and their newest lines.

1. The question is compared with every template: by its vector, and by its words where the mode says
   so. A question that is a line of a known statement finds that statement first.
2. Values in the question (an address, a number, an identifier) are looked for in the filters of all
   segments; segments that may have them are decoded, so what is found is found exactly.
3. A hit is a statement: how many of its lines pass the filter, when the first and the last of them
   was written, and the newest of them. The inventories of the segments say where to look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import filters, parsing, shapes
from verso_codecs.logs import lines as line_codec
from verso_core.errors import RecordCorrupt, VersoError
from verso_core.jobs import (
    Collection,
    Failed,
    Result,
    SearchItem,
    SearchMode,
    SearchParams,
    Slice,
)
from verso_core.jobs.filters import compiled
from verso_core.jobs.lines import line_id
from verso_core.jobs.models import text_field
from verso_core.jobs.search import Explanation, Hit, Hits, StatementLine
from verso_core.segments import Segment
from verso_worker.records import line_arrays
from verso_worker.records.fusion import DENSE_SHARE
from verso_worker.records.outputs import Timings
from verso_worker.records.points import Terms
from verso_worker.records.segments import BLOCK_LINES, FRONT_BYTES, Front
from verso_worker.records.space import Vector, read_unit
from verso_worker.rules.logs.collection import LogCollection, LogStore, Statements
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.reading import LineReader, moment
from verso_worker.rules.logs.segments import open_segments, read_times
from verso_worker.rules.ports import Lexicon, Models

LINES_SHOWN = 3
"""Newest lines of a statement that a hit has."""
VALUE_SEGMENTS = 256
"""Most segments that are decoded for the values of one question, the newest first."""
_FRONTS_KEPT = 50_000

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """A line that a search found."""

    stream: int
    number: int
    time_ns: int
    text: bytes
    shape: int


@dataclass(slots=True, eq=False)
class _Found:
    """What was found of one statement: a score, lines the newest first, and how many there are."""

    statement: int
    score: float
    lines: list[_Line] = field(default_factory=list)
    count: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(frozen=True, slots=True)
class LogSearch:
    """Finds statements and lines of log collections."""

    models: Models
    store: LogStore
    lexicon: Lexicon
    lines: LineReader
    _fronts: dict[tuple[str, Segment], Front] = field(default_factory=dict)
    _terms: dict[str, tuple[Statements, list[Terms]]] = field(default_factory=dict)

    def run(
        self,
        work: Slice[SearchParams, SearchItem],
        collection: Collection,
        *,
        timings: Timings,
    ) -> Result[Hits]:
        """Answer the queries of a slice; the error of a query is its result."""
        log = self.store.open(collection.name, dim=collection.dim)
        found: dict[int, Hits | Failed] = {}
        for index, item in work.accepted.items():
            try:
                hits = self._answer(log, collection, item, work.params, timings)
            except VersoError as error:
                if error.retryable:
                    raise
                found[index] = Failed.of(error)
            else:
                found[index] = Hits(hits=tuple(hits))
        items: list[Hits | Failed] = work.answered(found)
        return Result(items)

    def _answer(
        self,
        log: LogCollection,
        collection: Collection,
        item: SearchItem,
        asked: SearchParams,
        timings: Timings,
    ) -> list[Hit]:
        statements = log.statements()
        if not statements.texts:
            return []
        with timings.phase("infer"):
            cosines, weights = self._scores(log, collection, item, asked, statements)
        scores = _fused(cosines, weights)
        condition = Condition(compiled(asked.filter))
        with timings.phase("store"):
            candidates = self._segments(log, condition)
            fronts = self._read_fronts(log, [segment for segment, _ in candidates])
        with timings.phase("restore"):
            question = b"" if item.vector else item.data or b""
            found = self._of_values(log, candidates, fronts, question, condition, asked)
            named = {one.statement for one in found}
            for statement in np.argsort(-scores, kind="stable").tolist():
                if len(found) >= asked.limit:
                    break
                if statement in named:
                    continue
                one = _Found(statement, float(scores[statement]))
                self._gather(log, one, candidates, fronts, statements, condition, asked)
                if one.lines:
                    found.append(one)
        if asked.lines:
            return self._as_lines(log, found, statements, asked)
        return [
            self._described(log, one, statements, asked, cosines, weights)
            for one in found[: asked.limit]
        ]

    def _scores(
        self,
        log: LogCollection,
        collection: Collection,
        item: SearchItem,
        asked: SearchParams,
        statements: Statements,
    ) -> tuple[Scores | None, Scores | None]:
        """Score each statement by its vector and by its words, as the mode says."""
        question, whole = item.data or b"", None
        if question and not item.vector and not item.id:
            question, whole = self._read(log, question, statements)
        cosines: Scores | None = None
        weights: Scores | None = None
        if asked.mode is not SearchMode.SPARSE:
            query = self._vector(collection, item, question)
            cosines = (statements.vectors @ query).astype(np.float64)
        if asked.mode in (SearchMode.SPARSE, SearchMode.HYBRID) and not item.vector and not item.id:
            weights = self._weights(log, statements, self.lexicon.query(question))
        if cosines is not None and whole is not None:
            cosines[whole] = max(1.0, float(cosines[whole]))
            if weights is not None:
                weights[whole] = max(float(weights.max()), 1.0)
        return cosines, weights

    def _vector(self, collection: Collection, item: SearchItem, question: bytes) -> Vector:
        if item.id is not None:
            [text] = self.lines.texts(collection, [item.id]).values()
            if isinstance(text, Failed):
                raise text.error.exception()
            data = text.data
        elif item.vector:
            return read_unit(item.data or b"", dim=collection.dim)
        else:
            data = question
        vector: Vector = self.models.writing(collection).recorder.engine.encode([data]).vectors[0]
        return vector

    def _read(
        self, log: LogCollection, question: bytes, statements: Statements
    ) -> tuple[bytes, int | None]:
        """Return what a question asks for, and its statement if it is a line of a known shape.

        Of a line with a header that is its message, as templates have none
        (``docs/research/log-search.md``).
        """
        line = question.split(b"\n", 1)[0] + b"\n"
        parsed = parsing.parse(parsing.split(line), log.shapes)
        shape = int(parsed.shapes[0])
        row = log.shapes.row(shape) if shape >= 0 else parsed.new_rows[0]
        text = shapes.message(row)
        known = 0 <= shape < len(statements.of_shape)
        return (
            question if text == shapes.masked(row) else text,
            int(statements.of_shape[shape]) if known else None,
        )

    def _weights(self, log: LogCollection, statements: Statements, query: Terms) -> Scores:
        """Score each template by the words of the query that stand in it (BM25)."""
        wanted = dict(zip(query.ids, query.weights, strict=True))
        found = np.zeros(len(statements.texts))
        if not wanted:
            return found
        known, terms = self._terms.get(log.uid, (None, []))
        if known is not statements:
            terms = self.lexicon.documents([text.encode() for text in statements.texts])
            self._terms[log.uid] = statements, terms
        holders: Counter[int] = Counter(one for row in terms for one in row.ids if one in wanted)
        total = len(terms)
        for n, row in enumerate(terms):
            for one, weight in zip(row.ids, row.weights, strict=True):
                if one in wanted:
                    rare = np.log(1 + (total - holders[one] + 0.5) / (holders[one] + 0.5))
                    found[n] += wanted[one] * weight * rare
        return found

    def _segments(
        self, log: LogCollection, condition: Condition
    ) -> list[tuple[Segment, bool | None]]:
        """Return the segments of which lines may pass, the newest first, with whether all do."""
        rows = [
            (segment, condition.of_segment(segment, log.labels(segment.stream)))
            for segment in log.every_segment()
        ]
        chosen = [row for row in rows if row[1] is not False]
        return sorted(chosen, key=lambda row: (row[0].latest, row[0].first), reverse=True)

    def _read_fronts(self, log: LogCollection, segments: Sequence[Segment]) -> dict[Segment, Front]:
        """Return the fronts of segments; those that are gone or damaged are left out."""
        if len(self._fronts) > _FRONTS_KEPT:
            self._fronts.clear()
        new = [one for one in segments if (log.uid, one) not in self._fronts]
        places = [(one.stream, one.first) for one in new]
        heads = self.store.ledger.heads(log.uid, places, size=FRONT_BYTES)
        for segment, head in zip(new, heads, strict=True):
            try:
                front = Front.read(head) if head else None
                if head and front is None:
                    [data] = self.store.ledger.read(log.uid, [(segment.stream, segment.first)])
                    front = Front.read(data) if data else None
            except RecordCorrupt:
                continue  # the scrub reports it
            if front is not None and front.lines == segment.lines:
                self._fronts[log.uid, segment] = front
        return {one: kept for one in segments if (kept := self._fronts.get((log.uid, one)))}

    def _of_values(
        self,
        log: LogCollection,
        candidates: Sequence[tuple[Segment, bool | None]],
        fronts: dict[Segment, Front],
        question: bytes,
        condition: Condition,
        asked: SearchParams,
    ) -> list[_Found]:
        """Return the statements of the lines that hold every value of a question."""
        tokens = filters.tokens(question)
        if not tokens:
            return []
        there = [segment for segment, _ in candidates if segment in fronts]
        for token in tokens:
            kept = filters.find([fronts[one].filter for one in there], token)
            there = [there[n] for n in kept]
        statements = log.statements()
        found: dict[int, _Found] = {}
        for segment in there[:VALUE_SEGMENTS]:
            for line in self._lines_of(log, segment, None, condition, tokens=tokens):
                statement = int(statements.of_shape[line.shape])
                one = found.setdefault(statement, _Found(statement, 1.0))
                _add(one, line, keep=_kept(asked))
        return sorted(found.values(), key=lambda one: -(one.last_ns or 0))

    def _gather(
        self,
        log: LogCollection,
        one: _Found,
        candidates: Sequence[tuple[Segment, bool | None]],
        fronts: dict[Segment, Front],
        statements: Statements,
        condition: Condition,
        asked: SearchParams,
    ) -> None:
        """Count a statement's lines and read the newest and the first of them.

        Where all lines of a segment pass, its inventory counts them, and single blocks are decoded
        for the lines that are shown; elsewhere every line is looked at.
        """
        shapes = statements.shapes_of(one.statement)
        oldest: tuple[Segment, list[int]] | None = None
        for segment, passes in candidates:
            front = fronts.get(segment)
            if front is None:
                continue
            inventory = front.inventory
            inside = np.isin(inventory.shapes, shapes, assume_unique=True)
            if not inside.any():
                continue
            blocks = _blocks(int(np.bitwise_or.reduce(inventory.blocks[inside])))
            if not passes or log.state.deleted:
                for line in self._lines_of(log, segment, blocks, condition, shapes=shapes):
                    _add(one, line, keep=_kept(asked))
                continue
            one.count += int(inventory.counts[inside].sum())
            for block in reversed(blocks):
                if len(one.lines) >= _kept(asked):
                    break
                for line in self._lines_of(log, segment, [block], condition, shapes=shapes):
                    _note(one, line, keep=_kept(asked))
            if oldest is None or segment.earliest < oldest[0].earliest:
                oldest = segment, blocks
        if oldest is not None:
            self._note_first(log, one, *oldest, condition=condition, shapes=shapes)

    def _note_first(
        self,
        log: LogCollection,
        one: _Found,
        segment: Segment,
        blocks: Sequence[int],
        *,
        condition: Condition,
        shapes: NDArray[np.int64],
    ) -> None:
        """Note the time of a statement's first line in its oldest segment."""
        for block in blocks:
            lines = list(self._lines_of(log, segment, [block], condition, shapes=shapes))
            for line in lines:
                _note(one, line, keep=0)
            if lines:
                return

    def _lines_of(
        self,
        log: LogCollection,
        segment: Segment,
        blocks: Sequence[int] | None,
        condition: Condition,
        *,
        tokens: Sequence[bytes] = (),
        shapes: NDArray[np.int64] | None = None,
    ) -> Iterator[_Line]:
        """Yield lines of a segment that pass, the newest first."""
        try:
            [opened] = open_segments(self.store.ledger, log, [segment])
            if opened is None or opened.is_records:
                return
            chosen = list(range(len(opened.blocks))) if blocks is None else list(blocks)
            lines = opened.lines(log, chosen)
        except RecordCorrupt:
            return  # the scrub reports it
        numbers = np.concatenate(
            [segment.first + n * BLOCK_LINES + np.arange(opened.front.lines_of(n)) for n in chosen]
        )
        labels = log.labels(segment.stream)
        when = read_times(lines, opened.front.times, latest_ns=segment.latest)
        passing = condition.of_lines(labels, stream=segment.stream, numbers=numbers, when=when)
        passing &= ~self.lines.deleted(log, segment)[numbers - segment.first]
        for token in tokens:
            passing &= line_codec.find(lines, token)
        parsed = parsing.parse(lines, log.shapes).shapes
        passing &= parsed >= 0
        if shapes is not None:
            passing &= np.isin(parsed, shapes)
        picked = np.flatnonzero(passing)[::-1]
        rows = line_arrays.rows(line_arrays.take(lines, picked))
        for at, text in zip(picked.tolist(), rows, strict=True):
            yield _Line(segment.stream, int(numbers[at]), int(when[at]), text, int(parsed[at]))

    def _described(
        self,
        log: LogCollection,
        one: _Found,
        statements: Statements,
        asked: SearchParams,
        cosines: Scores | None,
        weights: Scores | None,
    ) -> Hit:
        newest = one.lines[0]
        shown = one.lines[:LINES_SHOWN] if asked.with_text else []
        fields = _fields(log, newest, score=one.score, with_text=asked.with_text) | {
            "statement": statements.texts[one.statement],
            "count": one.count,
            "first_seen": _seconds(one.first_ns),
            "last_seen": _seconds(one.last_ns),
            "lines": tuple(
                StatementLine.model_validate(
                    {
                        "id": line_id(line.stream, line.number),
                        "time": moment(line.time_ns),
                        **text_field(line.text),
                    }
                )
                for line in shown
            ),
        }
        if asked.explain:
            fields["explain"] = Explanation(
                dense=None if cosines is None else float(cosines[one.statement]),
                sparse=None if weights is None else float(weights[one.statement]),
            )
        return Hit.model_validate(fields)

    def _as_lines(
        self,
        log: LogCollection,
        found: Sequence[_Found],
        statements: Statements,
        asked: SearchParams,
    ) -> list[Hit]:
        """Return plain lines, those of the best statement first."""
        rows = [(line, one) for one in found for line in one.lines]
        return [
            Hit.model_validate(
                _fields(log, line, score=one.score, with_text=asked.with_text)
                | {"statement": statements.texts[one.statement]}
            )
            for line, one in rows[: asked.limit]
        ]


def _fields(log: LogCollection, line: _Line, *, score: float, with_text: bool) -> dict[str, object]:
    name = line_id(line.stream, line.number)
    fields: dict[str, object] = {
        "id": name,
        "document": name,
        "chunk": 0,
        "score": score,
        "metadata": log.labels(line.stream),
        "time": line.time_ns / 1e9,
    }
    return fields | text_field(line.text) if with_text else fields


def _fused(cosines: Scores | None, weights: Scores | None) -> Scores:
    """Join two scores of each statement, as records do; see :mod:`verso_worker.records.fusion`."""
    if cosines is None:
        assert weights is not None
        return weights
    if weights is None or not weights.any():
        return cosines
    near = cosines - cosines.min()
    said = weights / weights.max()
    joined: Scores = DENSE_SHARE * near / (near.max() or 1.0) + (1 - DENSE_SHARE) * said
    return joined


def _kept(asked: SearchParams) -> int:
    return asked.limit if asked.lines else LINES_SHOWN


def _add(one: _Found, line: _Line, *, keep: int) -> None:
    """Count a line, which is older than those before it or of another stream."""
    one.count += 1
    _note(one, line, keep=keep)


def _note(one: _Found, line: _Line, *, keep: int) -> None:
    """Note the time of a line that is counted, and keep it while there are fewer than ``keep``."""
    if one.last_ns is None or line.time_ns > one.last_ns:
        one.last_ns = line.time_ns
    if one.first_ns is None or line.time_ns < one.first_ns:
        one.first_ns = line.time_ns
    if len(one.lines) < keep:
        one.lines.append(line)


def _blocks(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9
