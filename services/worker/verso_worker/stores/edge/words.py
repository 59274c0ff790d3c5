"""The words of a collection's points in an inverted index (tantivy), beside the engine's files.

The engine would keep them as sparse vectors, which take more
(``docs/adr/0048-words-in-an-inverted-index.md``). Each point has a document of these fields:

    w       its terms, each as often as its word occurs, and a filler
    n       number of different terms
    hi, lo  its id
    fold    20 bits of a hash of its id, by which its document is found

tantivy's BM25 has k = 1.2 and b = 0.75 of the collection's mean length, which costs 1.0 points of
nDCG@10 on the training claims of SciFact. A filler that occurs 100 times in each document makes all
lengths more alike, as a smaller b does: with it the loss is 0.1. It takes a byte a document.

A change passes through three places:

1. :meth:`Words.put` and :meth:`Words.remove` keep it in memory, until the engine has it as well.
2. :meth:`Words.log` writes it to a file (:mod:`~verso_worker.stores.edge.changes`), which is one
   sync. The engine's flush follows, and :meth:`Words.flushed`. It is acknowledged now.
3. The index takes the changes of many puts in one commit, which is some 14 syncs: when there are
   :data:`COMMIT_AT` of them, or a search asks. So a search finds all that is acknowledged, and the
   index has nothing that is not.

The writer stays open, for it merges segments in threads of its own; :class:`Writers` closes the one
that was used longest ago, since each takes 15 MB. After :meth:`Words.end_merges` no thread touches
the files and they may be copied.

The index cannot give a point's terms back, only say whether they are the ones expected
(:meth:`Words.differing`). They follow from the text, which can be read back exactly.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import tantivy
from tantivy import DocAddress, Occur, Query

from verso_core import files
from verso_core.errors import VectorsUnavailable
from verso_worker.records.points import Terms
from verso_worker.stores.bm25 import counts
from verso_worker.stores.edge.changes import ChangeLog, Changes
from verso_worker.stores.edge.word_files import fault_of

WORDS_NAME = "words"
LOST_NAME = "words-lost"
"""File beside an index that does not have the terms of all points, because its files were lost."""

COMMIT_AT = 500
"""Changes that the index takes at once, some 5 kB of memory each until then."""

_CHANGES_NAME = "changes.log"
_HEAP_BYTES = 15_000_000
"""Of a writer's only thread: the least that tantivy takes."""

_FILLER = " ."  # no term: these have five digits
_FILLERS = 100
_FOLD_BITS = 20
_HALF = (1 << 64) - 1
_DIGITS = [chr(code) for code in range(33, 127)]
_DIGITS_OF_TERM = 5  # 94 ** 5 > 2 ** 31
_TIES_MOST = 256
_logger = logging.getLogger(__name__)


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("w", tokenizer_name="whitespace", index_option="freq")
    for name in ("n", "hi", "lo"):
        builder.add_unsigned_field(name, fast=True)
    builder.add_unsigned_field("fold", indexed=True)
    return builder.build()


_SCHEMA = _schema()


class Writers:
    """The indexes that have an open writer, a few at most.

    Who calls, or changes an index's files, holds :attr:`lock`.

    Args:
        most: writers open at once.
    """

    def __init__(self, most: int = 4) -> None:
        self.lock = threading.RLock()
        self._most = most
        self._open: dict[Words, tantivy.IndexWriter] = {}

    def of(self, words: Words, index: tantivy.Index) -> tantivy.IndexWriter:
        """Return the writer of an index, which becomes the last to be closed."""
        writer = self._open.pop(words, None)
        if writer is None:
            while len(self._open) >= self._most:
                next(iter(self._open)).end_merges()
            writer = index.writer(_HEAP_BYTES, 1)
        self._open[words] = writer
        return writer

    def close(self, words: Words) -> bool:
        """Close an index's writer once its merges have ended; whether it had one."""
        writer = self._open.pop(words, None)
        if writer is not None:
            writer.wait_merging_threads()
        return writer is not None

    def abandon(self, words: Words) -> None:
        """Let go of an index's writer, whose changes are lost with it."""
        self._open.pop(words, None)


