"""Documents nearest to a query, each once and whole: what frameworks of retrieval mean by a hit.

A search finds records, of which a long document has several. Here a document counts by its best
record, and its text is all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from verso_client.client import Client
from verso_core.errors import DocumentUnknown
from verso_core.jobs import Filter, SearchMode
from verso_core.jobs.reconstruct import StoredText

MAX_RECORDS = 1000
"""Most records of one search."""
_READ_TOGETHER = 256


class Nearest(NamedTuple):
    """A document, and the score of its best record."""

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
    asked = min(limit, MAX_RECORDS)
    while True:
        hits = client.search(
            query,
            vector=vector,
            collection=collection,
            limit=asked,
            filter=filter,
            mode=mode,
            rerank=rerank,
            with_text=False,
        ).hits
        best: dict[str, float] = {}
        for hit in hits:
            best.setdefault(hit.document, hit.score)
        if len(best) >= limit or len(hits) < asked or asked == MAX_RECORDS:
            break
        asked = min(4 * asked, MAX_RECORDS)
    found = read(client, list(best)[:limit], collection=collection)
    return [Nearest(document, best[document.id]) for document in found]


def read(client: Client, ids: Sequence[str], *, collection: str) -> list[StoredText]:
    """Return the documents of these ids that there are, in their order, each once.

    Raises:
        VersoError: one of them cannot be read.
    """
    names = list(dict.fromkeys(ids))
    found: list[StoredText] = []
    for start in range(0, len(names), _READ_TOGETHER):
        part = names[start : start + _READ_TOGETHER]
        for document in client.reconstruct(part, collection=collection):
            if document.error is None:
                found.append(document)
            elif document.error.code != DocumentUnknown.code:
                raise document.error.exception()
    return found


def readable(document: StoredText) -> str:
    """Return a document's text as a string; where its bytes are not UTF-8, with U+FFFD for some."""
    return document.data.decode("utf-8", "replace")
