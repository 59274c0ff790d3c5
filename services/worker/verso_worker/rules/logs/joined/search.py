"""Search the lines of a log collection and the records beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verso_core.errors import VersoError
from verso_core.jobs import (
    Collection,
    Failed,
    Kind,
    Result,
    SearchItem,
    SearchMode,
    SearchParams,
    Slice,
)
from verso_core.jobs.search import Explanation, Hit, Hits
from verso_worker.records import fusion
from verso_worker.records.outputs import Timings
from verso_worker.rules.logs.search import LogSearch
from verso_worker.rules.ports.stores import Documents
from verso_worker.rules.search import Search


@dataclass(frozen=True, slots=True)
class JoinedSearch:
    """Searches log collections."""

    lines: LogSearch
    records: Search
    documents: Documents

    def run(
        self,
        work: Slice[SearchParams, SearchItem],
        collection: Collection,
        *,
        job: str | None,
        timings: Timings,
    ) -> Result[Hits]:
        """Find statements, or lines, and records; a head may order them again.

        Raises:
            HeadUnknown, HeadInvalid: the head that reranks cannot be served.
        """
        asked = work.params
        if asked.rerank is None:
            return self._found(work, collection, timings)
        most = max(asked.limit, asked.rerank_from)
        wide = asked.model_copy(update={"rerank": None, "limit": most, "with_text": True})
        found = self._found(replace(work, params=wide), collection, timings)
        with timings.phase("infer"):
            for index, item in work.accepted.items():
                hits = found.items[index]
                if isinstance(hits, Hits):
                    found.items[index] = self._reranked(asked, item.data or b"", hits, job=job)
        return found

    def find(
        self, collection: Collection, question: bytes, asked: SearchParams, timings: Timings
    ) -> Hits:
        """Return what one question finds.

        Raises:
            VersoError: it cannot be searched.
        """
        work = Slice(kind=Kind.SEARCH, params=asked, items=(SearchItem(question),))
        [hits] = self._found(work, collection, timings).items
        if isinstance(hits, Failed):
            raise hits.error.exception()
        return hits

    def _found(
        self, work: Slice[SearchParams, SearchItem], collection: Collection, timings: Timings
    ) -> Result[Hits]:
        work, failed = self._by_vector(work, collection)
        found = self.lines.run(work, collection, timings=timings)
        if self.documents.holdings(collection.name).documents:
            records = self.records.run(work, collection, job=None, timings=timings)
            pairs = zip(found.items, records.items, strict=True)
            found = Result([_joined(*pair, work.params) for pair in pairs])
        for index, fault in failed.items():
            found.items[index] = fault
        return found

    def _by_vector(
        self, work: Slice[SearchParams, SearchItem], collection: Collection
    ) -> tuple[Slice[SearchParams, SearchItem], dict[int, Failed]]:
        """Replace the lines and records that a search names by their vectors."""
        items = list(work.items)
        failed: dict[int, Failed] = {}
        for index, item in work.accepted.items():
            if item.id is None:
                continue
            try:
                vector = self.lines.vector_of(collection, item.id)
                if vector is None:
                    vector = self.records.query(collection, item)
            except VersoError as error:
                if error.retryable:
                    raise
                failed[index] = Failed.of(error)
                vector = np.eye(1, collection.dim, dtype=np.float32)[0]
            items[index] = SearchItem(vector.astype("<f4").tobytes(), vector=True)
        return replace(work, items=tuple(items)), failed

    def _reranked(self, asked: SearchParams, query: bytes, found: Hits, *, job: str | None) -> Hits:
        """Order hits by the search's score and a head's; hits without a text come last."""
        scored = found.hits[: asked.rerank_from]
        readable = [hit for hit in scored if hit.error is None]
        texts = [hit.data for hit in readable]
        read = self.records.score.best(asked.rerank or "", query, texts, job=job)
        scores = [hit.score for hit in readable]
        order = fusion.reranked(scores, read, share=asked.rerank_share)
        ranked = [_read_by(readable[n], float(read[n]), asked) for n in order]
        rest = [hit for hit in scored if hit.error is not None]
        hits = [*ranked, *rest, *found.hits[asked.rerank_from :]][: asked.limit]
        return Hits(hits=tuple(hits if asked.with_text else map(_without_text, hits)))


def _joined(lines: Hits | Failed, records: Hits | Failed, asked: SearchParams) -> Hits | Failed:
    """Join the statements and the records that answer one query, best first."""
    if isinstance(lines, Failed):
        return lines
    if isinstance(records, Failed):
        return records
    # A cosine of rounded vectors may be above 1, which lines have that hold all that was asked.
    most = np.inf if asked.mode is SearchMode.SPARSE else 1.0
    hits = sorted((*lines.hits, *records.hits), key=lambda hit: -min(hit.score, most))
    return Hits(hits=tuple(hits[: asked.limit]))


def _read_by(hit: Hit, score: float, asked: SearchParams) -> Hit:
    """Return a hit with the score of the head that read it."""
    update: dict[str, Any] = {"rerank_score": score}
    if asked.explain:
        parts = {} if hit.explain is None else hit.explain.model_dump(exclude_none=True)
        parts |= {"rerank_score": score, "rerank_share": asked.rerank_share}
        update["explain"] = Explanation(**parts)
    return hit.model_copy(update=update)


def _without_text(hit: Hit) -> Hit:
    return hit.model_copy(update={"text": None, "text_base64": None, "lines": ()})
