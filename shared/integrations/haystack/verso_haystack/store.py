"""A collection of the platform as a document store."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from haystack import default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret

from verso_client import Client, DocumentInfo, Filter
from verso_client import Document as Text
from verso_client.exchange import DEFAULT_URL
from verso_client.nearest import delete, nearest, read, readable
from verso_core.jobs import SearchMode
from verso_core.jobs.reconstruct import StoredText
from verso_haystack.connection import KEY, Connection, loaded
from verso_haystack.dates import with_shadow, without_shadow
from verso_haystack.filters import filter_of

_PAGE = 1000
_ASKED = 256
_ALL = Filter(field="id", exists=True)
_FOREIGN = (
    "Verso makes its own vectors, because a text is rebuilt from them: the embeddings of documents "
    "are ignored"
)


class VersoDocumentStore:
    """Documents of one collection, which is there already (``verso collections create NAME``).

    Asynchronous methods run the others in a thread.

    Args:
        collection: its name.
        url: address of the gateway.
        api_key: where keys are used; deletes and updates by a filter need the scope ``admin``.
    """

    def __init__(
        self,
        collection: str = "default",
        *,
        url: str = DEFAULT_URL,
        api_key: Secret | None = KEY,
    ) -> None:
        self._collection = collection
        self._connection = Connection(url, api_key)

    @property
    def client(self) -> Client:
        """The client of the platform."""
        return self._connection.client

    def to_dict(self) -> dict[str, Any]:
        """Return the store as a saved pipeline has it."""
        return default_to_dict(self, collection=self._collection, **self._connection.saved())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the store of a saved pipeline."""
        found: Self = default_from_dict(cls, {**data, "init_parameters": loaded(data)})
        return found

    def count_documents(self) -> int:
        """Return how many documents there are."""
        return self.client.count(self._collection).documents

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return how many documents pass a filter."""
        return self.client.count(self._collection, filter=filter_of(filters)).documents

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that pass a filter, or all, by id."""
        names = [one.id for one in self._listed(filter_of(filters))]
        return [_document(one) for one in read(self.client, names, collection=self._collection)]

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Store documents and return how many; without a policy duplicates fail.

        What is there is looked up before: of two writers at once the later one wins.

        Raises:
            ValueError: a document has no text.
            DuplicateDocumentError: an id is there already, or twice.
            VersoError: a document cannot be stored; those before it are.
        """
        _check(documents)
        if policy is DuplicatePolicy.OVERWRITE:
            written = {one.id: one for one in documents}
        else:
            written = self._new(documents, fails=policy is not DuplicatePolicy.SKIP)
        if any(one.embedding or one.sparse_embedding for one in written.values()):
            warnings.warn(_FOREIGN, stacklevel=2)
        report = self.client.ingest(
            [
                Text(one.content or "", id=one.id, metadata=with_shadow(one.meta))
                for one in written.values()
            ],
            collection=self._collection,
        )
        for failed in report.failed:
            if failed.error is not None:
                raise failed.error.exception()
        return len(written)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by their ids; an id that is not there is nothing to delete."""
        delete(self.client, document_ids, collection=self._collection)

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self.client.delete_matching(_ALL, collection=self._collection)

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that pass a filter, and return how many."""
        where = filter_of(filters) or _ALL
        return self.client.delete_matching(where, collection=self._collection)

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set fields of the documents that pass a filter, and return how many.

        Raises:
            DocumentChanged: one was written meanwhile.
        """
        found = list(self._listed(filter_of(filters)))
        for one in found:
            changed = with_shadow(without_shadow(one.metadata) | meta)
            self.client.update(
                one.id,
                collection=self._collection,
                metadata=changed,
                replace=True,
                written=one.written,
            )
        return len(found)

    def nearest(
        self,
        query: str,
        *,
        filters: dict[str, Any] | None,
        top_k: int,
        mode: SearchMode | None = None,
    ) -> list[Document]:
        """Return the documents nearest to a query, with their scores, best first."""
        found = nearest(
            self.client,
            query,
            limit=top_k,
            collection=self._collection,
            filter=filter_of(filters),
            mode=mode,
        )
        return [_document(one.document, score=one.score) for one in found]

    async def count_documents_async(self) -> int:
        """Return how many documents there are."""
        return await asyncio.to_thread(self.count_documents)

    async def count_documents_by_filter_async(self, filters: dict[str, Any]) -> int:
        """Return how many documents pass a filter."""
        return await asyncio.to_thread(self.count_documents_by_filter, filters)

    async def filter_documents_async(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that pass a filter, or all, by id."""
        return await asyncio.to_thread(self.filter_documents, filters)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Store documents; see :meth:`write_documents`."""
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """Delete documents by their ids."""
        await asyncio.to_thread(self.delete_documents, document_ids)

    async def delete_all_documents_async(self) -> None:
        """Delete all documents."""
        await asyncio.to_thread(self.delete_all_documents)

    async def delete_by_filter_async(self, filters: dict[str, Any]) -> int:
        """Delete the documents that pass a filter, and return how many."""
        return await asyncio.to_thread(self.delete_by_filter, filters)

    async def update_by_filter_async(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set fields of the documents that pass a filter, and return how many."""
        return await asyncio.to_thread(self.update_by_filter, filters, meta)

    def _listed(self, where: Filter | None) -> Iterator[DocumentInfo]:
        after: str | None = None
        while True:
            page = self.client.query(self._collection, filter=where, limit=_PAGE, after=after)
            yield from page.documents
            if (after := page.next_cursor) is None:
                return

    def _new(self, documents: Sequence[Document], *, fails: bool) -> dict[str, Document]:
        """Return the documents whose ids are not there yet, each once."""
        names = list(dict.fromkeys(one.id for one in documents))
        there: set[str] = set()
        for start in range(0, len(names), _ASKED):
            part = Filter.one_of("id", names[start : start + _ASKED])
            there |= {one.id for one in self._listed(part)}
        if fails and (there or len(names) < len(documents)):
            raise DuplicateDocumentError(f"expected new ids: {sorted(there) or 'one is twice'}")
        return {one.id: one for one in reversed(documents) if one.id not in there}


def _check(documents: object) -> None:
    if not isinstance(documents, list) or not all(isinstance(one, Document) for one in documents):
        raise ValueError("expected a list of documents")
    if any(one.content is None for one in documents):
        raise ValueError("expected documents with a text: Verso stores nothing else")


def _document(stored: StoredText, *, score: float | None = None) -> Document:
    meta: Mapping[str, Any] = without_shadow(stored.metadata)
    return Document(id=stored.id, content=readable(stored), meta=dict(meta), score=score)