class Words:
    """The index of one collection. Any number of threads may read; one changes it.

    Args:
        folder: its files; made if they are missing.
        writers: the open writers of the process.

    Raises:
        VectorsUnavailable: the files cannot be opened.
    """

    def __init__(self, folder: Path, writers: Writers) -> None:
        self._folder = folder
        self._writers = writers
        self._lost = folder.parent / LOST_NAME
        folder.mkdir(exist_ok=True)
        self._applied: Changes = {}
        self._flushed: Changes = {}
        self._log = ChangeLog(folder / _CHANGES_NAME)
        try:
            self._index = tantivy.Index(_SCHEMA, str(folder))
            self._index.config_reader("manual")
            self._index.reload()
        except ValueError as exc:
            raise VectorsUnavailable(f"the words in {folder} cannot be opened: {exc}") from exc

    @property
    def lost(self) -> bool:
        """Whether terms are missing that a scrub has to put again."""
        return self._lost.exists()

    def all_found(self) -> None:
        """Note that no terms are missing any more."""
        self._lost.unlink(missing_ok=True)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files; those that a merge removes meanwhile may be left out."""
        size = 0
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    @property
    def count(self) -> int:
        """Number of points that have a document."""
        return self._searcher().num_docs

    def recover(self, existing: Callable[[list[UUID]], set[UUID]]) -> None:
        """Take up the changes that the index did not have when the process ended.

        Of a put or a removal that was not acknowledged the engine may have nothing: a point that it
        has keeps its last terms, and one that it does not have loses them.

        Args:
            existing: returns which points the engine has.
        """
        records, altered = self._log.read()
        if altered:
            _logger.error("changes of the words in %s are lost: a scrub puts them", self._folder)
            self._mark_lost()
            self._log.clear()
        changed = {point for record in records for point in record}
        terms: Changes = {}
        for record in records:
            terms |= {point: words for point, words in record.items() if words is not None}
        there = existing(list(changed))
        self._flushed = dict.fromkeys(changed - there)
        self._flushed |= {point: words for point, words in terms.items() if point in there}

    def put(self, points: Mapping[UUID, Terms]) -> None:
        """Set the terms of points, once the engine has them too."""
        self._applied |= points

    def remove(self, ids: Iterable[UUID]) -> None:
        """Remove points, once the engine has removed them too."""
        self._applied |= dict.fromkeys(ids)

    def log(self) -> None:
        """Bring all changes to the disk.

        Raises:
            OSError: they could not be written.
        """
        if self._applied:
            with self._writers.lock:
                self._log.append(self._applied)

    def flushed(self) -> None:
        """Show the logged changes to later searches: the engine has them on the disk."""
        with self._writers.lock:
            self._flushed |= self._applied
            self._applied = {}
            if len(self._flushed) >= COMMIT_AT:
                self._try_to_commit()

    def commit(self) -> None:
        """Bring all that the engine has into the index, all or nothing.

        Raises:
            VectorsUnavailable: the index could not take it; a later commit tries again.
        """
        with self._writers.lock:
            if not self._flushed:
                return
            try:
                self._write(self._flushed)
            except (ValueError, OSError) as exc:
                self._writers.abandon(self)
                raise VectorsUnavailable(f"the words were not written: {exc}") from exc
            self._flushed = {}
            if not self._applied:  # else the last record is not yet in the index
                self._log.clear()

    def _try_to_commit(self) -> None:
        """Commit; what the index does not take is safe in the log, and the next search says why."""
        try:
            self.commit()
        except VectorsUnavailable as exc:
            _logger.error("%s", exc)

    def _write(self, changes: Changes) -> None:
        writer = self._writers.of(self, self._index)
        for point in self._known(changes):
            writer.delete_documents_by_query(_exactly(point))
        for point, terms in changes.items():
            if terms is not None:
                writer.add_document(_document(point, terms))
        writer.commit()
        self._index.reload()

    def end_merges(self) -> None:
        """Commit, wait for the merges under way and close the writer."""
        with self._writers.lock:
            self._try_to_commit()
            if self._writers.close(self):
                self._index.reload()

    def _searcher(self) -> tantivy.Searcher:
        """Return what finds all that is acknowledged."""
        if self._flushed:
            self.commit()
        return self._index.searcher()

    def _mark_lost(self) -> None:
        files.replace(self._lost, b"")

    def best(self, terms: Terms, limit: int) -> list[tuple[UUID, float]]:
        """Return the points of the highest BM25 weight, best first, equal ones by id.

        There are more than ``limit`` where the last ones are equal: which of these come first does
        not depend on the segments, unless there are more than :data:`_TIES_MOST`.
        """
        searcher, query = self._searcher(), _any_of(terms)
        hits = searcher.search(query, limit + 1, count=False).hits
        if len(hits) > limit and _rounded(hits[limit - 1][0]) == _rounded(hits[limit][0]):
            hits = searcher.search(query, limit + _TIES_MOST, count=False).hits
        return sorted(_found(searcher, hits), key=lambda hit: (-hit[1], hit[0].bytes))

    def weigh(self, terms: Terms, points: Iterable[UUID]) -> dict[UUID, float]:
        """Return the BM25 weight of terms in points; of those that share one."""
        wanted = set(points)
        if not (terms and wanted):
            return {}
        searcher = self._searcher()
        query = Query.boolean_query(
            [(Occur.Must, _any_of(terms)), (Occur.Must, Query.const_score_query(_near(wanted), 0))]
        )
        hits = _all_of(searcher, query)
        return {point: score for point, score in _found(searcher, hits) if point in wanted}

    def having(self, word: int) -> int:
        """Return how many points have a word, removed ones included until they are merged away."""
        return self._searcher().doc_freq("w", _token(word))

    def differing(self, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms, or no document."""
        searcher = self._searcher()
        return {point for point, terms in expected.items() if not _has(searcher, point, terms)}

    def _known(self, points: Iterable[UUID]) -> set[UUID]:
        """Return the points that may have a document."""
        wanted = set(points)
        searcher = self._index.searcher()
        hits = _all_of(searcher, _near(wanted))
        return wanted.intersection(point for point, _ in _found(searcher, hits))


