"""Search a log collection: the statements nearest to a question, and their newest lines.

1. The question is compared with every template: by its vector, and by its words where the mode says
   so. Lines whose template lacks the words that they have are looked for by these words; the best
   of their shapes are encoded, and compared as statements of their own. A question that is a line
   of a known statement finds that statement first.
2. Values in the question (an address, a number, an identifier) are looked for in the filters of all
   segments; segments that may have them are decoded, so what is found is found exactly.
3. A hit is a statement: how many of its lines pass the filter, when the first and the last of them
   was written, and the newest of them. The inventories of the segments say where to look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import filters, parsing
from verso_codecs.logs.headers import message
from verso_codecs.logs.shapes import masked
from verso_core.errors import VersoError
from verso_core.jobs import (
    Collection,
    Failed,
    Result,
    SearchItem,
    SearchMode,
    SearchParams,
    Slice,
)
from verso_core.jobs.logs.lines import line_id
from verso_core.jobs.models import text_field
from verso_core.jobs.search import DENSE_SHARE, Explanation, Hit, Hits, Scale, StatementLine
from verso_worker.records.outputs import Timings
from verso_worker.records.points import Terms
from verso_worker.records.space import Vector, read_unit
from verso_worker.rules.logs.blocks import Blocks
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.conditions import Condition
from verso_worker.rules.logs.index import Statements
from verso_worker.rules.logs.mining import text_of
from verso_worker.rules.logs.occurrences import Found, FoundLine, Occurrences
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.logs.rows import moments
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.stores import Lexicon

LINES_SHOWN = 3
"""Newest lines of a statement that a hit has."""
OWN_TEXTS = 32
"""Most shapes that are statements of their own for the words of one question."""
WORDS_OF = 1 << 16
"""Newest shapes of which the words are looked at."""
_VECTORS_KEPT = 4096
"""Vectors of such shapes that a worker keeps: the pages of a question ask for the same ones."""
_ENCODED = 8192
"""Characters of a text that are encoded: more than an encoder's window has."""
_LINE_WORDS = 4  # a question of fewer, such as a lone address, asks for lines of any statement

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Words:
    """The words of a collection's templates, and of shapes whose template lacks them.

    Attributes:
        terms: of each text.
        holders: of each word, which texts have it and the weights that it has there.
        count: how many texts there are.
    """

    terms: Mapping[str, Terms]
    holders: Mapping[int, tuple[NDArray[np.int64], Scores]]
    count: int

    @classmethod
    def of(cls, texts: Sequence[str], lexicon: Lexicon, known: Mapping[str, Terms]) -> _Words:
        """Return the words of texts; those of ``known`` ones need not be found again."""
        new = [text for text in texts if text not in known]
        found = lexicon.documents([text.encode() for text in new])
        terms = {text: known[text] for text in texts if text in known}
        terms |= dict(zip(new, found, strict=True))
        holders: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for number, text in enumerate(texts):
            for one, weight in zip(terms[text].ids, terms[text].weights, strict=True):
                holders[one].append((number, weight))
        arrays = {
            one: (np.array([n for n, _ in rows]), np.array([weight for _, weight in rows]))
            for one, rows in holders.items()
        }
        return cls(terms, arrays, len(texts))

    def scores(self, query: Terms) -> Scores:
        """Score each text by the words of a query that stand in it (BM25)."""
        found = np.zeros(self.count)
        for one, asked in zip(query.ids, query.weights, strict=True):
            if one in self.holders:
                numbers, weights = self.holders[one]
                rare = np.log(1 + (self.count - len(numbers) + 0.5) / (len(numbers) + 0.5))
                found[numbers] += asked * weights * rare
        return found


class _Scored(NamedTuple):
    """The statements that a question is compared with, and their scores.

    ``whole``: the one of which the question is a line.
    """

    statements: Statements
    cosines: Scores | None
    weights: Scores | None
    whole: int | None


