"""Documents nearest to a query, each once and whole: what frameworks of retrieval mean by a hit.

A search finds records, of which a long document has several. Here a document counts by its best
record, and its text is all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from verso_client.client import Client
from verso_core.errors import DocumentUnknown, IdInvalid
from verso_core.jobs import RERANK_SHARE, Filter, SearchMode
from verso_core.jobs.reconstruct import StoredText
from verso_core.jobs.search import Hit
from verso_core.texts import check_document_id

MAX_RECORDS = 1000
"""Most records of one search."""
_READ_TOGETHER = 256
_RERANKED = 30
"""Records that a head reads."""


class Nearest(NamedTuple):
    """A document, and the score of its best record, by which it is ordered."""

    document: StoredText
    score: float


def nearest(
    client: Client,
    query: str | None = None,
    *,
    limit: int,
    vector: Sequence[float] | None = None,
    collection: str = "default",
    filter: Filter | None = None,  # noqa: A002 - the API's own word
    mode: SearchMode | None = None,
    rerank: str | None = None,
) -> list[Nearest]:
    """Return at most ``limit`` documents, best first.

    Where a head orders again, scores are the search's and the head's, mixed: in [0, 1] of the
    records that it read, below 0 of others, which follow.

    Args:
        client: of the platform.
        query: a text; or else ``vector``, one that the platform made.
        limit: documents; of fewer than that the search has found no more among its records.
        vector: Shape: (dim,).
        collection: where they are.
        filter: which documents are meant.
        mode: what is compared.
        rerank: a head that orders the first records again.
    """
    if limit < 1:
        return []
    asked = min(limit if rerank is None else max(limit, _RERANKED), MAX_RECORDS)
    while True:
        hits = client.search(
            query,
            vector=vector,
            collection=collection,
            limit=asked,
            filter=filter,
            mode=mode,
            rerank=rerank,
            rerank_from=_RERANKED,
            with_text=False,
        ).hits
        best: dict[str, float] = {}
        for hit, score in zip(hits, _scores(hits, reranked=rerank is not None), strict=True):
            best.setdefault(hit.document, score)
        if len(best) >= limit or len(hits) < asked or asked == MAX_RECORDS:
            break
        asked = min(4 * asked, MAX_RECORDS)
    found = read(client, list(best)[:limit], collection=collection)
    return [Nearest(document, best[document.id]) for document in found]


def _scores(hits: Sequence[Hit], *, reranked: bool) -> list[float]:
    """Return what hits are ordered by, which is not the search's score where a head has read them.

    Args:
        hits: in order, those that a head has read first, and all of these.
        reranked: whether a head was asked.
    """
    if not reranked:
        return [hit.score for hit in hits]
    heads = [hit.rerank_score for hit in hits if hit.rerank_score is not None]
    searches = [hit.score for hit in hits if hit.rerank_score is not None]
    pairs = zip(_spread(searches), _spread(heads), strict=True)
    mixed = [(1 - RERANK_SHARE) * one + RERANK_SHARE * other for one, other in pairs]
    rest = len(hits) - len(mixed)
    return sorted(mixed, reverse=True) + [-(n + 1) / rest for n in range(rest)]


def _spread(values: Sequence[float]) -> list[float]:
    """Spread values over 0 to 1, as a search does before it mixes them; equal ones are 0."""
    lowest = min(values, default=0.0)
    width = max(values, default=0.0) - lowest or 1.0
    return [(value - lowest) / width for value in values]


def read(client: Client, ids: Sequence[str], *, collection: str) -> list[StoredText]:
    """Return the documents of these ids that there are, in their order, each once.

    Raises:
        VersoError: one of them cannot be read.
    """
    names = list(_possible(ids))
    found: list[StoredText] = []
    for start in range(0, len(names), _READ_TOGETHER):
        part = names[start : start + _READ_TOGETHER]
        for document in client.reconstruct(part, collection=collection):
            if document.error is None:
                found.append(document)
            elif document.error.code != DocumentUnknown.code:
                raise document.error.exception()
    return found


def delete(client: Client, ids: Iterable[str], *, collection: str) -> None:
    """Delete the documents of these ids that there are."""
    for name in _possible(ids):
        with suppress(DocumentUnknown):
            client.delete(name, collection=collection)


def _possible(ids: Iterable[str]) -> Iterator[str]:
    """Yield the ids that a document can have, each once: the others are not there."""
    for name in dict.fromkeys(ids):
        try:
            yield check_document_id(name)
        except IdInvalid:
            continue


def readable(document: StoredText) -> str:
    """Return a document's text as a string; where its bytes are not UTF-8, with U+FFFD for some."""
    return document.data.decode("utf-8", "replace")
