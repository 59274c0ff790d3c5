"""Find records: by a text, by a vector, or by another record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verso_core.errors import DocumentUnknown, VersoError
from verso_core.jobs import (
    Collection,
    Failed,
    Filter,
    ItemError,
    Result,
    SearchItem,
    SearchMode,
    SearchParams,
    Slice,
)
from verso_core.jobs.models import record_name, text_field
from verso_core.jobs.search import Explanation, Hits, Words
from verso_core.jobs.search import Hit as FoundHit
from verso_core.record import point_ids
from verso_worker.records import fusion
from verso_worker.records.outputs import Timings
from verso_worker.records.points import NO_TERMS, Hit, Terms
from verso_worker.records.space import Space, Vector, read_unit
from verso_worker.rules import located
from verso_worker.rules.ports.models import Models
from verso_worker.rules.ports.stores import Lexicon, Vectors
from verso_worker.rules.reader import NO_ENTRY, Chunk, Reader
from verso_worker.rules.score import Score


@dataclass(frozen=True, slots=True)
class Search:
    """Finds the live records nearest to a query, and their texts."""

    models: Models
    vectors: Vectors
    reader: Reader
    lexicon: Lexicon
    score: Score

    def run(
        self,
        work: Slice[SearchParams, SearchItem],
        collection: Collection,
        *,
        job: str | None,
        timings: Timings,
    ) -> Result[Hits]:
        """Answer the queries of a slice; the error of a query is its result.

        Raises:
            HeadUnknown, HeadInvalid: the head that reranks the hits cannot be served.
        """
        asked = work.params
        found: dict[int, Hits | Failed] = {}
        for index, item in work.accepted.items():
            try:
                if asked.count_words:
                    with timings.phase("store"):
                        words = self._words(collection, item)
                    found[index] = Hits(hits=(), words=words)
                    continue
                with timings.phase("infer"):
                    query, terms = self._asked(collection, item, asked)
            except VersoError as error:
                if error.retryable:
                    raise
                found[index] = Failed.of(error)
                continue
            scored = asked.rerank_from if asked.rerank else 0
            with timings.phase("store"):
                hits = self.hits(
                    collection,
                    query,
                    terms=terms,
                    limit=max(asked.limit, scored),
                    where=asked.filter,
                )
            ranked = [Ranked(hit, chunk) for hit, chunk in hits]
            wanted = ranked if asked.with_text else ranked[:scored]
            if wanted:
                with timings.phase("restore"):
                    self._read(collection, wanted)
            if asked.rerank:
                with timings.phase("infer"):
                    text = item.data or b""
                    ranked[:scored] = self._rerank(asked, text, ranked[:scored], job=job)
            if not asked.with_text:
                for one in ranked:
                    one.text = None
            found[index] = Hits(hits=tuple(_described(one, asked) for one in ranked[: asked.limit]))
        items: list[Hits | Failed] = work.answered(found)
        return Result(items)

    def _asked(
        self, collection: Collection, item: SearchItem, asked: SearchParams
    ) -> tuple[Vector | None, Terms | None]:
        """Return the vector of a query, its terms, or both, as the mode of the search needs."""
        mode = asked.mode or SearchMode.DENSE
        query = None if mode is SearchMode.SPARSE else self.query(collection, item)
        terms = None if mode is SearchMode.DENSE else self.lexicon.query(item.data or b"")
        if terms is not None and asked.rarity is not None:
            weights = zip(terms.ids, terms.weights, strict=True)
            terms = Terms(
                terms.ids, tuple(asked.rarity.get(str(one), 1.0) * n for one, n in weights)
            )
        return query, terms

    def _words(self, collection: Collection, item: SearchItem) -> Words:
        """Return how many chunks have each word of a query.

        Where the store does not tell it, what a word alone weighs in a chunk, beside the weight
        that is stored there, is how rare the store holds it to be (:meth:`Words.rarity`).
        """
        chunks = self.vectors.count(collection.name)
        asked = self.lexicon.query(item.data or b"").ids
        told = self.vectors.having(collection.name, asked)
        if told is not None:
            return Words(chunks=chunks, having={str(word): n for word, n in told.items()})
        having = {}
        for word in asked:
            alone = Terms((word,), (1.0,))
            hits = self.vectors.search(collection.name, None, terms=alone, limit=1, where=None)
            having[str(word)] = 0.0
            for hit in hits:
                stored = self.vectors.terms(collection.name, [hit.id]).get(hit.id, NO_TERMS)
                kept = dict(zip(stored.ids, stored.weights, strict=True)).get(word)
                if kept:
                    rarity = (hit.weight or 0.0) / kept
                    having[str(word)] = max(0.0, (chunks + 1) / math.exp(rarity) - 0.5)
        return Words(chunks=chunks, having=having)

    def _read(self, collection: Collection, ranked: Sequence[Ranked]) -> None:
        texts = self.reader.chunks(collection, [one.chunk for one in ranked])
        for one, text in zip(ranked, texts, strict=True):
            one.text = text

    def _rerank(
        self, asked: SearchParams, query: bytes, ranked: list[Ranked], *, job: str | None
    ) -> list[Ranked]:
        """Order hits by the search's score and a head's; hits that cannot be read come last."""
        texts = {n: one.text for n, one in enumerate(ranked) if isinstance(one.text, bytes)}
        readable = [ranked[n] for n in texts]
        read = self.score.best(asked.rerank or "", query, list(texts.values()), job=job)
        for one, score in zip(readable, read.tolist(), strict=True):
            one.rerank_score = score
        scores = [one.hit.score for one in readable]
        order = fusion.reranked(scores, read, share=asked.rerank_share)
        rest = [one for one in ranked if one.rerank_score is None]
        return [*(readable[n] for n in order), *rest]

    def query(self, collection: Collection, item: SearchItem) -> Vector:
        """Return an item's query vector. Shape: (dim,), unit length."""
        if item.id is not None:
            return self._stored_vector(collection, item.id, item.chunk or 0)
        if item.vector:
            return read_unit(item.data or b"", dim=collection.dim)
        engine = self.models.writing(collection).recorder.engine
        vector: Vector = engine.encode([item.data or b""]).vectors[0]
        return vector

    def _stored_vector(self, collection: Collection, document: str, chunk: int) -> Vector:
        entry = self.reader.live(collection, [document]).get(document)
        if isinstance(entry, VersoError):
            raise entry
        if entry is None or chunk >= len(entry.records):
            raise DocumentUnknown(f"no record {document!r} chunk {chunk}")
        point = point_ids(collection.name, document, entry)[chunk]
        stored = self.vectors.get(collection.name, [point]).get(point)
        if stored is None:
            raise DocumentUnknown(f"no vector for {document!r} chunk {chunk}")
        vector: Vector = Space.of(collection).widen(stored[None])[0]
        return vector

    def hits(
        self,
        collection: Collection,
        query: Vector | None,
        *,
        limit: int,
        where: Filter | None,
        terms: Terms | None = None,
    ) -> list[tuple[Hit, Chunk]]:
        """Search by a vector, by terms or both, and keep the hits whose point a live entry names.

        The store may still hold points of replaced or deleted documents, and of attempts that never
        committed. So a fifth more hits than ``limit`` are requested, then twice as many, until
        enough are live or the store has no more. All hits of a document with a damaged entry are
        kept, with that error.
        """
        fetch = limit + limit // 5 + 2
        besides = None
        if located.may_have(collection) and located.by_id(where):
            besides = list(located.points(self.reader, collection, where))
        while True:
            hits = self.vectors.search(
                collection.name, query, terms=terms, limit=fetch, where=where, besides=besides
            )
            names = located.named(self.reader, collection, {hit.id: hit.payload for hit in hits})
            live = self.reader.live(collection, [str(one.get("d")) for one in names.values()])
            kept = []
            for hit in hits:
                document, chunk = str(names[hit.id].get("d")), names[hit.id].get("n")
                entry = live.get(document)
                if entry is None or not isinstance(chunk, int):
                    continue  # no live document, or a payload that the scrub has to repair
                if isinstance(entry, VersoError):
                    kept.append((hit, Chunk(document, NO_ENTRY, chunk, entry)))
                elif (
                    0 <= chunk < len(entry.records)
                    and point_ids(collection.name, document, entry)[chunk] == hit.id
                ):
                    kept.append((hit, Chunk(document, entry, chunk)))
            if len(kept) >= limit or len(hits) < fetch:
                return kept[:limit]
            fetch *= 2


