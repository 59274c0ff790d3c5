"""A collection of the platform as a vector store."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from verso_client import Client, Filter
from verso_client.exchange import DEFAULT_URL
from verso_client.nearest import delete, nearest, read
from verso_core.jobs import SearchMode
from verso_llama_index.filters import filter_of
from verso_llama_index.nodes import SOURCE, document_of, node_of

_PAGE = 1000
_ASKED = 256
_FOREIGN = (
    "Verso makes its own vectors, because a text is rebuilt from them: the embeddings of nodes are "
    "ignored (an index with embed_model=NoEmbedding() makes none)"
)
_MODES = {
    VectorStoreQueryMode.DEFAULT: None,
    VectorStoreQueryMode.HYBRID: SearchMode.HYBRID,
    VectorStoreQueryMode.SPARSE: SearchMode.SPARSE,
    VectorStoreQueryMode.TEXT_SEARCH: SearchMode.SPARSE,
}


class VersoVectorStore(BasePydanticVectorStore):
    """Nodes of one collection, which is there already (``verso collections create NAME``).

    Asynchronous methods run the others in a thread. A deep copy and an unpickled store have their
    own client.

    Attributes:
        collection: its name.
        url: address of the gateway.
        api_key: sent with every request. A pickle has it; ``to_dict`` and ``to_json`` leave it out,
            and ``from_dict(saved, api_key=...)`` takes it.
        rerank: a head that orders the first hits again.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    collection: str = "default"
    url: str = DEFAULT_URL
    api_key: str | None = Field(default=None, exclude=True, repr=False)
    rerank: str | None = None

    _client: Client = PrivateAttr()

    def __init__(
        self,
        collection: str = "default",
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        rerank: str | None = None,
        stores_text: bool = True,
        is_embedding_query: bool = False,
    ) -> None:
        # from_dict passes every field that to_dict has saved, so also the last two.
        super().__init__(
            stores_text=stores_text,
            is_embedding_query=is_embedding_query,
            collection=collection,
            url=url,
            api_key=api_key,
            rerank=rerank,
        )
        self._client = Client(url, api_key=api_key)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: a client cannot be pickled."""
        return {"__dict__": dict(self.__dict__)}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> VersoVectorStore:
        """Return a store of the same collection."""
        return type(self)(**self.__dict__)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, as it is saved."""
        return "VersoVectorStore"

    @property
    def client(self) -> Client:
        """The client of the platform."""
        return self._client

    def add(self, nodes: Sequence[BaseNode], **_kwargs: Any) -> list[str]:
        """Store nodes and return their ids; one that is there already is replaced.

        Raises:
            VersoError: a node cannot be stored; those before it are.
        """
        if any(node.embedding for node in nodes):
            warnings.warn(_FOREIGN, stacklevel=2)
        report = self._client.ingest(map(document_of, nodes), collection=self.collection)
        for failed in report.failed:
            if failed.error is not None:
                raise failed.error.exception()
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        self._delete(self._ids(Filter(field=SOURCE, eq=ref_doc_id)))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_kwargs: Any,
    ) -> None:
        """Delete the nodes of these ids that pass a filter."""
        self._delete(self._chosen(node_ids, filters))

    def clear(self) -> None:
        """Delete all nodes, for which the key needs the scope ``admin``."""
        self._client.delete_matching(Filter(field="id", exists=True), collection=self.collection)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes of these ids that pass a filter, or all."""
        names = self._chosen(node_ids, filters)
        return [node_of(one) for one in read(self._client, names, collection=self.collection)]

    def query(self, query: VectorStoreQuery, **_kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes nearest to a query's text.

        Raises:
            ValueError: there is no text, or the mode is none of Verso's.
        """
        if query.query_str is None:
            raise ValueError("expected a query with its text: Verso makes its own vectors")
        if query.mode not in _MODES:
            raise ValueError(f"expected the mode default, hybrid or sparse, got {query.mode.value}")
        found = nearest(
            self._client,
            query.query_str,
            limit=query.similarity_top_k,
            collection=self.collection,
            filter=_where(query),
            mode=_MODES[query.mode],
            rerank=self.rerank,
        )
        return VectorStoreQueryResult(
            nodes=[node_of(one.document) for one in found],
            similarities=[one.score for one in found],
            ids=[one.document.id for one in found],
        )

    async def async_add(self, nodes: Sequence[BaseNode], **_kwargs: Any) -> list[str]:
        """Store nodes and return their ids."""
        return await asyncio.to_thread(self.add, nodes)

    async def adelete(self, ref_doc_id: str, **_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        await asyncio.to_thread(self.delete, ref_doc_id)

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_kwargs: Any,
    ) -> None:
        """Delete the nodes of these ids that pass a filter."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters)

    async def aclear(self) -> None:
        """Delete all nodes."""
        await asyncio.to_thread(self.clear)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes of these ids that pass a filter, or all."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **_kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes nearest to a query's text."""
        return await asyncio.to_thread(self.query, query)

    def _chosen(self, ids: list[str] | None, filters: MetadataFilters | None) -> list[str]:
        where = filter_of(filters)
        if ids is None:
            return list(self._ids(where))
        if where is None:
            return ids
        found: list[str] = []
        for start in range(0, len(ids), _ASKED):
            part = Filter.one_of("id", ids[start : start + _ASKED])
            found += self._ids(part & where)
        return found

    def _ids(self, where: Filter | None) -> Iterator[str]:
        after: str | None = None
        while True:
            page = self._client.query(self.collection, filter=where, limit=_PAGE, after=after)
            yield from (one.id for one in page.documents)
            if (after := page.next_cursor) is None:
                return

    def _delete(self, ids: Iterator[str] | list[str]) -> None:
        delete(self._client, list(ids), collection=self.collection)


def _where(query: VectorStoreQuery) -> Filter | None:
    parts = [
        filter_of(query.filters),
        # An index that knows no nodes of its own gives an empty list, and means all.
        Filter.one_of("id", query.node_ids) if query.node_ids else None,
        Filter.one_of(SOURCE, query.doc_ids) if query.doc_ids else None,
    ]
    given = [part for part in parts if part is not None]
    return Filter.model_validate({"and": given}) if given else None