def opened(folder: Path, writers: Writers) -> Words:
    """Open an index. One whose files are missing or altered is made again, empty, and says so.

    Raises:
        VectorsUnavailable: it cannot be read now.
    """
    fault = fault_of(folder)
    if fault is None:
        try:
            return Words(folder, writers)
        except VectorsUnavailable as exc:
            fault = str(exc)
    _logger.error("the words in %s are lost, and a scrub puts them again: %s", folder, fault)
    files.replace(folder.parent / LOST_NAME, b"")
    if folder.exists():
        shutil.rmtree(folder)
    return Words(folder, writers)


def _document(point: UUID, terms: Terms) -> tantivy.Document:
    made = tantivy.Document()
    found = zip(terms.ids, counts(terms), strict=True)
    words = [" ".join([_token(term)] * count) for term, count in found]
    made.add_text("w", " ".join(words) + _FILLER * _FILLERS)
    made.add_unsigned("n", len(terms.ids))
    made.add_unsigned("hi", point.int >> 64)
    made.add_unsigned("lo", point.int & _HALF)
    made.add_unsigned("fold", _fold(point))
    return made


@functools.lru_cache(maxsize=1 << 16)
def _token(term: int) -> str:
    """Return a term as a short word."""
    digits = []
    for _ in range(_DIGITS_OF_TERM):
        term, digit = divmod(term, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _fold(point: UUID) -> int:
    return zlib.crc32(point.bytes) >> (32 - _FOLD_BITS)


def _any_of(terms: Terms) -> Query:
    return Query.boolean_query(
        [
            # Blocks that cannot be among the best are skipped only without a boost.
            (Occur.Should, _term(term) if weight == 1 else Query.boost_query(_term(term), weight))
            for term, weight in zip(terms.ids, terms.weights, strict=True)
        ]
    )


def _term(term: int) -> Query:
    return Query.term_query(_SCHEMA, "w", _token(term), "freq")


def _near(points: Iterable[UUID]) -> Query:
    """Return a query for the documents of points, and a few others."""
    return Query.term_set_query(_SCHEMA, "fold", sorted({_fold(point) for point in points}))


def _exactly(point: UUID) -> Query:
    halves = [("hi", point.int >> 64), ("lo", point.int & _HALF)]
    ranges = [
        (
            Occur.Must,
            Query.range_query(_SCHEMA, name, tantivy.FieldType.Unsigned, value, value),
        )
        for name, value in halves
    ]
    return Query.boolean_query(
        [(Occur.Must, Query.term_query(_SCHEMA, "fold", _fold(point), "basic")), *ranges]
    )


def _all_of(searcher: tantivy.Searcher, query: Query) -> list[tuple[float, DocAddress]]:
    return searcher.search(query, max(1, searcher.num_docs), count=False).hits


def _found(
    searcher: tantivy.Searcher, hits: Sequence[tuple[float, DocAddress]]
) -> list[tuple[UUID, float]]:
    """Return the points of documents, with their scores."""
    places = [place for _, place in hits]
    halves = (searcher.fast_field_values(name, places) for name in ("hi", "lo"))
    return [
        (UUID(int=(int(high) << 64) | int(low)), _rounded(score))
        for high, low, (score, _) in zip(*halves, hits, strict=True)
    ]


def _rounded(score: float) -> float:
    """Return a score without the last digits: they depend on the order of the sum's parts."""
    return round(score, 4)


def _has(searcher: tantivy.Searcher, point: UUID, terms: Terms) -> bool:
    """Whether a point's document has these terms and no others."""
    fold = Query.term_query(_SCHEMA, "fold", _fold(point), "basic")
    parts = [(Occur.Must, Query.const_score_query(fold, 0))]
    parts += [(Occur.Should, Query.const_score_query(_term(term), 1)) for term in terms.ids]
    hits = _all_of(searcher, Query.boolean_query(parts))
    numbers = searcher.fast_field_values("n", [place for _, place in hits])
    return [
        (score, number)
        for (found, score), number in zip(_found(searcher, hits), numbers, strict=True)
        if found == point
    ] == [(len(terms.ids), len(terms.ids))]
