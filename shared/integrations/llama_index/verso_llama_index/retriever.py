"""A retriever of a collection's nodes, without an index."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import (
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from verso_llama_index.store import VersoVectorStore


class VersoRetriever(BaseRetriever):
    """Retrieves the nodes nearest to a query.

    Args:
        store: where they are.
        similarity_top_k: how many.
        filters: which are meant.
        mode: what is compared: default, hybrid or sparse.
    """

    def __init__(
        self,
        store: VersoVectorStore,
        *,
        similarity_top_k: int = 2,
        filters: MetadataFilters | None = None,
        mode: VectorStoreQueryMode = VectorStoreQueryMode.DEFAULT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._store = store
        self._top_k = similarity_top_k
        self._filters = filters
        self._mode = mode

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        asked = VectorStoreQuery(
            query_str=query_bundle.query_str,
            similarity_top_k=self._top_k,
            filters=self._filters,
            mode=self._mode,
        )
        found = self._store.query(asked)
        scored = zip(found.nodes or [], found.similarities or [], strict=True)
        return [NodeWithScore(node=node, score=score) for node, score in scored]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