@dataclass(frozen=True, slots=True)
class LogSearch:
    """Finds statements and lines of log collections."""

    models: Models
    store: LogStore
    lexicon: Lexicon
    lines: LineReader
    blocks: Blocks
    _words: WeakKeyDictionary[LogCollection, tuple[Statements, _Words]] = field(
        default_factory=WeakKeyDictionary
    )
    _vectors: dict[tuple[str, str], Vector] = field(default_factory=dict)

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
        question, shape = item.data or b"", None
        if question and not item.vector:
            question, shape = self._read(log, question)
        with timings.phase("infer"):
            scored = self._scores(log, collection, item, asked, question=question, shape=shape)
        statements, cosines, weights, whole = scored
        scores = _fused(cosines, weights)
        with timings.phase("store"):
            held = Occurrences(
                log, statements, self.blocks, Condition.of(asked.filter),
                keep=asked.limit if asked.lines else LINES_SHOWN,
            )  # fmt: skip
        with timings.phase("restore"):
            tokens = filters.tokens(b"" if item.vector else item.data or b"")
            is_line = whole is not None and len(statements.texts[whole].split()) >= _LINE_WORDS
            found = held.with_values(tokens, only=whole if is_line else None)[: asked.limit]
            certain = len(found)
            # Plain lines of a statement go on behind those of them that have the values.
            shown = {one.statement for one in found if not asked.lines}
            ranked = [n for n in np.argsort(-scores, kind="stable").tolist() if n not in shown]
            found += held.best(ranked, scores, count=asked.limit - len(found))
        told = [
            _explained(one, cosines, weights, values=n < certain) if asked.explain else None
            for n, one in enumerate(found)
        ]
        if asked.lines:
            return self._as_lines(log, list(zip(found, told, strict=True)), statements, asked)
        named = statements.names()
        return [
            self._described(log, one, statements, asked, explain, named=named)
            for one, explain in zip(found, told, strict=True)
        ]

    def _scores(
        self,
        log: LogCollection,
        collection: Collection,
        item: SearchItem,
        asked: SearchParams,
        *,
        question: bytes,
        shape: int | None,
    ) -> _Scored:
        """Score each statement by its vector and by its words, as the mode says.

        Of shapes with texts of their own, which have no vector, those that have most of the
        question's words are scored as well; what they say is encoded now.

        ``shape``: of the line that the question is.
        """
        statements = log.statements()
        query: Vector | None = None
        if asked.mode is not SearchMode.SPARSE:
            query = (
                read_unit(question, dim=collection.dim)
                if item.vector
                else self._encoded(collection, question)
            )
        by_words = asked.mode in (SearchMode.SPARSE, SearchMode.HYBRID) and not item.vector
        weights = np.zeros(len(statements.texts) + len(_with_words(statements)))
        if by_words or (len(statements.own_texts) and not item.vector):
            weights = self._weights(log, statements, self.lexicon.query(question))
        chosen, said = _own(statements, weights, shape=shape)
        texts = [text_of(log.shapes.row(one)) for one in chosen.tolist()]
        cosines: Scores | None = None
        if query is not None:
            near = statements.vectors @ query
            own = self._vectors_of(collection, texts) @ query
            cosines = np.append(near, own).astype(np.float64)
        said = np.append(weights[: len(statements.texts)], said)
        if len(chosen):
            statements = statements.with_own(chosen, texts)
        known = shape is not None and shape < len(statements.of_shape)
        whole = int(statements.of_shape[shape]) if known else None
        if cosines is not None and whole is not None:
            cosines[whole] = max(1.0, float(cosines[whole]))
            said[whole] = max(float(said.max()), 1.0)
        return _Scored(statements, cosines, said if by_words else None, whole)

    def ranked(
        self, log: LogCollection, collection: Collection, question: bytes
    ) -> tuple[Statements, Scores]:
        """Score each statement by a question, as the collection's setting says."""
        if not (statements := log.statements()).texts:
            return statements, np.zeros(0)
        asked = SearchParams(collection=collection.name, mode=SearchMode(collection.search))
        text, shape = self._read(log, question)
        item = SearchItem(question)
        scored = self._scores(log, collection, item, asked, question=text, shape=shape)
        return scored.statements, _fused(scored.cosines, scored.weights)

    def vector_of(self, collection: Collection, name: str) -> Vector | None:
        """Return the vector of what a line says; None if no line in a block has this id.

        Raises:
            VersoError: the line cannot be read.
        """
        text = self.lines.texts(collection, [name]).get(name)
        if text is None:
            return None
        if isinstance(text, Failed):
            raise text.error.exception()
        log = self.store.open(collection.name, dim=collection.dim)
        question, _ = self._read(log, text.data)
        return self._encoded(collection, question)

    def _encoded(self, collection: Collection, question: bytes) -> Vector:
        engine = self.models.writing(collection).recorder.engine
        vector: Vector = engine.encode([question]).vectors[0]
        return vector

    def _vectors_of(self, collection: Collection, texts: Sequence[str]) -> Vector:
        """Return the vectors of texts of which none is stored. Shape: (texts, dim)."""
        keys = [(collection.space, text[:_ENCODED]) for text in texts]
        found = {key: row for key in keys if (row := self._vectors.get(key)) is not None}
        if new := [key for key in dict.fromkeys(keys) if key not in found]:
            engine = self.models.writing(collection).recorder.engine
            rows = engine.encode([text.encode() for _, text in new]).vectors
            found |= dict(zip(new, rows, strict=True))
            if len(self._vectors) > _VECTORS_KEPT:
                self._vectors.clear()
            self._vectors.update(found)
        return np.array([found[key] for key in keys], np.float32).reshape(-1, collection.dim)

    def _read(self, log: LogCollection, question: bytes) -> tuple[bytes, int | None]:
        """Return what a question asks for, and its shape if it is a line of a known one.

        Of a line with a header that is its message, as templates have none
        (``docs/research/log-search.md``).
        """
        line = question.split(b"\n", 1)[0] + b"\n"
        parsed = parsing.parse(parsing.split(line), log.shapes)
        shape = int(parsed.shapes[0])
        row = log.shapes.row(shape) if shape >= 0 else parsed.new_rows[0]
        text = message(masked(row))
        return question if text == masked(row) else text, shape if shape >= 0 else None

    def _weights(self, log: LogCollection, statements: Statements, query: Terms) -> Scores:
        """Score each template by the words of the query that stand in it.

        Behind them each of the shapes that have a text of their own.
        """
        kept = self._words.get(log)
        if kept is None or kept[0] is not statements:
            known = {} if kept is None else kept[1].terms
            own = [text_of(log.shapes.row(one)) for one in _with_words(statements).tolist()]
            kept = statements, _Words.of([*statements.texts, *own], self.lexicon, known)
            self._words[log] = kept
        return kept[1].scores(query)

    def _described(
        self,
        log: LogCollection,
        one: Found,
        statements: Statements,
        asked: SearchParams,
        explain: Explanation | None,
        *,
        named: NDArray[np.int64],
    ) -> Hit:
        newest = one.lines[0]
        shown = one.lines[:LINES_SHOWN] if asked.with_text else []
        fields = _fields(log, newest, score=one.score, with_text=asked.with_text) | {
            "statement": statements.texts[one.statement],
            "statement_id": str(named[one.statement]),
            "count": one.count,
            "first_seen": _seconds(one.first_ns),
            "last_seen": _seconds(one.last_ns),
            "lines": tuple(
                StatementLine.model_validate(
                    {
                        "id": line_id(line.stream, line.number),
                        "time": moments(np.array([line.time_ns]))[0],
                        **text_field(line.text),
                    }
                )
                for line in shown
            ),
        }
        if explain is not None:
            fields["explain"] = explain
        return Hit.model_validate(fields)

    def _as_lines(
        self,
        log: LogCollection,
        found: Sequence[tuple[Found, Explanation | None]],
        statements: Statements,
        asked: SearchParams,
    ) -> list[Hit]:
        """Return plain lines, each once, those of the best statement first."""
        rows: dict[tuple[int, int], tuple[FoundLine, Found, Explanation | None]] = {}
        for one, explain in found:
            for line in one.lines:
                rows.setdefault((line.stream, line.number), (line, one, explain))
        return [
            Hit.model_validate(
                _fields(log, line, score=one.score, with_text=asked.with_text)
                | {"statement": statements.texts[one.statement]}
                | ({} if explain is None else {"explain": explain})
            )
            for line, one, explain in islice(rows.values(), asked.limit)
        ]