@dataclass(slots=True)
class Ranked:
    """A hit, the chunk it names, and once they are known its text and the score of a head."""

    hit: Hit
    chunk: Chunk
    text: bytes | VersoError | None = None
    rerank_score: float | None = None


def _described(one: Ranked, asked: SearchParams) -> FoundHit:
    fault = one.text if isinstance(one.text, VersoError) else one.chunk.fault
    fields = record_name(one.chunk.document, one.chunk.index) | {
        "score": one.hit.score,
        "metadata": one.hit.payload.get("m", {}),
        "time": one.hit.payload.get("t"),
    }
    if isinstance(one.text, bytes):
        fields |= text_field(one.text)
    if fault is not None:
        fields["error"] = ItemError.of(fault)
    if one.rerank_score is not None:
        fields["rerank_score"] = one.rerank_score
    if asked.explain:
        fields["explain"] = _explained(one, asked)
    return FoundHit(**fields)


def _explained(one: Ranked, asked: SearchParams) -> Explanation:
    """Return the parts of a hit's score; a part that the search did not have is not set."""
    hit, reranked = one.hit, one.rerank_score is not None
    parts = {
        "dense": hit.cosine,
        "sparse": hit.weight,
        "fused": None if hit.cosine is None or hit.weight is None else hit.score,
        "rerank_score": one.rerank_score,
        "rerank_share": asked.rerank_share if reranked else None,
        "scale": hit.scale,
    }
    return Explanation(**{name: part for name, part in parts.items() if part is not None})
