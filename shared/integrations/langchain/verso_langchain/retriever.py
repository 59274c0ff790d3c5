"""A retriever of a collection's documents."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor

from verso_langchain.store import VersoVectorStore


class VersoRetriever(BaseRetriever):
    """Retrieves the documents nearest to a query.

    Attributes:
        store: where they are.
        k: how many; also of one call, ``invoke(query, k=3)``.
        filter: which documents are meant, as :func:`~verso_langchain.filter_of` has it.
    """

    store: VersoVectorStore
    k: int = 4
    filter: Any = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        _ = run_manager
        return self.store.similarity_search(query, k or self.k, filter=self.filter)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=run_manager.get_sync(), k=k
        )