def _fields(
    log: LogCollection, line: FoundLine, *, score: float, with_text: bool
) -> dict[str, object]:
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


def _with_words(statements: Statements) -> NDArray[np.int64]:
    """Return the shapes of which the words are looked at, besides those of templates."""
    return statements.own_texts[-WORDS_OF:]


def _own(
    statements: Statements, weights: Scores, *, shape: int | None
) -> tuple[NDArray[np.int64], Scores]:
    """Return shapes with texts of their own, the best by words and the question's; their weights.

    ``weights``: of the statements, and behind them of the shapes of which words are looked at.
    """
    own, said = _with_words(statements), weights[len(statements.texts) :]
    best = np.argsort(-said, kind="stable")[:OWN_TEXTS]
    best = best[said[best] > 0]
    chosen, said = own[best], said[best]
    if shape is not None and shape not in chosen and shape in statements.own_texts:
        chosen, said = np.append(chosen, shape), np.append(said, 0.0)
    return chosen, said


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


def _explained(
    one: Found, cosines: Scores | None, weights: Scores | None, *, values: bool
) -> Explanation:
    """Return the parts of a statement's score; ``values``: whether it was found by values."""
    parts: dict[str, Any] = {
        "dense": None if cosines is None else float(cosines[one.statement]),
        "sparse": None if weights is None else float(weights[one.statement]),
        "scale": _scale(cosines, weights),
        "values": values or None,
    }
    return Explanation(**{name: part for name, part in parts.items() if part is not None})


def _scale(cosines: Scores | None, weights: Scores | None) -> Scale | None:
    """Return what :func:`_fused` joins two scores on; None where it joins nothing."""
    if cosines is None or weights is None or not weights.any():
        return None
    return Scale(
        lowest=float(cosines.min()), highest=float(cosines.max()), heaviest=float(weights.max())
    )


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9
